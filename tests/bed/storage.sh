#!/usr/bin/env bash
# RAID, encryption, LVM, a file system and a mount on the disks of a virtual machine (vm.sh) with a kernel of its own:
# one model makes them, a power cut and a faulty disk do them no harm, and they leave as the model says.
#
#   tests/bed/storage.sh --stage FOLDER   with the files that `packaging/build.sh stage FOLDER` has put there
#
# Where no machine can be emulated it says `skipped: WHY` and ends with 0. COB_BED_KILLS says how often the daemon is
# killed (default 4), COB_BED_KEEP=1 leaves the machine when something has failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=${BED_NAME:-storage$$}
kills=${COB_BED_KILLS:-4}

[ "${1:-}" = --stage ] || { sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
stage=$(realpath "${2:?--stage needs a path}")
for program in mdadm cryptsetup lvm mkfs.ext4; do
    command -v $program >/dev/null || { echo "skipped: $program is not installed"; exit 0; }
done

looks='cat /proc/mdstat; lsblk'
# shellcheck source=tests/bed/machine.sh
source "$here/machine.sh"

step "a machine with six disks, and COB as it is installed"
boot 6
on sh -c 'mkdir -p /etc/keys && umask 077 && head -c 32 /dev/urandom > /etc/keys/vault.key'
quick='options: {--pbkdf: pbkdf2, --pbkdf-force-iterations: 1000}'
stack() { # DEVICES SIZE [ON_DEPARTURE]
    cat <<MODEL
  vm/array:
    kind: raid
    content: {name: data, level: 1, devices: [$1], on_departure: ${3:-keep}}
  vm/vault:
    kind: luks
    requires: [vm/array]
    content: {device: /dev/md/data, name: vault, key_file: /etc/keys/vault.key, $quick, on_departure: ${3:-keep}}
  vm/volume:
    kind: lvm-volume
    requires: [vm/vault]
    content: {group: pool, devices: [/dev/mapper/vault], name: www, size: $2, on_departure: ${3:-keep}}
  vm/system:
    kind: filesystem
    requires: [vm/volume]
    content: {device: /dev/pool/www, type: ext4, on_departure: ${3:-keep}}
  vm/www:
    kind: mount
    requires: [vm/system]
    content: {path: /srv/www, source: /dev/pool/www, type: ext4, options: [nofail]}
MODEL
}
is_kept() { [ "$(on cat /srv/www/file)" = kept ]; }
# The identities of all layers.
identities() {
    on sh -c 'mdadm --detail --export /dev/md/data | grep MD_UUID; cryptsetup luksUUID /dev/md/data
        lvm lvs --noheadings -o lv_uuid pool/www 2>/dev/null; blkid -p -s UUID -o value /dev/pool/www'
}
# The numbers of devices in sync and of all.
in_sync() { [ "$(on sh -c 'cat /sys/block/md*/md/degraded /sys/block/md*/md/sync_action' | xargs)" = "0 idle" ]; }
is_blank() { [ -z "$(on sh -c "for d in $1; do wipefs --noheadings \$d; done" 2>&1)" ]; }

publish < <(nothing)
on systemctl enable --now cobd
reach
etc_before=$(etc)

step "an array, a vault on it, a volume in it, a file system and a mount, from one model"
publish < <(stack "/dev/vdb, /dev/vdc" 48M)
reach
on sh -c 'echo kept > /srv/www/file && sync'
made=$(identities)
[ "$(wc -l <<< "$made")" = 4 ]

step "a second look changes nothing"
soon in_sync
events() { on sh -c 'mdadm --examine --export /dev/vdb | grep MD_EVENTS; cobctl history | wc -l'; }
before=$(events)
on cobctl check >/dev/null
on cobctl status >/dev/null
[ "$(events)" = "$before" ]

step "without power and back: all is there again, open and mounted"
vm power-off
vm power-on
soon on mountpoint -q /srv/www
is_kept
soon on cobctl status
[ "$(identities)" = "$made" ]

step "the volume grows, and ext4 on it while it is mounted"
room() { on sh -c 'df --output=size -BM /srv/www | tail -n 1 | tr -dc 0-9'; }
room_before=$(room)
publish < <(stack "/dev/vdb, /dev/vdc" 128M)
reach
on cobctl check >/dev/null 2>&1 || true
has_grown() { [ "$(room)" -gt $((room_before * 2)) ]; }
soon has_grown
soon on cobctl status
is_kept

step "a disk fails: all goes on without it, and another disk takes its place"
soon in_sync
on sh -c 'mdadm --quiet /dev/md/data --fail /dev/vdc && cobctl check' >/dev/null 2>&1
on cobctl status >/dev/null
on mountpoint -q /srv/www
is_kept
publish < <(stack "/dev/vdb, /dev/vdd" 128M)
reach
soon in_sync
is_kept
on sh -c 'mdadm --detail --export /dev/md/data | grep -q DEV=/dev/vdd'
fails on sh -c 'mdadm --detail --export /dev/md/data | grep -q DEV=/dev/vdc'
[ "$(identities)" = "$made" ]

step "a disk that was away comes back by itself"
on sh -c 'mdadm --quiet /dev/md/data --fail /dev/vdd --remove /dev/vdd && echo more > /srv/www/more && sync; cobctl check' >/dev/null 2>&1 || true
on cobctl retry vm/array >/dev/null 2>&1 || true
is_back() { on sh -c 'mdadm --detail --export /dev/md/data | grep -q DEV=/dev/vdd'; }
soon is_back
soon in_sync
soon on cobctl status

step "disks with data of somebody else are refused"
on sh -c 'mkfs.ext4 -q -U 00000000-0000-4000-8000-000000000007 /dev/vde && cryptsetup luksFormat -q --pbkdf pbkdf2 \
    --pbkdf-force-iterations 1000 --uuid 00000000-0000-4000-8000-000000000008 --key-file /etc/keys/vault.key /dev/vdf'
theirs=$(on sh -c 'sha256sum < /dev/vde; sha256sum < /dev/vdf')
publish < <(stack "/dev/vdb, /dev/vdd" 128M; cat <<'MODEL'
  vm/theirs-array:
    kind: raid
    content: {name: theirs, level: 1, devices: [/dev/vde, /dev/vdg], on_departure: erase}
  vm/theirs-vault:
    kind: luks
    content: {device: /dev/vdf, name: theirs, key_file: /etc/keys/vault.key, on_departure: erase}
MODEL
)
try
soon says vm/theirs-array 00000000-0000-4000-8000-000000000007
soon says vm/theirs-vault 'adopt: "00000000-0000-4000-8000-000000000008"'
[ "$(on sh -c 'sha256sum < /dev/vde; sha256sum < /dev/vdf')" = "$theirs" ]
is_blank /dev/vdg
is_kept

step "all leaves, and the data stay"
publish < <(nothing)
reach
fails on mountpoint -q /srv/www
fails on test -e /dev/mapper/vault
on test -e /dev/md/data
is_as_before
[ "$(on sh -c 'sha256sum < /dev/vde; sha256sum < /dev/vdf')" = "$theirs" ]
on sh -c 'wipefs -qa /dev/vde /dev/vdf && blkdiscard --zeroout /dev/vde && blkdiscard --zeroout /dev/vdf'

step "all comes back with its data, and leaves for good as soon as it is not in use"
publish < <(stack "/dev/vdb, /dev/vdd" 128M erase)
reach
is_kept
[ "$(identities)" = "$made" ]
publish < <(nothing)
reach
# What was there before a change object came is kept: the file system alone would be erased.
on test -e /dev/md/data
on sh -c 'cryptsetup open --key-file /etc/keys/vault.key /dev/md/data vault && udevadm settle && lvm vgremove --quiet --yes pool >/dev/null 2>&1
    cryptsetup close vault; mdadm --quiet --stop /dev/md/data; for d in /dev/vdb /dev/vdc /dev/vdd; do wipefs -qa $d; blkdiscard --zeroout $d; done'
publish < <(stack "/dev/vdb, /dev/vdd" 128M erase)
reach
on systemd-run --quiet --unit=holder sh -c 'exec sleep infinity < /dev/pool/www'
publish < <(nothing)
try
in_use() { says vm/volume "can't be removed" || says vm/system "in use"; }
soon in_use
on systemctl stop holder
is_out() { on cobctl status || { on cobctl retry vm/system vm/volume vm/vault vm/array || true; false; }; }
soon is_out
soon is_blank "/dev/vdb /dev/vdd"
fails on test -e /dev/md/data
is_as_before

step "the daemon and its actions are killed $kills times while an array and a vault come and go"
RANDOM=13
killed=0
actions=0
round=0
pair() {
    cat <<'MODEL'
  vm/pair:
    kind: raid
    content: {name: pair, level: 1, devices: [/dev/vde, /dev/vdf], on_departure: erase}
  vm/safe:
    kind: luks
    requires: [vm/pair]
MODEL
    echo "    content: {device: /dev/md/pair, name: safe, key_file: /etc/keys/vault.key, $quick, on_departure: erase}"
}
while [ $killed -lt "$kills" ] || [ $((round % 2)) = 1 ]; do
    round=$((round + 1))
    publish < <(if [ $((round % 2)) = 1 ]; then pair; else nothing; fi)
    try &
    trying=$!
    for _ in 1 2; do
        sleep $((RANDOM % 6 + 1))
        on systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
        # The action outlives its daemon.
        on pkill -KILL -f '__act-kind|^mdadm|^cryptsetup' && actions=$((actions + 1)) || true
    done
    wait $trying || true
    if [ $((round % 2)) = 1 ]; then
        is_made() { on cobctl retry vm/pair vm/safe >/dev/null 2>&1 || true; on test -b /dev/mapper/safe && on cobctl status; }
        soon is_made
        on sh -c 'grep -q "^safe UUID=" /etc/crypttab && mdadm --detail --export /dev/md/pair | grep -q DEV=/dev/vdf'
    else
        is_gone() { on cobctl status || { on cobctl retry vm/pair vm/safe || true; false; }; }
        soon is_gone
        is_blank "/dev/vde /dev/vdf"
        fails on test -e /dev/mapper/safe
        is_as_before
    fi
done
echo "       $killed kills of daemons and $actions of actions in $round switches"
step "all is done"
