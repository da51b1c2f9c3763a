#!/usr/bin/env bash
# What can't be restored of a stopped unit fails the switch.
source "$(dirname "$0")/common.sh"
printf '[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n' > /etc/systemd/system/ccp.service
systemctl daemon-reload; systemctl -q enable ccp
put <<< '  h1/s: {kind: service, preferred: down, content: {unit: ccp.service, enabled: false}}'; go
mkdir -p /etc/systemd/system/multi-user.target.wants
# A mount over the folder keeps everything from being written there, also for root.
mount -t tmpfs -o ro,size=4k none /etc/systemd/system/multi-user.target.wants
gone 15s
[ $status != 0 ] || wrong "the switch ended well, and the unit is $(systemctl is-enabled ccp)"
umount /etc/systemd/system/multi-user.target.wants
cobctl retry --all > /dev/null 2>&1
soon systemctl -q is-enabled ccp
soon cobctl status
systemctl -q disable ccp; rm -f /etc/systemd/system/ccp.service; systemctl daemon-reload
