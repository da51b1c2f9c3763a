#!/usr/bin/env bash
# Wrong models are answered with what is wrong in them, and with what helps.
source "$(dirname "$0")/common.sh"
refused() { cobgen check model.yaml > check.out 2>&1 && wrong "accepted: $(cat model.yaml)"; }
one() { echo "security: loopback-only"; echo "hosts: {n1: {address: \"tcp://127.77.110.1:7077\"}}"; }

printf 'security: loopback-only\nhosts:\n  münchen: {address: "tcp://127.77.110.1:7077"}\n  nа1: {address: "tcp://127.77.110.2:7077"}\n' > model.yaml
refused; says "ASCII letters" check.out; says U+00FC check.out; says U+0430 check.out
printf 'security: loopback-only\nhosts:\n\xc2\xa0 n1: {address: "tcp://127.77.110.1:7077"}\n' > model.yaml
refused; says U+00A0 check.out
{ one; echo "cobs: {n1/f: {kind: file-tree, content: {files: {/tmp/x: {content: \"docker ps --format '{{ .Names }}'\"}}}}}"; } > model.yaml
refused; says '{% raw %}' check.out
{ one; echo "variables: {all: {my-port: 80}}"; echo "cobs: {n1/a: {kind: noop}}"; } > model.yaml
refused; says my_port check.out
for mode in 420 0x1a4 0o644; do
    { one; echo "cobs: {n1/f: {kind: file-tree, content: {files: {/tmp/x: {content: '', mode: $mode}}}}}"; } > model.yaml
    refused; says '"0644"' check.out
done
{ one; kind_conf; printf 'cobs:\n  n1/a:\n    kind: conf\n    content:\n      a: &a {x: 1}\n      b: &b {x: 2}\n      c:\n        <<: *a\n        <<: *b\n'; } > model.yaml
refused; says '`<<` stands here twice' check.out
printf '#!/bin/sh\r\necho up\r\n' > dos.sh; chmod +x dos.sh
{ one; echo "kinds: {k: {states: [down, up], preferred: up, pre_remove: down, check: {run: 'echo up'}, transitions: [{from: down, to: up, run: ./dos.sh}, {from: up, to: down, run: 'true'}]}}"; echo "cobs: {n1/a: {kind: k}}"; } > model.yaml
refused; says "line ends" check.out

{ one; echo "cobs: {n1/a: {kind: noop}}"; } > model.yaml; generate
printf 'host = "n1"\ndepot = "depot"\nstate_dir = "s8"\nhttp = "n8.sock"\nlisten = "tcp://192.0.2.55:7077"\n' > n8.toml
timeout 20 cobd run --config n8.toml > n8.log 2>&1
[ $? != 124 ] || wrong "cobd runs with an address that this machine does not have"
lacks "another daemon running there" n8.log
says "192.0.2.55" n8.log
