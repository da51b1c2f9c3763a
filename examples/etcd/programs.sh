#!/bin/sh
# programs.sh check|install|remove FROM INTO: etcd and etcdctl, copied from one folder into another.
set -eu
from=$2
into=$3

case $1 in
check)
    there=0 same=0
    for program in etcd etcdctl; do
        [ ! -e "$into/$program" ] || there=$((there + 1))
        ! cmp -s "$from/$program" "$into/$program" || same=$((same + 1))
    done
    if [ $same = 2 ]; then echo up; elif [ $there = 0 ]; then echo down; else echo outdated; fi
    ;;
install)
    for program in etcd etcdctl; do
        # Beside its place first: who is killed here leaves the old one, or the new one.
        cp "$from/$program" "$into/.$program.new"
        chmod 755 "$into/.$program.new"
        mv "$into/.$program.new" "$into/$program"
    done
    ;;
remove) rm -f "$into/etcd" "$into/etcdctl" "$into/.etcd.new" "$into/.etcdctl.new" ;;
esac
