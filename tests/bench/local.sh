#!/usr/bin/env bash
# N files on one host, each a file tree of its own, beside CFEngine where it is installed (Debian: cfengine3).
#
#   tests/bench/local.sh N [indep|rchain]
#
# indep: no file depends on another. rchain: each needs the one before it, and they are written last first.
# For COB: the time of `cobgen generate`; first, from the start of the daemon's process until `cobctl switch --wait`
# has ended; second, after the daemon was stopped, the same again, which looks at every file; and the daemon's most
# memory. Then, with the daemon up all the time, as its users have it: `cobctl switch --wait` to generations in which
# nothing, one file, one in a hundred and again one differ, and back (`cobctl rollback --wait`); `cobctl check`, which
# looks at every file; `cobctl status`, for what a command costs; and how long it takes from a change of one file by somebody else until the file is put right.
# For CFEngine: the first and second run of cf-agent. How many files are right is counted after each first run.
# The daemon has the environment that its unit gives it. COB_TEST_DIR names the folder (and so the disk), /dev/shm otherwise. Needs python3 and the dist build.
set -euo pipefail
count=$1 shape=${2:-indep}
here=$(cd "$(dirname "$0")/../.." && pwd)
bin=${CARGO_TARGET_DIR:-$here/target}/${COB_PROFILE:-dist}
dir=$(mktemp -d "${COB_TEST_DIR:-/dev/shm}/local.XXXXXX")
pid=
cleanup() { [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"; }
trap cleanup EXIT

port=$((20000 + RANDOM % 20000))
# Every so many-th file differs from the first model; 0: none.
model() { python3 - "$count" "$shape" "$dir" "$port" "$1" <<'EOF'
import os, sys
count, shape, folder, every = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[5])
def body(i):
    new = "new=%d\n" % every if every and i % every == 0 else ""
    return "file number %d\nkey=%d\nvalue=%s\n%s" % (i, i * 7919 % 10007, "x" * 40, new)
order = range(count) if shape == "indep" else range(count - 1, -1, -1)
with open(folder + "/model.yaml", "w") as out:
    out.write("security: loopback-only\nhosts: {here: {address: \"tcp://127.0.0.1:%s\"}}\ncobs:\n" % sys.argv[4])
    for i in order:
        needs = ", requires: [here/f%d]" % (i - 1) if shape == "rchain" and i else ""
        out.write('  here/f%d: {kind: file-tree, content: {files: {%s/cob/f%d: {content: "%s", mode: "0644"}}}%s}\n'
                  % (i, folder, i, body(i).replace("\n", "\\n"), needs))
if every:
    sys.exit()
with open(folder + "/site.cf", "w") as out:
    out.write('body common control { bundlesequence => { "main" }; version => "1"; }\n'
              'body perms m { mode => "644"; rxdirs => "false"; }\nbundle agent main {\nfiles:\n')
    for i in order:
        needs = '    depends_on => { "h%d" },\n' % (i - 1) if shape == "rchain" and i else ""
        out.write('  "%s/cfengine/f%d"\n    handle => "h%d",\n    create => "true",\n%s    perms => m,\n    content => "%s";\n'
                  % (folder, i, i, needs, body(i).replace("\n", "$(const.n)")))
    out.write("}\n")
os.chmod(folder + "/site.cf", 0o600)
os.mkdir(folder + "/cob"); os.mkdir(folder + "/cfengine")
EOF
}
model 0
right() {
    python3 - "$count" "$1" <<'EOF'
import os, sys
body = lambda i: "file number %d\nkey=%d\nvalue=%s\n" % (i, i * 7919 % 10007, "x" * 40)
at = lambda i: sys.argv[2] + "/f%d" % i
print(sum(os.path.exists(at(i)) and open(at(i)).read() == body(i) for i in range(int(sys.argv[1]))))
EOF
}
now() { date +%s.%N; }
# As the unit has it.
read -ra unit < <(sed -n 's/^Environment=//p' "$here/packaging/cobd.service")
since() { echo "$1 $(now)" | awk '{printf "%.2f s", $2 - $1}'; }

began=$(now)
"$bin/cobgen" generate "$dir/model.yaml" --depot "$dir/depot" >/dev/null 2>&1
generate=$(since "$began")
printf 'host = "here"\ndepot = "depot"\nstate_dir = "state"\nhttp = "here.sock"\nlog = "warn"\n' >"$dir/here.toml"
ctl() { "$bin/cobctl" --depot "$dir/depot" "$@" >"$dir/ctl.log" 2>&1 || { cat "$dir/ctl.log" "$dir/log"; exit 1; }; }
timed() { local began; began=$(now); ctl "$@"; took=$(since "$began"); }
most() { awk '/VmHWM/ {printf "%d MB", $2 / 1024}' "/proc/$pid/status"; }
round() {
    began=$(now)
    env "${unit[@]}" "$bin/cobd" run --config "$dir/here.toml" 2>>"$dir/log" &
    pid=$!
    for _ in $(seq 5000); do [ -S "$dir/here.sock" ] && break; sleep 0.002; done
    up=$(since "$began")
    ctl switch 1 --wait 10m
    whole=$(since "$began")
}
end() {
    kill "$pid"
    wait "$pid" || true
    rm -f "$dir/here.sock"
    pid=
}
round
first="$whole (up after $up)" memory=$(most) files=$(right "$dir/cob")
end
round
echo "COB, $count files, $shape: generate $generate; first $first, second $whole (up after $up); daemon $memory, then $(most); $files right"
timed switch 1 --wait 10m
line="nothing differs $took"
checks=
for _ in 1 2 3; do timed check; checks+="${checks:+, }$took"; done
line+="; all checked $checks"
number=1
for every in "$count" 100 "$((count + 1))"; do
    model "$every"
    "$bin/cobgen" generate "$dir/model.yaml" --depot "$dir/depot" >/dev/null 2>&1
    number=$((number + 1))
    timed switch "$number" --wait 10m
    line+="; $(((count + every - 1) / every)) differ $took"
done
began=$(now)
ctl rollback --wait 10m
ctl switch "$((number - 1))" --wait 10m
line+="; back $(since "$began")"
timed status
echo "COB, $count files, $shape, daemon up: $line; status $took; daemon $(most)"
# A chain moves as a whole, down and up again: after some times the brake makes what goes up and down so often rest.
for _ in $(seq "$([ "$shape" = indep ] && echo 5 || echo 2)"); do
    python3 - "$dir/cob/f$((count / 2))" <<'EOF'
import sys, time
path = sys.argv[1]
was = open(path).read()
time.sleep(1)
with open(path, "a") as out:
    out.write("drift\n")
began = time.time()
while open(path).read() != was:
    if time.time() - began > 30:
        sys.exit("it was not put right within 30 s")
    time.sleep(0.001)
print("COB, drift of one file: put right after %.0f ms" % ((time.time() - began) * 1000))
EOF
done
end
command -v cf-agent >/dev/null || exit 0
cf-key >/dev/null 2>&1 || true
agent() {
    HOME=$dir /usr/bin/time -o "$dir/time" -f '%e s %M' cf-agent -K -f "$dir/site.cf" >"$dir/cf.log" 2>&1 || true
}
agent
first=$(cut -d' ' -f1,2 "$dir/time") files=$(right "$dir/cfengine")
agent
echo "CFEngine, $count files, $shape: first $first, second $(awk '{printf "%s s; %d MB", $1, $3 / 1024}' "$dir/time"); $files right"
