#!/usr/bin/env bash
# A hub with real machines: each is a systemd-nspawn container with systemd as PID 1 that enrols by itself. Also with a
# hub and jobs that are killed, a machine without power, and a signature that a person gives.
#
#   tests/bed/hub.sh PROGRAMS     PROGRAMS is a folder with cobhub, cobd, cobgen and cobctl
#
# The hub and its machines have a network namespace of their own. Needs root, the packages of bed.sh, python3, curl and jq.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$(realpath "${1:?name the folder with the programs}")

if [ "${COB_HUB_APART:-}" != 1 ]; then
    for program in systemd-nspawn ip python3 curl jq nsenter; do
        command -v $program >/dev/null || { echo "skipped: the hub, for $program is not installed"; exit 0; }
    done
    if ! why=$("$here/bed.sh" check); then
        echo "skipped: the hub: $why"
        exit 0
    fi
    COB_HUB_APART=1 exec unshare --net --pid --fork --kill-child --mount --mount-proc "${BASH_SOURCE[0]}" "$@"
fi

ip link set lo up
# The names of network namespaces, and the interfaces, are its own.
mount -t tmpfs tmpfs /run/netns 2>/dev/null || { mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns; }
folder=$(mktemp -d /var/tmp/cob-hub.XXXX)
hub=$folder/hub
hub_pid=""
step=""
patience=${COB_BED_PATIENCE:-60}

