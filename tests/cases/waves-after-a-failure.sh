#!/usr/bin/env bash
# Waves of one host: the first host fails. The same command, given again, must not go on with the other hosts.
source "$(dirname "$0")/common.sh"
model() { hosts 104 3; kind_conf; echo "variables: {host: {n1: {w: $2}, n2: {w: ok}, n3: {w: ok}}}
services: {web: {cobs: {c: {kind: conf, content: {v: $1, w: '{{ w }}'}}}}}
clusters: {c: {services: {web: [n1, n2, n3]}}}"; }
model good ok > model.yaml; generate; start n1 n2 n3; converge
model better BAD > model.yaml; generate
for form in "--limit-hosts=1" "--canary=n1"; do
    for attempt in first second; do
        switch latest 20s "$form"
        [ $status != 0 ] || wrong "$form, $attempt attempt: reported as a success"
        for n in 2 3; do
            lacks better "n$n/state/cobs/n$n+web+c/c"
        done
    done
done
