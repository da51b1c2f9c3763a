#!/usr/bin/env bash
# What a switch costs on a host that holds N change objects (files, each a file tree of its own) and is up all the time.
#
#   tests/bench/switch.sh N
#
# Switches to generations in which nothing differs on this host, one file, one in a hundred, the way back
# (`cobctl rollback`), and forward again. Of each: the time of `cobctl switch --wait`, the processor time of the daemon
# until it has been quiet for a second, and that of `cobctl`. Each is made three times, after two seconds of rest.
# COB_TEST_DIR names the folder (and so the disk), /dev/shm otherwise. Needs python3 and the dist build; COB_BIN
# names another folder with the programs, for a comparison.
set -euo pipefail
count=$1
here=$(cd "$(dirname "$0")/../.." && pwd)
bin=${COB_BIN:-${CARGO_TARGET_DIR:-$here/target}/dist}
dir=$(mktemp -d "${COB_TEST_DIR:-/dev/shm}/switch.XXXXXX")
pid=
cleanup() { [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"; }
trap cleanup EXIT
mkdir "$dir/cob"
port=$((20000 + RANDOM % 20000))
number=0
# The next generation: every so many-th file here (0: none) and the one on the other host are of this version from now on.
generate() { # VERSION EVERY
    python3 - "$count" "$dir" "$port" "$1" "$2" <<'PY'
import json, os, sys
count, folder, port, version, every = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5])
def tree(host, i, version):
    body = "file number %d\\nkey=%d\\nvalue=%s\\nversion=%s\\n" % (i, i * 7919 % 10007, "x" * 40, version)
    return '  %s/f%d: {kind: file-tree, content: {files: {%s/cob/f%d: {content: "%s", mode: "0644"}}}}\n' % (host, i, folder, i, body)
known = folder + "/versions"
versions = json.load(open(known)) if os.path.exists(known) else ["0"] * count
versions = [version if every and i % every == 0 else was for i, was in enumerate(versions)]
json.dump(versions, open(known, "w"))
with open(folder + "/model.yaml", "w") as out:
    out.write("security: loopback-only\nhosts: {here: {address: \"tcp://127.0.0.1:%s\"}, other: {}}\ncobs:\n" % port)
    out.write(tree("other", count, version))
    for i in range(count):
        out.write(tree("here", i, versions[i]))
PY
    "$bin/cobgen" generate "$dir/model.yaml" --depot "$dir/depot" >"$dir/gen.log" 2>&1 || { cat "$dir/gen.log"; exit 1; }
    number=$((number + 1))
}
ctl() {
    "$bin/cobctl" --depot "$dir/depot" --host "unix:$dir/here.sock" "$@" >"$dir/ctl.log" 2>&1 || { cat "$dir/ctl.log" "$dir/log"; exit 1; }
}
processor() { awk '{print ($14 + $15) * 10}' "/proc/$pid/stat"; }
settle() {
    local was now=-1
    while was=$now; now=$(processor); [ "$now" != "$was" ]; do sleep 1; done
}
measure() { # WHAT, then the words
    local what=$1 before began ended
    shift
    sleep 2
    before=$(processor) began=$(date +%s%N)
    TIMEFORMAT="%U %S"
    { time ctl "$@"; } 2>"$dir/time"
    ended=$(date +%s%N)
    settle
    awk -v what="$what" -v took=$(((ended - began) / 1000000)) -v daemon=$(($(processor) - before)) \
        '{printf "%s: %d ms; processor time: daemon %d ms, cobctl %d ms\n", what, took, daemon, ($1 + $2) * 1000}' "$dir/time"
}
printf 'host = "here"\ndepot = "depot"\nstate_dir = "state"\nhttp = "here.sock"\nlog = "warn"\n' >"$dir/here.toml"
generate 0 0
"$bin/cobd" run --config "$dir/here.toml" 2>>"$dir/log" &
pid=$!
for _ in $(seq 5000); do [ -S "$dir/here.sock" ] && break; sleep 0.002; done
measure "$count files, the first" switch 1 --wait 10m
for round in 1 2 3; do
    generate "a$round" 0
    measure "nothing differs on this host" switch "$number" --wait 10m
    generate "b$round" "$((count + 1))"
    measure "one differs" switch "$number" --wait 10m
    generate "c$round" 100
    measure "one in a hundred differs" switch "$number" --wait 10m
    measure "back" rollback --wait 10m
    measure "forward again" switch "$number" --wait 10m
done
awk '/VmHWM|VmRSS/ {printf "%s %d MB  ", $1, $2 / 1024} END {print ""}' "/proc/$pid/status"
