# Sourced by run.sh: an operator fences a host that answers; a fence device of a real Pacemaker cluster cuts its power, the
# history of the cluster has it, and the locks of the host are released only then. Without a device, or with one that
# fails, nothing is released.

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"
# shellcheck source=tests/bed/pacemaker.sh
source "$here/pacemaker.sh"

if ! on h1 sh -c 'command -v corosync pacemakerd cibadmin crm_simulate stonith_admin >/dev/null && [ -e /usr/lib/ocf/resource.d/pacemaker/Dummy ]'; then
    echo "skipped: fencing, for the host lacks corosync, pacemaker or pacemaker-cli-utils"
    return 0
fi

for host in h1 h2 h3; do
    put $host /usr/sbin/fence_bed < "$here/fence_bed"
    on $host sh -c 'chmod 755 /usr/sbin/fence_bed; mkdir -p /srv/power'
done
"$here/bed.sh" --name "$name" power-switch &
power_switch=$!
diagnose() { kill $power_switch; on h1 crm_mon -1rf; on h1 stonith_admin --history '*' --verbose; on h1 cobctl status; }
start_pacemaker
on h1 crm_attribute --type crm_config --name stonith-enabled --update false

fence_model() { # [MORE]
    cat <<MODEL
cobs:
  h1/shop:
    kind: ha-set
    content:
      primitives: {web: {type: "ocf:pacemaker:Dummy", ops: {monitor: {interval: 5s}}}}
      constraints: {web-on-h2: {location: web, node: h2, score: 50}}
      ${1:-}
  h1/base: {kind: noop}
  h2/app: {kind: noop, requires: [h1/base]}
MODEL
}
set_fence() {
    put h1 $site/fence.yaml
    publish_cluster
}
runs_on() { [ "$(on "$2" crm_resource --resource "$1" --locate --quiet 2>/dev/null)" = "$3" ]; }
is_off() { [ "$(bed state "$1")" = "$1 off" ]; }
released() { grep -qF '"event":"fence"' <<< "$(ctl history --json 2>/dev/null || true)"; }
fence() { ctl fence "$@" 2>&1; }

step "fence: without a device nothing is switched off or released"
set_fence < <(fence_model)
reach_cluster
runs_on web h1 h2
said=$(fence h2 --yes) && false
grep -qF -- '--power-off has its cluster switch it off' <<< "$said" || { echo "$said" >&2; false; }
said=$(fence h2 --power-off < /dev/null) && false
grep -qF 'h2 is not fenced: no terminal to confirm it' <<< "$said" || { echo "$said" >&2; false; }
said=$(fence h2 --power-off --yes) && false
grep -qF 'h1: its cluster has no fence device for h2' <<< "$said" || { echo "$said" >&2; false; }
[ "$(bed state h2)" = "h2 running" ]
fails released

step "fence: a device that fails releases nothing"
device='fence: {power: {type: fence_bed, params: {pcmk_host_list: "h1 h2 h3", pcmk_off_retries: 1}}}
      properties: {stonith-enabled: true, stonith-action: "off"}'
set_fence < <(fence_model "$device")
reach_cluster
for host in h1 h2 h3; do on $host sh -c 'echo "the plug is elsewhere" > /srv/power/broken'; done
said=$(fence h2 --power-off --yes) && false
grep -qF 'h2 was not switched off: the fence device failed' <<< "$said" || { echo "$said" >&2; false; }
[ "$(bed state h2)" = "h2 running" ]
fails released
for host in h1 h2 h3; do on $host rm -f /srv/power/broken; done

step "fence: the device cuts the power, the cluster confirms it, the locks are released"
said=$(fence h2 --power-off --yes) || { echo "$said" >&2; false; }
grep -qF 'h2 is off: the cluster confirms it' <<< "$said" || { echo "$said" >&2; false; }
grep -qF 'its locks are released' <<< "$said" || { echo "$said" >&2; false; }
is_off h2
on h1 stonith_admin --history h2 --verbose | grep -q 'turning off of h2 successful.*cob-'
released
grep -qF 'stonith_admin --fence h2' <<< "$(ctl history --json 2>/dev/null || true)"
moved_from_h2() { runs_on web h1 h1 || runs_on web h1 h3; }
soon moved_from_h2

step "fence: the host returns, and so does its resource"
bed power-on h2
on h2 systemctl start corosync pacemaker
patience=120 soon says 'Online: [ h1 h2 h3 ]' on h1 crm_mon -1
soon runs_on web h1 h2
ctl retry --all >/dev/null 2>&1 || true
patience=120 soon ctl status

step "fence: a host that hangs is fenced, too"
on h2 systemctl kill --signal=STOP cobd
said=$(fence h2 --power-off --yes) || { echo "$said" >&2; false; }
is_off h2
bed power-on h2
on h2 systemctl start corosync pacemaker
patience=120 soon says 'Online: [ h1 h2 h3 ]' on h1 crm_mon -1
ctl retry --all >/dev/null 2>&1 || true
patience=120 soon ctl status

set_fence <<< 'cobs: {h1/nothing: {kind: noop}}'
reach_cluster
kill $power_switch
on h1 rm $site/fence.yaml
stop_pacemaker
for host in h1 h2 h3; do on $host rm -rf /usr/sbin/fence_bed /srv/power; done
unset -f diagnose
switch_cluster
