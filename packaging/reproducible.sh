#!/usr/bin/env bash
# What is shipped, built so that it depends on nothing but the sources, the lock file, the tool chain and the C compiler.
#
#   packaging/reproducible.sh [FOLDER]   the checkout in FOLDER (default: this one), into FOLDER/target/dist
#
# With COB_STATIC=TRIPLE only the daemon, without a shared library, into FOLDER/target/TRIPLE/dist: `packaging/build.sh static`.
#
# Paths of the machine are taken out of programs: of the checkout, of cargo's folder, of the tool chain. The C
# code that crates carry is compiled with the same, and with no time in it.
set -euo pipefail
folder=$(realpath "${1:-$(dirname "${BASH_SOURCE[0]}")/..}")
cd "$folder"

cargo_home=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
sysroot=$(rustc --print sysroot)
from_to=("$folder=/cob" "$cargo_home=/cargo" "$sysroot=/rust")
rust_flags=() c_flags=()
for pair in "${from_to[@]}"; do
    rust_flags+=("--remap-path-prefix=$pair")
    c_flags+=("-ffile-prefix-map=$pair")
done
# Flags may have blanks in them: this variable is parted by 0x1f.
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${rust_flags[*]}")
export CARGO_ENCODED_RUSTFLAGS SOURCE_DATE_EPOCH=0 CARGO_INCREMENTAL=0 LC_ALL=C TZ=UTC
# What else would choose flags, a profile or another place for the result.
unset RUSTFLAGS CARGO_BUILD_TARGET RUSTC_WRAPPER CARGO_BUILD_RUSTC_WRAPPER CXXFLAGS TARGET_CFLAGS HOST_CFLAGS
for name in "${!CARGO_PROFILE_RELEASE_@}" "${!CARGO_PROFILE_DIST_@}" "${!CFLAGS_@}"; do
    unset "$name"
done
# A folder may have blanks in its name: the crate `cc` is told to mind the quotes around each flag.
CFLAGS=$(printf '%q ' "${c_flags[@]}")
export CFLAGS CC_SHELL_ESCAPED_FLAGS=1
export CARGO_TARGET_DIR=$folder/target
if [ -n "${COB_STATIC:-}" ]; then
    exec cargo zigbuild --profile dist --locked --target "$COB_STATIC" -p cobd --bin cobd --config profile.dist.strip=true \
        ${COB_JOBS:+--jobs "$COB_JOBS"}
fi
exec cargo build --profile dist --locked -p cobd -p cobgen -p cobctl-program -p cobhub --bins ${COB_JOBS:+--jobs "$COB_JOBS"}
