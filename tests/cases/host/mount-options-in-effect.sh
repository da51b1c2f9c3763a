#!/usr/bin/env bash
# Options that a remount ignores are in effect, or the transition fails and says why.
source "$(dirname "$0")/common.sh"
put <<< '  h1/m: {kind: mount, content: {path: /srv/ccm, source: tmpfs, type: tmpfs, options: [size=1m]}}'; go
put <<< '  h1/m: {kind: mount, content: {path: /srv/ccm, source: tmpfs, type: tmpfs, options: [size=1m, mode=0700, uid=1]}}'
switch latest 60s
[ "$(stat -c '%a %u' /srv/ccm)" = "700 1" ] || [ $status != 0 ] || wrong "present, and the folder has $(stat -c '%a %u' /srv/ccm)"
gone
same "" "$(findmnt -n /srv/ccm)" "the mount that has left"
