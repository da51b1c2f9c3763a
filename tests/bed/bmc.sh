# Sourced by run.sh: a simulated BMC gets an address, users, a watchdog and a boot device from a host, also while the
# daemon and its actions are killed, and is given back. No process shows a password.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

kills=${COB_BED_KILLS:-12}

on h2 sh -c 'command -v ipmi_sim ipmitool >/dev/null && command -v bash >/dev/null' ||
    { echo "skipped: a BMC, for the host lacks ipmi_sim (package openipmi) or ipmitool"; return 0; }

put h2 /srv/bmc/lan.conf <<'CONF'
name "bed"
serial 15 127.0.0.1 6231 codec VM
chassis_control "/srv/bmc/chassis"
startlan 1
  addr 127.0.0.1 6230
  priv_limit admin
  guid a123456789abcdefa123456789abcdef
  allowed_auths_user md5
  allowed_auths_admin md5
endlan
user 2 true "root" "bedroot" admin 10 md5
user 9 true "theirs" "old" operator 10 md5
CONF
put h2 /srv/bmc/bmc.emu <<'CONF'
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_enable 0x20
CONF
put h2 /srv/bmc/chassis <<'SH'
#!/bin/sh
case $1 in set) echo "$3" > /srv/bmc/boot ;; get) echo "$2:$(cat /srv/bmc/boot)" ;; esac
SH
on h2 sh -c 'chmod 755 /srv/bmc/chassis; echo none > /srv/bmc/boot
    systemd-run --quiet --unit=bed-bmc --working-directory=/srv/bmc ipmi_sim -n -c lan.conf -f bmc.emu -s /srv/bmc'
soon on h2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/6231'
# The machine of the BMC, which can be reset: without it the simulator has no watchdog.
on h2 systemd-run --quiet --unit=bed-machine bash -c \
    'exec 3<>/dev/tcp/127.0.0.1/6231; printf "\377\001\241\010\073\241" >&3; sleep infinity'

bmc_says() { # USER PASSWORD WORDS...
    local user=$1 password=$2
    shift 2
    on h2 env IPMI_PASSWORD="$password" ipmitool -I lanplus -C 3 -R 1 -N 2 -H 127.0.0.1 -p 6230 -L USER -U "$user" -E "$@"
}
logs_in() { bmc_says "$1" "$2" raw 6 1 >/dev/null 2>&1; }
bmc_root() { bmc_says root bedroot -L ADMINISTRATOR raw "$@" 2>&1; }
soon logs_in root bedroot
bmc_state() {
    local id parameter
    for id in 2 3 4 9; do bmc_root 6 0x46 $id; done
    bmc_root 6 0x44 1 9 | cut -c 10-
    for parameter in 3 4 6 12 20; do bmc_root 12 2 1 $parameter 0 0; done
    bmc_root 6 0x25 | cut -c 4-
}
bmc_before=$(bmc_state)

on h1 sh -c "umask 077; echo bed-secret-cob > $site/bmcpassword; echo bedroot > $site/bmcroot"
bmc_model() { # TIMEOUT
    cat <<MODEL
secrets: {bmc: {file: bmcpassword}, root: {file: bmcroot}}
cobs:
  h2/bmc:
    kind: bmc
    content:
      remote: {host: 127.0.0.1, port: 6230, user: root, password: "{{ secret('root') }}", cipher_suite: 3}
      lan: {address: 10.0.1.2, netmask: 255.255.255.0, gateway: 10.0.1.254, vlan: 7}
      users:
        cob: {privilege: operator, password: "{{ secret('bmc') }}"}
        theirs: {privilege: user, enabled: false}
      watchdog: {timeout: $1, action: reset}
      boot: {device: pxe, persistent: false}
MODEL
}
set_bmc() { # the model, from standard input, is made and published
    put h1 $site/bmc.yaml
    publish_cluster
}
bmc_nothing() { echo 'cobs: {h2/nothing: {kind: noop}}'; }

step "bmc: address, users, watchdog and boot device"
set_bmc < <(bmc_model 90s)
# All words of all processes, while the BMC is set.
on h2 systemd-run --quiet --unit=bed-words bash -c 'while :; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" " " >> /srv/bmc/words; done'
reach_cluster
on h2 systemctl stop bed-words
on h2 grep -q 'exec /dev/stdin' /srv/bmc/words
fails on h2 grep -q -e bed-secret-cob -e bedroot /srv/bmc/words
logs_in cob bed-secret-cob
fails logs_in theirs old
[ "$(bmc_root 12 2 1 3 0 0)" = " 11 0a 00 01 02" ]
[ "$(bmc_root 6 0x25)" = " 04 01 00 00 84 03" ]
on h2 grep -qx pxe /srv/bmc/boot
fails on h2 grep -rq -e bed-secret-cob -e bedroot /var/lib/cob

step "bmc: a change of others is drift, and is set again"
bmc_root 12 1 1 3 10 0 1 99 >/dev/null
bmc_root 6 0x43 0x91 3 4 >/dev/null
ctl check h2/bmc >/dev/null 2>&1 || true
is_set_again() { [ "$(bmc_root 12 2 1 3 0 0)" = " 11 0a 00 01 02" ] && [ "$(bmc_root 6 0x44 1 3 | cut -c 10-)" = " 13" ]; }
soon is_set_again
soon ctl status

step "bmc: the daemon and its actions are killed $kills times"
RANDOM=23
permit_many_starts h2
killed=0 round=0
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    if [ $((round % 2)) = 0 ]; then set_bmc < <(bmc_model $((100 + round))s); else set_bmc < <(bmc_nothing); fi
    ctl switch $cluster_generation --on-failure hold >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
        on h2 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    done
    wait $switching || true
    is_done() { ctl status >/dev/null 2>&1 || { ctl retry h2/bmc >/dev/null 2>&1 || true; false; }; }
    patience=180 soon is_done
    if [ $((round % 2)) = 0 ]; then logs_in cob bed-secret-cob; else fails logs_in cob bed-secret-cob; fi
done
echo "       $killed kills of the daemon with its actions in $round switches"

step "bmc: given back"
set_bmc < <(bmc_nothing)
reach_cluster
[ "$(bmc_state)" = "$bmc_before" ] || { diff <(echo "$bmc_before") <(bmc_state) >&2; false; }
logs_in theirs old
fails logs_in cob bed-secret-cob
limit_starts h2
on h2 systemctl stop bed-machine bed-bmc
on h2 rm -r /srv/bmc
on h1 rm $site/bmc.yaml $site/bmcpassword $site/bmcroot
switch_cluster
