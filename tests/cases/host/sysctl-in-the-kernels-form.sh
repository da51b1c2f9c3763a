#!/usr/bin/env bash
# The kernel shows a value in its own form; a value of a wrong type is an error of cobgen.
source "$(dirname "$0")/common.sh"
mount --bind /proc/sys/net /proc/sys/net 2>/dev/null && mount -o remount,bind,rw /proc/sys/net 2>/dev/null
put <<< '  h1/y: {kind: sysctl, content: {key: net.ipv4.ip_local_reserved_ports, value: "8080,8081,8082"}}'
switch latest 60s
[ $status = 0 ] || grep -q 8080-8082 switch.out || { wrong "the reason does not name the value that the kernel shows:"; cat switch.out >&2; }
gone
put <<< '  h1/y: {kind: sysctl, content: {key: net.ipv4.conf.lo.forwarding, value: true}}'
same no $accepted "whether cobgen accepts a truth value"
says model.yaml generate.out
lacks untagged generate.out
gone
