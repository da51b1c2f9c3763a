#!/bin/sh
# data.sh check|make|remove FOLDER: what etcd stores, where systemd keeps it for a unit without a user of its
# own: below private/, with a link to it.
set -eu
place=$2/private/etcd

case $1 in
check) if [ -d "$place" ]; then echo up; else echo down; fi ;;
make) mkdir -p -m 0700 "$2/private" "$place" ;;
remove)
    rm -rf "$place"
    rm -f "$2/etcd"
    ;;
esac
