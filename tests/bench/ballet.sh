#!/usr/bin/env bash
# Replays a published deployment (shared/bench/ballet) on real daemons of this machine and tells what the
# ordering itself cost: T - T*, in all and per hop between hosts, and what of it the processes of the first checks cost
# (ballet_checks.py) and what the actions take beyond their T* where no daemon is (ballet_bare.py, before the first daemon
# and after the last one). Then plays it on new daemons, COB_BALLET_PLAYS times (3), and tells how far each end was from
# what `cobgen plan` forecast, with the durations of all plays before it.
#
#   tests/bench/ballet.sh BALLET_FOLDER CASE SITES [SCALE [RELEASE]]
#
# RELEASE is `after` (the stop has ended before a provider stops) or `start` (it has begun).
#
# BALLET_FOLDER holds make_model.py and critical_path.py. COB_TEST_DIR names the folder (and so the disk) of
# the state folders, COB_BIN that of the programs (the dist build of this workspace). Needs python3.
set -euo pipefail
ballet=$1 case=$2 sites=$3 scale=${4:-0.01} release=${5:-after}
here=$(cd "$(dirname "$0")/../.." && pwd)
bin=${COB_BIN:-${CARGO_TARGET_DIR:-$here/target}/dist}
base=${COB_TEST_DIR:-${TMPDIR:-/tmp}}
dir=$(mktemp -d "$base/ballet.XXXXXX")
pids=()
stop() { [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; pids=(); }
cleanup() { stop; rm -rf "$dir"; }
trap cleanup EXIT
port=$((20000 + RANDOM % 12000))
phases=(deploy)
grep -q '"update": {' "$ballet/$case.json" && phases+=(update)
for phase in "${phases[@]}"; do
    "$ballet/make_model.py" --case "$case" --sites "$sites" --phase "$phase" --scale "$scale" \
        --release "$release" --addresses "tcp://127.0.0.1:$port" --out "$dir/$phase.yaml"
    # With `start` two ways of the sensors to `released` are equally short, and the one that is listed first needs a listener
    # that may wait for the sensor (`cobgen check` refuses it and says so). It is listed last here; T* is the same.
    python3 - "$dir/$phase.yaml" <<'PYTHON'
import sys
lines = open(sys.argv[1], encoding="utf-8").read().split("\n")
for at in reversed(range(len(lines))):
    if '{"from": "configured", "to": "running", "run"' in lines[at]:
        there = next(n for n in range(at, len(lines)) if '{"from": "configured", "to": "provisioned"' in lines[n])
        lines.insert(there, lines.pop(at))
open(sys.argv[1], "w", encoding="utf-8").write("\n".join(lines))
PYTHON
    "$bin/cobgen" generate "$dir/$phase.yaml" --depot "$dir/depot" >/dev/null
done
hosts=$(python3 -c '
import json, sys
for line in open(sys.argv[1]):
    if line.startswith("kinds:"): break
    if line.startswith("  ") and not line.startswith("   "): print(line.split(":")[0].strip())' "$dir/deploy.yaml")
# Where the checks find everything before the first deployment.
python3 - "$ballet" "$case" "$sites" "$release" >"$dir/states.json" <<'PYTHON'
import json, sys
sys.path.insert(0, sys.argv[1])
from make_model import expand, load
print(json.dumps({cob: x["initial"] for cob, x in expand(load(sys.argv[2]), int(sys.argv[3]), sys.argv[4]).items()}))
PYTHON

# start NAME: a daemon for each host, with empty state folders.
start() {
    mkdir "$dir/$1"
    for host in $hosts; do
        printf 'host = "%s"\ndepot = "../depot"\nstate_dir = "%s"\nhttp = "%s.sock"\nlog = "warn"\n' \
            "$host" "$host" "$host" >"$dir/$1/$host.toml"
        # On a host of its own each has a session of its own, and so its own share of the processors (sched(7), autogroup).
        setsid "$bin/cobd" run --config "$dir/$1/$host.toml" 2>"$dir/$1/$host.log" &
        pids+=($!)
    done
    for host in $hosts; do
        for _ in $(seq 1500); do [ -S "$dir/$1/$host.sock" ] && break; sleep 0.02; done
    done
    # Links up before the clock starts: deployments are not begun on the very second a daemon starts.
    sleep 2
}
# switch NAME N
switch() {
    "$bin/cobctl" --depot "$dir/depot" switch "$2" --wait 10m >/dev/null 2>"$dir/switch.log" || { cat "$dir/switch.log"; exit 1; }
}

# The same actions without daemons: what they take beyond T* there is what this machine takes to start their processes.
bare() {
    for phase in "${phases[@]}"; do
        "$here/tests/bench/ballet_bare.py" "$ballet" "$case" "$phase" "$sites" "$scale" "$release"
    done
}

bare
start first
for n in "${!phases[@]}"; do switch first $((n + 1)); done
# What a host that has gone on already asks of one that has not is begun under the generation before, and ends under this
# one: it counts as of this one.
"$bin/cobctl" --depot "$dir/depot" history --json | python3 -c '
import json, sys
begun = {}
events = [json.loads(line) for line in sys.stdin]
for event in events:
    hop = (event.get("cob"), event.get("from"), event.get("to"))
    if event["event"] == "start":
        begun[hop] = event
    elif event["event"] == "end" and hop in begun:
        begun.pop(hop)["generation"] = event["generation"]
for event in events:
    print(json.dumps(event))' >"$dir/run.jsonl"
for n in "${!phases[@]}"; do
    "$ballet/critical_path.py" --case "$case" --phase "${phases[$n]}" --sites "$sites" --release "$release" \
        --history "$dir/run.jsonl" --generation $((n + 1))
    "$here/tests/bench/ballet_checks.py" "$ballet" "$case" "${phases[$n]}" "$sites" "$release" "$dir/run.jsonl" $((n + 1))
done
"$bin/cobctl" --depot "$dir/depot" history --json >"$dir/play0.jsonl"
stop
for play in $(seq "${COB_BALLET_PLAYS:-3}"); do
    # shellcheck disable=SC2046
    "$bin/cobctl" durations --transitions $(seq -f "$dir/play%g.jsonl" 0 $((play - 1))) >"$dir/moves.json"
    for n in "${!phases[@]}"; do
        states=()
        [ "$n" != 0 ] || states=(--states "$dir/states.json")
        "$bin/cobgen" plan --from "$n" --to $((n + 1)) --depot "$dir/depot" --durations "$dir/moves.json" "${states[@]}" \
            --json >"$dir/plan$n.json"
    done
    start "play$play"
    for n in "${!phases[@]}"; do
        switch "play$play" $((n + 1))
        echo "${phases[$n]}, forecast from $play of what was recorded beside reality:"
        "$bin/cobctl" --depot "$dir/depot" history --compare-plan "$dir/plan$n.json" | tail -n "${COB_BALLET_LINES:-1}"
    done
    "$bin/cobctl" --depot "$dir/depot" history --json >"$dir/play$play.jsonl"
    stop
    if [ -n "${COB_BALLET_KEEP:-}" ]; then
        mkdir -p "$COB_BALLET_KEEP" && cp "$dir/play$play.jsonl" "$dir"/plan*.json "$COB_BALLET_KEEP"
    fi
done
bare
