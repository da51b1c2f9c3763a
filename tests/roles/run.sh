#!/usr/bin/env bash
# Roles of Ansible as models: the same end state, byte for byte, on two equal hosts of the bed (tests/bed/bed.sh).
#
#   tests/roles/run.sh --stage FOLDER [--debs FOLDER] [ROLE...]
#
# FOLDER has the files that `packaging/build.sh stage FOLDER` puts there. The second folder has packages for both hosts
# (sudo, openssh-server, rsyslog, logrotate, nginx-light and what they need; its folder `repo` has
# tree and a file Packages). A role whose programs are missing is skipped. For each role: the play runs on h2, which
# then gets its saved disk back; the model is switched on at h1, is checked again, and leaves again. A table tells the
# results, with the seconds of both tools.
#
# ANSIBLE_PLAYBOOK names the program ansible-playbook, on the machine's disk and outside of /tmp, because the hosts see
# this disk; ANSIBLE_COLLECTIONS_PATH names the folder with ansible.posix and community.general. BED_NAME names the bed,
# COB_BED_KEEP=1 leaves it, COB_BED_REUSE=1 takes it again. Where Ansible or hosts are missing it says `skipped: WHY`
# and ends with 0.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=${BED_NAME:-roles$$}
ansible=${ANSIBLE_PLAYBOOK:-$(command -v ansible-playbook || true)}
stage="" debs=""
while [[ ${1:-} = --* ]]; do
    case $1 in
    --stage) stage=$(realpath "${2:?--stage needs a folder}") ;;
    --debs) debs=$(realpath "${2:?--debs needs a folder}") ;;
    *) break ;;
    esac
    shift 2
done
if [ -z "$stage" ] || [[ ${1:-} = --* ]]; then
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
fi
if ! why=$("$here/../bed/bed.sh" check); then
    echo "skipped: $why"
    exit 0
fi
if [ -z "$ansible" ] || ! "$ansible" --version >/dev/null 2>&1; then
    echo "skipped: there is no ansible-playbook (set ANSIBLE_PLAYBOOK)"
    exit 0