finish() {
    local result=$? token
    trap - EXIT
    if [ $result != 0 ]; then
        echo "FAILED: $step" >&2
        tail -n 20 "$folder/hub.log" >&2 || true
        tail -n 30 "$hub"/jobs/*/log >&2 2>/dev/null || true
            tail -n 5 "$hub"/providers/lab/*/console "$hub"/clusters/*/*/serve.log >&2 2>/dev/null || true
    fi
    [ -z "$hub_pid" ] || kill -9 "$hub_pid" 2>/dev/null || true
    pkill -9 -f "$hub/jobs/" || true
    for token in "$hub"/providers/lab/*/; do
        [ -d "$token" ] || continue
        provider delete "$(basename "$token")" >/dev/null || result=1
    done
    rm -rf "$folder"
    exit $result
}
trap finish EXIT

# shellcheck source=tests/bed/steps.sh
source "$here/steps.sh"
pause=0.1
provider() { # ACTION TOKEN
    jq -n --arg state "$hub/providers/lab" --arg token "${2:-}" '{version: 1, state: $state, settings: {}, machine: {token: $token}}' |
        "$here/../../packaging/providers/cob-provider-nspawn" "$1"
}
start_hub() {
    "$programs/cobhub" serve --folder "$hub" --providers "$here/../../packaging/providers" --publisher "$publisher" \
        --depot-address 10.78.0.1 --callback "$folder/callback" "$@" 2>>"$folder/hub.log" &
    hub_pid=$!
    soon ask GET /v1/whoami
}
kill_hub() {
    kill -9 "$hub_pid"
    wait "$hub_pid" 2>/dev/null || true
}
ask() { # METHOD PATH [BODY]; refusals are answers, too
    curl -sS --fail-with-body --unix-socket "$hub/hub.sock" -X "$1" ${3:+-H "Content-Type: application/json" -d "$3"} "http://hub$2"
}
entity() { ask PUT "/v1/catalogue/$1?tenant=web" "$2" >/dev/null; }
order() { ask POST "$1?tenant=web" "$2" | jq -e .job; }
has_ended() { ask GET "/v1/jobs/$1" | jq -e '.state | IN("succeeded", "failed", "canceled")'; }
ends() { # JOB STATE
    soon has_ended "$1"
    local job
    job=$(ask GET "/v1/jobs/$1")
    [ "$(jq -r .state <<<"$job")" = "$2" ] || { echo "job $1: $job" >&2; return 1; }
}
machines() { ask GET /v1/clusters/mine?tenant=web | jq -r ".machines[] | select(.state == \"confirmed\") | .host" | xargs; }
token_of() { ask GET /v1/clusters/mine?tenant=web | jq -er ".machines[] | select(.host == \"$1\") | .token"; }
# The first process of a machine, as this namespace sees it.
init_of() {
    local keeper
    keeper=$(grep -lzx "COB_MACHINE=$(token_of "$1")" /proc/[0-9]*/environ 2>/dev/null | head -n 1 | cut -d / -f 3)
    cut -d ' ' -f 1 "/proc/$keeper/task/$keeper/children"
}
on() {
    local init
    init=$(init_of "$1")
    shift
    nsenter --target "$init" --all -- /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
# The machines that the provider has.
count_machines() { printf '%s\n' "$hub"/providers/lab/*/machine.json | grep -vcF '*' || true; }
works_on() { [ "$(on "$1" cat /srv/state)" = started ]; }
none_is_left() {
    [ "$(ask GET '/v1/machines?orphans=true')" = "[]" ] && [ -z "$(ls "$hub/providers/lab" | grep -v lock)" ] &&
        [ -z "$(ip netns list)" ] && ! pgrep -x systemd-nspawn >/dev/null && ! grep -q cob-machine /proc/self/mounts
}

step "hub: a catalogue whose machines are containers"
"$programs/cobgen" key "$folder/publisher.key" >/dev/null
publisher=$("$programs/cobgen" key "$folder/publisher.key" --json | jq -r .key)
printf '#!/bin/sh\nexec %s sign "$2" --depot "$1" --key %s\n' "$programs/cobgen" "$folder/publisher.key" > "$folder/signer"
chmod +x "$folder/signer"
cat > "$folder/callback" <<CALLBACK
#!/bin/sh
echo "\$1 job \$(jq -r .job "\$2")" >> "$folder/heard"
[ "\$1" != before ] || [ ! -e "$folder/closed" ] || { echo "closed until Monday"; exit 1; }
CALLBACK
chmod +x "$folder/callback"
mkdir "$hub"
start_hub --signer "$folder/signer"
ask POST /v1/directory '{"add-tenant": {"tenant": "web", "quota": {"machines": 4}}}'
entity providers/lab '{"type": "nspawn"}'
entity hardwaretypes/any '{"providers": {"lab": {}}}'
entity imagetypes/system '{"providers": {"lab": {}}}'
entity services/app '{"actions": {"install": "echo installed > /srv/state", "start": "echo started > /srv/state",
    "stop": "echo stopped > /srv/state", "remove": "rm /srv/state"}}'
entity templates/shop '{"defaults": {"services": ["app"], "provider": "lab"}}'

step "hub: a cluster of two machines, from nothing"
ends "$(order /v1/clusters '{"name": "mine", "wanted": {"template": "shop", "nodes": 2}}')" succeeded
[ "$(machines)" = "mine-1 mine-2" ]
works_on mine-1
works_on mine-2
[ "$(on mine-1 systemctl is-active cobd)" = active ]

step "hub: a third machine, while the hub and the job's process are killed"
job=$(order /v1/clusters/mine/operations '{"operation": "resize", "nodes": 3}')
requested() { jq -e '."mine-3"' "$hub/clusters/web/mine/machines.json"; }
soon requested
kill_hub
pkill -9 -f "cobhub job $hub/jobs/$job" || true
start_hub --signer "$folder/signer"
ends "$job" succeeded
[ "$(machines)" = "mine-1 mine-2 mine-3" ]
[ "$(count_machines)" = 3 ]
works_on mine-3

step "hub: the callback forbids an operation, and hears of others"
grep -qx "before job 1" "$folder/heard"
grep -qx "succeeded job 1" "$folder/heard"
touch "$folder/closed"
job=$(order /v1/clusters/mine/operations '{"operation": "resize", "nodes": 4}')
ends "$job" failed
ask GET "/v1/jobs/$job" | jq -e '.reason | contains("the callback forbids the operation: closed until Monday")' >/dev/null
grep -qx "failed job $job" "$folder/heard"
rm "$folder/closed"
[ "$(machines)" = "mine-1 mine-2 mine-3" ]

step "hub: more machines than the quota"
if ask POST '/v1/clusters/mine/operations?tenant=web' '{"operation": "resize", "nodes": 5}' > "$folder/answer" 2>/dev/null; then
    false
fi
grep -q "the quota of the tenant is 4 machines" "$folder/answer"

step "hub: a machine loses its power, and is replaced"
kill -9 "$(init_of mine-2)"
before=$(token_of mine-2)
ends "$(order /v1/clusters/mine/operations '{"operation": "replace", "node": "mine-2"}')" succeeded
[ "$(token_of mine-2)" != "$before" ]
works_on mine-2

step "hub: a generation waits for the signature of a person"
kill_hub
start_hub
job=$(order /v1/clusters/mine/operations '{"operation": "resize", "nodes": 2}')
waits() { ask GET "/v1/jobs/$job" | jq -e '.reason // "" | contains("waits for signatures")'; }
soon waits
[ "$(machines)" = "mine-1 mine-2 mine-3" ]
"$programs/cobgen" sign latest --depot "$hub/clusters/web/mine/depot" --key "$folder/publisher.key" >/dev/null 2>&1
ends "$job" succeeded
[ "$(wc -w <<<"$(machines)")" = 2 ]

step "hub: a creation is canceled while its machines boot, and nothing stays"
kill_hub
start_hub --signer "$folder/signer"
job=$(order /v1/clusters '{"name": "brief", "wanted": {"template": "shop", "nodes": 2}}')
boots() { [ "$(count_machines)" -ge 3 ]; }
soon boots
ask POST "/v1/jobs/$job/cancel" >/dev/null
ends "$job" canceled
[ "$(count_machines)" = 2 ]

step "hub: the cluster is deleted, and nothing stays"
ends "$(order /v1/clusters/mine/operations '{"operation": "delete"}')" succeeded
soon none_is_left
"$programs/cobhub" verify-audit "$hub/audit"
kill "$hub_pid"
wait "$hub_pid"
hub_pid=""
