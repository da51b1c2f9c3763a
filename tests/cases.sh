#!/usr/bin/env bash
# Runs the cases: small inputs that gave wrong results to users, each with a check of the right result.
#
#   tests/cases.sh                  all that run on loopback; needs target/debug, or COB_BIN=FOLDER
#   tests/cases.sh NAME...          only these
#   tests/cases.sh --host [NAME...] those that change a host: inside a systemd host that may be thrown away (tests/bed)
#   tests/cases.sh --list           their names, with what each one shows
#
# Prints a line for each case, and what a failed one printed. Ends with 1 if one has failed.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export COB_BIN=${COB_BIN:-$root/../target/debug}
folder=$root/cases
if [ "${1:-}" = --host ]; then
    folder=$root/cases/host
    shift
fi
if [ "${1:-}" = --list ]; then
    for case in "$root"/cases/*.sh "$root"/cases/host/*.sh; do
        [ "$(basename "$case")" = common.sh ] || printf '%-32s %s\n' "$(basename "$case" .sh)" "$(sed -n '2s/^# //p' "$case")"
    done
    exit 0
fi
[ $# -gt 0 ] || for case in "$folder"/*.sh; do
    [ "$(basename "$case")" = common.sh ] || set -- "$@" "$(basename "$case" .sh)"
done
passed=0 failed=0
for name in "$@"; do
    if [ ! -e "$folder/$name.sh" ]; then
        echo "there is no case $name; tests/cases.sh --list names them" >&2
        exit 2
    fi
    began=$SECONDS
    if said=$(timeout "${COB_CASE_LIMIT:-300}" bash "$folder/$name.sh" 2>&1 < /dev/null); then
        result=$(grep -m1 '^skipped' <<< "$said" || echo passed)
        passed=$((passed + 1))
    else
        result=FAILED
        failed=$((failed + 1))
    fi
    printf '%4d s  %-32s %s\n' $((SECONDS - began)) "$name" "$result"
    [ "$result" != FAILED ] || sed 's/^/        /' <<< "$said"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
