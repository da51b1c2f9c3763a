#!/usr/bin/env bash
# Lines that others append to /etc/hosts while the daemon writes it stay.
source "$(dirname "$0")/common.sh"
cp -p /etc/hosts hosts.before
for i in {1..40}; do echo "  h1/e$i: {kind: host-entry, content: {address: 10.1.0.$i, names: [ccn$i]}}"; done > entries
(for k in {1..1000}; do echo "10.9.$((k / 250)).$((k % 250)) ccother$k" >> /etc/hosts; sleep 0.005; done) &
writer=$!
for round in 1 2 3; do put < entries; go; gone; done
wait $writer
same 1000 "$(grep -c ccother /etc/hosts)" "lines that another program appended"
printf '127.0.0.1 localhost\r\n10.0.0.9 last\r' > /etc/hosts
cp -p /etc/hosts windows
put <<< '  h1/e: {kind: host-entry, content: {address: 10.1.0.1, names: [ccn]}}'; go; gone
cmp windows /etc/hosts || wrong "line ends of others are not given back"
cat hosts.before > /etc/hosts
