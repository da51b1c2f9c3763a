#!/usr/bin/env bash
# `preferred: absent` of a user that exists: the status does not say that it is absent.
source "$(dirname "$0")/common.sh"
useradd -M ccpi
put <<< '  h1/u: {kind: user, preferred: absent, content: {name: ccpi}}'
if [ $accepted = yes ]; then
    switch
    cobctl status > status.out 2>&1
    ! grep -q '✓ h1/u  *absent' status.out || ! getent passwd ccpi > /dev/null || { wrong "absent with a tick, and the account is there:"; cat status.out >&2; }
fi
gone
userdel ccpi 2>/dev/null
