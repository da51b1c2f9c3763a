# Sourced by run.sh: examples/etcd on three hosts. It is started on all at the same time, changed on one after
# the other while a client writes, and removed.
#
# The programs: COB_BED_ETCD names a folder with etcd and etcdctl; else those of this machine; else they are
# taken out of Debian's packages, which are kept below the target folder.

etcd_programs() { # prints a folder with both
    local program kept=$here/../../target/bed-etcd
    for program in "${COB_BED_ETCD:-}" "$kept/usr/bin" "$(dirname "$(command -v etcd || echo /nowhere/x)")"; do
        if [ -x "$program/etcd" ] && [ -x "$program/etcdctl" ]; then
            echo "$program"
            return
        fi
    done
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    mkdir -p "$kept"
    (cd "$kept" && timeout 60 apt-get -qq download etcd-server etcd-client >/dev/null 2>&1) || return 1
    for program in "$kept"/*.deb; do
        dpkg-deb -x "$program" "$kept"
    done
    echo "$kept/usr/bin"
}

if ! programs=$(etcd_programs); then
    echo "skipped: etcd, which is neither here nor to be had (no network?); COB_BED_ETCD names a folder with it"
    return 0
fi

step "three fresh hosts that are enrolled, with etcd's programs in a folder"
bed down
bed up 3
site=/srv/kv
for host in h1 h2 h3; do
    install_on $host
    tar -C "$programs" -c etcd etcdctl | on $host sh -c 'mkdir -p /srv/etcd && tar -C /srv/etcd -x'
done
on h1 cobgen init --secure $site h1=10.77.0.1 h2=10.77.0.2 h3=10.77.0.3 >/dev/null 2>&1
on h1 systemd-run --quiet --unit=kv-serve cobgen serve --depot $site/depot --listen tcp://10.77.0.1:7070
soon on h2 timeout 2 bash -c 'exec 3<>/dev/tcp/10.77.0.1/7070'
invitations=$(on h1 cobgen enroll h1 h2 h3 --depot $site/depot --server tcp://10.77.0.1:7070 2>/dev/null)
for host in h1 h2 h3; do
    grep -oE "cob1\.[^ ]*\.$host\b" <<< "$invitations" | head -n 1 | on $host cobd join tcp://10.77.0.1:7070 - >/dev/null
done
kv() { on h1 cobctl --depot $site/depot --key $site/keys/operator.key "$@"; }
kv_generation=0
kv_generate() {
    on h1 cobgen generate $site --depot $site/depot --sign-with $site/keys/publisher.key >/dev/null 2>&1
    kv_generation=$((kv_generation + 1))
}
kv_switch() {
    kv switch $kv_generation --wait 3m >/dev/null 2>&1 || kv status
}
# The hosts and keys alone.
on h1 sh -c "sed -i '/^# A kind says/,\$d' $site/model.yaml && mv $site/model.yaml $site/hosts.yaml && rm $site/*.sh"
kv_generate
for host in h1 h2 h3; do
    on $host systemctl enable --now cobd 2>/dev/null
done
kv_switch
# What belongs to the machine and not to its administrator is left out: the journal's own id and the like.
etc_of() { on "$1" sh -c 'cd /etc && find . ! -path "./machine-id" -printf "%p %y %m %u %g %l\n" | sort && find . -type f ! -name machine-id -print0 | sort -z | xargs -0 md5sum'; }
declare -A etc_before
for host in h1 h2 h3; do
    etc_before[$host]=$(etc_of $host)
done

step "all three are started at the same time: one alone would wait for ever"
tar -C "$here/../../examples/etcd" -c model.yaml etcd.service programs.sh data.sh | on h1 tar -C $site --no-same-owner -x
kv_generate
kv_switch
etcdctl() { on h1 env ETCDCTL_API=3 /usr/local/bin/etcdctl --endpoints=http://10.77.0.1:2379,http://10.77.0.2:2379,http://10.77.0.3:2379 "$@"; }
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
on h1 sh -c 'cat > /srv/writer && chmod 755 /srv/writer' <<'WRITER'
#!/bin/bash
# Writes for ever; where one member refuses it asks the next. A line for each write: when it was done, and whether.
export ETCDCTL_API=3
cp /usr/local/bin/etcdctl /srv/etcdctl
n=0
while :; do
    n=$((n + 1)) result=refused
    for i in 1 2 3; do
        if /srv/etcdctl --endpoints=http://10.77.0.$(((n + i) % 3 + 1)):2379 --dial-timeout=500ms \
            --command-timeout=2s put k$((n % 100)) $n >/dev/null 2>&1; then
            result=done
            break
        fi
    done
    echo "$(date +%s%3N) $result $i"
done > /srv/written
WRITER
on h1 systemd-run --quiet --unit=writer /srv/writer
soon on h1 grep -q done /srv/written
on h1 sed -i 's/snapshot_count: 10000/snapshot_count: 5000/' $site/model.yaml
kv_generate
began=$(date +%s%3N)
kv_switch
took=$(($(date +%s%3N) - began))
sleep 1
on h1 systemctl stop writer
for host in h1 h2 h3; do
    # shellcheck disable=SC2016 # expanded there
    on $host sh -c 'tr "\0" "\n" < /proc/$(systemctl show --value --property MainPID etcd)/environ' | grep -qx ETCD_SNAPSHOT_COUNT=5000
done
scratch=$(mktemp)
# From the stop of a server until it is ready again: no two of these at the same time.
for host in h1 h2 h3; do
    { moves_of $host 'outdated → down' | grep start; moves_of $host 'down → up' | tail -n 1; } | awk '{ printf "%s ", $2 } END { print "" }'
done | sort -n > "$scratch"
awk 'NF != 2 || $1 < end { bad = 1 } { end = $2 } END { exit bad || NR != 3 }' "$scratch" || { cat "$scratch" >&2; false; }
rm -f "$scratch"
read -r writes refused longest < <(on h1 awk '$2 == "done" { if (last && $1 - last > max) max = $1 - last; last = $1; n++ } $2 != "done" { r++ } END { print n + 0, r + 0, max + 0 }' /srv/written)
echo "       $writes writes, $refused refused by all members, at most $longest ms between two; the change took $took ms"
[ "$writes" -gt 20 ]
# An election takes up to two seconds, on a machine that has nothing else to do.
[ "$longest" -lt 5000 ]

step "everything goes, and /etc is as before"
on h1 rm $site/model.yaml
kv_generate
kv_switch
for host in h1 h2 h3; do
    [ "$(etc_of $host)" = "${etc_before[$host]}" ] || { diff <(echo "${etc_before[$host]}") <(etc_of $host) >&2; false; }
    fails on $host test -e /usr/local/bin/etcd
    fails on $host test -e /var/lib/private/etcd
    says not-found on $host systemctl show --property LoadState etcd
done