fi
roles=("$@")
if [ ${#roles[@]} = 0 ]; then
    for folder in "$here"/*/; do
        roles+=("$(basename "$folder")")
    done
fi
out=$(mktemp -d)

bed() { "$here/../bed/bed.sh" --name "$name" "$@"; }
on() { bed run "$@"; }
put() { on "$1" sh -c "mkdir -p \"\$(dirname '$2')\" && cat > '$2'"; }

finish() {
    local result=$?
    trap - EXIT
    if [ "${COB_BED_KEEP:-}" = 1 ]; then
        echo "the bed is left: $here/../bed/bed.sh --name $name run h1 bash; ... down; outputs are in $out" >&2
        exit $result
    fi
    bed down || result=1
    [ $result != 0 ] || rm -r "$out"
    exit $result
}
trap finish EXIT

# What an administrator sees of a host: /etc, /usr/local, /srv and tables of cron with their contents; folders of logs;
# accounts (in /etc), packages, units, mounts, the running name and parameters of the network.
#
# Left out are: the journal's own id; the keys of sshd, which each host has made; backup copies of accounts; COB's own
# settings and unit; the cache of the linker; the lock of systemd's accounts; and in texts the comment lines by which a
# tool finds its lines again (contents.py).
listing_of() {
    on "$1" sh -c '
        set -- ! -path /etc/machine-id ! -path "/etc/passwd-" ! -path "/etc/group-" ! -path "/etc/*shadow-" \
            ! -path "/etc/sub?id-" ! -path "/etc/cob*" ! -name "cobd.service*" ! -path /etc/ld.so.cache \
            ! -path "/etc/.pwd.lock" ! -path "/etc/ssh/ssh_host_*"
        at="/etc /usr/local /srv /var/spool/cron"
        find $at "$@" -printf "%p %y %m %u %g %l\n" 2>/dev/null | sort
        find $at -type f "$@" -print0 2>/dev/null | sort -z | python3 /var/lib/contents.py
        find /var/log -type d -printf "%p %y %m %u %g\n" | grep -v -e journal | sort
        find /bin/su /usr/bin/crontab -printf "%p %m %u %g\n" 2>/dev/null
        dpkg-query -W -f "\${Package} \${Version} \${db:Status-Abbrev}\n"
        systemctl list-unit-files --plain --no-legend | grep -v -e "^cobd" | awk "{ print \$1, \$2 }"
        systemctl list-units --all --plain --no-legend --type service,timer,socket,path,mount,swap |
            awk "\$3 != \"inactive\" { print \$1, \$2, \$3 }" |
            grep -v -e "^cobd" -e "^systemd-.*clean" -e "^user" -e "^proc-sys"
        findmnt -rno TARGET,FSTYPE,OPTIONS | grep -v -e "^/proc" -e "^/sys" -e "^/run" -e "^/dev" -e "^/ "
        cat /proc/swaps | wc -l; hostname; locale 2>/dev/null
'
    parameters_of "$1"
}

# What does not survive a boot: the right to set the own name and parameters of the own network.
make_ready() {
    on "$1" sh -c 'for own in net/ipv4 kernel/hostname; do
        mount --bind /proc/sys/$own /proc/sys/$own && mount -o remount,bind,rw /proc/sys/$own
    done'
}
parameters_of() {
    on "$1" sh -c 'cd /proc/sys/net/ipv4 && grep -H . ip_forward tcp_syncookies icmp_echo_ignore_broadcasts \
        conf/all/accept_redirects conf/all/rp_filter conf/all/log_martians'
}
# The network of a host stays when the host is off, with its parameters.
fresh_h2() {
    bed power-off h2
    bed restore h2
    bed power-on h2
    make_ready h2
    on h2 sh -c 'cd /proc/sys/net/ipv4 && while IFS=: read -r key value; do echo "$value" > "$key"; done' <<< "$parameters"
}

site=/var/lib/roles
prepare() {
    local host=$1
    on $host rm -f /usr/sbin/policy-rc.d
    if [ -n "$debs" ]; then
        tar -C "$debs" -c . | on $host sh -c 'mkdir /var/tmp/debs && tar -C /var/tmp/debs -x && cd /var/tmp/debs &&
            DEBIAN_FRONTEND=noninteractive dpkg --install ./*.deb &&
            if [ -d repo ]; then mv repo /var/lib/repo; fi && rm -r /var/tmp/debs' \
            >"$out/debs.$host" 2>&1 || { cat "$out/debs.$host" >&2; return 1; }
    fi
    on $host sh -s < "$here/host.sh"
    put $host /var/lib/contents.py < "$here/contents.py"
    on $host systemctl daemon-reload
}
make_hosts() {
    bed up 2
    prepare h1 &
    prepare h2
    wait $!
    bed power-off h2
    bed save h2
    bed power-on h2
    tar -C "$stage" --owner=0 --group=0 -c . | on h1 tar -C / -x --no-overwrite-dir --keep-directory-symlink
    on h1 systemctl daemon-reload
    put h1 /etc/cob/cobd.toml <<CONFIG
host = "h1"
depot = "$site/depot"
CONFIG
    put h1 $site/empty/hosts.yaml <<MODEL
security: loopback-only
hosts: {h1: {address: "tcp://127.0.0.1:7077"}}
MODEL
    put h1 $site/empty/model.yaml <<< 'cobs: {h1/nothing: {kind: noop}}'
    on h1 cobgen generate $site/empty --depot $site/depot >/dev/null 2>&1
    on h1 systemctl enable --now cobd 2>/dev/null
    on h1 cobctl --depot $site/depot switch latest --wait 1m >/dev/null 2>&1
    make_ready h1
    make_ready h2
}

# A switch to the model in a folder; its output is for the one who looks for a fault.
reach() {
    on h1 cobgen generate "$1" --depot $site/depot &&
        on h1 cobctl --depot $site/depot switch latest --wait "${COB_ROLE_PATIENCE:-2m}" &&
        on h1 cobctl status >/dev/null
}
same() { cmp -s "$1" "$2" || { diff "$1" "$2" > "$3"; false; }; }
now() { date +%s%N; }
seconds() { echo "$1" | awk '{ printf "%.1f", $1 / 1e9 }'; }

if [ "${COB_BED_REUSE:-}" = 1 ]; then
    echo "the two hosts of an earlier run"
    reach $site/empty >/dev/null 2>&1 || true
    parameters=$(parameters_of h1)
    fresh_h2
else
    echo "two equal hosts"
    make_hosts
    parameters=$(parameters_of h1)
fi
listing_of h1 > "$out/before"
listing_of h2 > "$out/before.h2"
if ! same "$out/before" "$out/before.h2" "$out/before.diff"; then
    echo "the hosts differ before the first role:"
    cat "$out/before.diff"
    exit 1
fi

failed=0
play_role() {
    local role=$1 tasks objects program begun ansible_time cob_time equal=yes second=yes removal=yes
    for program in $(sed -n 's/^# Needs: //p' "$here/$role/tasks.yml"); do
        if ! on h1 sh -c "command -v $program || test -e $program" >/dev/null; then
            printf '| %s | skipped: no %s |\n' "$role" "$program"
            return
        fi
    done
    tasks=$(grep -cE '^ +- name:' "$here/$role/tasks.yml")
    tar -C "$here" -c "$role" | on h2 tar -C /var/lib -x
    begun=$(now)
    if ! on h2 env LC_ALL=C.UTF-8 ANSIBLE_COLLECTIONS_PATH="${ANSIBLE_COLLECTIONS_PATH:-}" \
        "$ansible" -c local -i localhost, -e ansible_python_interpreter=/usr/bin/python3 "/var/lib/$role/tasks.yml" \
        > "$out/$role.ansible" 2>&1; then
        printf '| %s | the play failed |\n' "$role"
        tail -n 30 "$out/$role.ansible"
        failed=1
        fresh_h2
        return
    fi
    ansible_time=$(($(now) - begun))
    listing_of h2 > "$out/$role.a"
    fresh_h2 &
    local fresh=$!

    tar -C "$here" --exclude tasks.yml -c "$role" | on h1 tar -C $site -x
    on h1 cp $site/empty/hosts.yaml "$site/$role/hosts.yaml"
    begun=$(now)
    if ! reach "$site/$role" > "$out/$role.cob" 2>&1; then
        echo "$role: the switch failed"
        tail -n 30 "$out/$role.cob"
        on h1 cobctl status | head -n 40 || true
        equal=no second=- failed=1
    fi
    cob_time=$(($(now) - begun))
    objects=$(on h1 cobgen check "$site/$role" 2>/dev/null | grep -oE "[0-9]+ change object" | cut -d" " -f1 || true)
    listing_of h1 > "$out/$role.b"
    if ! same "$out/$role.a" "$out/$role.b" "$out/$role.diff"; then
        equal=no failed=1
        echo "$role: differences (< Ansible, > COB):"
        cat "$out/$role.diff"
    fi
    if [ $second = yes ]; then
        on h1 cobctl check > "$out/$role.check" 2>&1 || { second=no; cat "$out/$role.check"; }
        on h1 cobgen generate "$site/$role" --depot $site/depot > "$out/$role.again" 2>&1 || true
        grep -q "already corresponds" "$out/$role.again" || { second=no; cat "$out/$role.again"; }
        listing_of h1 > "$out/$role.second"
        same "$out/$role.b" "$out/$role.second" "$out/$role.diff" || { second=no; cat "$out/$role.diff"; }
        [ $second = yes ] || failed=1
    fi
    if ! reach $site/empty > "$out/$role.gone" 2>&1; then
        removal=no failed=1
        tail -n 20 "$out/$role.gone"
        on h1 cobctl status || true
    fi
    listing_of h1 > "$out/$role.after"
    if ! same "$out/before" "$out/$role.after" "$out/$role.diff"; then
        removal=no failed=1
        echo "$role: removal (< before, > after):"
        cat "$out/$role.diff"
    fi
    wait $fresh
    printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "$role" "$tasks" "$objects" $equal $second $removal \
        "$(seconds $ansible_time)" "$(seconds $cob_time)" | tee -a "$out/table"
}
echo "| role | tasks | change objects | equal | second apply | removal | s Ansible | s COB |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
for role in "${roles[@]}"; do
    play_role "$role"
done
exit $failed
