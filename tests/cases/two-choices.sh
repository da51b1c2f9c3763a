#!/usr/bin/env bash
# `@up|down`: the second choice always serves, so there is no circle.
source "$(dirname "$0")/common.sh"
{ hosts 112 2; cat <<'YAML'
cobs:
  n1/server: {kind: service, transitions: [{from: outdated, to: down, needs: ["n2/server@up|down"]}], content: {start: "exec sleep 1d"}}
  n1/ready: {kind: noop, requires: [server]}
  n2/data: {kind: noop, after: [n1/ready]}
  n2/server: {kind: service, requires: [data], content: {start: "exec sleep 1d"}}
YAML
} > model.yaml
cobgen check model.yaml > check.out 2>&1 || { wrong "refused:"; cat check.out >&2; }
