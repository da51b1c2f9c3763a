#!/usr/bin/env bash
# Makes what is installed on a host, from one list: the assets in cobd/Cargo.toml.
#
#   packaging/build.sh deb FOLDER     a Debian package in FOLDER (needs cargo-deb and dpkg-dev)
#   packaging/build.sh rpm FOLDER     an rpm package in FOLDER (needs rpmbuild: package `rpm` or `rpm-build`)
#   packaging/build.sh stage FOLDER   the same files below FOLDER, as they would lie below /
#   packaging/build.sh static FOLDER [x86_64|aarch64]
#                                     the daemon alone, for every Linux: FOLDER/cobd-VERSION-PROCESSOR; without a
#                                     processor that of this machine (needs cargo-zigbuild, zig and the musl target of Rust:
#                                     pip install cargo-zigbuild ziglang; rustup target add PROCESSOR-unknown-linux-musl)
#
# COB_PROFILE=dev takes programs that are quick to build instead of those of the profile `dist`; anything else is
# told to cargo by CARGO_BUILD_FLAGS. COB_BUILT=1 takes what is built already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=${COB_PROFILE:-dist}
target=${CARGO_TARGET_DIR:-target}
profile_folder=$([ "$profile" = dev ] && echo debug || echo "$profile")
built=$target/$profile_folder
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

build() {
    if [ -n "${COB_BUILT:-}" ]; then
        :
    elif [ "$profile" = dist ] && [ -z "${CARGO_TARGET_DIR:-}${CARGO_BUILD_FLAGS:-}" ]; then
        # What is shipped can be built again, byte for byte.
        packaging/reproducible.sh 1>&2
    else
        # shellcheck disable=SC2086 # several flags
        cargo build --locked --profile "$profile" -p cobd -p cobgen -p cobctl-program -p cobhub --bins ${CARGO_BUILD_FLAGS:-} 1>&2
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

make_rpm() {
    local tree source_date payload=w9.gzdio
    [ "$profile" != dev ] || payload=w1.gzdio
    command -v rpmbuild >/dev/null || { echo "rpmbuild is missing: apt install rpm, or dnf install rpm-build" >&2; exit 1; }
    mkdir -p "$1"
    # The traps run when the script ends, where a local variable is gone.
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    tree=$work/tree
    stage "$tree"
    # As cargo-deb does.
    strip --strip-unneeded "$tree"/usr/bin/*
    gzip -9n "$tree"/usr/share/man/man1/*
    # Completions of zsh lie elsewhere outside of Debian. The licence text is a file of its own.
    mv "$tree/usr/share/zsh/vendor-completions" "$tree/usr/share/zsh/site-functions"
    install -D -m 644 -t "$tree/usr/share/licenses/cob" LICENSE-APACHE
    {
        (cd "$tree" && find usr/share/doc/cob usr/share/licenses/cob -type d -printf '%%dir %%attr(0755, root, root) /%p\n')
        (cd "$tree" && find . -type f -printf '%m %P\n' | LC_ALL=C sort -k 2) | while read -r mode file; do
            case $file in
            */licenses/* | */LICENSE-*) printf '%%license ' ;;
            usr/share/doc/* | usr/share/man/*) printf '%%doc ' ;;
            esac
            echo "%attr(0$mode, root, root) /$file"
        done
    } > "$tree.files"
    source_date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
    # rpm has no `-` in a version; `~` sorts before the release, as in the deb. No script of the machine's
    # distribution changes the files, so that each machine makes the same package of them.
    SOURCE_DATE_EPOCH=$source_date rpmbuild -bb --quiet --define "_topdir $work" --define "cob_tree $tree" \
        --define "cob_version ${version/-/\~}" --define "_rpmdir $work/made" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
        --define "__os_install_post %{nil}" --define "_build_id_links none" --define "_buildhost cob" --define "_binary_payload $payload" \
        --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" packaging/cob.spec 1>&2
    cp "$work"/made/*.rpm "$1/"
    echo "$1/$(basename "$work"/made/*.rpm)"
}

# A C library of its own (musl) is linked into the program: it runs wherever the kernel does. zig is the C compiler
# and linker for both processors.
make_static() {
    local processor=${2:-$(uname -m)} triple
    case $processor in
    x86_64 | aarch64) triple=$processor-unknown-linux-musl ;;
    *) echo "COB runs on x86_64 and aarch64, not on $processor" >&2; exit 2 ;;
    esac
    if [ -z "${COB_BUILT:-}" ]; then
        command -v cargo-zigbuild >/dev/null || { echo "cargo-zigbuild is missing: pip install cargo-zigbuild ziglang" >&2; exit 1; }
        if [ "$profile" = dist ] && [ -z "${CARGO_TARGET_DIR:-}${CARGO_BUILD_FLAGS:-}" ]; then
            COB_STATIC=$triple packaging/reproducible.sh 1>&2
        else
            # shellcheck disable=SC2086 # several flags
            cargo zigbuild --locked --profile "$profile" --target "$triple" -p cobd --bin cobd \
                --config "profile.$profile.strip=true" ${CARGO_BUILD_FLAGS:-} 1>&2
        fi
    fi
    install -D -m 755 "$target/$triple/$profile_folder/cobd" "$1/cobd-$version-$processor"
    echo "$1/cobd-$version-$processor"
}

case ${1:-} in
deb | rpm | stage)
    : "${2:?where to?}"
    build
    case $1 in
    deb) make_deb "$2" ;;
    rpm) make_rpm "$2" ;;
    stage) stage "$2" ;;
    esac
    ;;
static) make_static "${2:?where to?}" "${3:-}" ;;
*)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
