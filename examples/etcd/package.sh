#!/bin/sh
# package.sh FROM INTO: of the programs etcd and etcdctl in the folder FROM, as their makers give them out, makes a
# package for dpkg, and of INTO a repository that has it.
set -eu
from=$1
into=$2

version=$("$from/etcd" --version | sed -n 's/^etcd Version: *//p')
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/DEBIAN" "$tree/opt/etcd" "$into"
chmod 755 "$tree"
cp "$from/etcd" "$from/etcdctl" "$tree/opt/etcd"
chmod 755 "$tree"/opt/etcd/*
cat > "$tree/DEBIAN/control" <<CONTROL
Package: etcd
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: ${MAINTAINER:-nobody <nobody@example.org>}
Description: a store of keys and values for several hosts
CONTROL
deb=etcd_$version.deb
dpkg-deb --build --root-owner-group -Zgzip -z1 "$tree" "$into/$deb" >&2
{
    dpkg-deb --field "$into/$deb"
    echo "Filename: ./$deb"
    echo "Size: $(wc -c < "$into/$deb")"
    echo "SHA256: $(sha256sum < "$into/$deb" | cut -d ' ' -f 1)"
} > "$into/Packages"
