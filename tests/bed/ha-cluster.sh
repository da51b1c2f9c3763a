# Sourced by run.sh: a model makes a cluster of Corosync and Pacemaker on three hosts from nothing. A time changes without
# a restart, a name with one node after the other; a node leaves and joins; what would cost the quorum is refused; the
# daemon and its actions are killed meanwhile. All goes away, and the hosts are as before. A witness asks all hosts all
# the time whether the cluster has its quorum.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

kills=${COB_BED_KILLS:-12}

if ! on h1 sh -c 'command -v corosync pacemakerd cibadmin crm_node >/dev/null && [ -e /usr/lib/ocf/resource.d/pacemaker/Dummy ]'; then
    echo "skipped: a cluster of Corosync, for the host lacks corosync, pacemaker or pacemaker-cli-utils"
    return 0
fi
witnessed=$(mktemp)
diagnose() {
    local host
    tail -n 20 "$witnessed"
    for host in h1 h2 h3; do
        on $host corosync-quorumtool -s || true
        on $host crm_mon -1rf || true
        on $host journalctl --unit cobd --unit corosync --unit pacemaker --lines 50 --no-pager
    done
    on h1 cobctl status
}

set_cluster() { # NODES [MORE [NAME [WITHOUT_SET]]]
    local node
    {
        echo 'secrets: {corosync: {file: corosync}}'
        echo 'cobs:'
        for node in $1; do
            cat <<MODEL
  $node/cluster:
    kind: ha-cluster
    content:
      name: ${3:-bed}
      authkey: "{{ secret('corosync') }}"
      nodes:
$(for node in $1; do echo "        $node: {id: ${node#h}, addresses: [10.77.0.${node#h}]}"; done)
      ${2:-}
MODEL
        done
        [ -n "${4:-}" ] || cat <<'MODEL'
  h1/web:
    kind: ha-set
    after: [h1/cluster]
    content:
      primitives: {web: {type: "ocf:pacemaker:Dummy", ops: {monitor: {interval: 5s}}}}
      allow: {web: [move, restart]}
MODEL
    } | on h1 sh -c "cat > $site/cluster.yaml"
    publish_cluster
}
has_nodes() { # NODES: members of Corosync, nodes of Pacemaker; `crm_node --list` remembers a node that left until a restart
    local wanted host
    wanted=$(echo "$1" | xargs)
    for host in $1; do
        [ "$(on $host corosync-quorumtool -l 2>/dev/null | awk '$1 ~ /^[0-9]+$/ {print $3}' | sort | xargs)" = "$wanted" ] || return 1
        grep -q '^Quorate: *Yes' <<< "$(on $host corosync-quorumtool -s)" || return 1
        [ "$(on $host cibadmin --query --scope nodes 2>/dev/null | sed -n 's/.* uname="\([^"]*\)".*/\1/p' | sort | xargs)" = "$wanted" ] || return 1
        grep -qF "Online: [ $wanted ]" <<< "$(on $host crm_mon -1)" || return 1
    done
}
pids() { for host in "$@"; do on $host pgrep -x corosync || echo off; done | xargs; }
active_web() { [ -n "$(on "${1:-h1}" crm_resource --resource web --locate --quiet 2>/dev/null)" ]; }
explained() {
    local cob
    for cob in h1/cluster h2/cluster h3/cluster; do ctl explain $cob 2>&1 || true; done
    ctl status 2>&1 || true
}
explains() { grep -qF -- "$1" <<< "$(explained)"; }

# Each line: the hosts that have a quorum, and the hosts that answer.
witness() {
    local host yes answers
    while :; do
        yes="" answers=""
        for host in h1 h2 h3; do
            case $(on $host corosync-quorumtool -s 2>/dev/null | sed -n 's/^Quorate: *//p') in
            Yes) yes="$yes $host" answers="$answers $host" ;;
            No) answers="$answers $host" ;;
            esac
        done
        echo "quorum:$yes; there:$answers" >> "$witnessed"
        sleep 0.1
    done
}
# Since the last look there was a quorum all the time.
kept_quorum() {
    [ -s "$witnessed" ] || return 1
    ! grep -n '^quorum:;' "$witnessed" >&2 || return 1
    : > "$witnessed"
}

for host in h1 h2 h3; do
    # What a hand-made cluster has left, and what returns.
    put $host /etc/corosync/corosync.conf <<< "# $host by hand"
    put $host /var/lib/pacemaker/cib/earlier <<< "$host"
    # The links of the runlevels, which the installation of the packages makes.
    on $host systemctl disable --quiet corosync pacemaker 2>/dev/null
done
on h1 sh -c "umask 077; head -c 64 /dev/urandom | od -An -vtx1 | tr -d ' \n' > $site/corosync"
list_before

step "ha-cluster: made from nothing"
set_cluster "h1 h2 h3"
ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 || true
is_done() { ctl status >/dev/null 2>&1 || { ctl retry --all >/dev/null 2>&1 || true; false; }; }
# Without fence devices no resource starts.
patience=60 soon on h1 crm_attribute --type crm_config --name stonith-enabled --update false
soon is_done
patience=120 soon has_nodes "h1 h2 h3"
soon active_web
on h2 grep -q 'crypto_cipher: aes256' /etc/corosync/corosync.conf
on h2 sh -c '[ "$(stat -c %a /etc/corosync/authkey)" = 400 ] && grep -q "wait_for_all: 0" /etc/corosync/corosync.conf'
fails on h2 grep -rqF "$(on h1 cat $site/corosync)" /var/lib/cob
: > "$witnessed"
witness &
witness_pid=$!

step "ha-cluster: a time changes, and no node restarts"
before=$(pids h1 h2 h3)
set_cluster "h1 h2 h3" "totem: {token: 4000}"
reach_cluster
soon has_nodes "h1 h2 h3"
for host in h1 h2 h3; do grep -q '= 4000' <<< "$(on $host corosync-cmapctl totem.token)"; done
[ "$(pids h1 h2 h3)" = "$before" ]
kept_quorum

step "ha-cluster: another name restarts one node after the other"
set_cluster "h1 h2 h3" "totem: {token: 4000}" other
reach_cluster
patience=120 soon has_nodes "h1 h2 h3"
for host in h1 h2 h3; do grep -q '= other' <<< "$(on $host corosync-cmapctl totem.cluster_name)"; done
for pid in $before; do grep -qw "$pid" <<< "$(pids h1 h2 h3)" && false; done
soon active_web
# At no moment two were out.
fails grep -E '^quorum: h[123];|^quorum:;' "$witnessed"
kept_quorum

step "ha-cluster: two of three can't leave with one generation"
set_cluster "h1" "" other
ctl switch $cluster_generation --on-failure hold >/dev/null 2>&1 || true
patience=240 soon explains 'would lose the quorum' || { explained >&2; false; }
active_web
kept_quorum
set_cluster "h1 h2 h3" "" other
ctl switch $cluster_generation --wait 8m >/dev/null 2>&1 || true
patience=300 soon is_done
patience=120 soon has_nodes "h1 h2 h3"

step "ha-cluster: a node leaves, with its resource"
on h1 crm_resource --resource web --move --node h3 --lifetime PT5M 2>/dev/null
web_on() { [ "$(on "$2" crm_resource --resource web --locate --quiet 2>/dev/null)" = "$1" ]; }
soon web_on h3 h1
set_cluster "h1 h2" "" other
ctl switch $cluster_generation --wait 8m >/dev/null 2>&1 || ctl status
patience=120 soon has_nodes "h1 h2"
soon active_web
kept_quorum
on h3 grep -q 'h3 by hand' /etc/corosync/corosync.conf
on h3 sh -c '[ "$(ls /var/lib/pacemaker/cib)" = earlier ]'
fails on h3 systemctl is-active corosync
fails on h3 systemctl is-enabled corosync

step "ha-cluster: a node joins"
set_cluster "h1 h2 h3" "" other
ctl switch $cluster_generation --wait 8m >/dev/null 2>&1 || ctl status
patience=120 soon has_nodes "h1 h2 h3"
on h1 crm_resource --resource web --clear 2>/dev/null || true
kept_quorum

step "ha-cluster: without a quorum the state is unknown"
kill $witness_pid
bed partition 'h1|h2 h3'
without_quorum() { grep -qF 'the cluster has no quorum' <<< "$(on h1 cobctl status 2>&1 || true)"; }
patience=120 soon without_quorum || { on h1 cobctl status >&2; false; }
bed heal
patience=120 soon has_nodes "h1 h2 h3"
patience=120 soon ctl status

step "ha-cluster: a host loses its power, and returns"
bed power-off h2
bed power-on h2
patience=120 soon has_nodes "h1 h2 h3"
patience=120 soon ctl status

step "ha-cluster: the daemons and their actions are killed $kills times while nodes leave, join and restart"
: > "$witnessed"
witness &
witness_pid=$!
RANDOM=23
permit_many_starts h1 h2 h3
killed=0 round=0
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    case $((round % 3)) in
    0) set_cluster "h1 h2 h3" "" third ;;
    1) set_cluster "h1 h2" "" other ;;
    2) set_cluster "h1 h2 h3" "totem: {token: 5000}" other ;;
    esac
    ctl switch $cluster_generation --on-failure hold >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "$((RANDOM % 4)).$((RANDOM % 10))"
        # This kills the actions of the unit, too.
        on h$((RANDOM % 3 + 1)) systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    done
    wait $switching || true
    patience=300 soon is_done
    if [ $((round % 3)) = 1 ]; then patience=120 soon has_nodes "h1 h2"; else patience=120 soon has_nodes "h1 h2 h3"; fi
    active_web
done
kept_quorum
echo "       $killed kills of daemons with their actions in $round switches"
limit_starts h1 h2 h3
kill $witness_pid

step "ha-cluster: all goes away, and the hosts are as before"
echo 'cobs: {h1/nothing: {kind: noop}}' | on h1 sh -c "cat > $site/cluster.yaml"
publish_cluster
ctl switch $cluster_generation --wait 8m >/dev/null 2>&1 || ctl status
for host in h1 h2 h3; do
    fails on $host systemctl is-active corosync
    fails on $host systemctl is-active pacemaker
    on $host sh -c '[ "$(ls /var/lib/pacemaker/cib)" = earlier ]'
done
is_as_before
for host in h1 h2 h3; do
    on $host sh -c 'rm -rf /var/lib/pacemaker/cib/* /var/lib/pacemaker/pengine/* /var/lib/corosync/* /etc/corosync/corosync.conf'
done
on h1 rm $site/cluster.yaml $site/corosync
rm -f "$witnessed"
unset -f diagnose
switch_cluster
