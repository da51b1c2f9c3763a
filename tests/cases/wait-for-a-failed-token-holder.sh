#!/usr/bin/env bash
# One of two services with one budget fails. `switch --wait` ends as soon as nothing more can happen.
source "$(dirname "$0")/common.sh"
model() { hosts 105 1; echo "budgets: {b: {at_most: 1}}
cobs: {n1/a: {kind: service, budget: b, content: {start: '$1'}}, n1/z: {kind: service, budget: b, content: {start: '$1'}}}"; }
model "exit 3" > model.yaml; generate; start n1
began=$SECONDS
switch latest 10m
[ $status != 0 ] || wrong "the switch is reported as a success"
[ $((SECONDS - began)) -lt 120 ] || wrong "the switch waited $((SECONDS - began)) s for nothing"
lacks "rollback" switch.out
