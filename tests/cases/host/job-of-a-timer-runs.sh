#!/usr/bin/env bash
# A job that its timer has started is not a failure of the host.
source "$(dirname "$0")/common.sh"
put <<'YAML'
  h1/job: {kind: service, preferred: down, content: {unit: ccjob.service, unit_file: "[Service]\nType=oneshot\nExecStart=/bin/sleep 20\n"}}
  h1/timer: {kind: service, content: {unit: ccjob.timer, enabled: true, unit_file: "[Timer]\nOnActiveSec=1s\nAccuracySec=100ms\n[Install]\nWantedBy=timers.target\n"}}
YAML
go
running() { [ "$(systemctl is-active ccjob.service)" = activating ]; }
soon running
while running; do
    cobctl check > /dev/null 2>&1
    cobctl status > status.out 2>&1 || { running && { wrong "the host counts as failed while the job runs:"; cat status.out >&2; }; break; }
    sleep 0.5
done
gone
