#!/usr/bin/env bash
# Tries the API of a running daemon with schemathesis: requests that its description permits and forbids.
#
#   tests/api/schemathesis.sh ADDRESS [EXAMPLES]   such as http://127.0.0.1:7077 30
#
# The daemon must have `security: loopback-only`, and gets many orders: use one for trials. COB_SCHEMATHESIS names the
# program; `pip install schemathesis` installs it. Without it the script says so and ends with 0.
#
# Left out: reboots of this machine; /v1/events, whose answer has no end; requests for another host (409 before all else);
# the check of refused fitting requests, because no schema says all (a name `..`, a version that is missing); the check of
# credentials, because `loopback-only` has none.
set -eu
address=${1:?the address of a daemon, such as http://127.0.0.1:7077}
examples=${2:-50}
tool=${COB_SCHEMATHESIS:-schemathesis}
if ! command -v "$tool" > /dev/null; then
    echo "skipped: no schemathesis on this machine (pip install schemathesis)"
    exit 0
fi
host=$(curl -fsS "$address/v1/generations" | sed 's/.*"host":"\([^"]*\)".*/\1/')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$tool" run "$address/v1/openapi.json" --header "cob-host: $host" --url "$address" --max-examples "$examples" --request-timeout 75 \
    --phases examples,coverage,fuzzing --checks all --exclude-checks positive_data_acceptance,ignored_auth \
    --exclude-path /v1/reboot --exclude-path /v1/events --continue-on-failure --no-color \
    --suppress-health-check filter_too_much
