# Sourced by run.sh: file systems and partitions on real block devices are made, grow while they are mounted, and stay;
# data of others survive every attempt, also with daemons that are killed again and again.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

kills=${COB_BED_KILLS:-12}

# The device nodes of the machine's loop devices; a container has none.
on h2 sh -c 'command -v mkfs.ext4 >/dev/null && command -v losetup >/dev/null &&
    { [ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237; } &&
    for n in 0 1 2 3 4 5 6 7; do [ -e /dev/loop$n ] || mknod /dev/loop$n b 7 $n; done &&
    mkdir -p /srv/disks && truncate -s 64M /srv/disks/probe && losetup --detach $(losetup --find --show /srv/disks/probe)' ||
    { echo "skipped: file systems, for the host lacks mkfs.ext4 or loop devices"; return 0; }

# Two disks and the disk of somebody else. A name stands for each device, as /dev/disk/by-id has on a machine.
attach() { # NAME SIZE
    on h2 sh -c "truncate -s $2 /srv/disks/$1.img && ln -sfn \$(losetup --find --show /srv/disks/$1.img) /srv/disks/$1"
}
attach data 64M
attach spare 32M
attach theirs 32M
attach pool 32M
# A kernel without a device-mapper: LVM changes the metadata alone.
lvm=$(on h2 sh -c 'command -v lvm' || true)
if [ -n "$lvm" ]; then
    on h2 sh -c 'mkdir -p /etc/lvm && printf "global { activation = 0 }\nbackup { backup = 0 archive = 0 }\n" > /etc/lvm/lvm.conf'
else
    echo "skipped: volumes of LVM, for the host lacks lvm2"
fi
# The kernel makes the nodes of partitions in its own file system only.
attach table 64M
sfdisk=$(on h2 sh -c 'command -v sfdisk' || true)
[ -n "$sfdisk" ] || echo "skipped: partitions, for the host lacks fdisk"
on h2 sh -c 'table=$(basename $(readlink /srv/disks/table)) && mkdir /run/nodes && mount -t devtmpfs none /run/nodes &&
    for n in 1 2; do ln -sfn /run/nodes/${table}p$n /dev/${table}p$n; done && ln -sfn /dev/${table}p1 /srv/disks/www'
detach_disks() {
    on h2 sh -c 'umount /srv/data 2>/dev/null; partx --delete /srv/disks/table 2>/dev/null
        rm -f $(readlink /srv/disks/table)p[12]; umount /run/nodes; rmdir /run/nodes
        for disk in data spare theirs pool table; do losetup --detach $(readlink /srv/disks/$disk); done
        rm -rf /srv/disks; losetup -l' || true
}
trap 'detach_disks >/dev/null 2>&1; finish' EXIT
on h2 sh -c 'mkfs.ext4 -q -F -U 00000000-0000-4000-8000-000000000007 /srv/disks/theirs && mkdir /srv/theirs &&
    mount /srv/disks/theirs /srv/theirs && echo precious > /srv/theirs/file && umount /srv/theirs && rmdir /srv/theirs'
sum_of() { on h2 sh -c "sha256sum < /srv/disks/$1"; }
theirs_before=$(sum_of theirs)
is_precious() { [ "$(sum_of theirs)" = "$theirs_before" ]; }

filesystem_model() { # [KEYS OF THEIRS]
    cat <<MODEL
cobs:
  h2/disk:
    kind: filesystem
    content: {device: /srv/disks/data, type: ext4, label: data}
  h2/data:
    kind: mount
    requires: [h2/disk]
    content: {path: /srv/data, source: /srv/disks/data, type: ext4}
  h2/spare:
    kind: filesystem
    content: {device: /srv/disks/spare, type: ext4, on_departure: erase}
MODEL
    [ -z "$lvm" ] || cat <<MODEL
  h2/volume:
    kind: lvm-volume
    content: {group: bedpool, devices: [/srv/disks/pool], name: www, size: 16M, on_departure: erase}
MODEL
    [ -z "$sfdisk" ] || cat <<MODEL
  h2/www-part:
    kind: partition
    content: {disk: /srv/disks/table, name: www, size: 24M, on_departure: erase}
  h2/logs-part:
    kind: partition
    requires: [h2/www-part]
    content: {disk: /srv/disks/table, name: logs, rest: true, type: lvm, on_departure: erase}
  h2/www-system:
    kind: filesystem
    requires: [h2/www-part]
    content: {device: /srv/disks/www, type: ext4, on_departure: erase}
MODEL
    [ $# = 0 ] || echo "  h2/theirs: {kind: filesystem, content: {device: /srv/disks/theirs, type: ext4, $1}}"
}
set_filesystem() { # the model, from standard input, is made and published
    put h1 $site/filesystem.yaml
    publish_cluster
}
nothing() { echo 'cobs: {h2/nothing: {kind: noop}}'; }
type_of() { on h2 sh -c "wipefs --noheadings --output TYPE /srv/disks/$1"; }
is_kept() { [ "$(on h2 cat /srv/data/file)" = kept ]; }
# The volumes with their sizes, as LVM knows them.
volumes() { [ -z "$lvm" ] || on h2 sh -c 'lvm lvs --noheadings --units m -o vg_name,lv_name,lv_size 2>/dev/null | grep bedpool || true'; }
has_volume() { [ -z "$lvm" ] || [ "$(volumes | xargs)" = "bedpool www 16.00m" ]; }
has_no_volume() { [ -z "$(volumes)" ] && [ -z "$(type_of pool)" ]; }
# The partitions in the table and in the kernel.
partitions() {
    [ -z "$sfdisk" ] || on h2 sh -c 'sfdisk --dump /srv/disks/table 2>/dev/null | grep -o "name=.*"
        cd /sys/block/$(basename $(readlink /srv/disks/table)) && cat loop*p*/size 2>/dev/null; true'
}
has_partitions() {
    [ -z "$sfdisk" ] || { [ "$(partitions | xargs)" = 'name=www name=logs 49152 77824' ] && [ "$(type_of www)" = ext4 ] &&
        on h2 sfdisk --verify /srv/disks/table | grep -q 'No errors'; }
}
has_no_partitions() { [ -z "$(partitions)" ] && [ -z "$(type_of table)" ]; }
room() { on h2 sh -c "df --output=size -B1M /srv/data | tail -n 1"; }

list_before

step "file systems: made on block devices and mounted, and a second look changes nothing"
set_filesystem < <(filesystem_model)
reach_cluster
on h2 sh -c 'echo kept > /srv/data/file && sync'
[ "$(type_of spare)" = ext4 ]
has_volume
has_partitions
spare_before=$(sum_of spare)
ctl check >/dev/null
[ "$(sum_of spare)" = "$spare_before" ]

if on h2 sh -c '[ $((0x$(sed -n "s/^CapEff:[[:space:]]*//p" /proc/self/status) >> 24 & 1)) = 1 ]'; then
    step "a device grows, and its file system follows while it is mounted"
    small=$(room)
    on h2 sh -c 'truncate -s 256M /srv/disks/data.img && losetup --set-capacity $(readlink /srv/disks/data)'
    ctl check >/dev/null 2>&1 || true
    has_grown() { [ "$(room)" -gt $((small * 3)) ]; }
    soon has_grown
    soon ctl status
    is_kept
else
    echo "skipped: the growth of ext4, for this machine grants no CAP_SYS_RESOURCE"
fi

step "the file system of somebody else is refused, with the word that allows its loss"
set_filesystem < <(filesystem_model 'uuid: 00000000-0000-4000-8000-000000000008')
ctl switch $cluster_generation --on-failure hold >/dev/null 2>&1 || true
# The status has the beginning of a long reason.
explained() { on h2 sh -c 'cobctl explain h2/theirs; cobctl output h2/theirs' 2>&1 || true; }
says_why() { grep -qF 'overwrite: "00000000-0000-4000-8000-000000000007"' <<< "$(explained)"; }
soon says_why || { explained >&2; ctl status >&2; false; }
is_precious
for word in ext4 all 00000000-0000-4000-8000-000000000008; do
    set_filesystem < <(filesystem_model "uuid: 00000000-0000-4000-8000-000000000008, overwrite: $word, on_departure: erase")
    ctl switch $cluster_generation --on-failure hold >/dev/null 2>&1 || true
    soon says_why
    is_precious
done

step "they leave: the data stay, and what may be erased is erased"
set_filesystem < <(nothing)
reach_cluster
is_precious
[ "$(type_of data)" = ext4 ] && [ -z "$(type_of spare)" ]
has_no_volume
has_no_partitions
fails on h2 mountpoint -q /srv/data
is_as_before

step "the daemon of the host and its actions are killed $kills times while file systems come and go"
RANDOM=13
retried=(h2/disk h2/data h2/spare ${lvm:+h2/volume} ${sfdisk:+h2/www-part h2/logs-part h2/www-system})
permit_many_starts h2
killed=0
actions=0
round=0
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    # Beside it a content that wants another file system on the disk of somebody else.
    set_filesystem < <(if [ $((round % 2)) = 1 ]; then filesystem_model "uuid: 00000000-0000-4000-8000-000000000008"; else nothing; fi)
    ctl switch $cluster_generation --on-failure hold >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 7))$((RANDOM % 10))"
        on h2 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
        # The action outlives its daemon.
        [ $((RANDOM % 2)) = 0 ] || { on h2 pkill -KILL -f '__act-kind|^mkfs|^lvm|^sfdisk|^partx' && actions=$((actions + 1)); } || true
    done
    # In the first rounds the actions alone are killed all the time, in the middle of their work.
    if [ $round -le 2 ]; then
        actions=$((actions + $(on h2 sh -c 'n=0; for pause in 1 5 2 9 3 7 4 8 1 6 2 5 3 9 1 7 4 2 8 3; do
            ! pkill -KILL -f "[_]_act-kind|^mkfs|^lvm|^sfdisk|^partx" || n=$((n + 1)); sleep 0.$pause; done; echo $n')))
    fi
    wait $switching || true
    is_precious
    if [ $((round % 2)) = 1 ]; then
        is_made() { ctl retry "${retried[@]}" >/dev/null 2>&1 || true; on h2 mountpoint -q /srv/data && [ "$(type_of spare)" = ext4 ] && has_volume && has_partitions && is_kept; }
        soon is_made || { ctl status; on h2 journalctl --unit cobd --lines 60 --no-pager; false; }
    else
        is_out() { ctl status || { ctl retry "${retried[@]}" || true; false; }; }
        soon is_out || { ctl status; on h2 journalctl --unit cobd --lines 60 --no-pager; false; }
        [ "$(type_of data)" = ext4 ] && [ -z "$(type_of spare)" ]
        has_no_volume
        has_no_partitions
        is_as_before
    fi
done
is_precious
echo "       $killed kills of daemons and $actions of actions in $round switches"
set_filesystem < <(nothing)
reach_cluster
is_as_before
is_precious
detach_disks
[ -z "$lvm" ] || on h2 rm /etc/lvm/lvm.conf
trap finish EXIT
limit_starts h2
on h1 rm $site/filesystem.yaml
switch_cluster
