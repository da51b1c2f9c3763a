#!/usr/bin/env bash
# systemd reads /etc/fstab again after the daemon has changed it.
source "$(dirname "$0")/common.sh"
with_options() { put <<< "  h1/m: {kind: mount, content: {path: /srv/ccm, source: tmpfs, type: tmpfs, options: [$1]}}"; go; }
printf '[Unit]\nRequiresMountsFor=/srv/ccm\n[Service]\nExecStart=/bin/sleep infinity\n' > /run/systemd/system/ccneeds.service
with_options size=1m,ro; systemctl daemon-reload; with_options size=1m
same "NeedDaemonReload=no" "$(systemctl show srv-ccm.mount -p NeedDaemonReload)" "systemd"
gone
systemctl start ccneeds 2>/dev/null
same "" "$(findmnt -n /srv/ccm)" "the mount that has left, after a service that needs its path was started"
systemctl stop ccneeds; rm -f /run/systemd/system/ccneeds.service; systemctl daemon-reload
