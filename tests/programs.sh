#!/usr/bin/env bash
# Prints a folder with programs that tests need; fails if there is none.
#
#   tests/programs.sh etcd     etcd and etcdctl; COB_ETCD names a folder with both
#   tests/programs.sh acme     pebble, an ACME server, with its DNS server, and lego, a client; COB_ACME names a folder
#
# Otherwise they are the programs of this machine; otherwise they come out of Debian's packages, into the target folder.
# The packages are not installed: an installed package starts its service, and its unit and its data would be on each
# host of the bed.
set -euo pipefail
case ${1:-} in
etcd) named=${COB_ETCD:-} programs="etcd etcdctl" packages="etcd-server etcd-client" ;;
acme) named=${COB_ACME:-} programs="pebble pebble-challtestsrv lego" packages="pebble lego" ;;
*) echo "usage: $0 etcd|acme" >&2; exit 2 ;;
esac
kept=$(realpath -m "$(dirname "$0")/../${CARGO_TARGET_DIR:-target}")/$1

has_all() { # FOLDER
    local program
    for program in $programs; do
        [ -x "$1/$program" ] || return 1
    done
}
for folder in "$named" "$kept/usr/bin" "$(dirname "$(command -v "${programs%% *}" || echo /nowhere/program)")"; do
    if has_all "$folder"; then
        echo "$folder"
        exit
    fi
done
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || exit 1
mkdir -p "$kept"
cd "$kept"
# A new machine may have no list of packages yet.
# shellcheck disable=SC2086 # the names of packages
fetch() { timeout 120 apt-get -qq download $packages >&2; }
fetch || { [ "$(id -u)" = 0 ] && apt-get -qq update >&2 && fetch; } || exit 1
for package in ./*.deb; do
    dpkg-deb -x "$package" .
done
has_all "$kept/usr/bin" && echo "$kept/usr/bin"
