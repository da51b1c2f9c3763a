#!/usr/bin/env bash
# A content that can't be applied is rolled out under a budget of one: the rollout stops at the first failure.
source "$(dirname "$0")/common.sh"
model() { hosts 103 3; kind_conf; echo "budgets: {web: {at_most: 1}}
services: {web: {cobs: {c: {kind: conf, budget: web, content: {v: $1}}}}}
clusters: {c: {services: {web: [n1, n2, n3]}}}"; }
model good > model.yaml; generate; start n1 n2 n3; converge
model BAD > model.yaml; generate; switch latest 20s
[ $status != 0 ] || wrong "the switch is reported as a success"
cobctl status --json > status.json 2>/dev/null
failures=$(for n in 1 2 3; do cobctl history "n$n/web/c" 2>/dev/null | grep -c 'fail'; done | grep -vc '^0$')
same 1 "$failures" "hosts on which the content was tried"
