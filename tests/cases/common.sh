# Sourced by every case: a scratch folder, daemons on loopback addresses that end with the case, and checks.
#
# A case is a small input that gave a wrong result to a user. It passes if the result is right now. COB_BIN is the
# folder of cobgen, cobd and cobctl; KEEP=1 leaves the scratch folder.
set -u
PATH=${COB_BIN:?the folder of cobgen, cobd and cobctl}:$PATH
unset COB_DEPOT COB_SOCKET COB_KEY COB_CONFIG COB_PUBLISHER_KEY
export NO_COLOR=1
work=$(mktemp -d "${TMPDIR:-/tmp}/cob-case.XXXXXX")
export COB_DEPOT=$work/depot
cd "$work" || exit 2
failed=0

finish() {
    local result=$? file pid
    for file in "$work"/*.pid; do
        [ ! -e "$file" ] || kill "$(cat "$file")" 2>/dev/null
    done
    wait 2>/dev/null
    # Services outlive the daemon; their supervisors name the folder of its state.
    for pid in $(pgrep -f "__keep-service $work/"); do
        kill "$pid" 2>/dev/null
    done
    cd / || exit 2
    if [ -n "${KEEP:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
    [ $failed = 0 ] || result=1
    exit $result
}
trap finish EXIT

# wrong TEXT: the case has found the fault.
wrong() {
    echo "FAULT: $*" >&2
    failed=1
}

# says WORDS FILE: a file contains these words. lacks WORDS FILE: it does not.
says() { grep -qF -- "$1" "$2" || { wrong "expected \"$1\" in $2:"; head -c 2000 "$2" >&2; }; }
lacks() { ! grep -qF -- "$1" "$2" || { wrong "unexpected \"$1\" in $2:"; head -c 2000 "$2" >&2; }; }
# same WANTED FOUND WHAT
same() { [ "$1" = "$2" ] || wrong "$3: expected $1, found $2"; }

# A condition that has to become true, with a limit.
soon() {
    local limit=$((SECONDS + ${PATIENCE:-60}))
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $limit ] || { wrong "waited in vain: $*"; return 1; }
        sleep 0.1
    done
}

# A user who is not root, in no group of root's.
as_nobody() { setpriv --reuid nobody --regid nogroup --clear-groups "$@"; }

start() {
    local host
    for host in "$@"; do
        [ -e "$host.toml" ] ||
            printf 'host = "%s"\ndepot = "depot"\nstate_dir = "%s/state"\nhttp = "%s.sock"\n' "$host" "$host" "$host" > "$host.toml"
        mkdir -p "$host"
        cobd run --config "$host.toml" >> "$host.log" 2>&1 < /dev/null &
        echo $! > "$host.pid"
    done
    for host in "$@"; do
        soon curl -s --unix-socket "$host.sock" http://localhost/v1/version
    done
}

# end SIGNAL HOST...: daemons end, and have ended when this returns.
end() {
    local signal=$1 host
    shift
    for host in "$@"; do
        kill "-$signal" "$(cat "$host.pid")"
        wait "$(cat "$host.pid")" 2>/dev/null
        rm -f "$host.pid"
    done
}

generate() { cobgen generate "${1:-model.yaml}" --depot depot > generate.out 2>&1 || { cat generate.out >&2; exit 2; }; }

# switch [GENERATION [WAIT [OPTION...]]]: what it prints is in switch.out, its exit status in $status.
switch() {
    local generation=${1:-latest} wait=${2:-60s}
    shift $(($# < 2 ? $# : 2))
    status=0
    cobctl switch "$generation" --wait="$wait" "$@" > switch.out 2>&1 < /dev/null || status=$?
}
converge() { switch "${1:-latest}" "${2:-60s}"; [ $status = 0 ] || { cat switch.out >&2; exit 2; }; }

# hosts NET N: a section of N hosts on addresses of their own.
hosts() {
    local i
    echo "security: loopback-only"
    echo "hosts:"
    for ((i = 1; i <= $2; i++)); do
        echo "  n$i: {address: \"tcp://127.77.$1.$i:7077\"}"
    done
}

# The kind `conf`: its state is a copy of its content, and a content with the word BAD can't be applied.
kind_conf() {
    cat <<'YAML'
kinds:
  conf:
    states: [down, up, outdated]
    preferred: up
    pre_remove: down
    retries: 0
    check: {run: 'if [ ! -e "$COB_STATE_DIR/c" ]; then echo down; elif cmp -s "$COB_STATE_DIR/c" "$COB_CONTENT"; then echo up; else echo outdated; fi'}
    transitions:
      - {from: down, to: up, run: &w 'if grep -q BAD "$COB_CONTENT"; then exit 7; fi; cp "$COB_CONTENT" "$COB_STATE_DIR/c"'}
      - {from: outdated, to: up, run: *w}
      - {from: up, to: down, run: &d 'rm -f "$COB_STATE_DIR/c"'}
      - {from: outdated, to: down, run: *d}
YAML
}
