#!/usr/bin/env bash
# A restore of a unit that has left does not touch the one that came after it.
source "$(dirname "$0")/common.sh"
unit=/run/systemd/system/ccu.service
printf '[Service]\nExecStartPre=/bin/sh -c "! test -e /run/ccu-cannot"\nExecStart=/bin/sleep 1111\n' > $unit
rm -f /run/ccu-cannot; systemctl daemon-reload; systemctl start ccu
model() { put <<< '  h1/u: {kind: service, content: {unit: ccu.service, unit_file: "[Service]\nExecStart=/bin/sleep 2222\n"}}'; }
model; go
touch /run/ccu-cannot            # what ran before can't be started again
gone 10s
model; go
before=$(systemctl show -P MainPID ccu)
# The restore that was left over tried again after 2, 4 and 8 s.
limit=$((SECONDS + 16))
while [ $SECONDS -lt $limit ]; do
    [ "$(systemctl show -P MainPID ccu)" = "$before" ] || { wrong "the service was restarted"; break; }
    sleep 0.2
done
rm -f /run/ccu-cannot
gone; systemctl stop ccu; rm -f $unit; systemctl daemon-reload
