# Sourced by scripts that need a cluster: fresh hosts that are enrolled and have an empty generation. Made once; each
# script leaves its hosts as it has found them, for the next one. The hosts are `members`, h1 to h3; a script that gives
# them other names in the model has these in `called`, and hosts that enrol later in `spare`.

[ -z "${clustered:-}" ] || return 0

declare -A called
name_of() { echo "${called[$1]:-$1}"; }

step "$(wc -w <<< "$members") fresh hosts that are enrolled"
bed down
bed up "$(wc -w <<< "$members ${spare:-}")"
site=/srv/cluster
for host in $members; do
    install_on $host
    # Packages start their services as they do on a machine, and not as in the container that is below.
    on $host rm -f /usr/sbin/policy-rc.d
done
on h1 cobgen init --secure $site $(for host in $members; do echo "$(name_of $host)=10.77.0.${host#h}"; done) >/dev/null 2>&1
serve_cluster() {
    on h1 systemd-run --quiet --unit=cluster-serve cobgen serve --depot $site/depot --listen tcp://10.77.0.1:7070
    soon on h2 timeout 2 bash -c 'exec 3<>/dev/tcp/10.77.0.1/7070'
}
enroll() { # HOST...
    local host invitations
    invitations=$(on h1 cobgen enroll $(for host in "$@"; do name_of $host; done) --depot $site/depot \
        --server tcp://10.77.0.1:7070 2>/dev/null)
    for host in "$@"; do
        grep -oE "cob1\.[^ ]*\.$(name_of $host)\b" <<< "$invitations" | head -n 1 |
            on $host cobd join tcp://10.77.0.1:7070 - >/dev/null
    done
}
serve_cluster
enroll $members

ctl() { on h1 cobctl --depot $site/depot --key $site/keys/operator.key "$@"; }
# Status ends with an error as long as not everything is where it should be.
ctl_status_says() { grep -qF -- "$1" <<< "$(ctl status 2>&1 || true)"; }
cluster_generation=0
publish_cluster() {
    on h1 cobgen generate $site --depot $site/depot --sign-with $site/keys/publisher.key >/dev/null 2>&1 ||
        on h1 cobgen check $site
    # A model without a change gives no further generation.
    cluster_generation=$(on h1 cobgen log --depot $site/depot --json | sed -n 's/^ *"generation": \([0-9]*\),*$/\1/p' | sort -n | tail -n 1)
}
reach_cluster() { ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 || ctl status; }
# The generation of what lies in the site's folder is made, and reached.
switch_cluster() {
    publish_cluster
    reach_cluster
}

# So many starts in a short time are an administrator's test, and no daemon that fails.
permit_many_starts() { # HOST...
    local host
    for host in "$@"; do
        put $host /run/systemd/system/cobd.service.d/often.conf <<< '[Unit]
StartLimitIntervalSec=0'
        on $host systemctl daemon-reload
    done
}
limit_starts() { # HOST...: as before
    local host
    for host in "$@"; do
        on $host sh -c 'rm -r /run/systemd/system/cobd.service.d; systemctl daemon-reload'
    done
}

# Of one host: all of /etc with its contents, the packages, and where else a test may leave something. What
# belongs to the machine and not to its administrator is left out: the journal's own id, copies that useradd(8) makes.
listing_of() {
    on "$1" sh -c '
        set -- ! -path /etc/machine-id ! -path "/etc/passwd-" ! -path "/etc/group-" ! -path "/etc/*shadow-" ! -path "/etc/sub?id-"
        find /etc "$@" -printf "%p %y %m %u %g %l\n" | sort
        find /etc -type f "$@" -print0 | sort -z | xargs -0 md5sum
        find /usr/local /usr/bin /usr/sbin /usr/lib/systemd/system /srv /var/cache/apt/archives /var/lib/systemd/deb-systemd-* \
            /var/lib/private ! -path "'$site'*" -printf "%p %y %m %u %g %l\n" 2>/dev/null | sort
        dpkg-query -W -f "\${Package} \${Version} \${db:Status-Abbrev}\n"'
}
declare -A listed_before
list_before() {
    local host
    for host in $members; do
        listed_before[$host]=$(listing_of $host)
    done
}
is_as_before() {
    local host
    for host in $members; do
        [ "$(listing_of $host)" = "${listed_before[$host]}" ] ||
            { echo "$host:" >&2; diff <(echo "${listed_before[$host]}") <(listing_of $host) >&2; return 1; }
    done
}

# The hosts and keys alone.
on h1 sh -c "sed -i '/^# A kind says/,\$d' $site/model.yaml && mv $site/model.yaml $site/hosts.yaml && rm $site/*.sh"
publish_cluster
for host in $members; do
    on $host systemctl enable --now cobd 2>/dev/null
done
reach_cluster
clustered=1
