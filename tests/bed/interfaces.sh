# Sourced by run.sh: interfaces of hosts without systemd-networkd: NetworkManager configures those of h2, ifupdown those
# of h3. They are applied, lose parts, change, come back after a power failure, and are as before when the change objects
# have left, also with daemons that are killed again and again.
#
# COB_BED_KILLS says how often (default 6); COB_BED_GUARD=1 tries the connectivity guard, too. The packages are taken
# from Debian's archive once and kept below the target folder.

if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "skipped: NetworkManager and ifupdown, for there is no apt-get or no dpkg-deb"
    return 0
fi

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"
# shellcheck source=tests/bed/debs.sh
source "$here/debs.sh"

kills=${COB_BED_KILLS:-6}

wanted_of() { # HOST PACKAGE...: they, and what they need of packages that the host lacks
    local host=$1
    shift
    on "$host" apt-get install -s --no-install-recommends "$@" 2>/dev/null | additional
}
read -ra manager <<< "$(wanted_of h2 network-manager)"
read -ra ifupdown <<< "$(wanted_of h3 ifupdown isc-dhcp-client)"
if ! fetch h2 "${manager[@]}" || ! fetch h3 "${ifupdown[@]}"; then
    echo "skipped: NetworkManager and ifupdown, whose packages are not to be had (no network?)"
    return 0
fi
give() { # HOST: the packages
    tar -C "$packages/$1" -c . | on "$1" sh -c 'mkdir /srv/debs && tar -C /srv/debs --no-same-owner -x && cd /srv/debs &&
        DEBIAN_FRONTEND=noninteractive dpkg --force-depends --install *.deb >/dev/null 2>&1; rm -r /srv/debs'
}

