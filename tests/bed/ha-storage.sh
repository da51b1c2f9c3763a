#!/usr/bin/env bash
# The life of examples/ha-storage on real hosts (bed.sh): only its data are others here (addresses, the disk, the fence
# device, and the kernel parameters that a container may set).
#
#   tests/bed/ha-storage.sh --stage FOLDER   with the files that `packaging/build.sh stage FOLDER` has put there
#
# The disk of the metadata servers is an image on a loop device of the machine. Where something is missing it says
# `skipped: WHY` and ends with 0. BED_NAME names the bed, COB_BED_KEEP=1 leaves it when something has failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for program in corosync pacemakerd cibadmin mfsmaster mfschunkserver mfsmount mfscli chronyd rsyslogd prometheus promtool \
    prometheus-alertmanager prometheus-node-exporter lsof strace tcpdump smartctl psql mkfs.ext4 losetup /dev/fuse \
    /usr/lib/ocf/resource.d/heartbeat/Filesystem; do
    [ -e "$program" ] || command -v $program >/dev/null || { echo "skipped: the storage cluster: there is no $program"; exit 0; }
done
members="h1 h2 h3 h4 h5 h6 h7 h8" spare=h9
patience=${COB_BED_PATIENCE:-120}
# shellcheck source=tests/bed/begin.sh
source "$here/begin.sh"

example=$here/../../examples/ha-storage
image=$(mktemp /var/tmp/cob-meta.XXXX) loop="" power_switch=""
clear_away() {
    [ -z "$power_switch" ] || kill "$power_switch" 2>/dev/null || true
    [ -z "$loop" ] || losetup --detach "$loop" || return 1
    rm -f "$image"
}
diagnose() {
    ctl status
    on h3 crm_mon -1rf
    on h3 journalctl --unit cobd --unit pacemaker --unit moosefs-master --lines 40 --no-pager
    on h8 journalctl --unit srv-data-mfs --lines 20 --no-pager
}

declare -A called=([h1]=adm1 [h2]=adm2 [h3]=mds1 [h4]=mds2 [h5]=mds3 [h6]=oss1 [h7]=oss2 [h8]=cl1)
# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

# What a host of the bed lacks: devices, kernel parameters that can be written, the right to set the clock. apt's lists
# go, for a host has no way out: to read them takes a second of a processor for each package.
equip() { # HOST...
    local host make
    for host in "$@"; do
        put $host /etc/systemd/system/chrony.service.d/bed.conf <<< '[Unit]
ConditionCapability=
[Service]
ExecStart=
ExecStart=!/usr/sbin/chronyd -x $DAEMON_OPTS'
        make="mount -o remount,bind,rw /proc/sys"
        case $(name_of $host) in
        mds*)
            make="$make; mknod $loop b 7 ${loop#/dev/loop}"
            put $host /usr/sbin/fence_bed < "$here/fence_bed"
            on $host sh -c 'chmod 755 /usr/sbin/fence_bed; mkdir -p /srv/power'
            ;;
        cl*) make="$make; mknod -m 666 /dev/fuse c 10 229" ;;
        esac
        put $host /etc/systemd/system/bed.service <<UNIT
[Unit]
DefaultDependencies=no
Before=basic.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c '$make'
[Install]
WantedBy=sysinit.target
UNIT
        on $host sh -c 'rm -rf /var/lib/apt/lists/*; systemctl daemon-reload; systemctl enable --now bed' 2>/dev/null
    done
}
# The example with the data of the bed. EDIT is a further change of model.yaml, for sed.
set_model() { # [EDIT]
    sed -E -e '/^security:/d' -e 's/127\.0\.0\.([0-9]):7371/10.77.0.\1:7077/' -e 's/\[127\.0\.0\./[10.77.0./' \
        -e 's/127\.0\.0\.0\/8/10.77.0.0\/24/' -e 's/127\.0\.99\.1, bits: 8/10.77.0.99, bits: 24/' \
        -e "s#/dev/disk/by-label/meta#$loop#" -e 's/pcmk_host_list: "[^"]*"/pcmk_host_map: "mds1:h3;mds2:h4;mds3:h5"/' \
        -e 's/(kernel: \{).*/\1net.core.somaxconn: 4096,/' -e 's/^ +net\.core\.somaxconn.*/      net.ipv4.tcp_keepalive_time: 300}/' \
        "$example/model.yaml" | sed -E "${1:-}" | put h1 $site/model.yaml
    publish_cluster
}
# In a new cluster the set's check fails until there is a controller, and a wait ends then.
reach() { # [PATIENCE]
    ctl switch $cluster_generation --wait 5m >/dev/null 2>&1 || true
    patience=${1:-300} soon ctl status || { ctl status >&2; false; }
}
runs_server() { [ "$(on "$1" crm_resource --resource server --locate --quiet 2>/dev/null)" = "$2" ]; }
asks() { on h1 promtool query instant "http://$1:9090" "$2"; }
# What the client has seen since the last look: its writes, those that failed, and the longest time between two.
interruption() {
    on h8 cat /srv/writes | awk '/failed/ {f++; next} {if (p && $1 - p > g) g = $1 - p; p = $1; n++}
        END {printf "       the client: %d writes, %d failed, longest pause %.1f s\n", n, f, g; exit f > 0 || n == 0}'
    on h8 sh -c 'tail -n 1 /srv/writes > /srv/last; cat /srv/last > /srv/writes'
}
writes_again() { on h8 sh -c 'a=$(wc -l < /srv/writes); sleep 2; [ $(wc -l < /srv/writes) -gt $a ]'; }
# The network namespace of a bed's host outlives its power; the addresses of a real host do not.
pull() { # HOST
    bed power-off "$1"
    ip netns exec "$name-$1" ip addr del 10.77.0.99/24 dev eth0 2>/dev/null || true
}

