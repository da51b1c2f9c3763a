#!/usr/bin/env bash
# An operator restores an older copy of the depot and generates again: one number now has two contents.
source "$(dirname "$0")/common.sh"
model() { hosts 102 2; kind_conf; echo "cobs: {n1/a: {kind: conf, content: {v: $1}}, n2/b: {kind: conf, content: {v: $1}}}"; }
model one > model.yaml; generate; start n1 n2; converge
git clone -q --mirror depot mirror
model two > model.yaml; generate; converge
mv depot lost; mv mirror depot
# No host can be asked here, as on an operator's machine without a network: the number is given out again.
end TERM n1 n2
model mended > model.yaml; generate
start n1 n2
switch
[ $status != 0 ] || wrong "the switch to the other generation 2 is reported as a success"
cobctl status > status.out 2>&1 && wrong "status reports success"
says "another generation 2 (manifest " status.out
# As the messages say: publish until the number is above all that hosts have.
model mended2 > model.yaml; generate
converge
says mended2 n1/state/cobs/n1+a/c
says mended2 n2/state/cobs/n2+b/c
