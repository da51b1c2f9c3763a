# Sourced by every case that changes the host it runs on: root, systemd and Debian are needed, and the host is thrown away.
source "$(dirname "$0")/../common.sh"
[ "$(id -u)" = 0 ] && [ -d /run/systemd/system ] || { echo "skipped: needs root and systemd"; exit 0; }
repository=$work/repository

# put: the next generation has these change objects, read from standard input. What `cobgen` says is in generate.out.
put() {
    { echo 'security: loopback-only'; echo 'hosts: {h1: {address: "tcp://127.0.0.1:7399"}}'; echo 'cobs:'; cat; } > model.yaml
    accepted=yes
    cobgen generate model.yaml --depot depot > generate.out 2>&1 || accepted=no
}
# go: the host has it, or the case ends.
go() { [ $accepted = yes ] || { cat generate.out >&2; exit 2; }; converge latest "${1:-60s}"; }
gone() { put <<< '  h1/nothing: {kind: noop}'; switch latest "${1:-60s}"; }

# package NAME VERSION [FIELDS [ARCHITECTURE]]: a package in a repository of the case's own.
package() {
    local build
    build=$(mktemp -d)
    mkdir -p "$build/DEBIAN" "$build/usr/share/$1" "$repository"
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: t <t@example.org>\n%bDescription: test\n' \
        "$1" "$2" "${4:-all}" "${3:-}" > "$build/DEBIAN/control"
    echo "$2" > "$build/usr/share/$1/version"
    dpkg-deb --root-owner-group -b "$build" "$repository/$1_$2_${4:-all}.deb" > /dev/null
    rm -rf "$build"
    (cd "$repository" && dpkg-scanpackages -m . > Packages 2>/dev/null)
}
installed() { dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^[ih]i'; }

put <<< '  h1/nothing: {kind: noop}'
start h1
converge
