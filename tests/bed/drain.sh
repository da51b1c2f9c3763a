# Sourced by run.sh: hosts that are drained and really rebooted, in waves that keep one host of a service.

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

boot_of() { on "$1" cat /proc/sys/kernel/random/boot_id; }
runs() { on "$1" pgrep -f "sleep 86$2" >/dev/null; }

step "a service on two hosts, and one on a third host that requires it"
put h1 $site/drain.yaml <<'MODEL'
services:
  web: {cobs: {server: {kind: service, content: {start: "exec sleep 86001"}}}}
  app: {requires: [web], cobs: {server: {kind: service, content: {start: "exec sleep 86002"}}}}
clusters: {shop: {services: {web: [h2, h3], app: [h1]}}}
MODEL
switch_cluster
runs h2 001 && runs h3 001 && runs h1 002

step "two waves: the service stays on one host"
says "wave 1 of 2: h2" ctl drain h2 h3 --reboot --waves --plan
says "wave 2 of 2: h3" ctl drain h2 h3 --reboot --waves --plan
says "2 hosts in 2 waves, the fewest possible" ctl drain h2 h3 --reboot --waves --plan
runs h2 001 && runs h3 001

step "each host is drained, rebooted and back before the next one"
before=$(boot_of h1) before_h2=$(boot_of h2) before_h3=$(boot_of h3)
drained=$(ctl drain h2 h3 --reboot --waves --wait 3m) || { echo "$drained"; false; }
grep -F "h2 is drained" <<< "$drained" >/dev/null
[ "$(grep -cF "all services have returned" <<< "$drained")" = 2 ]
[ "$(boot_of h1)" = "$before" ] && [ "$(boot_of h2)" != "$before_h2" ] && [ "$(boot_of h3)" != "$before_h3" ]
runs h2 001 && runs h3 001 && runs h1 002
says "converged" ctl status
for event in ordered-stop reboot ordered-start; do
    says "$event" ctl history --host h2 --locks
done

step "the services leave again"
on h1 rm $site/drain.yaml
switch_cluster
fails runs h2 001
