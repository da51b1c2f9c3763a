# Sourced by run.sh, storage.sh and hub.sh: the steps of a story, and conditions with a limit of `patience` seconds. `pause`
# is the time between two looks.

step() {
    step=$1
    printf '%4d s  %s\n' "$SECONDS" "$1"
}

# A condition that has to become true, with a limit.
soon() {
    local limit=$((SECONDS + patience))
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $limit ]; then
            echo "waited $patience s in vain: $*" >&2
            return 1
        fi
        sleep "${pause:-0.2}"
    done
}

fails() { ! "$@" >/dev/null 2>&1; }
