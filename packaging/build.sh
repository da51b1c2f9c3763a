#!/usr/bin/env bash
# Makes what is installed on a host, from one list: the assets in cobd/Cargo.toml.
#
#   packaging/build.sh deb FOLDER     a Debian package in FOLDER (needs cargo-deb and dpkg-dev)
#   packaging/build.sh stage FOLDER   the same files below FOLDER, as they would lie below /
#
# COB_PROFILE=dev takes programs that are quick to build instead of those of the profile `dist`; anything else is
# told to cargo by CARGO_BUILD_FLAGS. COB_BUILT=1 takes what is built already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=${COB_PROFILE:-dist}
target=${CARGO_TARGET_DIR:-target}
built=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")

build() {
    if [ -n "${COB_BUILT:-}" ]; then
        :
    elif [ "$profile" = dist ] && [ -z "${CARGO_TARGET_DIR:-}${CARGO_BUILD_FLAGS:-}" ]; then
        # What is shipped can be built again, byte for byte.
        packaging/reproducible.sh 1>&2
    else
        # shellcheck disable=SC2086 # several flags
        cargo build --locked --profile "$profile" -p cobd -p cobgen -p cobctl --bins ${CARGO_BUILD_FLAGS:-} 1>&2
    fi
    # The list names it there.
    local made=target/packaging
    rm -rf "$made"
    mkdir -p "$made"/man "$made"/completions/{bash,zsh,fish}
    "$built/cobctl" man "$made/man"
    local program
    for program in cobctl cobgen cobd; do
        "$built/cobctl" completions bash "$program" > "$made/completions/bash/$program"
        "$built/cobctl" completions zsh "$program" > "$made/completions/zsh/_$program"
        "$built/cobctl" completions fish "$program" > "$made/completions/fish/$program.fish"
    done
}

make_deb() {
    mkdir -p "$1"
    cargo deb --package cobd --no-build --profile "$profile" --output "$1/"
}

stage() {
    local into=$1 source place mode
    sed -n '/^assets = \[/,/^\]/p' cobd/Cargo.toml | sed -nE 's/^ *\["([^"]+)", "([^"]+)", "([^"]+)"\],?$/\1 \2 \3/p' |
        while read -r source place mode; do
            case $source in
            target/release/*) source=$built/${source#target/release/} ;;
            ../*) source=${source#../} ;;
            *) source=cobd/$source ;;
            esac
            # shellcheck disable=SC2086 # a pattern
            install -D -m "$mode" -t "$into/$place" $source
        done
    install -D -m 644 -t "$into/usr/lib/systemd/system" packaging/cobd.service
}

case ${1:-} in
deb | stage)
    : "${2:?where to?}"
    build
    if [ "$1" = deb ]; then make_deb "$2"; else stage "$2"; fi
    ;;
*)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