interfaces_model() { # THE THIRD NUMBER OF AN ADDRESS [ANOTHER LAST DIGIT OF THE ADDRESSES FOR THE PEERS]
    local host number
    echo "cobs:"
    for host in h2 h3; do
        number=${host#h}
        cat <<MODEL
  $host/lan:
    kind: network
    content:
      interface: eth0
      addresses: [10.77.0.$number${2:-}/24, 10.$1.0.$number/24, "fd78::$number/64"]
      mtu: 1400
      routes: [{to: 10.99.0.0/16, via: 10.$1.0.9, metric: 50}]
  $host/office:
    kind: network
    content: {interface: v0, addresses: [10.82.0.$number/24], gateways: [10.82.0.1]}
  $host/bridge:
    kind: network
    content: {interface: br7, bridge: {ports: [v2], stp: false}, addresses: [10.79.0.$number/24]}
MODEL
    done
}
set_interfaces() { # the model, from standard input, is made and published
    put h1 $site/interfaces.yaml
    publish_cluster
}
nothing() { echo 'cobs: {h2/nothing: {kind: noop}, h3/nothing: {kind: noop}}'; }
net_of() { # without the metrics that NetworkManager counts up
    on "$1" sh -c 'ip -o addr show scope global | awk "{ print \$2, \$3, \$4 }" | sort; ip route | sed -E "s/ metric [0-9]{3}\b//" | sort; ip -6 route show proto static
        ip -o link | awk "{ more = \"\"; for (i = 4; i < NF; i++) if (\$i == \"mtu\" || \$i == \"master\") more = more \" \" \$(i + 1)
            print \$2, (\$3 ~ /[<,]UP[,>]/ ? \"up\" : \"down\") more }"
        ! command -v nmcli >/dev/null || nmcli -t -f DEVICE,STATE,CONNECTION device | sed "s/connecting (.*)/connected/" | sort'
}
nets() { net_of h2; net_of h3; }
has_nets() { # WHICH, as the nets were at a time
    [ "$(nets)" = "$1" ]
}
soon_has_nets() { soon has_nets "$1" || { diff <(echo "$1") <(nets) >&2; ctl status >&2; false; }; }

step "NetworkManager on h2, ifupdown on h3, with an interface and a connection of an administrator"
for host in h2 h3; do
    # A network namespace outlives a host's power, so that the cables need no unit of their own.
    for pair in "v0 v1" "v2 v3"; do
        ip -n "$name-$host" link add "${pair% *}" type veth peer name "${pair#* }"
        ip -n "$name-$host" link set "${pair#* }" up
    done
done
put h2 /etc/NetworkManager/conf.d/bed.conf <<< '[main]
no-auto-default=*
[keyfile]
unmanaged-devices=interface-name:v1;interface-name:v3'
give h2 &
give h3
wait $!
on h2 sh -c 'umask 077; cat > "/etc/NetworkManager/system-connections/the office.nmconnection"' <<'CONNECTION'
[connection]
id=the office
uuid=5372aaa1-e38b-4f28-86a5-4e5c1317e494
type=ethernet
interface-name=v0

[ipv4]
method=manual
address1=10.84.0.2/24

[ipv6]
method=disabled
CONNECTION
on h2 systemctl enable --quiet NetworkManager
on h2 systemctl restart NetworkManager
on h3 systemctl enable --now --quiet networking
for host in h2 h3; do
    # An address and a route, as a person adds them by hand.
    on $host sh -c "ip addr add 10.80.0.${host#h}/24 dev eth0; ip route add 10.98.0.0/16 via 10.80.0.9 metric 7"
done
office_is_up() { on h2 nmcli -t -f DEVICE,STATE,CONNECTION device | grep -qx 'v0:connected:the office'; }
soon office_is_up
list_before
nets_before=$(nets)

step "addresses, routes, MTU and a bridge with a port, and a second look changes nothing"
set_interfaces < <(interfaces_model 78)
reach_cluster
nets_after=$(nets)
for host in h2 h3; do
    number=${host#h}
    for words in "eth0 inet 10.77.0.$number/24" "eth0 inet 10.78.0.$number/24" "eth0 inet6 fd78::$number/64" "v0 inet 10.82.0.$number/24" \
        "br7 inet 10.79.0.$number/24" "10.99.0.0/16 via 10.78.0.9" "default via 10.82.0.1" " 1400" "1500 br7"; do
        grep -qF -- "$words" <<< "$nets_after" || { echo "$host lacks $words: $nets_after" >&2; false; }
    done
done
fails grep -F 10.84.0.2 <<< "$nets_after"
interfaces_listing=$(listing_of h2; listing_of h3)
ctl check >/dev/null
has_nets "$nets_after"
[ "$(listing_of h2; listing_of h3)" = "$interfaces_listing" ]

step "what a person removes is drift, and comes back"
is_repaired() { ctl check >/dev/null 2>&1 && has_nets "$nets_after"; }
for edit in "ip addr del 10.78.0.N/24 dev eth0; ip link set eth0 mtu 1300" "ip link del br7" "rm -f FILES; ip route del 10.99.0.0/16" "STOP"; do
    for host in h2 h3; do
        files="/etc/NetworkManager/system-connections/cob-eth0.nmconnection"
        stop="nmcli --wait 9 connection up 'the office' >/dev/null"
        [ $host = h2 ] || files=/etc/network/interfaces.d/cob-eth0 stop="ifdown v0"
        command=${edit//N/${host#h}}
        command=${command//FILES/$files}
        on $host sh -c "${command//STOP/$stop}"
    done
    soon is_repaired || { diff <(echo "$nets_after") <(nets) >&2; ctl status >&2; false; }
    soon ctl status
done

step "after a power failure the interfaces are there before the daemon"
for host in h2 h3; do
    on $host systemctl disable cobd 2>/dev/null
    bed power-off $host
    # The network namespace of a bed's host outlives its power; the addresses of a real host do not.
    ip netns exec "$name-$host" sh -c 'for dev in eth0 v0 d0; do ip addr flush dev $dev; done
        for dev in br7 bond7 eth0.5; do ip link del $dev; done; ip link set eth0 mtu 1500' 2>/dev/null || true
done
bed power-on h2 &
bed power-on h3
wait $!
soon_has_nets "$nets_after"
for host in h2 h3; do
    [ "$(on $host systemctl is-active cobd)" = inactive ]
    on $host systemctl enable --now cobd 2>/dev/null
done
patience=180 soon ctl status

step "another address, and they leave: the hosts are as they were"
set_interfaces < <(interfaces_model 83)
reach_cluster
nets_changed=$(nets)
for host in h2 h3; do
    grep -qF "eth0 inet 10.83.0.${host#h}/24" <<< "$nets_changed"
done
fails grep -F 10.78.0. <<< "$nets_changed"
set_interfaces < <(nothing)
reach_cluster
soon_has_nets "$nets_before"
is_as_before

step "the daemons are killed $kills times while interfaces come and go"
RANDOM=19
permit_many_starts h2 h3
killed=0
round=0
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    set_interfaces < <(if [ $((round % 2)) = 1 ]; then interfaces_model 78; else nothing; fi)
    ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 7))$((RANDOM % 10))"
        on h2 systemctl kill --signal=KILL cobd 2>/dev/null || true
        on h3 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    done
    wait $switching || true
    patience=180 soon ctl status || { ctl status; false; }
    if [ $((round % 2)) = 1 ]; then
        soon_has_nets "$nets_after"
    else
        soon_has_nets "$nets_before"
        is_as_before
    fi
done
echo "       $killed kills in $round switches"

if [ "${COB_BED_GUARD:-}" = 1 ]; then
    step "with the guard: wrong addresses are taken back, without anybody's help"
    set_interfaces < <(interfaces_model 78)
    reach_cluster
    good=$cluster_generation
    set_interfaces < <(interfaces_model 78 7)
    ctl switch $cluster_generation --guard 20s --on-failure rollback >/dev/null
    are_cut() { [ "$(nets | grep -cE '^eth0 inet 10\.77\.0\.(27|37)/24')" = 2 ]; }
    soon are_cut
    fails on h1 ping -c 1 -W 1 10.77.0.2
    patience=180 soon_has_nets "$nets_after"
    are_back() {
        local host
        for host in h2 h3; do
            grep -qF "has rolled back from generation $cluster_generation to $good: " <<< "$(on $host cobctl status 2>&1)" || return 1
        done
    }
    patience=180 soon are_back
    patience=180 soon ctl status
fi

set_interfaces < <(nothing)
reach_cluster
soon_has_nets "$nets_before"
is_as_before
limit_starts h2 h3
on h1 rm $site/interfaces.yaml
switch_cluster
for host in h2 h3; do
    on $host sh -c "systemctl disable --now NetworkManager networking 2>/dev/null
        DEBIAN_FRONTEND=noninteractive dpkg --force-depends --purge \$* >/dev/null 2>&1; rm -rf /etc/NetworkManager /etc/network
        ip link del v0; ip link del v2; ip route del 10.98.0.0/16; ip addr del 10.80.0.${host#h}/24 dev eth0; true" - \
        $(if [ $host = h2 ]; then echo "${manager[@]}"; else echo "${ifupdown[@]}"; fi)
done
