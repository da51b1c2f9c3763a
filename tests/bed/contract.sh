# Sourced by run.sh: the contract of kinds (docs/kinds/testing.md), tried on units of systemd, on all hosts at the
# same time; and that it finds units that break it.

step "units keep the contract: checks, moves, made twice, killed in the midst, given back as they were found"
for host in h1 h2 h3; do
    on $host mkdir -p /srv/tried
    put $host /usr/lib/systemd/system/tried.service <<'UNIT'
[Unit]
Description=Is tried
[Service]
ExecStart=/bin/sh -c 'exec sleep infinity'
ExecReload=/bin/true
[Install]
WantedBy=multi-user.target
UNIT
    on $host systemctl daemon-reload
done
# COLOUR MORE: the content, with further keys.
tried() {
    printf '{"unit": "tried", "enabled": true, "settle": "20ms", "drop_ins": {"10-cob.conf": "[Service]\\nEnvironment=COLOUR=%s\\n"}%s}' "$1" "$2"
}
try_units() { # HOST MORE OPTIONS...
    local host=$1 more=$2
    shift 2
    on "$host" cobctl test-kind service --content "$(tried red "$more")" --watch /etc/systemd --watch /srv/tried "$@"
}
keeps_the_contract() { # HOST MORE OPTIONS...: in all of its states
    local said
    said=$(try_units "$@" --other "$(tried blue "$2")" --arrange failed='systemctl kill --signal=KILL tried' \
        --arrange stale='systemctl disable tried') && ! grep "not tried" <<< "$said" || { echo "$said" >&2; return 1; }
    echo "       $(grep -c '^✓' <<< "$said") of $(grep -c '^[✓✗?]' <<< "$said") hold; killed before the end: $(
        grep -oE 'killed before its end in [0-9]+' <<< "$said" | awk '{ n += $NF } END { print n + 0 }')"
}
keeps_the_contract h1 "" --kills 2 & trials=$!
keeps_the_contract h2 ', "on_change": "reload"' --kills 2 --seed 2 & trials+=" $!"
# One that somebody had running, and that is masked while it is down.
on h3 systemctl start tried
keeps_the_contract h3 ', "mask": true' --kills 0 & trials+=" $!"
for trial in $trials; do
    wait "$trial"
done
[ "$(on h3 systemctl is-active tried)" = active ]
fails on h3 test -e /etc/systemd/system/tried.service.d

step "and such as break it are found"
breaks() { # HOST WORDS MORE OPTIONS...
    local host=$1 words=$2 said
    shift 2
    ! said=$(try_units "$host" "$@") && grep -F -A 1 '✗' <<< "$said" | grep -F "$words" >/dev/null || { echo "$said" >&2; return 1; }
}
# What is not taken away when it is killed.
breaks h2 "a killed transition can be repeated: down -> up" \
    ', "ready": "touch /srv/tried/$$; sleep 0.3; rm /srv/tried/$$"' --kills 2 & trial=$!
# What its start makes stays behind.
put h1 /usr/lib/systemd/system/tried.service.d/planted.conf <<< '[Service]
ExecStartPost=/bin/touch /srv/tried/left'
on h1 systemctl daemon-reload
breaks h1 "the reverse transition restores the first state" "" --kills 0
wait "$trial"
for host in h1 h2 h3; do
    on $host sh -c 'systemctl stop tried; rm -r /srv/tried /usr/lib/systemd/system/tried.service*; systemctl daemon-reload'
done
