#!/usr/bin/env bash
# A managed timer runs what the model says, once the switch has ended.
source "$(dirname "$0")/common.sh"
model() { put <<YAML
  h1/job: {kind: file-tree, content: {files: {/etc/systemd/system/ccjob.service: {content: "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo $1 > /tmp/ccjob'\n"}}}}
  h1/timer: {kind: service, requires: [job], content: {unit: ccjob.timer, enabled: true, unit_file: "[Timer]\nOnCalendar=*-*-* 03:00:00\n[Install]\nWantedBy=timers.target\n"}}
YAML
}
model one; go; model two; go
systemctl start ccjob.service 2>/dev/null
same two "$(cat /tmp/ccjob)" "what the job does"
gone; rm -f /tmp/ccjob
