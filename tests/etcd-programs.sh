#!/usr/bin/env bash
# Prints a folder with the programs etcd and etcdctl; fails if there is none.
#
# COB_ETCD names a folder with both. Otherwise they are the programs of this machine; otherwise they come out of Debian's
# packages, into the target folder. The packages are not installed: an installed package starts its service, and its
# unit and its data would be on each host of the bed.
set -euo pipefail
kept=$(realpath -m "$(dirname "$0")/../${CARGO_TARGET_DIR:-target}")/etcd

for folder in "${COB_ETCD:-}" "$kept/usr/bin" "$(dirname "$(command -v etcd || echo /nowhere/etcd)")"; do
    if [ -x "$folder/etcd" ] && [ -x "$folder/etcdctl" ]; then
        echo "$folder"
        exit
    fi
done
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || exit 1
mkdir -p "$kept"
cd "$kept"
# A new machine may have no list of packages yet.
fetch() { timeout 120 apt-get -qq download etcd-server etcd-client >&2; }
fetch || { [ "$(id -u)" = 0 ] && apt-get -qq update >&2 && fetch; } || exit 1
for package in ./*.deb; do
    dpkg-deb -x "$package" .
done
echo "$kept/usr/bin"
