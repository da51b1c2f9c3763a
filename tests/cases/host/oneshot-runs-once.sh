#!/usr/bin/env bash
# A oneshot unit without RemainAfterExit can't be up: it runs at most once.
source "$(dirname "$0")/common.sh"
printf '[Service]\nType=oneshot\nExecStart=/bin/sh -c "echo ran >> /tmp/ccone"\n' > /run/systemd/system/ccone.service
systemctl daemon-reload; rm -f /tmp/ccone; touch /tmp/ccone
put <<< '  h1/s: {kind: service, content: {unit: ccone.service}}'
[ $accepted = no ] || switch
runs=$(wc -l < /tmp/ccone)
[ "$runs" -le 1 ] || wrong "a job that ended well ran $runs times"
gone; rm -f /run/systemd/system/ccone.service /tmp/ccone; systemctl daemon-reload
