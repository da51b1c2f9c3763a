#!/usr/bin/env bash
# Objects of several kinds on one host, beside CFEngine where it is installed (Debian: cfengine3): the same work.
#
#   tests/bench/mixed.sh [N]      N objects, 1,000 otherwise: 40 % files, 10 % links, 20 % lines in files of others,
#                                 10 % keys of INI files (ten keys a file), 10 % attributes, 5 % blocks, 5 % cron files
#
# COB: first, from the start of the daemon until `cobctl switch --wait` returns; second, `cobctl check`, which reads
# everything again while the daemon runs; restarted, as the first. CFEngine: the first and the second run of cf-agent.
# Both results are compared byte for byte, with modes. COB_TEST_DIR names the folder (and so the disk), /dev/shm
# otherwise. COB_PROFILE names the programs (dist).
set -euo pipefail
count=${1:-1000}
here=$(cd "$(dirname "$0")/../.." && pwd)
bin=${CARGO_TARGET_DIR:-$here/target}/${COB_PROFILE:-dist}
dir=$(mktemp -d "${COB_TEST_DIR:-/dev/shm}/mixed.XXXXXX")
pid=
cleanup() { [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"; }
trap cleanup EXIT

python3 - "$count" "$dir" $((20000 + RANDOM % 20000)) <<'PY'
import json, os, sys

count, folder, port = int(sys.argv[1]), sys.argv[2], sys.argv[3]
cobs, promises, lenses = {}, [], []


def both(path, text, mode=0o644):
    for root in ("cob", "cfengine"):
        whole = "%s/%s/%s" % (folder, root, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "w") as out:
            out.write(text)
        os.chmod(whole, mode)


def add(name, kind, content):
    cobs["here/" + name] = {"kind": kind, "content": content}


def text(value):
    return value.replace("\n", "$(const.n)")


for root in ("cob", "cfengine"):
    for below in ("etc/cron.d", "files", "links"):
        os.makedirs("%s/%s/%s" % (folder, root, below))
both("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
mine, other = folder + "/cob/", folder + "/cfengine/"
for i in range(count * 40 // 100):
    body = "file number %d\nkey=%d\nvalue=%s\n" % (i, i * 7919 % 10007, "x" * 40)
    add("file%d" % i, "file-tree", {"files": {mine + "files/%d" % i: {"content": body, "mode": "0644"}}})
    promises.append('"%sfiles/%d" create => "true", perms => m("644"), content => "%s";' % (other, i, text(body)))
for i in range(count * 10 // 100):
    add("link%d" % i, "file-tree", {"files": {mine + "links/%d" % i: {"link": "../files/%d" % i}}})
    promises.append('"%slinks/%d" link_from => linked("../files/%d");' % (other, i, i))
for i in range(count * 20 // 100):
    both("lines/%d" % i, "# settings of program %d\nPort 22\nListen no\n" % i)
    add("line%d" % i, "line", {"path": mine + "lines/%d" % i, "line": "Port %d" % (2000 + i), "match": "^#?Port "})
    promises.append('"%slines/%d" edit_line => one_line("#?Port .*", "Port %d"), edit_defaults => plain;'
                    % (other, i, 2000 + i))
for i in range(count * 10 // 100):
    if i % 10 == 0:
        both("ini/%d" % (i // 10), "[main]\n" + "".join("key%d=old\n" % k for k in range(10)))
    key, value = "key%d" % (i % 10), "new%d" % i
    add("key%d" % i, "config-keys",
        {"path": mine + "ini/%d" % (i // 10), "format": "ini", "set": {"main." + key: value}})
    promises.append('"%sini/%d" edit_line => one_line("%s=.*", "%s=%s"), edit_defaults => plain, handle => "k%d";'
                    % (other, i // 10, key, key, value, i))
for i in range(count * 10 // 100):
    both("modes/%d" % i, "content of another program\n", 0o600)
    add("mode%d" % i, "attributes", {"path": mine + "modes/%d" % i, "mode": "0640"})
    promises.append('"%smodes/%d" perms => m("640");' % (other, i))
for i in range(count * 5 // 100):
    both("blocks/%d" % i, "Host *\n")
    lines = "Host bastion%d\n  User ops\n" % i
    add("block%d" % i, "block", {"path": mine + "blocks/%d" % i, "block": lines})
    block = "# begin cob here/block%d\n%s# end cob here/block%d" % (i, lines, i)
    promises.append('"%sblocks/%d" edit_line => block("%s"), edit_defaults => plain;' % (other, i, text(block)))
for i in range(count * 5 // 100):
    add("cron%d" % i, "cron", {"schedule": "%d 4 * * *" % (i % 60), "command": "/bin/true %d" % i, "root": mine[:-1]})

head = 'security: loopback-only\nhosts: {here: {address: "tcp://127.0.0.1:%s"}}\ncobs:\n' % port
with open(folder + "/model.yaml", "w") as out:
    out.write(head + "".join("  %s: %s\n" % (name, json.dumps(cob)) for name, cob in cobs.items()))
with open(folder + "/promises.json", "w") as out:
    json.dump(promises, out)
PY

now() { date +%s.%N; }
since() { echo "$1 $(now)" | awk '{printf "%.2f s", $2 - $1}'; }
read -ra unit < <(sed -n 's/^Environment=//p' "$here/packaging/cobd.service")
ctl() { "$bin/cobctl" --depot "$dir/depot" "$@" >"$dir/ctl.log" 2>&1 || { cat "$dir/ctl.log" "$dir/log"; exit 1; }; }
timed() { local began; began=$(now); ctl "$@"; took=$(since "$began"); }
apply() {
    local began
    began=$(now)
    env "${unit[@]}" "$bin/cobd" run --config "$dir/here.toml" 2>>"$dir/log" &
    pid=$!
    for _ in $(seq 5000); do [ -S "$dir/here.sock" ] && break; sleep 0.002; done
    ctl switch 1 --wait 10m
    took=$(since "$began")
}

"$bin/cobgen" generate "$dir/model.yaml" --depot "$dir/depot" >"$dir/generate.log" 2>&1 || { cat "$dir/generate.log"; exit 1; }
printf 'host = "here"\ndepot = "depot"\nstate_dir = "state"\nhttp = "here.sock"\nlog = "warn"\n' >"$dir/here.toml"
apply
first=$took checks=
for _ in 1 2 3; do
    timed check
    checks+="${checks:+, }$took"
done
memory=$(awk '/VmHWM/ {printf "%d MB", $2 / 1024}' "/proc/$pid/status")
kill "$pid" && wait "$pid" || true
rm -f "$dir/here.sock"
apply
echo "COB, $count objects: first $first; second (check) $checks; restarted $took; daemon $memory"
command -v cf-agent >/dev/null || exit 0

# The cron files of both are equal: how COB writes one is not what is compared.
python3 - "$dir" <<'PY'
import json, os, sys

folder = sys.argv[1]
promises = json.load(open(folder + "/promises.json"))
for name in sorted(os.listdir(folder + "/cob/etc/cron.d")):
    body = open(folder + "/cob/etc/cron.d/" + name).read()
    quoted = body.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "$(const.n)")
    promises.append('"%s/cfengine/etc/cron.d/%s" create => "true", perms => m("644"), content => "%s";'
                    % (folder, name, quoted))
with open(folder + "/site.cf", "w") as out:
    out.write('''body common control { bundlesequence => { "main" }; version => "1"; }
body perms m(mode) { mode => "$(mode)"; rxdirs => "false"; }
body link_from linked(target) { source => "$(target)"; link_type => "symlink"; }
body edit_defaults plain { edit_backup => "false"; empty_file_before_editing => "false"; }
body replace_with to(x) { replace_value => "$(x)"; occurrences => "all"; }
body insert_select whole { insert_if_startwith_from_list => {}; }
bundle edit_line one_line(expression, line) {
replace_patterns:
  "^(?!$(line)$)$(expression)$" replace_with => to("$(line)");
}
bundle edit_line block(lines) {
insert_lines:
  "$(lines)" insert_type => "preserve_block";
}
bundle agent main {
files:
''' + "\n".join("  " + promise for promise in promises) + "\n}\n")
os.chmod(folder + "/site.cf", 0o600)
PY
cf-key >/dev/null 2>&1 || true
agent() {
    HOME=$dir /usr/bin/time -o "$dir/time" -f '%e s; %M' cf-agent -K -f "$dir/site.cf" >"$dir/cf.log" 2>&1 || true
    took=$(awk -F'; ' '{printf "%s, %d MB", $1, $2 / 1024}' "$dir/time")
}
agent
first=$took
agent
echo "CFEngine, $count objects: first $first; second $took"
listing() { (cd "$dir/$1" && find . -type f -printf '%m %p ' -exec sha256sum {} \; -o -type l -printf '%p -> %l\n' | sed "s|$dir/$1||" | sort); }
if ! diff <(listing cob) <(listing cfengine) >"$dir/diff"; then
    echo "the results differ:"
    head -20 "$dir/diff"
    head -20 "$dir/cf.log"
    exit 1
fi
echo "both results are equal: $(listing cob | wc -l) files and links"
