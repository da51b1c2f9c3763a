#!/usr/bin/env bash
# A host whose daemon was restarted before loses its state folder. It has to converge, with few messages.
source "$(dirname "$0")/common.sh"
model() { hosts 101 2; kind_conf; echo "cobs: {n1/a: {kind: conf, content: {v: $1}}, n2/b: {kind: conf, content: {v: $1}, requires: [n1/a]}}"; }
model one > model.yaml; generate; start n1 n2; converge
end TERM n2; start n2
model two > model.yaml; generate; converge
end KILL n2; rm -rf n2/state; start n2
switch latest 20s
same 0 $status "exit status of the switch"
sent() { curl -s --unix-socket n2.sock http://localhost/v1/status | grep -o '"sent":[0-9]*' | head -1 | cut -d: -f2; }
before=$(sent)
cobctl check > check.out 2>&1
after=$(sent)
[ $((after - before)) -lt 1000 ] || wrong "$((after - before)) messages during one check of a cluster at rest"
requests=$(cobctl history n2/b --all -n 100000 2>/dev/null | grep -c request)
[ "$requests" -lt 200 ] || wrong "$requests requests in the history"
