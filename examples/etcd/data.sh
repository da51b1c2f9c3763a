#!/bin/sh
# data.sh check|make|remove: what etcd stores, where systemd keeps it for a unit without a user of its own.
set -eu
place=/var/lib/private/etcd

case $1 in
check) if [ -d $place ]; then echo up; else echo down; fi ;;
make) mkdir -p -m 0700 /var/lib/private $place ;;
remove)
    rm -rf $place
    # systemd's link to it.
    rm -f /var/lib/etcd
    ;;
esac
