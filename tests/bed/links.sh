# Sourced by network.sh and interfaces.sh: VLANs, bonds and DHCP, where the kernel has them (tests/bed/vm.sh gives such a
# kernel). Each host gets a bond of two ports, a VLAN on its cable, and an interface whose address comes from a server
# in a network namespace of its own.

links=""
# shellcheck disable=SC2154
has_links() {
    local kind
    command -v busybox >/dev/null && busybox --list | grep -qx udhcpd || return 1
    for kind in "type bond" "link eth0 type vlan id 5"; do
        ip netns exec "$name-h3" sh -c "ip link add try0 $kind && ip link del try0" 2>/dev/null || return 1
    done
}
serve_addresses() { # HOST: 10.90.N.50 for its interface d0
    local number=${1#h} space="$name-dhcp-$1"
    ip netns add "$space"
    ip -n "$name-$1" link add d0 type veth peer name d1 netns "$space"
    ip -n "$space" addr add "10.90.$number.1/24" dev d1
    ip -n "$space" link set d1 up
    printf '%s\n' "start 10.90.$number.50" "end 10.90.$number.50" "interface d1" "lease_file /run/$space.leases" \
        "pidfile /run/$space.pid" "option subnet 255.255.255.0" "option lease 3600" >"/run/$space.conf"
    : >"/run/$space.leases"
    ip netns exec "$space" busybox udhcpd -S "/run/$space.conf"
}
end_addresses() { # HOST
    local space="$name-dhcp-$1"
    kill "$(cat "/run/$space.pid")" 2>/dev/null || true
    ip -n "$name-$1" link del d0 2>/dev/null || true
    ip netns del "$space"
    rm -f "/run/$space".*
}
make_links() { # HOST...
    local host pair
    has_links || { echo "       without VLANs, bonds and DHCP, which the kernel or busybox lacks"; return 0; }
    links=1
    for host in "$@"; do
        # A network namespace outlives a host's power, so that the cables need no unit of their own.
        for pair in "p0 p1" "p2 p3"; do
            ip -n "$name-$host" link add "${pair% *}" type veth peer name "${pair#* }"
            ip -n "$name-$host" link set "${pair#* }" up
        done
        serve_addresses "$host"
    done
}
remove_links() { # HOST...
    local host
    [ -n "$links" ] || return 0
    for host in "$@"; do
        end_addresses "$host"
        ip -n "$name-$host" link del p0
        ip -n "$name-$host" link del p2
    done
}
links_model() { # HOST
    [ -n "$links" ] || return 0
    cat <<MODEL
  $1/bond:
    kind: network
    content: {interface: bond7, bond: {ports: [p0, p2], mode: active-backup}, addresses: [10.91.0.${1#h}/24]}
  $1/vlan:
    kind: network
    requires: [$1/lan]
    content: {interface: eth0.5, vlan: {id: 5, on: eth0}, addresses: [10.92.0.${1#h}/24]}
  $1/leased:
    kind: network
    content: {interface: d0, dhcp: ipv4}
MODEL
}
# What `ip` shows of them, a line each.
links_words() { # HOST
    [ -n "$links" ] || return 0
    printf '%s\n' "bond7 inet 10.91.0.${1#h}/24" "eth0.5 inet 10.92.0.${1#h}/24" "d0 inet 10.90.${1#h}.50/24"
}
has_words_of_links() { # HOST
    local shown words
    shown=$(on "$1" ip -o addr | awk '{ print $2, $3, $4 }')
    while read -r words; do
        grep -qF -- "$words" <<< "$shown" || return 1
    done < <(links_words "$1")
    [ -z "$links" ] || on "$1" sh -c 'grep -qx "MII Status: up" /proc/net/bonding/bond7 && grep -q "^Slave Interface: p0" /proc/net/bonding/bond7 &&
        grep -q "^Slave Interface: p2" /proc/net/bonding/bond7 && ip -d link show eth0.5 | grep -q "vlan protocol 802.1Q id 5"'
}
