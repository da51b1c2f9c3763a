#!/bin/sh
# generate.sh NODES [COBGEN] - the time and memory from a layout to a generation.
#
# Writes a model of one template with ten services of five `noop` change objects each, which need each
# other in a chain on every node, for NODES nodes; then checks it and makes its generation in a new
# depot, each as a process of its own. Then a tenth of the change objects, on every node, is of another kind, and the
# switch to that generation is planned, in which nothing moves, and the switch back, in which that tenth does. Beside
# the time that passes stands that of the processors, which says more where others use them too.
# COBGEN: the program, by default the dist build.
set -eu

nodes=${1:?usage: generate.sh NODES [COBGEN]}
cobgen=${2:-target/dist/cobgen}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# model KIND: the change objects of the last service are of this kind.
model() {
    cat <<EOF
security: loopback-only
clusters:
  big:
    template: big
    nodes: $nodes
    address: "tcp://127.{{ index // 62500 + 1 }}.{{ index // 250 % 250 + 2 }}.{{ index % 250 + 1 }}:7190"
templates:
  big:
    defaults:
      services: [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9]
      provider: lab
      imagetype: debian
providers:
  lab: {type: metal}
hardwaretypes:
  medium: {providers: {lab: {memory: 16G}}}
imagetypes:
  debian: {providers: {lab: {image: debian-13}}}
services:
EOF
    before=
    for service in 0 1 2 3 4 5 6 7 8 9; do
        kind=noop
        [ $service != 9 ] || kind=$1
        printf '  s%s:\n    cobs:\n' $service
        for cob in 0 1 2 3 4; do
            printf '      c%s:\n        kind: %s\n' $cob $kind
            [ $kind = noop ] || printf '        content: {ms: 1}\n'
            [ -z "$before" ] || printf '        requires: [%s]\n' "$before"
            before="c$cob"
        done
        before="{cob: s$service/c4, on: same-node}"
    done
}
model noop >"$work/model.yaml"

timed() {
    name=$1
    shift
    /usr/bin/time -f "$name: %e s (%U s + %S s), %M KiB" "$@" >"$work/out" || { cat "$work/out"; exit 1; }
}
timed "$nodes nodes x 50, check" "$cobgen" check "$work/model.yaml"
timed "$nodes nodes x 50, generate" "$cobgen" generate "$work/model.yaml" --depot "$work/depot"
timed "$nodes nodes x 50, generate again" "$cobgen" generate "$work/model.yaml" --depot "$work/depot"
model wait >"$work/model.yaml"
timed "$nodes nodes x 50, generate, a tenth changed" "$cobgen" generate "$work/model.yaml" --depot "$work/depot"
timed "$nodes nodes x 50, plan of that" "$cobgen" plan --from 1 --to 2 --depot "$work/depot" --json
timed "$nodes nodes x 50, plan of the way back" "$cobgen" plan --from 2 --to 1 --depot "$work/depot" --json
