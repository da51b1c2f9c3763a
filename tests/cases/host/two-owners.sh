#!/usr/bin/env bash
# Two change objects of different kinds that own one file are an error of cobgen.
source "$(dirname "$0")/common.sh"
printf '[Service]\nExecStart=/bin/sleep infinity\n' > /run/systemd/system/ccw.service; systemctl daemon-reload
refused() { same no $accepted "$1"; says "h1/a" generate.out; says "h1/b" generate.out; }
put <<'YAML'
  h1/a: {kind: service, content: {unit: ccw.service, drop_ins: {a.conf: "[Service]\nNice=1\n"}}}
  h1/b: {kind: file-tree, content: {files: {/etc/systemd/system/ccw.service.d/a.conf: {content: "[Service]\nNice=2\n"}}}}
YAML
refused "a drop-in of a service and of a file-tree"
put <<'YAML'
  h1/a: {kind: host-entry, content: {address: 10.0.0.1, names: [ccdb]}}
  h1/b: {kind: file-tree, content: {files: {/etc/hosts: {content: "127.0.0.1 localhost\n"}}}}
YAML
refused "an entry of /etc/hosts and the whole file"
put <<'YAML'
  h1/a: {kind: cron, content: {name: ccjob, schedule: "@daily", command: "true"}}
  h1/b: {kind: file-tree, content: {files: {/etc/cron.d/ccjob: {content: "x\n"}}}}
YAML
refused "a cron job and its file"
put <<'YAML'
  h1/a: {kind: package, content: {name: hello}}
  h1/b: {kind: package, content: {name: "hello:amd64"}}
YAML
refused "one package with and without its architecture"
gone; rm -f /run/systemd/system/ccw.service; systemctl daemon-reload
