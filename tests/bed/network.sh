# Sourced by run.sh: interfaces of a real host are configured by systemd-networkd and are as before when the change objects
# have left, also with daemons that are killed again and again. The connectivity guard takes a wrong address back.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

kills=${COB_BED_KILLS:-12}

on h3 sh -c 'command -v networkctl >/dev/null && test -e /lib/systemd/system/systemd-networkd.service' ||
    { echo "skipped: interfaces, for the host lacks systemd-networkd"; return 0; }

network_model() { # ADDRESS
    cat <<MODEL
cobs:
  h3/lan:
    kind: network
    content:
      interface: eth0
      addresses: [$1/24, 10.78.0.3/24, "fd78::3/64"]
      mtu: 1400
      routes: [{to: 10.99.0.0/16, via: 10.78.0.9, metric: 50}]
  h3/bridge:
    kind: network
    content: {interface: br7, bridge: {stp: false}, addresses: [10.79.0.3/24]}
MODEL
}
set_network() { # the model, from standard input, is made and published
    put h1 $site/network.yaml
    publish_cluster
}
nothing() { echo 'cobs: {h3/nothing: {kind: noop}}'; }
net() {
    on h3 sh -c 'ip -o addr show scope global | sed "s/^[0-9]*: //; s/ *valid_lft.*//" | sort; ip route | sort; ip -6 route show proto static; cat /sys/class/net/eth0/mtu'
}
has_net() { # WHICH, as the net was at a time
    [ "$(net)" = "$1" ]
}
local_status() { on "$1" cobctl status 2>&1 || true; }

step "a host without systemd-networkd is refused with the reason"
set_network < <(network_model 10.77.0.3)
ctl switch $cluster_generation --on-failure hold || true
soon ctl_status_says "systemd-networkd is not active on this host"
set_network < <(nothing)
reach_cluster

# An administrator starts it; it has no files, so every interface stays as it is.
on h3 systemctl enable --now systemd-networkd 2>/dev/null
# A route and an address without broadcast, as a person adds them by hand.
on h3 sh -c 'ip addr add 10.80.0.3/24 dev eth0; ip route add 10.98.0.0/16 via 10.80.0.9 metric 7'
list_before
net_before=$(net)

step "interfaces: addresses, route, MTU and a bridge, and a second look changes nothing"
set_network < <(network_model 10.77.0.3)
reach_cluster
network_net=$(net)
for words in "inet 10.77.0.3/24" "inet 10.78.0.3/24" "inet6 fd78::3/64" "br7    inet 10.79.0.3/24" "10.99.0.0/16 via 10.78.0.9" 1400; do
    grep -qF -- "$words" <<< "$network_net" || { echo "it lacks $words: $network_net" >&2; false; }
done
network_listing=$(listing_of h3)
ctl check >/dev/null
has_net "$network_net" && [ "$(listing_of h3)" = "$network_listing" ]

step "what a person removes is drift, and comes back"
is_repaired() { ctl check >/dev/null 2>&1 && has_net "$network_net"; }
for edit in "ip addr del 10.78.0.3/24 dev eth0" "ip route del 10.99.0.0/16" "ip link set eth0 mtu 1300" "ip link del br7" \
    "rm /etc/systemd/network/10-cob-eth0.network"; do
    on h3 sh -c "$edit"
    soon is_repaired || { net >&2; ctl status >&2; false; }
    soon ctl status
done

step "after a power failure the interfaces are there before the daemon"
on h3 systemctl disable cobd 2>/dev/null
bed power-off h3
# The network namespace of a bed's host outlives its power; the addresses of a real host do not.
ip netns exec "$name-h3" sh -c 'ip addr flush dev eth0; ip link del br7; ip link set eth0 mtu 1500' 2>/dev/null || true
bed power-on h3
soon has_net "$network_net"
[ "$(on h3 systemctl is-active cobd)" = inactive ]
on h3 systemctl enable --now cobd 2>/dev/null
patience=180 soon ctl status

step "they leave, and the host is as it was"
set_network < <(nothing)
reach_cluster
soon has_net "$net_before" || { diff <(echo "$net_before") <(net) >&2; false; }
is_as_before

step "the daemon of the host is killed $kills times while interfaces come and go"
RANDOM=17
permit_many_starts h3
killed=0
round=0
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    set_network < <(if [ $((round % 2)) = 1 ]; then network_model 10.77.0.3; else nothing; fi)
    ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 7))$((RANDOM % 10))"
        on h3 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    done
    wait $switching || true
    patience=180 soon ctl status || { ctl status; on h3 journalctl --unit cobd --lines 60 --no-pager; false; }
    if [ $((round % 2)) = 1 ]; then
        soon has_net "$network_net" || { diff <(echo "$network_net") <(net) >&2; false; }
    else
        soon has_net "$net_before" || { diff <(echo "$net_before") <(net) >&2; false; }
        is_as_before
    fi
done
echo "       $killed kills in $round switches"

step "with the guard: a wrong address is taken back, without anybody's help"
set_network < <(network_model 10.77.0.3)
reach_cluster
good=$cluster_generation
set_network < <(network_model 10.77.0.33)
began=$SECONDS
ctl switch $cluster_generation --guard 20s --on-failure rollback >/dev/null
is_cut() { grep -qF "inet 10.77.0.33/24" <<< "$(net)"; }
soon is_cut
fails on h1 ping -c 1 -W 2 10.77.0.3
patience=180 soon has_net "$network_net"
echo "h3 has its address back after $((SECONDS - began)) s"
h3_is_back() { grep -qF "has rolled back from generation $cluster_generation to $good: " <<< "$(local_status h3)"; }
patience=180 soon h3_is_back
patience=180 soon ctl status

set_network < <(nothing)
reach_cluster
soon has_net "$net_before"
on h3 sh -c 'systemctl disable --now systemd-networkd systemd-networkd.socket 2>/dev/null; ip route del 10.98.0.0/16; ip addr del 10.80.0.3/24 dev eth0'
limit_starts h3
on h1 rm $site/network.yaml
switch_cluster
