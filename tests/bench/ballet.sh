#!/usr/bin/env bash
# Replays a published deployment (shared/bench/ballet) on real daemons of this machine and tells what the
# ordering itself cost: T - T*, in all and per hop between hosts.
#
#   tests/bench/ballet.sh BALLET_FOLDER CASE SITES [SCALE]
#
# BALLET_FOLDER holds make_model.py and critical_path.py. COB_TEST_DIR names the folder (and so the disk) of
# the state folders. Needs python3 and the release build of this workspace.
set -euo pipefail
ballet=$1 case=$2 sites=$3 scale=${4:-0.01}
here=$(cd "$(dirname "$0")/../.." && pwd)
bin=${CARGO_TARGET_DIR:-$here/target}/release
base=${COB_TEST_DIR:-${TMPDIR:-/tmp}}
dir=$(mktemp -d "$base/ballet.XXXXXX")
pids=()
cleanup() { kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"; }
trap cleanup EXIT
port=$((20000 + RANDOM % 20000))
"$ballet/make_model.py" --case "$case" --sites "$sites" --phase deploy --scale "$scale" \
    --addresses "tcp://127.0.0.1:$port" --out "$dir/1.yaml"
"$bin/cobgen" generate "$dir/1.yaml" --depot "$dir/depot" >/dev/null
hosts=$(python3 -c '
import json, sys
for line in open(sys.argv[1]):
    if line.startswith("kinds:"): break
    if line.startswith("  ") and not line.startswith("   "): print(line.split(":")[0].strip())' "$dir/1.yaml")
for host in $hosts; do
    printf 'host = "%s"\ndepot = "depot"\nstate_dir = "%s"\nhttp = "%s.sock"\nlog = "warn"\n' "$host" "$host" "$host" >"$dir/$host.toml"
    "$bin/cobd" run --config "$dir/$host.toml" 2>"$dir/$host.log" &
    pids+=($!)
done
for host in $hosts; do
    for _ in $(seq 500); do [ -S "$dir/$host.sock" ] && break; sleep 0.02; done
done
# Links up before the clock starts: deployments are not begun on the very second a daemon starts.
sleep 2
"$bin/cobctl" --depot "$dir/depot" switch 1 --wait 10m >/dev/null 2>"$dir/switch.log" || { cat "$dir/switch.log"; exit 1; }
"$bin/cobctl" --depot "$dir/depot" history --json >"$dir/run.jsonl"
"$ballet/critical_path.py" --case "$case" --phase deploy --sites "$sites" --history "$dir/run.jsonl" --generation 1
