#!/usr/bin/env bash
# Random and boundary requests to the APIs of a daemon and of a hub, made from their descriptions by schemathesis: each
# answer has a described status and body, and no request makes a server fail.
#
#   tests/api.sh [daemon|hub]...     both without words
#
# Needs the programs in target/debug (or COB_BIN), schemathesis (pip install schemathesis) and socat; without them it skips
# itself. COB_API_EXAMPLES: requests for each operation (default 30).
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(realpath "${COB_BIN:-target/debug}")
for program in schemathesis socat curl; do
    command -v $program >/dev/null || { echo "skipped: $program is not installed"; exit 0; }
done
export SCHEMATHESIS_HOOKS=api_hooks PYTHONPATH=$PWD/tests PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
pids=()
end() {
    kill "${pids[@]}" 2>/dev/null || true
    "$bin/cobctl" demo --end "$work/demo" >/dev/null 2>&1 || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT

soon() {
    local tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { echo "waited in vain: $*"; exit 1; }
        sleep 0.1
    done
}

# A free port, and a socket's owner behind it.
forward() {
    local socket=$1
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    socat TCP-LISTEN:"$port",bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:"$socket" 2>/dev/null &
    pids+=($!)
    soon curl -s "http://127.0.0.1:$port/v1/whoami"
}

# A request that fits the description may still be refused: 85.0 is an integer of JSON Schema, a path has rules of its own.
# Host and tenant are judged before the method. An idle connection may be closed for another one.
try() {
    local name=$1
    shift
    echo "== $name"
    (cd "$work" && schemathesis --no-color run "http://127.0.0.1:$port/v1/openapi.json" --url "http://127.0.0.1:$port" \
        --exclude-checks positive_data_acceptance,unsupported_method --phases examples,coverage,fuzzing --max-examples "${COB_API_EXAMPLES:-30}" --seed "${COB_SEED:-1}" \
        --suppress-health-check all --request-timeout 20 --request-retries 2 --warnings off "$@")
}

[ $# -gt 0 ] || set -- daemon hub
for part in "$@"; do
    case $part in
    daemon)
        "$bin/cobctl" demo --keep "$work/demo" >"$work/demo.log" 2>&1 || { cat "$work/demo.log"; exit 1; }
        forward "$(find "$work/demo" -type s | sort | head -n 1)"
        # Answers without an end, and orders that act on this machine, are left out.
        try "the API of a daemon" --exclude-path /v1/events --exclude-path /v1/run --exclude-path /v1/reboot
        ;;
    hub)
        "$bin/cobhub" serve --folder "$work/hub" --programs "$bin" >"$work/hub.log" 2>&1 &
        pids+=($!)
        soon test -S "$work/hub/hub.sock"
        forward "$work/hub/hub.sock"
        order() { curl -sf -H 'Content-Type: application/json' -d "$2" "http://127.0.0.1:$port/v1/$1"; }
        order directory '{"add-tenant": {"tenant": "web"}}'
        order directory '{"add-user": {"tenant": "web", "user": "ann", "administrator": true}}'
        token=$(order tokens '{"user": {"tenant": "web", "name": "ann"}}' | sed 's/.*"token":"\([^"]*\)".*/\1/')
        try "the API of the hub" --header "Authorization: Bearer $token" || { tail -n 20 "$work/hub.log"; exit 1; }
        ;;
    esac
done