truncate --size 200M "$image"
empty=$(mktemp -d)
cp /var/lib/mfs/metadata.mfs.empty "$empty/metadata.mfs"
chown -R mfs: "$empty"
mkfs.ext4 -q -L meta -E "root_owner=$(id -u mfs):$(id -g mfs)" -d "$empty" "$image"
rm -r "$empty"
loop=$(losetup --find --show "$image")
equip $members
"$here/bed.sh" --name "$name" power-switch &
power_switch=$!

step "storage: the example is deployed on eight hosts"
tar -C "$example" -c services.yaml files | on h1 tar -C $site -x --no-same-owner
on h1 sh -c "sed -i '/^hosts:/,/^\$/d' $site/hosts.yaml"
# Loops of the metadata server, which take minutes otherwise.
edits='s/MATOCS_TIMEOUT: 10/&, CHUNKS_LOOP_MIN_TIME: 60, REPLICATIONS_DELAY_INIT: 5/'
set_model "$edits"
began=$SECONDS
reach
echo "       deployed in $((SECONDS - began)) s"

step "storage: a client writes, Prometheus sees all hosts, and one host has the log lines of all"
on h8 sh -c 'echo kept > /srv/data/file && sync'
[ "$(on h8 cat /srv/data/file)" = kept ]
all_are_up() { grep -qF '=> 8 ' <<< "$(asks "$1" 'sum(up)')"; }
soon all_are_up adm1
soon all_are_up adm2
for host in h3 h8; do on $host logger "a line of $host"; done
has_lines() { on h1 sh -c 'grep -q "a line of h3" /var/log/cluster/mds1.log && grep -q "a line of h8" /var/log/cluster/cl1.log'; }
soon has_lines
on h8 sh -c 'cat > /srv/writer' <<'WRITER'
while sleep 0.5; do
    if date +%s.%N >> /srv/data/beat && sync /srv/data/beat; then tail -n 1 /srv/data/beat; else echo failed; fi >> /srv/writes
done
WRITER
on h8 systemd-run --quiet --unit=writer sh /srv/writer
soon writes_again

step "storage: a parameter of the metadata server changes, and it restarts"
edits="$edits; s/MATOCS_TIMEOUT: 10/MATOCS_TIMEOUT: 20/"
set_model "$edits"
reach
on h3 grep -qx 'MATOCS_TIMEOUT = 20' /etc/mfs/mfsmaster.cfg
soon writes_again
interruption

step "storage: a metadata host loses its power: Pacemaker fences it and moves the server"
began=$SECONDS
pull h3
moved() { runs_server h4 mds2 || runs_server h4 mds3; }
soon moved
soon writes_again
echo "       moved, and the client goes on, after $((SECONDS - began)) s"
interruption
grep -q 'of mds1 successful' <<< "$(on h4 stonith_admin --history mds1 --verbose)"
# The fence device has switched it on again.
all_online() { grep -qF 'Online: [ mds1 mds2 mds3 ]' <<< "$(on h4 crm_mon -1)"; }
patience=180 soon all_online
patience=180 soon ctl status

step "storage: a wrong parameter, and all hosts go back"
set_model "$edits; s/MATOCS_TIMEOUT: 20/&, MATOCL_LISTEN_HOST: 192.0.2.1/"
! said=$(ctl switch $cluster_generation --wait 8m --on-failure rollback 2>&1)
grep -qF "generation $cluster_generation was rolled back" <<< "$said" || { echo "$said" >&2; false; }
fails on h3 grep LISTEN_HOST.*192 /etc/mfs/mfsmaster.cfg
patience=180 soon ctl status
soon writes_again
interruption

step "storage: a storage server joins"
called[h9]=oss3
install_on h9
on h9 rm -f /usr/sbin/policy-rc.d
enroll h9
equip h9
on h9 systemctl enable --now cobd 2>/dev/null
members="$members h9"
oss3='{address: "tcp:\/\/10.77.0.9:7077", hardwaretype: disks, vars: {disks: [\/srv\/disk1, \/srv\/disk2]}}'
edits="$edits; s/^( +)oss2: .*/&\n\1oss3: $oss3/; s/oss2, cl1\]/oss2, oss3, cl1]/"
set_model "$edits"
reach
[ "$(on h8 mfscli -H mfsmaster -SCS | grep -c '^chunk servers:')" = 3 ]
soon writes_again
interruption

step "storage: a storage server leaves when others have its data"
on h8 sh -c 'head -c 20000000 /dev/urandom > /srv/data/big && sync && md5sum /srv/data/big > /srv/sum'
set_model "$edits; /^ +oss2:/s/vars: \{/&leaves: true, /"
began=$SECONDS
reach 420
echo "       its data moved in $((SECONDS - began)) s"
edits="$edits; s/^ +oss2:[^\n]*\n//; s/oss1, oss2, oss3/oss1, oss3/"
set_model "$edits"
reach
fails on h7 systemctl is-active moosefs-chunkserver
on h8 sh -c '[ "$(dd if=/srv/data/big iflag=direct bs=1M status=none | md5sum)" = "$(md5sum < /srv/data/big)" ] && md5sum --quiet -c /srv/sum'
soon writes_again
interruption

step "storage: all hosts lose their power, and all returns"
on h8 systemctl stop writer
powered=${members/h7 /}
for host in $powered; do pull $host & done
wait $(jobs -p | grep -vx $power_switch)
began=$SECONDS
for host in $powered; do bed power-on $host & done
wait $(jobs -p | grep -vx $power_switch)
patience=300 soon ctl status
echo "       all is back $((SECONDS - began)) s after the power"
[ "$(on h8 cat /srv/data/file)" = kept ]
on h8 md5sum --quiet -c /srv/sum

