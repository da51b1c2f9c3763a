#!/usr/bin/env bash
# VLANs, bonds and DHCP in a virtual machine (vm.sh) with a kernel that has them: systemd-networkd, NetworkManager and
# ifupdown configure them one after the other. What a person removes comes back, a boot brings all back before the
# daemon starts, and the interfaces are as before when their change objects have left, also with killed daemons.
#
#   tests/bed/links.sh --stage FOLDER   with the files that `packaging/build.sh stage FOLDER` has put there
#
# Where no machine can be emulated it says `skipped: WHY` and ends with 0. COB_BED_ONLY names the programs,
# COB_BED_KEEP=1 leaves the machine when something has failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=${BED_NAME:-links$$}
programs=${COB_BED_ONLY:-networkd NetworkManager ifupdown}

[ "${1:-}" = --stage ] || { sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
stage=$(realpath "${2:?--stage needs a path}")
busybox --list | grep -x udhcpd >/dev/null || { echo "skipped: busybox has no DHCP server"; exit 0; }
command -v apt-get >/dev/null || { echo "skipped: there is no apt-get"; exit 0; }

looks='ip -o addr; networkctl; nmcli device; tail -n 40 /var/log/cables.log'
# shellcheck source=tests/bed/machine.sh
source "$here/machine.sh"
# shellcheck source=tests/bed/debs.sh
source "$here/debs.sh"

read -ra debs < <(apt-get install -s --no-install-recommends network-manager ifupdown isc-dhcp-client 2>/dev/null | additional)
fetch machine "${debs[@]}" || { echo "skipped: NetworkManager and ifupdown, whose packages are not to be had (no network?)"; exit 0; }

step "a machine with cables, a server of DHCP, NetworkManager and ifupdown, and COB as it is installed"
boot 0
put /etc/NetworkManager/conf.d/bed.conf <<'CONFIG'
[main]
no-auto-default=*
[keyfile]
unmanaged-devices=interface-name:e1;interface-name:p1;interface-name:p3
CONFIG
# The scripts of the packages would take minutes there.
small=$(mktemp -d -p /var/tmp)
for deb in "$packages"/machine/*.deb; do dpkg-deb -x "$deb" "$small"; done
give "$small"
rm -r "$small"
put /etc/network/interfaces <<< 'source /etc/network/interfaces.d/*'
on sh -c 'ldconfig; systemctl daemon-reload; systemctl reload dbus'
put /usr/local/sbin/cables <<'CABLES'
#!/bin/sh
# Before the program for the network starts: what a real machine has as hardware.
exec >>/var/log/cables.log 2>&1
for pair in "e0 e1" "p0 p1" "p2 p3"; do
    ip link add ${pair% *} type veth peer name ${pair#* }
    ip link set ${pair#* } up
done
ip netns add office
ip link add d0 type veth peer name d1 netns office
ip -n office addr add 10.90.0.1/24 dev d1
ip -n office link set d1 up
printf '%s\n' "start 10.90.0.50" "end 10.90.0.50" "interface d1" "lease_file /run/office.leases" "pidfile /run/office.pid" \
    "option subnet 255.255.255.0" "option lease 3600" >/run/office.conf
: >/run/office.leases
exec ip netns exec office busybox udhcpd -S -f /run/office.conf
CABLES
put /etc/systemd/system/cables.service <<'UNIT'
[Unit]
DefaultDependencies=no
After=systemd-udevd.service
Before=network-pre.target systemd-networkd.service NetworkManager.service networking.service
Wants=network-pre.target
[Service]
ExecStart=/bin/sh /usr/local/sbin/cables
ExecStartPost=/bin/sh -c 'until test -e /run/office.pid; do sleep 0.2; done'
[Install]
WantedBy=multi-user.target
UNIT
on sh -c 'systemctl daemon-reload; systemctl enable --now --quiet cables'

model() { # PROGRAM [NUMBER OF THE VLAN]
    cat <<MODEL
  vm/cable:
    kind: network
    content: {by: $1, interface: e0, addresses: [10.93.0.1/24]}
  vm/bond:
    kind: network
    content: {by: $1, interface: bond7, bond: {ports: [p0, p2], mode: active-backup}, addresses: [10.91.0.1/24]}
  vm/vlan:
    kind: network
    requires: [vm/cable]
    content: {by: $1, interface: e0.5, vlan: {id: ${2:-5}, on: e0}, addresses: [10.92.0.1/24]}
  vm/leased:
    kind: network
    content: {by: $1, interface: d0, dhcp: ipv4}
MODEL
}
net() {
    on sh -c 'ip -o addr show scope global | awk "{ print \$2, \$3, \$4 }" | sort; ip route | sed -E "s/ metric [0-9]+//" | sort'
}
is_configured() { # [NUMBER OF THE VLAN]
    local shown
    shown=$(net)
    for words in "e0 inet 10.93.0.1/24" "bond7 inet 10.91.0.1/24" "e0.5 inet 10.92.0.1/24" "d0 inet 10.90.0.50/24"; do
        grep -qFx -- "$words" <<< "$shown" || { echo "it lacks $words: $shown"; return 1; }
    done
    on sh -c 'grep -qx "MII Status: up" /proc/net/bonding/bond7 && grep -q "^Slave Interface: p0" /proc/net/bonding/bond7 &&
        grep -q "^Slave Interface: p2" /proc/net/bonding/bond7 && grep -q "active-backup" /proc/net/bonding/bond7 &&
        ip -d link show e0.5 | grep -q "vlan protocol 802.1Q id '"${1:-5} \""
}
has_net() { [ "$(net)" = "$1" ]; }
soon_has_net() { soon has_net "$1" || { diff <(echo "$1") <(net) >&2; false; }; }
unit_of() {
    case $1 in
    networkd) echo systemd-networkd ;;
    ifupdown) echo networking ;;
    *) echo "$1" ;;
    esac
}

publish < <(nothing)
on systemctl enable --now cobd
reach
for program in $programs; do
    unit=$(unit_of "$program")
    step "$program: a bond, a VLAN and an address by DHCP, and a second look changes nothing"
    on systemctl enable --now --quiet "$unit"
    net_before=$(net)
    etc_before=$(etc)
    publish < <(model "$program")
    reach
    soon is_configured
    configured=$(net)
    links=$(etc)
    on cobctl check >/dev/null
    has_net "$configured" && [ "$(etc)" = "$links" ]

    step "$program: what a person removes comes back"
    for edit in "ip addr del 10.91.0.1/24 dev bond7" "ip link del e0.5" "ip link set p2 nomaster" "ip link del bond7"; do
        on sh -c "$edit"
        is_repaired() { on cobctl check >/dev/null 2>&1; is_configured; }
        soon is_repaired || { net >&2; false; }
        soon on cobctl status
    done

    step "$program: another number of the VLAN"
    publish < <(model "$program" 6)
    reach
    soon is_configured 6
    publish < <(model "$program")
    reach
    soon is_configured

    step "$program: after a power failure all is there before the daemon"
    on sh -c 'systemctl disable --quiet cobd; sync'
    vm power-off
    vm power-on
    soon is_configured
    soon_has_net "$configured"
    [ "$(on systemctl is-active cobd)" = inactive ]
    on systemctl enable --now --quiet cobd
    soon on cobctl status

    step "$program: all leaves, and the interfaces are as before; the daemon is killed on every way"
    for way in nothing "model $program" nothing; do
        publish < <($way)
        try &
        trying=$!
        sleep $((RANDOM % 5 + 1))
        on systemctl kill --signal=KILL cobd || true
        wait $trying || true
        soon on cobctl status
        case $way in
        nothing) soon_has_net "$net_before" && is_as_before ;;
        *) soon is_configured ;;
        esac
    done
    on systemctl disable --now --quiet "$unit"
done
step "all is done"
