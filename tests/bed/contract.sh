# Sourced by run.sh: the contract of kinds (docs/kinds/testing.md), tried on units of systemd on h1; and that it finds
# units that break it.

step "units keep the contract: checks, moves, made twice, killed in the midst, given back as they were found"
on h1 mkdir -p /srv/tried
put h1 /usr/lib/systemd/system/tried.service <<'UNIT'
[Unit]
Description=Is tried
[Service]
ExecStart=/bin/sh -c 'exec sleep infinity'
ExecReload=/bin/true
[Install]
WantedBy=multi-user.target
UNIT
on h1 systemctl daemon-reload
# COLOUR MORE: the content, with further keys.
tried() {
    printf '{"unit": "tried", "enabled": true, "settle": "20ms", "drop_ins": {"10-cob.conf": "[Service]\\nEnvironment=COLOUR=%s\\n"}%s}' "$1" "$2"
}
try_units() { # MORE OPTIONS...
    local more=$1
    shift
    on h1 cobctl test-kind service --content "$(tried red "$more")" --watch /etc/systemd --watch /srv/tried "$@"
}
keeps_the_contract() { # MORE OPTIONS...: in all of its states
    local said
    said=$(try_units "$@" --other "$(tried blue "$1")" --arrange failed='systemctl kill --signal=KILL tried' \
        --arrange stale='systemctl disable tried') && ! grep "not tried" <<< "$said" || { echo "$said" >&2; return 1; }
    echo "       $(grep -c '^✓' <<< "$said") of $(grep -c '^[✓✗?]' <<< "$said") hold; killed before the end: $(
        grep -oE 'killed before its end in [0-9]+' <<< "$said" | awk '{ n += $NF } END { print n + 0 }')"
}
keeps_the_contract "" --kills 2
keeps_the_contract ', "on_change": "reload"' --kills 2 --seed 2
# One that somebody had running, and that is masked while it is down.
on h1 systemctl start tried
keeps_the_contract ', "mask": true' --kills 0
[ "$(on h1 systemctl is-active tried)" = active ]
fails on h1 test -e /etc/systemd/system/tried.service.d

step "and such as break it are found"
breaks() { # WORDS MORE OPTIONS...
    local words=$1 said
    shift
    ! said=$(try_units "$@") && grep -F -A 1 '✗' <<< "$said" | grep -F "$words" >/dev/null || { echo "$said" >&2; return 1; }
}
on h1 systemctl stop tried
# What its start makes stays behind.
put h1 /usr/lib/systemd/system/tried.service.d/planted.conf <<< '[Service]
ExecStartPost=/bin/touch /srv/tried/left'
on h1 systemctl daemon-reload
breaks "the way back leaves nothing" "" --kills 0
on h1 sh -c 'rm -r /srv/tried/left /usr/lib/systemd/system/tried.service.d; systemctl daemon-reload'
# What is not taken away when it is killed.
breaks "killed and made again ends the same: down -> up" \
    ', "ready": "touch /srv/tried/$$; sleep 0.3; rm /srv/tried/$$"' --kills 2
on h1 sh -c 'rm -r /srv/tried /usr/lib/systemd/system/tried.service; systemctl daemon-reload'
