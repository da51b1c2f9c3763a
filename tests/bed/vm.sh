#!/usr/bin/env bash
# A virtual machine with a kernel of its own: what containers on the machine's kernel cannot show (device-mapper, RAID,
# bonds, a DHCP client, the loss of writes that were not synced).
#
#   vm.sh [--name NAME] up [DISKS]     boots it with DISKS empty disks of 256 MiB: /dev/vdb, /dev/vdc, ... (default 0)
#   vm.sh [--name NAME] run CMD...     in it, as root; its input is empty
#   vm.sh [--name NAME] power-off      at once, as a pulled plug: what was not synced is lost
#   vm.sh [--name NAME] power-on       boots it again, with the same disks
#   vm.sh [--name NAME] down           it and its disks are gone
#   vm.sh check                        says why it can't work here, and fails
#
# Its root is an overlay over the machine's own root, so nothing has to be installed or unpacked; services of the machine
# do not start; /mnt is a folder of its disk. The kernel is Debian's: the one installed here, or the package that `check` fetches. The processor is
# emulated, about ten times slower than the machine, but needs no right to virtualize. Needs root, and the packages
# qemu-system-x86 busybox-static cpio python3.
set -euo pipefail

name=vm
if [ "${1:-}" = --name ]; then
    name=${2:?--name needs a name}
    shift 2
