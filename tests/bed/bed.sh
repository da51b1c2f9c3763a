#!/usr/bin/env bash
# Real hosts on one machine: systemd as PID 1, a disk, a network cable and a power switch each.
#
#   bed.sh [--name NAME] up N              hosts h1..hN, booted; they reach each other by name
#   bed.sh [--name NAME] down              everything of it is gone again; also after half an `up`
#   bed.sh [--name NAME] run HOST CMD...   in a host, as root
#   bed.sh [--name NAME] cut HOST          pull its network cable
#   bed.sh [--name NAME] heal [HOST]       put it back; without HOST: all cables, and no partition
#   bed.sh [--name NAME] partition 'A B|C' A and B can't reach C, nor C them
#   bed.sh [--name NAME] power-off HOST    at once, as a pulled plug: every process in it is killed
#   bed.sh [--name NAME] power-on HOST     boots it again, from the same disk
#   bed.sh [--name NAME] power-switch      carries out orders of fence agents (fence_bed) in hosts, until `down`
#   bed.sh [--name NAME] save HOST         keeps the disk of a host that is off, for `restore`
#   bed.sh [--name NAME] restore HOST      gives a host that is off the kept disk again
#   bed.sh [--name NAME] state [HOST]      `HOST running|degraded|starting|...|off`, a line each
#   bed.sh check                           says why it can't work here, and fails
#
# A host is a systemd-nspawn container with a network namespace of its own on a bridge that lies in a
# namespace, too: nothing touches the machine's network, and hosts have no way out. Its disk is an
# overlay over the machine's own root, so nothing has to be installed or unpacked. The clock is the machine's: no
# host may set it. Needs root and the
# packages systemd systemd-sysv systemd-container dbus nftables iproute2 iputils-ping procps.
#
# Beds with different names know nothing of each other. What a power failure does to writes that were
# not yet synced is not shown here: the disk's cache is the machine's, and that has not failed.
set -euo pipefail

name=bed
if [ "${1:-}" = --name ]; then
    name=${2:?--name needs a name}
    shift 2
fi
if ! [[ $name =~ ^[a-z][a-z0-9]{0,15}$ ]]; then
    echo "bed.sh: a name is up to 16 small letters and digits, not $name" >&2
    exit 2
fi
# Disks lie outside of the checkout: they contain a view of it.
base=${BED_DIR:-/var/tmp}/cob-$name
switch=$name-switch

die() {
    echo "bed.sh: $*" >&2
    exit 1
}

# What is missing here, a line; nothing if all is there.
missing() {
    if [ "$(id -u)" != 0 ]; then
        echo "hosts in namespaces need root"
        return
    fi
    local program
    for program in systemd-nspawn nft ip ping nsenter pgrep dbus-daemon /lib/systemd/systemd; do
        if ! command -v "$program" >/dev/null; then
            echo "$program is not installed"
            return
        fi
    done
    if ! unshare --net --mount --pid --uts --ipc --cgroup --fork true 2>/dev/null; then
        echo "namespaces can't be made here (is this a container without the right to?)"
    elif ! grep -qw overlay /proc/filesystems && ! modprobe overlay 2>/dev/null; then
        echo "the kernel has no overlay file system"
    fi
}

disk_of() { echo "$base/$1"; }
netns_of() { echo "$name-$1"; }
port_of() { echo "p${1#h}"; }
address_of() { echo "10.77.0.${1#h}"; }

hosts() {
    local disk
    for disk in "$base"/h*/; do
        [ ! -d "$disk" ] || basename "$disk"
    done | sort -V
}

known() {
    [ -d "$(disk_of "$1")" ] || die "there is no host ${1:-(none named)}; there are: $(hosts | xargs)"
}

# The keeper is the shell that starts nspawn, and starts it again when the host reboots. Its number may
# have been given to somebody else since.
keeper_of() {
    local pid
    pid=$(cat "$(disk_of "$1")/keeper" 2>/dev/null) || return 1
    grep -qzF "COB_BED_HOST=$name/$1" "/proc/$pid/environ" 2>/dev/null || return 1
    echo "$pid"
}

