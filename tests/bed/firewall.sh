# Sourced by run.sh: a firewall on real hosts meets real packets, finds drift, survives a power failure before the daemon
# is there, and leaves no trace; also with daemons that are killed again and again. A firewall that cuts a host off is
# rolled back by the connectivity guard.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

kills=${COB_BED_KILLS:-12}

on h2 sh -c 'command -v nft >/dev/null && command -v python3 >/dev/null' ||
    { echo "skipped: firewalls, for the host lacks nft or python3"; return 0; }

on h2 sh -c 'mkdir -p /srv/www; for port in 2222 2223 2224; do
    systemd-run --quiet --unit=web$port --working-directory=/srv/www python3 -m http.server --bind 10.77.0.2 $port; done'
# A table of somebody else, which stays as it is.
on h2 nft -f - <<< 'table inet others { chain input { type filter hook input priority 5; policy accept; tcp dport 9 drop; }; }'

firewall_model() {
    cat <<'MODEL'
cobs:
  h2/rules:
    kind: firewall
    content:
      input:
        - {tcp: 2222, from: {host: h1}, comment: h1}
        - {tcp: 2223, from: {host: h3}}
        - {icmp: true, rate: 50/second}
      default: {forward: drop}
MODEL
}
set_firewall() { # the model, from standard input, is made and published
    put h1 $site/firewall.yaml
    publish_cluster
}
nothing() { echo 'cobs: {h2/nothing: {kind: noop}}'; }
connects() { on "$1" timeout 3 bash -c "exec 3<>/dev/tcp/10.77.0.2/$2" 2>/dev/null; }
table_of() { on "$1" sh -c 'nft -s list table inet cob 2>/dev/null || true'; }
others() { on h2 nft -s list table inet others; }
is_gone() { [ -z "$(table_of "$1")" ] || { table_of "$1" >&2; return 1; }; }

is_untouched() { [ "$(others)" = "$others_before" ] || { diff <(echo "$others_before") <(others) >&2; return 1; }; }

for port in 2222 2223 2224; do
    soon connects h1 $port
done
list_before
others_before=$(others)

step "a firewall: packets meet its rules, and the daemons still reach each other"
set_firewall < <(firewall_model)
reach_cluster
connects h1 2222
connects h3 2223
fails connects h1 2223
fails connects h3 2222
fails connects h1 2224
on h1 ping -c 1 -W 3 10.77.0.2 >/dev/null
firewall_table=$(table_of h2)
firewall_listing=$(listing_of h2)
ctl check >/dev/null
[ "$(table_of h2)" = "$firewall_table" ] && [ "$(listing_of h2)" = "$firewall_listing" ]

step "what a person changes in the table is drift, and comes back"
has_table() { [ "$(table_of h2)" = "$firewall_table" ]; }
# A check is asked for again: it may have looked just before the edit.
is_repaired() { ctl check >/dev/null 2>&1 && has_table; }
for edit in "add rule inet cob input tcp dport 2224 accept" "insert rule inet cob input tcp dport 2222 drop" "delete table inet cob"; do
    on h2 nft "$edit"
    soon is_repaired
    soon ctl status
done
fails connects h1 2224

step "after a power failure the table is there before the daemon"
on h2 systemctl disable cobd 2>/dev/null
bed power-off h2
# The network namespace of a bed's host outlives its power; the tables of a real host do not.
ip netns exec "$name-h2" nft flush ruleset
bed power-on h2
soon has_table
[ "$(on h2 systemctl is-active cobd)" = inactive ]
on h2 systemctl is-active cob-firewall-cob >/dev/null
on h2 systemctl enable --now cobd 2>/dev/null
patience=180 soon ctl status
has_table
on h2 nft -f - <<< "$others_before"

step "the firewall leaves, and the host is as it was"
set_firewall < <(nothing)
reach_cluster
is_gone h2
is_untouched
is_as_before

step "the daemon of the host is killed $kills times while a firewall comes and goes"
RANDOM=11
permit_many_starts h2
killed=0
round=0
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    set_firewall < <(if [ $((round % 2)) = 1 ]; then firewall_model; else nothing; fi)
    ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 7))$((RANDOM % 10))"
        on h2 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    done
    wait $switching || true
    soon ctl status
    if [ $((round % 2)) = 1 ]; then
        has_table
        [ "$(listing_of h2)" = "$firewall_listing" ]
    else
        is_gone h2
        is_as_before
    fi
done
echo "       $killed kills in $round switches"
if [ $((round % 2)) = 1 ]; then
    set_firewall < <(nothing)
    reach_cluster
    is_as_before
fi
is_untouched

step "with the guard: a firewall that blocks the peers is rolled back, without anybody's help"
good=$cluster_generation
# A person has to give up each protection to cut a host off.
set_firewall <<'MODEL'
cobs:
  h3/rules:
    kind: firewall
    content: {daemons: [], stateful: false, default: {input: drop, output: drop}}
MODEL
began=$SECONDS
ctl switch $cluster_generation --guard 20s --on-failure rollback >/dev/null
is_cut() { [ -n "$(table_of h3)" ]; }
soon is_cut
fails on h1 ping -c 1 -W 2 10.77.0.3
patience=180 soon is_gone h3
echo "h3 has removed the table after $((SECONDS - began)) s"
h3_is_back() { grep -qF "has rolled back from generation $cluster_generation to $good: " <<< "$(on h3 cobctl status 2>&1 || true)"; }
patience=180 soon h3_is_back
patience=180 soon ctl status
is_as_before

on h2 sh -c 'systemctl stop web2222 web2223 web2224 2>/dev/null; nft delete table inet others
    rm -rf /srv/www'
limit_starts h2
on h1 rm $site/firewall.yaml
switch_cluster
