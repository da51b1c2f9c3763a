# Sourced by run.sh: a generation gives h3 an address that nobody knows. Under the guard h3 goes back by itself;
# without one the others go on, and it is said for whom something waits.

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

# The network of h3 as a change object, with this address, and a file on h1 with this content.
write_network() { # ADDRESS VERSION
    put h1 $site/guard.yaml <<MODEL
cobs:
  h3/net:
    kind: script
    content:
      states: [down, up]
      preferred: up
      pre_remove: down
      retries: 0
      check: {run: "ip -o -4 addr show dev eth0 | grep -q ' $1/24 ' && echo up || echo down"}
      transitions:
        - {from: down, to: up, run: "ip -4 addr flush dev eth0; ip addr add $1/24 dev eth0; ip link set eth0 up"}
        - {from: up, to: down, run: "true"}
  h1/other:
    kind: file-tree
    content: {files: {/etc/guard/other: {content: "version $2\n"}}}
MODEL
}
# And one on h1 that needs the network of h3.
write_needs() { # VERSION
    cat <<MODEL | on h1 sh -c "cat >> $site/guard.yaml"
  h1/needs:
    kind: script
    requires: [h3/net]
    content:
      states: [down, up]
      preferred: up
      pre_remove: down
      check: {run: "grep -qx $1 /run/needs 2>/dev/null && echo up || echo down"}
      transitions:
        - {from: down, to: up, run: "echo $1 > /run/needs"}
        - {from: up, to: down, run: "rm -f /run/needs"}
MODEL
}
has_address() { on h3 ip -o -4 addr show dev eth0 | grep -qF " $1/24 "; }
local_status() { on "$1" cobctl status 2>&1 || true; }
local_says() { grep -qF -- "$2" <<< "$(local_status "$1")"; }

step "the network of h3, as it is"
list_before
write_network 10.77.0.3 1
switch_cluster
good=$cluster_generation

step "with the guard: a wrong address heals itself, without anybody's help"
write_network 10.77.0.33 2
publish_cluster
began=$SECONDS
ctl switch $cluster_generation --guard 20s --on-failure rollback >/dev/null
soon has_address 10.77.0.33
patience=180 soon has_address 10.77.0.3
echo "h3 has its address back after $((SECONDS - began)) s"
patience=180 soon local_says h3 "has rolled back from generation $cluster_generation to $good: "
patience=180 soon on h1 grep -qx "version 1" /etc/guard/other
patience=180 soon ctl status
on h3 cobctl history | grep -q ' withdraw '

step "without the guard the others go on, and say for whom something waits"
write_network 10.77.0.3 2
write_needs 2
switch_cluster
write_network 10.77.0.33 3
write_needs 3
publish_cluster
ctl switch $cluster_generation --on-failure hold >/dev/null
soon has_address 10.77.0.33
soon on h1 grep -qx "version 3" /etc/guard/other
# An idle link is found dead after a minute.
# Its exit status says that h3 is not reached.
waits_for_h3() { grep -qF h3 <<< "$(on h1 cobctl explain h1/needs 2>&1 || true)"; }
patience=180 soon waits_for_h3
on h1 cobctl explain h1/needs || true
has_address 10.77.0.33

step "mended by hand, h3 follows to the next generation when the others tell it"
on h3 systemctl stop cobd
# The address of the generation that the daemon still has stays beside it: it would be put right at once, before the others
# can tell of the next generation.
on h3 sh -c "ip -4 addr flush dev eth0; ip addr add 10.77.0.3/24 dev eth0; ip addr add 10.77.0.33/24 dev eth0"
write_network 10.77.0.3 4
write_needs 4
publish_cluster
ctl switch $cluster_generation >/dev/null 2>&1 || true
on h3 systemctl start cobd
patience=180 soon ctl status
local_says h3 " $cluster_generation "
on h3 ip addr del 10.77.0.33/24 dev eth0
on h1 rm -f $site/guard.yaml
switch_cluster
is_as_before