fi
[[ $name =~ ^[a-z][a-z0-9]{0,15}$ ]] || { echo "vm.sh: a name is up to 16 small letters and digits, not $name" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
base=${BED_DIR:-/var/tmp}/cob-vm-$name
# A kernel that was fetched serves all machines.
fetched=${BED_DIR:-/var/tmp}/cob-vm-kernel

die() {
    echo "vm.sh: $*" >&2
    exit 1
}

# The folder that has boot/vmlinuz-VERSION and lib/modules/VERSION, then the version.
kernel() {
    local root file version
    for root in / "$fetched/"; do
        for file in "$root"boot/vmlinuz-*-amd64; do
            version=${file##*/vmlinuz-}
            [ ! -f "$file" ] || [ ! -d "${root}lib/modules/$version/kernel/drivers/md" ] || { echo "$root" "$version"; return; }
        done
    done
    return 1
}

fetch_kernel() {
    local package
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: //p' | head -n 1)
    [ -n "$package" ] || return 1
    rm -rf "$fetched" && mkdir -p "$fetched/package" && (cd "$fetched/package" && apt-get download -qq "$package" >/dev/null 2>&1) &&
        dpkg-deb -x "$fetched"/package/*.deb "$fetched" && depmod -b "$fetched" "$(basename "$fetched"/lib/modules/*)" &&
        rm -r "$fetched/package"
}

# What is missing here, a line; nothing if all is there.
missing() {
    [ "$(id -u)" = 0 ] || { echo "a virtual machine over the machine's root needs root"; return; }
    local program
    for program in qemu-system-x86_64 busybox cpio python3 modprobe depmod mkfs.ext4; do
        command -v $program >/dev/null || { echo "$program is not installed"; return; }
    done
    ! ldd "$(command -v busybox)" >/dev/null 2>&1 || { echo "busybox needs libraries (package busybox-static)"; return; }
    kernel >/dev/null || fetch_kernel || { echo "no kernel of Debian is installed (package linux-image-amd64)"; return; }
}

# The first program in the machine: mounts the root and hands over to systemd.
make_initrd() { # ROOT VERSION
    local at=$base/initrd module number=100
    rm -rf "$at" && mkdir -p "$at"/{bin,modules,proc,sys,dev,lower,disk,new}
    cp "$(command -v busybox)" "$at/bin/busybox"
    while read -r module; do
        cp "$module" "$at/modules/$number-$(basename "$module")"
        number=$((number + 1))
    done < <(for module in virtio_pci virtio_blk virtio_console 9p 9pnet_virtio overlay ext4; do
        modprobe -d "$1" -S "$2" --show-depends $module
    done | awk '/^insmod/ && !seen[$2]++ {print $2}')
    cat >"$at/init" <<INIT
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do insmod \$module; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 root /lower
mount -t ext4 /dev/vda /disk
mkdir -p /disk/upper /disk/work /disk/mnt
mount -t overlay -o lowerdir=/lower,upperdir=/disk/upper,workdir=/disk/work root /new
if [ ! -e /disk/began ]; then
    # Services of the machine stay out.
    rm -rf /new/etc/systemd/system/*.wants /new/etc/fstab /new/var/lib/systemd/timers
    mkdir -p /new/etc/systemd/system/multi-user.target.wants
    ln -s ../vm-agent.service /new/etc/systemd/system/multi-user.target.wants/vm-agent.service
    # A boot removes what is in /tmp: there the machine may have thousands of files, and each takes milliseconds here.
    mkdir -p /new/etc/tmpfiles.d
    echo 'd /tmp 1777 root root -' >/new/etc/tmpfiles.d/tmp.conf
    echo '$name' >/new/etc/hostname
    cat >/new/etc/systemd/system/vm-agent.service <<UNIT
[Service]
ExecStart=/usr/bin/env python3 $here/vm_agent.py
Restart=always
UNIT
    : >/disk/began
fi
[ '$1' = / ] || mount --bind /new$1/lib/modules /new/lib/modules
# Not an overlay: a place for other overlays.
mount --bind /disk/mnt /new/mnt
for place in proc sys dev; do mount --move /\$place /new/\$place; done
exec switch_root /new /sbin/init
INIT
    chmod +x "$at/init"
    (cd "$at" && find . | cpio --quiet -o -H newc | gzip -1) >"$base/initrd.gz"
    rm -r "$at"
}

is_alive() { [ -s "$base/pid" ] && grep -qzF "$base/agent" "/proc/$(cat "$base/pid")/cmdline" 2>/dev/null; }

power_on() {
    local root version disk
    local -a disks=()
    ! is_alive || die "$name is on"
    read -r root version < <(kernel) || die "$(missing)"
    for disk in "$base"/disk*; do
        disks+=(-drive "file=$disk,if=virtio,format=raw,cache=writeback,discard=unmap")
    done
    rm -f "$base/agent"
    # shellcheck disable=SC2054
    qemu-system-x86_64 -accel tcg,thread=multi -machine q35 -cpu max -smp "$(nproc)" -m "${COB_VM_MEMORY:-2G}" \
        -nodefaults -no-user-config -display none -daemonize -pidfile "$base/pid" \
        -kernel "${root}boot/vmlinuz-$version" -initrd "$base/initrd.gz" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off" -no-reboot \
        -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=root,mount_tag=root "${disks[@]}" -device virtio-rng-pci \
        -serial "file:$base/console" -device virtio-serial-pci \
        -chardev "socket,id=agent,path=$base/agent,server=on,wait=off" -device virtserialport,chardev=agent,name=agent \
        2>"$base/qemu.log" || { cat "$base/qemu.log" >&2; die "the machine does not start"; }
    local limit=$((SECONDS + ${COB_BED_PATIENCE:-180}))
    until timeout 10 "$0" --name "$name" run true 2>/dev/null; do
        is_alive || { tail -n 40 "$base/console" >&2; die "the machine has ended"; }
        [ $SECONDS -lt $limit ] || { tail -n 40 "$base/console" >&2; die "the machine did not boot in time"; }
        sleep 0.5
    done
}

power_off() {
    is_alive || return 0
    kill -KILL "$(cat "$base/pid")"
    while is_alive; do sleep 0.1; done
    rm -f "$base/pid"
}

case ${1:-} in
check)
    why=$(missing)
    [ -z "$why" ] || { echo "$why"; exit 1; }
    ;;
up)
    [ ! -d "$base" ] || die "$name exists"
    why=$(missing)
    [ -z "$why" ] || die "$why"
    mkdir -p "$base"
    truncate -s 8G "$base/disk00"
    mkfs.ext4 -q -E lazy_itable_init=1,lazy_journal_init=1 "$base/disk00"
    for number in $(seq "${2:-0}"); do
        truncate -s 256M "$base/disk$(printf %02d "$number")"
    done
    read -r root version < <(kernel)
    make_initrd "$root" "$version"
    power_on
    ;;
run)
    shift
    is_alive || die "$name is off"
    exec python3 "$here/vm_agent.py" "$base/agent" "$@"
    ;;
power-off) power_off ;;
power-on) power_on ;;
down)
    power_off
    rm -rf "$base"
    ;;
*)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
