# Sourced by run.sh and ha-storage.sh: the arguments of a script whose hosts have COB, its bed (`members` are its hosts),
# which goes down at the end (`clear_away` removes what lies beside it), and looks at hosts.

members=${members:-h1 h2 h3}
name=${BED_NAME:-run$$}
patience=${COB_BED_PATIENCE:-60}

if ! why=$("$here/bed.sh" check); then
    echo "skipped: $why"
    exit 0
fi
# What is installed, and how.
case ${1:-} in
--stage | --deb) how=$1 what=$(realpath "${2:?$1 needs a path}") ;;
*)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
    ;;
esac
# Not what a script may have a loop over.
readonly how what
bed() { "$here/bed.sh" --name "$name" "$@"; }
on() { bed run "$@"; }

finish() {
    local result=$?
    trap - EXIT
    if [ $result != 0 ]; then
        echo "FAILED: ${step:-making the bed}" >&2
        local host
        for host in $members; do
            echo "---- $host" >&2
            on "$host" systemctl status --no-pager --lines=20 cobd >&2 || true
        done
        # What a script can say of its own programs.
        ! declare -F diagnose >/dev/null || diagnose >&2 || true
        if [ "${COB_BED_KEEP:-}" = 1 ]; then
            echo "the bed is left: $here/bed.sh --name $name run h1 bash; ... down" >&2
            exit $result
        fi
    fi
    bed down || result=1
    ! declare -F clear_away >/dev/null || clear_away || result=1
    exit $result
}
trap finish EXIT

# shellcheck source=tests/bed/steps.sh
source "$here/steps.sh"
says() { # WORDS CMD...: what it prints has these words
    local words=$1
    shift
    "$@" 2>&1 | grep -F -- "$words" >/dev/null
}

fails_with() { # WORDS CMD...: it fails, and says why in these words
    local words=$1 said
    shift
    ! said=$("$@" 2>&1) && grep -F -- "$words" >/dev/null <<< "$said"
}

unit() { on "$1" systemctl show --value --property "$2" cobd; }
is_unit() { [ "$(unit "$1" "$2")" = "$3" ]; }
put() { on "$1" sh -c "mkdir -p \"\$(dirname '$2')\" && cat > '$2'"; }

install_on() {
    local host=$1
    if [ "$how" = --deb ]; then
        put "$host" /var/tmp/cob.deb < "$what"
        on "$host" dpkg --install /var/tmp/cob.deb >/dev/null
    else
        tar -C "$what" --owner=0 --group=0 -c . | on "$host" tar -C / -x --no-overwrite-dir --keep-directory-symlink
        on "$host" systemctl daemon-reload
    fi
    on "$host" systemd-analyze verify cobd.service
}
