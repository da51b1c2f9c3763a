#!/usr/bin/env bash
# A tcp-check that still waits for the old address goes on with the new one as soon as a switch changes it.
source "$(dirname "$0")/common.sh"
model() { hosts 111 1; echo "cobs: {n1/gate: {kind: tcp-check, content: {address: '$1', timeout: 10m}}}"; }
model 127.77.111.1:7975 > model.yaml; generate; start n1
switch latest 3s
[ $status != 0 ] || wrong "the gate opened without a server"
# The daemon's own port answers.
model 127.77.111.1:7077 > model.yaml; generate
switch latest 30s
same 0 $status "exit status of the switch to an address that answers"