# The process that is PID 1 in a host.
init_of() {
    local keeper nspawn child
    keeper=$(keeper_of "$1") || return 1
    nspawn=$(pgrep -P "$keeper" -x systemd-nspawn) || return 1
    for child in $(pgrep -P "$nspawn"); do
        if grep -qP '^NSpid:.*\t1$' "/proc/$child/status" 2>/dev/null; then
            echo "$child"
            return
        fi
    done
    return 1
}

run_in() {
    local init
    init=$(init_of "$1") || { echo "bed.sh: $1 is off" >&2; return 1; }
    shift
    nsenter --target "$init" --all -- /usr/bin/env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
}

# PID 1 of each host needs a control group of its own: one for each hierarchy there is (one on machines
# with unified control groups, several on older or mixed ones).
control_groups() {
    local root=/sys/fs/cgroup hierarchy
    if [ -e $root/cgroup.controllers ]; then
        echo "$root/cob-$name"
    else
        for hierarchy in $root/*/; do
            [ ! -w "${hierarchy}cgroup.procs" ] || echo "${hierarchy}cob-$name"
        done
    fi
}

enter_control_groups() {
    local group
    for group in $(control_groups); do
        mkdir -p "$group/$1" 2>/dev/null || continue
        # The processors and memory of a cpuset have to be given before anybody enters it.
        if [ -e "$group/cpuset.cpus" ] && [ -e "$group/cpuset.mems" ] && [ ! -e "$group/cgroup.controllers" ]; then
            cat "$group/../cpuset.cpus" > "$group/cpuset.cpus"
            cat "$group/../cpuset.mems" > "$group/cpuset.mems"
            cat "$group/cpuset.cpus" > "$group/$1/cpuset.cpus"
            cat "$group/cpuset.mems" > "$group/$1/cpuset.mems"
        fi
        echo "$BASHPID" > "$group/$1/cgroup.procs"
    done
}

remove_control_groups() {
    local group try
    for group in $(control_groups); do
        # Groups go from the inside out, and only once the last process is gone.
        for try in {1..50}; do
            [ -d "$group" ] || break
            find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
            find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
        done
        [ ! -d "$group" ] || echo "bed.sh: the control group $group can't be removed" >&2
    done
}

make_switch() {
    ip netns add "$switch"
    ip -n "$switch" link add br0 type bridge
    ip -n "$switch" link set br0 up
    ip netns exec "$switch" nft -f - <<'RULES'
table bridge bed {
    set apart { type ifname . ifname; }
    chain forwarded {
        type filter hook forward priority 0;
        iifname . oifname @apart drop
    }
}
RULES
}

make_host() {
    local host=$1 disk netns port
    disk=$(disk_of "$host") netns=$(netns_of "$host") port=$(port_of "$host")
    ip netns add "$netns"
    ip link add eth0 netns "$netns" type veth peer name "$port" netns "$switch"
    ip -n "$switch" link set "$port" master br0 up
    ip -n "$netns" link set lo up
    ip -n "$netns" addr add "$(address_of "$host")/24" dev eth0
    ip -n "$netns" link set eth0 up
    mkdir -p "$disk"/{upper,work,tree}
    mount_disk "$host"
    # Nothing of the machine's own starts here but what belongs to systemd itself.
    rm -rf "$disk"/tree/etc/systemd/system/*.wants "$disk"/tree/etc/systemd/system/*.requires
    rm -f "$disk"/tree/etc/rc[0-9S].d/* "$disk"/tree/etc/resolv.conf "$disk"/tree/etc/machine-id
    ln -sf /dev/null "$disk/tree/etc/systemd/system/console-getty.service"
    # Nobody reads manuals here: each package would sort all of them anew, for seconds of a processor.
    rm -f "$disk/tree/var/lib/man-db/auto-update"
    : > "$disk/tree/etc/fstab"
    : > "$disk/tree/etc/machine-id"
    echo "$host" > "$disk/tree/etc/hostname"
}

mount_disk() {
    local disk
    disk=$(disk_of "$1")
    mountpoint -q "$disk/tree" ||
        mount -t overlay "cob-$name" -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$disk/tree"
}

start_host() {
    local host=$1 disk
    disk=$(disk_of "$host")
    mount_disk "$host"
    # shellcheck disable=SC2016 # is expanded by that shell
    COB_BED_HOST=$name/$host setsid bash -c '
        source "$0" --name "$1" enter-groups "$2"
        while :; do
            result=0
            systemd-nspawn --quiet --boot --directory="$3/tree" --machine="$1-$2" --hostname="$2" --register=no \
                --keep-unit --network-namespace-path="/run/netns/$1-$2" --capability=all \
                --drop-capability=CAP_SYS_TIME --resolv-conf=off \
                --timezone=off --link-journal=no --console=pipe || result=$?
            # It asks to be started again.
            [ $result = 133 ] || exit $result
        done' "${BASH_SOURCE[0]}" "$name" "$host" "$disk" </dev/null >>"$disk/console" 2>&1 &
    local keeper=$!
    disown
    echo "$keeper" > "$disk/keeper"
    # Until it has executed what it is to be, it can't be told from this shell.
    while kill -0 "$keeper" 2>/dev/null && ! keeper_of "$host" >/dev/null; do
        sleep 0.01
    done
}

state_of() {
    local state
    if ! init_of "$1" >/dev/null; then
        echo off
    else
        # Says its word and fails for all but `running`.
        state=$(run_in "$1" systemctl is-system-running 2>/dev/null) || true
        echo "${state:-starting}"
    fi
}

wait_up() {
    local host=$1 state=off limit=$((SECONDS + ${BED_PATIENCE:-120}))
    while [ $SECONDS -lt $limit ]; do
        state=$(state_of "$host")
        case $state in
        running) return ;;
        degraded)
            echo "bed.sh: $host is up, without: $(run_in "$host" systemctl list-units --failed --plain --no-legend |
                awk '{ print $1 }' | xargs)" >&2
            return
            ;;
        esac
        sleep 0.1
    done
    echo "bed.sh: $host did not come up ($state); the end of its console:" >&2
    tail -n 20 "$(disk_of "$host")/console" >&2
    return 1
}

# Every process of it is gone when this returns.
power_off() {
    local host=$1 keeper init try
    keeper=$(keeper_of "$host") || return 0
    for try in {1..200}; do
        # The kernel ends everything in the namespace with its PID 1. A host that boots has none yet.
        if init=$(init_of "$host"); then
            kill -KILL "$init" 2>/dev/null || true
        elif [ "$try" -gt 50 ]; then
            pkill -KILL -P "$keeper" 2>/dev/null || true
            kill -KILL "$keeper" 2>/dev/null || true
        fi
        keeper_of "$host" >/dev/null || return 0
        sleep 0.05
    done
    echo "bed.sh: $host can't be ended: process $keeper" >&2
    return 1
}

# An order is a file `NUMBER.order` with `ACTION HOST`, its answer a file with an exit status.
do_power_switch() {
    local order action host result answer
    while [ -d "$base" ]; do
        for order in "$base"/h*/tree/srv/power/*.order; do
            [ -e "$order" ] || continue
            read -r action host < "$order" || continue
            answer=${order%.order}.answer result=0
            rm -f "$order"
            if ! [[ $host =~ ^h[0-9]+$ ]] || [ ! -d "$(disk_of "$host")" ]; then
                result=1
            else
                case $action in
                off) power_off "$host" || result=1 ;;
                on) keeper_of "$host" >/dev/null || start_host "$host" ;;
                reboot) { power_off "$host" && start_host "$host"; } || result=1 ;;
                status) init_of "$host" >/dev/null || result=2 ;;
                *) result=1 ;;
                esac
            fi
            echo "$result" > "$answer.new" && mv "$answer.new" "$answer"
        done
        sleep 0.1
    done
}

do_save() {
    local disk
    disk=$(disk_of "$1")
    ! keeper_of "$1" >/dev/null || die "$1 is on"
    ! mountpoint -q "$disk/tree" || umount "$disk/tree"
    rm -rf "$disk/saved"
    cp -a "$disk/upper" "$disk/saved"
}

do_restore() {
    local disk
    disk=$(disk_of "$1")
    ! keeper_of "$1" >/dev/null || die "$1 is on"
    [ -d "$disk/saved" ] || die "no disk of $1 is saved"
    ! mountpoint -q "$disk/tree" || umount "$disk/tree"
    rm -rf "$disk/upper" "$disk/work"
    mkdir "$disk/work"
    cp -a "$disk/saved" "$disk/upper"
}

do_up() {
    local count=${1:-} why i host
    [[ $count =~ ^[1-9][0-9]?$ ]] || die "up needs a number of hosts, 1 to 99"
    why=$(missing)
    [ -z "$why" ] || die "$why"
    [ ! -e "$base" ] || die "$base is there: \`bed.sh --name $name down\` first, or take another name"
    # From about 25 hosts on systemd finds no watch left, and hangs.
    if [ "$count" -gt 20 ] && [ "$(cat /proc/sys/fs/inotify/max_user_instances)" -lt 8192 ]; then
        echo 8192 > /proc/sys/fs/inotify/max_user_instances
    fi
    trap 'echo "bed.sh: up failed; taking it down" >&2; trap - EXIT; do_down' EXIT
    mkdir -p -m 0755 "$base"
    make_switch
    for ((i = 1; i <= count; i++)); do
        make_host "h$i"
    done
    for host in $(hosts); do
        {
            echo "127.0.0.1 localhost"
            for i in $(hosts); do echo "$(address_of "$i") $i"; done
        } > "$(disk_of "$host")/tree/etc/hosts"
        start_host "$host"
    done
    for host in $(hosts); do
        wait_up "$host"
    done
    trap - EXIT
}

do_down() {
    local host netns failed=0
    for host in $(hosts); do
        power_off "$host" || failed=1
    done
    # First, for it also ends what a broken start has left.
    remove_control_groups
    for host in $(hosts); do
        ! mountpoint -q "$(disk_of "$host")/tree" || umount "$(disk_of "$host")/tree" || failed=1
    done
    # By their names, not by the folders: half an `up` leaves some without.
    for netns in $(ip netns list | awk -v prefix="$name-" 'index($1, prefix) == 1 { print $1 }'); do
        ip netns del "$netns" || failed=1
    done
    if [ $failed = 0 ]; then
        rm -rf --one-file-system "$base"
    else
        echo "bed.sh: $base is left: something in it could not be ended" >&2
    fi
    return $failed
}

do_partition() {
    local sides=${1:-} left right a b rules=""
    [[ $sides == *"|"* ]] || die "partition needs two sides: 'h1 h2|h3'"
    left=${sides%%|*} right=${sides#*|}
    for a in $left; do
        known "$a"
        for b in $right; do
            known "$b"
            a=$(port_of "$a") b=$(port_of "$b")
            rules+="add element bridge bed apart { \"$a\" . \"$b\", \"$b\" . \"$a\" }"$'\n'
            a=h${a#p}
        done
    done
    ip netns exec "$switch" nft -f - <<< "$rules"
}

do_heal() {
    local host
    if [ $# -gt 0 ]; then
        known "$1"
        ip -n "$switch" link set "$(port_of "$1")" up
        return
    fi
    for host in $(hosts); do
        ip -n "$switch" link set "$(port_of "$host")" up
    done
    ip netns exec "$switch" nft flush set bridge bed apart
}

command=${1:-help}
[ $# = 0 ] || shift
case $command in
up) do_up "$@" ;;
down) do_down ;;
run)
    known "${1:-}"
    run_in "$@"
    ;;
cut)
    known "${1:-}"
    ip -n "$switch" link set "$(port_of "$1")" down
    ;;
heal) do_heal "$@" ;;
partition) do_partition "$@" ;;
power-off)
    known "${1:-}"
    power_off "$1"
    ;;
power-on)
    known "${1:-}"
    ! keeper_of "$1" >/dev/null || die "$1 is on"
    start_host "$1"
    wait_up "$1"
    ;;
power-switch) do_power_switch ;;
save)
    known "${1:-}"
    do_save "$1"
    ;;
restore)
    known "${1:-}"
    do_restore "$1"
    ;;
state)
    [ $# = 0 ] || known "$1"
    for host in ${1:-$(hosts)}; do
        echo "$host $(state_of "$host")"
    done
    ;;
check)
    why=$(missing)
    if [ -n "$why" ]; then
        echo "$why"
        exit 1
    fi
    ;;
# Of `start_host`, which sources this file.
enter-groups) enter_control_groups "$1" ;;
*)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
