#!/usr/bin/env bash
# The views of `cobctl page` in a real browser, against the three daemons of `cobctl demo`, while one of them fails, is
# repaired, and the cluster switches.
#
#   tests/page.sh FOLDER     FOLDER: the sources of the browser's program with its packages (npm ci)
#
# Needs the programs in target/debug (or COB_BIN), node, and chromium; without chromium it skips itself.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(realpath "${COB_BIN:-target/debug}")
folder=${1:?the folder of the browser\'s program is missing}
if ! command -v chromium >/dev/null; then
    echo "skipped: chromium is not installed"
    exit 0
fi
work=$(mktemp -d)
page=""
end() {
    [ -z "$page" ] || kill "$page" 2>/dev/null || true
    "$bin/cobctl" demo --end "$work/demo" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
"$bin/cobctl" demo --keep "$work/demo" >"$work/demo.log" 2>&1 || { cat "$work/demo.log"; exit 1; }
"$bin/cobctl" --depot "$work/demo/depot" page --model "$work/demo/model" >"$work/address" 2>"$work/page.log" &
page=$!
while [ ! -s "$work/address" ]; do
    kill -0 $page 2>/dev/null || { cat "$work/page.log"; exit 1; }
    sleep 0.1
done
export COB_PAGE_URL COB_DEMO="$work/demo" COB_BIN="$bin"
COB_PAGE_URL=$(head -n 1 "$work/address")
cd "$folder" && npm run --silent browser
