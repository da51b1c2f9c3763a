# Sourced by run.sh: a set of resources in a real Pacemaker cluster of three hosts. It is created stopped, starts, changes
# as allowed, moves with a lost host, meets operators and killed daemons, and leaves the cluster as it was.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

kills=${COB_BED_KILLS:-12}

if ! on h1 sh -c 'command -v corosync pacemakerd cibadmin crm_simulate >/dev/null && [ -e /usr/lib/ocf/resource.d/pacemaker/Dummy ]'; then
    echo "skipped: a set of resources, for the host lacks corosync, pacemaker or pacemaker-cli-utils"
    return 0
fi

step "ha: a cluster with a resource of others"
# shellcheck source=tests/bed/pacemaker.sh
source "$here/pacemaker.sh"
diagnose() { on h1 crm_mon -1rf; on h1 cibadmin --query; on h1 journalctl --unit cobd --lines 60 --no-pager; }
start_pacemaker
on h1 crm_attribute --type crm_config --name stonith-enabled --update false
on h1 cibadmin --create --scope resources --xml-text '<primitive id="theirs" class="ocf" provider="pacemaker" type="Dummy"/>'
active_on() { on "${2:-h1}" crm_resource --resource "$1" --locate --quiet 2>/dev/null; }
is_active() { [ -n "$(active_on "$@")" ]; }
soon is_active theirs
configuration() { on h1 cibadmin --query --scope configuration; }
ha_before=$(configuration)

ha_model() { # [PARAMETER [MORE [PREFERRED]]]
    cat <<MODEL
cobs:
  h1/shop:
    kind: ha-set
    preferred: ${3:-up}
    content:
      primitives:
        ip: {type: "ocf:pacemaker:Dummy"}
        web: {type: "ocf:pacemaker:Dummy", params: {state: "${1:-/run/web-a.state}"}, ops: {monitor: {interval: 5s}}}
      groups: {shop: [ip, web]}
      constraints: {shop-on-h2: {location: shop, node: h2, score: 50}}
      properties: {cluster-recheck-interval: 7min}
      ${2:-}
MODEL
}
set_ha() {
    on h1 sh -c "cat > $site/ha.yaml"
    publish_cluster
}
ha_nothing() { echo 'cobs: {h1/nothing: {kind: noop}}'; }
explained() { on h1 sh -c 'cobctl explain h1/shop; cobctl output h1/shop; cobctl status' 2>&1 || true; }
explains() { grep -qF -- "$1" <<< "$(explained)"; }

step "ha: created stopped, all at once, and started"
set_ha < <(ha_model "" "" stopped)
reach_cluster
configuration | grep -q 'id="shop-on-h2"'
fails is_active web
[ -n "$(active_on theirs)" ]
set_ha < <(ha_model)
reach_cluster
[ "$(active_on web)" = h2 ]

step "ha: an update that would restart a resource is refused, unless the model allows it"
running=$(configuration)
set_ha < <(ha_model /run/web-b.state)
ctl switch $cluster_generation --on-failure hold >/dev/null 2>&1 || true
soon explains 'the cluster would restart web from h2' || { explained >&2; false; }
[ "$(configuration)" = "$running" ]
set_ha < <(ha_model /run/web-b.state 'allow: {web: [restart]}')
reach_cluster
on h2 test -e /run/web-b.state
fails on h2 test -e /run/web-a.state

step "ha: a ban is drift, and so is a disabled resource: shown, never reverted"
on h1 crm_resource --resource shop --ban --node h2
moved_away() { [ -n "$(active_on web)" ] && [ "$(active_on web)" != h2 ]; }
has_moved_to() { [ "$(active_on web)" = "$1" ]; }
soon moved_away
ctl check >/dev/null 2>&1 || true
soon ctl status
configuration | grep -q cli-ban-shop-on-h2
on h1 crm_resource --resource shop --clear
on h1 crm_resource --resource shop --meta --set-parameter target-role --parameter-value Stopped
soon fails is_active web
ctl check >/dev/null 2>&1 || true
soon explains 'an operator has set target-role=Stopped for shop' || { explained >&2; false; }
fails is_active web
on h1 crm_resource --resource shop --meta --delete-parameter target-role
soon is_active web
ctl retry h1/shop >/dev/null 2>&1 || true
soon ctl status

step "ha: a host without power: the resources move, and return"
soon has_moved_to h2
bed power-off h2
soon moved_away
# The check sees the move, and the set is not started again.
ctl check h1/shop >/dev/null 2>&1 || true
fails explains 'is degraded'
bed power-on h2
on h2 systemctl start corosync pacemaker
patience=120 soon says 'Online: [ h1 h2 h3 ]' on h1 crm_mon -1
soon has_moved_to h2
soon ctl status

step "ha: without quorum the state is unknown"
bed partition 'h1|h2 h3'
without_quorum() { grep -qF 'no quorum' <<< "$(on h1 cobctl status 2>&1 || true)"; }
patience=120 soon without_quorum || { on h1 cobctl status >&2; false; }
bed heal
patience=120 soon says 'Online: [ h1 h2 h3 ]' on h1 crm_mon -1
patience=120 soon is_active web
patience=120 soon ctl status

step "ha: the daemon and its actions are killed $kills times while the set comes, goes and changes, beside an operator"
RANDOM=17
permit_many_starts h1
on h2 systemd-run --quiet --unit=operator sh -c 'for n in $(seq 100); do
    until crm_attribute --type crm_config --name operator-$n --update $n; do sleep 0.2; done; sleep 0.3; done'
killed=0 round=0
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    case $((round % 3)) in
    0) set_ha < <(ha_model /run/web-a.state 'allow: {web: [restart]}') ;;
    1) set_ha < <(ha_nothing) ;;
    2) set_ha < <(ha_model /run/web-c.state 'allow: {web: [restart]}') ;;
    esac
    ctl switch $cluster_generation --on-failure hold >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
        # This kills the actions of the unit, too.
        on h1 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    done
    wait $switching || true
    is_done() { ctl status >/dev/null 2>&1 || { ctl retry h1/shop >/dev/null 2>&1 || true; false; }; }
    patience=180 soon is_done
    case $((round % 3)) in
    1) fails is_active web ;;
    0 | 2) soon is_active web ;;
    esac
done
echo "       $killed kills of the daemon with its actions in $round switches"
is_over() { ! on h2 systemctl is-active --quiet operator; }
patience=180 soon is_over

step "ha: the set leaves, the elements and changes of others stay"
set_ha < <(ha_nothing)
reach_cluster
for n in $(seq 100); do
    on h1 crm_attribute --type crm_config --name operator-"$n" --query --quiet | grep -qx "$n"
    on h1 crm_attribute --type crm_config --name operator-"$n" --delete >/dev/null
done
[ "$(configuration)" = "$ha_before" ] || { diff <(echo "$ha_before") <(configuration) >&2; false; }
[ -n "$(active_on theirs)" ]
limit_starts h1
on h1 rm $site/ha.yaml
stop_pacemaker
for host in h1 h2 h3; do on $host sh -c 'rm -rf /run/web-*.state'; done
unset -f diagnose
switch_cluster
