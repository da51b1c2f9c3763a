#!/usr/bin/env bash
# Truth values are `true` and `false` in every text; texts that are not rendered are warned of; comments are no text.
source "$(dirname "$0")/common.sh"
cat > model.yaml <<'YAML'
security: loopback-only
hosts:
  n1: {address: "tcp://127.77.107.1:7077", vars: {tls: true, nil: ~, port: 80, url: "http://{{ host.ip }}:{{ port }}/"}}
variables: {all: {base: "{{ host.name }}.example"}}
kinds:
  k:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "echo up"}
    transitions: [{from: down, to: up, run: "echo listening on {{ port }}"}, {from: up, to: down, run: "true"}]
cobs:
  n1/k: {kind: k, content: {whole: "{{ tls }}", text: "tls = {{ tls }}", x: "x={{ nil }}", comment: "{# a comment #}text"}}
  n1/s: {kind: service, content: {start: "exec sleep 1d", env: {A: "{{ tls }}", B: "tls={{ tls }}"}}}
YAML
cobgen check model.yaml > check.out 2>&1 || wrong "refused: $(cat check.out)"
same 3 "$(grep -c '^warning: .*template' check.out)" "warnings about texts that are not rendered"
cobgen show model.yaml > show.out 2>&1
for words in '"text":"tls = true"' '"x":"x=null"' '"comment":"text"' '"B":"tls=true"'; do says "$words" show.out; done
