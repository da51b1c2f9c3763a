# Sourced by run.sh: examples/etcd on three hosts. It is started on all at the same time, changed on one after
# the other while a client writes, and removed.

if ! programs=$("$here/../programs.sh" etcd); then
    echo "skipped: etcd, which is neither here nor to be had (no network?); COB_ETCD names a folder with it"
    return 0
fi

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

step "etcd as a package, in a folder of each host"
scratch=$(mktemp -d)
"$here/../../examples/etcd/package.sh" "$programs" "$scratch" 2>/dev/null
for host in h1 h2 h3; do
    # A machine where etcd is installed shows the hosts its unit and its data.
    on $host sh -c 'rm -rf /usr/lib/systemd/system/etcd.service /etc/init.d/etcd /var/lib/etcd && systemctl daemon-reload'
    tar -C "$scratch" -c . | on $host sh -c 'mkdir -p /srv/etcd && tar -C /srv/etcd --no-same-owner -x'
done
rm -rf "$scratch"
list_before

step "all three are started at the same time: one alone would wait for ever"
tar -C "$here/../../examples/etcd" -c model.yaml etcd.conf etcd.service data.sh | on h1 tar -C $site --no-same-owner -x
switch_cluster
etcdctl() { on h1 env ETCDCTL_API=3 /opt/etcd/etcdctl --endpoints=http://10.77.0.1:2379,http://10.77.0.2:2379,http://10.77.0.3:2379 "$@"; }
[ "$(etcdctl endpoint health 2>&1 | grep -c 'is healthy')" = 3 ]
# The moves of a server out of a host's history: `start|end FROM TO SECONDS`.
moves_of() {
    on "$1" cobctl history | awk -v to="$2" '$4 == "'"$1"'/etcd/server" && ($5 == "start" || $5 == "end") && $0 ~ to {
        split($2, t, /[:Z]/); print $5, t[1] * 3600 + t[2] * 60 + t[3] }'
}
latest_start=0 earliest_end=999999
for host in h1 h2 h3; do
    moves=$(moves_of $host 'down → up')
    latest_start=$(awk -v m="$latest_start" '$1 == "start" { if ($2 > m) m = $2 } END { print m }' <<< "$moves")
    earliest_end=$(awk -v m="$earliest_end" '$1 == "end" { if ($2 < m) m = $2 } END { print m }' <<< "$moves")
done
awk -v a="$latest_start" -v b="$earliest_end" 'BEGIN { exit !(a < b) }'

step "a setting changes, host after host, while a client writes"
on h1 sh -c 'cat > /var/tmp/writer && chmod 755 /var/tmp/writer' <<'WRITER'
#!/bin/bash
# Writes for ever; where one member refuses it asks the next. A line for each write: when it was done, and whether.
export ETCDCTL_API=3
cp /opt/etcd/etcdctl /var/tmp/etcdctl
n=0
while :; do
    n=$((n + 1)) result=refused
    for i in 1 2 3; do
        if /var/tmp/etcdctl --endpoints=http://10.77.0.$(((n + i) % 3 + 1)):2379 --dial-timeout=500ms \
            --command-timeout=2s put k$((n % 100)) $n >/dev/null 2>&1; then
            result=done
            break
        fi
    done
    echo "$(date +%s%3N) $result $i"
done > /var/tmp/written
WRITER
on h1 systemd-run --quiet --unit=writer /var/tmp/writer
soon on h1 grep -q done /var/tmp/written
on h1 sed -i 's/snapshot_count: 10000/snapshot_count: 5000/' $site/model.yaml
publish_cluster
began=$(date +%s%3N)
reach_cluster
took=$(($(date +%s%3N) - began))
sleep 1
on h1 systemctl stop writer
for host in h1 h2 h3; do
    # As each version of it says that at its start.
    on $host sh -c 'journalctl --quiet --output=cat "_SYSTEMD_INVOCATION_ID=$(systemctl show --value --property InvocationID etcd)"' |
        grep -E 'snapshot.count"?( =|:) ?5000' >/dev/null
    [ "$(on $host grep -c 'snapshot-count: 5000' /etc/etcd/etcd.conf)" = 1 ]
done
scratch=$(mktemp)
# From the stop of a server until it is ready again: no two of these at the same time.
for host in h1 h2 h3; do
    { moves_of $host 'outdated → down' | grep start; moves_of $host 'down → up' | tail -n 1; } | awk '{ printf "%s ", $2 } END { print "" }'
done | sort -n > "$scratch"
awk 'NF != 2 || $1 < end { bad = 1 } { end = $2 } END { exit bad || NR != 3 }' "$scratch" || { cat "$scratch" >&2; false; }
rm -f "$scratch"
read -r writes refused longest < <(on h1 awk '$2 == "done" { if (last && $1 - last > max) max = $1 - last; last = $1; n++ } $2 != "done" { r++ } END { print n + 0, r + 0, max + 0 }' /var/tmp/written)
echo "       $writes writes, $refused refused by all members, at most $longest ms between two; the change took $took ms"
[ "$writes" -gt 20 ]
# An election takes up to two seconds, on a machine that has nothing else to do.
[ "$longest" -lt 5000 ]

step "everything goes, and the hosts are as before"
on h1 sh -c "cd $site && rm model.yaml etcd.conf etcd.service data.sh"
switch_cluster
is_as_before
for host in h1 h2 h3; do
    fails on $host test -e /opt/etcd
    fails on $host test -e /var/lib/private/etcd
    says not-found on $host systemctl show --property LoadState etcd
done
