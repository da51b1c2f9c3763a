#!/usr/bin/env bash
# A variable of a label has a default for the other hosts.
source "$(dirname "$0")/common.sh"
model() { cat <<YAML
security: loopback-only
hosts:
  n1: {address: "tcp://127.77.106.1:7077", labels: {role: db}}
  n2: {address: "tcp://127.77.106.2:7077", labels: {role: app}}
variables:
  label: {role=db: {port: 5432}}
services:
  s: {cobs: {c: {kind: service, content: {start: "exec sleep 1d", env: {PORT: "$1"}}}}}
clusters: {c: {services: {s: [n1, n2]}}}
YAML
}
for text in '{{ port | default(80) }}' '{% if port is defined %}{{ port }}{% else %}80{% endif %}'; do
    model "$text" > model.yaml
    cobgen show model.yaml > show.out 2>&1 || wrong "refused: $text: $(cat show.out)"
    grep -A4 '^n1/s/c' show.out | grep -q '"PORT":"5432"' || wrong "n1 has not its own port with $text"
    grep -A4 '^n2/s/c' show.out | grep -q '"PORT":"80"' || wrong "n2 has not the default with $text"
done
