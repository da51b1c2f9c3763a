# Sourced by run.sh: PostgreSQL from Debian's packages on three hosts: a primary (h2), a standby (h1), and HAProxy
# before both (h3), with keys, a secret and a budget. It is deployed, changed, gets a wrong setting, loses power, fails
# over, gets a lost host back, and is removed. What the hosts were like before is there again in the end.
#
# The packages are taken from Debian's archive once and kept below the target folder.

packages=$here/../../target/bed-postgresql
if ! command -v dpkg-scanpackages >/dev/null || ! command -v apt-get >/dev/null; then
    echo "skipped: PostgreSQL, for there is no apt-get or no dpkg-scanpackages"
    return 0
fi

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

step "PostgreSQL: a repository of its packages on each host"
# The machine below may have PostgreSQL; the hosts are to begin without it. Its packages leave their accounts, also
# where an administrator purges them: these are there before.
without_postgresql() { # HOST
    on "$1" sh -c 'export DEBIAN_FRONTEND=noninteractive
        apt-get purge -y -q "postgresql*" haproxy ssl-cert >/dev/null 2>&1 || true
        rm -rf /var/lib/postgresql /etc/postgresql /etc/postgresql-common /var/log/postgresql
        for group in postgres ssl-cert; do getent group $group >/dev/null || groupadd --system $group; done
        getent passwd postgres >/dev/null || useradd --system --gid postgres --no-create-home --home-dir /var/lib/postgresql \
            --shell /bin/bash --comment "PostgreSQL administrator,,," postgres
        usermod --append --groups ssl-cert postgres'
}
purges=()
for host in h1 h2 h3; do
    without_postgresql $host &
    purges+=($!)
done
for purge in "${purges[@]}"; do
    wait "$purge"
done
wanted_packages=$(on h1 apt-get install -s --no-install-recommends postgresql-15 haproxy 2>/dev/null | awk '/^Inst/ { print $2 }' || true)
mkdir -p "$packages"
download() { # from where, if not these very files are there already
    local from
    # shellcheck disable=SC2086 # several packages
    from=$(apt-get -qq --print-uris download $wanted_packages 2>/dev/null) || return 1
    [ "$from" != "$(cat from 2>/dev/null)" ] || return 0
    # shellcheck disable=SC2086
    rm -f -- from *.deb && timeout 300 apt-get -qq download $wanted_packages </dev/null >/dev/null 2>&1 && echo "$from" > from
}
if [ -z "$wanted_packages" ] || ! (cd "$packages" && download); then
    echo "skipped: PostgreSQL, whose packages are not to be had (no network?)"
    return 0
fi
(cd "$packages" && dpkg-scanpackages -m . > Packages 2>/dev/null)
for host in h1 h2 h3; do
    # What a host has of them already, the machine's libraries, is brought to that version: an upgrade is not taken back.
    tar -C "$packages" -c . | on $host sh -c 'mkdir -p /srv/pgrepo && tar -C /srv/pgrepo --no-same-owner -x
        for file in /srv/pgrepo/*.deb; do
            status=$(dpkg-query -W -f "\${db:Status-Status}" "$(dpkg-deb -f "$file" Package)" 2>/dev/null) || true
            [ "$status" != installed ] || echo "$file"
        done | xargs -r dpkg --install >/dev/null'
done
list_before
users_of() { on "$1" sh -c 'sort /etc/passwd /etc/group; systemctl list-unit-files --no-legend --no-pager | awk "{ print \$1, \$2 }" | sort'; }
declare -A users_before
for host in h1 h2 h3; do users_before[$host]=$(users_of $host); done

# The model: `primary` names the host that takes writes; the work of a role is done by one script.
on h1 sh -c "umask 077; echo 'replication secret of the bed' > $site/replication"
put h1 $site/role.sh <<'SCRIPT'
#!/bin/bash
# role.sh check|apply|remove: the data folder is what the content says: of a primary, or of a standby that follows one.
set -eu
bin=/usr/lib/postgresql/15/bin data=/var/lib/postgresql/15/main
role=$(sed -n 's/.*"role":"\([a-z]*\)".*/\1/p' "$COB_CONTENT")
upstream=$(sed -n 's/.*"upstream":"\([0-9.]*\)".*/\1/p' "$COB_CONTENT")
password=$(sed -n 's/.*"password":"\([^"]*\)".*/\1/p' "$COB_CONTENT")
as() { setpriv --reuid postgres --regid postgres --init-groups -- env PGPASSWORD="$password" "$@"; }
control() { as "$bin/pg_ctl" -D "$data" -s -w -t 60 -o "-c config_file=/etc/postgresql/15/main/postgresql.conf -c listen_addresses=''" "$@" >/dev/null 2>&1; }
case $1 in
check)
    note=$(cat "$COB_STATE_DIR/role" 2>/dev/null || echo none)
    if [ "$note" = none ] || [ ! -e $data/PG_VERSION ]; then echo down
    elif [ "$note" = "$role $upstream" ]; then echo up
    else echo outdated; fi ;;
apply)
    if [ "$role" = primary ]; then
        # The superuser of the package speaks over the Unix socket; the server itself is not up yet.
        control start
        [ ! -e $data/standby.signal ] || as "$bin/pg_ctl" -D "$data" -s -w promote
        as psql -qX -d postgres <<SQL
do \$\$ begin create role replicator login replication; exception when duplicate_object then null; end \$\$;
alter role replicator password '$password';
create table if not exists kept (n integer primary key);
SQL
        control -m fast stop
    else
        # Beside the old folder first: a copy that is killed half-way is begun again.
        rm -rf $data.new
        as "$bin/pg_basebackup" -h "$upstream" -U replicator -D $data.new -R -X stream
        rm -rf $data
        mv $data.new $data
    fi
    echo "$role $upstream" > "$COB_STATE_DIR/role.new" && mv "$COB_STATE_DIR/role.new" "$COB_STATE_DIR/role" ;;
remove) rm -f "$COB_STATE_DIR/role" ;;
esac
SCRIPT
put h1 $site/settings.sh <<'SCRIPT'
#!/bin/sh
# settings.sh check|apply|remove: the server has read the settings for which a reload is enough.
set -eu
settings=/etc/postgresql/15/main/conf.d/reload.conf
case $1 in
check)
    if [ ! -e "$COB_STATE_DIR/read" ]; then echo down
    elif cmp -s "$COB_STATE_DIR/read" $settings; then echo up
    else echo outdated; fi ;;
apply) cp $settings "$COB_STATE_DIR/new" && systemctl reload postgresql@15-main && mv "$COB_STATE_DIR/new" "$COB_STATE_DIR/read" ;;
remove) rm -f "$COB_STATE_DIR/read" "$COB_STATE_DIR/new" ;;
esac
SCRIPT
on h1 chmod 755 $site/role.sh $site/settings.sh
put h1 $site/reload.conf <<'TEMPLATE'
work_mem = '{{ work_mem }}'
TEMPLATE
put h1 $site/restart.conf <<'TEMPLATE'
listen_addresses = '*'
max_connections = {{ max_connections }}
TEMPLATE
put h1 $site/pg_hba.conf <<'TEMPLATE'
local all postgres peer
host replication replicator 10.77.0.0/24 scram-sha-256
host all all 10.77.0.0/24 scram-sha-256
TEMPLATE
put h1 $site/haproxy.cfg <<'TEMPLATE'
global
    daemon
defaults
    mode tcp
    timeout connect 2s
    timeout client 1m
    timeout server 1m
listen write
    bind :5000
    server primary {{ primary_ip }}:5432 check
TEMPLATE
# The change objects of a database host. A standby copies its primary, whose server has to be up for that.
database() { # HOST ROLE [PRIMARY]
    local host=$1 role=$2 upstream=${3:+10.77.0.${3#h}} after="$1/hba, $1/restarting${3:+, $3/server}"
    cat <<MODEL
  $host/package:
    kind: package
    content: {name: postgresql-15, repository: /srv/pgrepo, trusted: true, purge: true}
  $host/hba:
    kind: file-tree
    requires: [package]
    content: {files: {/etc/postgresql/15/main/pg_hba.conf: {template: pg_hba.conf, mode: "0640", owner: postgres, group: postgres}}}
  $host/restarting:
    kind: file-tree
    requires: [package]
    content: {files: {/etc/postgresql/15/main/conf.d/restart.conf: {template: restart.conf, mode: "0644", owner: postgres, group: postgres}}}
  $host/reloading:
    kind: file-tree
    requires: [package]
    content: {files: {/etc/postgresql/15/main/conf.d/reload.conf: {template: reload.conf, mode: "0644", owner: postgres, group: postgres}}}
  $host/role:
    kind: script
    requires: [package]
    after: [$after]
    content:
      role: $role
      upstream: "$upstream"
      password: "{{ secret('replication') }}"
      check: {run: ./role.sh check}
      transitions:
        - {from: down, to: up, run: ./role.sh apply, timeout: 2m}
        - {from: outdated, to: up, run: ./role.sh apply, timeout: 2m}
        - {from: up, to: down, run: ./role.sh remove}
        - {from: outdated, to: down, run: ./role.sh remove}
      files: [./role.sh]
  $host/server:
    kind: service
    requires: [package, role]
    restarts_on: [hba, restarting]
    budget: databases
    content:
      unit: postgresql@15-main.service
      mask: true
      ready: /usr/lib/postgresql/15/bin/pg_isready -q -h {{ host.ip }}
  $host/settings:
    kind: script
    requires: [server]
    restarts_on: [reloading]
    content:
      check: {run: ./settings.sh check}
      transitions:
        - {from: down, to: up, run: ./settings.sh apply}
        - {from: outdated, to: up, run: ./settings.sh apply}
        - {from: up, to: down, run: ./settings.sh remove}
        - {from: outdated, to: down, run: ./settings.sh remove}
      files: [./settings.sh]
MODEL
}
postgresql_model() { # PRIMARY [STANDBY]: with the settings in these variables
    {
        cat <<MODEL
secrets: {replication: {file: replication}}
budgets: {databases: {at_most: 1, host: h3}}
variables: {all: {work_mem: $work_mem, max_connections: $max_connections, primary_ip: 10.77.0.${1#h}}}
cobs:
MODEL
        database "$1" primary
        [ -z "${2:-}" ] || database "$2" standby "$1"
        cat <<MODEL
  h3/package:
    kind: package
    content: {name: haproxy, repository: /srv/pgrepo, trusted: true, purge: true}
  h3/config:
    kind: file-tree
    requires: [package]
    content: {files: {/etc/haproxy/haproxy.cfg: {template: haproxy.cfg, mode: "0644"}}}
  h3/answers:
    kind: tcp-check
    after: [$1/server]
    content: {address: "{{ primary_ip }}:5432"}
  h3/server:
    kind: service
    requires: [package]
    restarts_on: [config]
    after: [answers]
    content: {unit: haproxy.service, mask: true, enabled: true}
MODEL
    } | put h1 $site/postgresql.yaml
}
diagnose() {
    local host
    for host in h1 h2; do
        echo "---- PostgreSQL on $host"
        on $host sh -c 'systemctl status --no-pager --lines=20 postgresql@15-main; tail -n 20 /var/log/postgresql/*.log
            grep . /etc/postgresql/15/main/conf.d/* /var/lib/postgresql/15/main/postgresql.auto.conf; ls /var/lib/postgresql/15/main'
    done
}
query() { # HOST SQL
    on "$1" setpriv --reuid postgres --regid postgres --init-groups psql -qXAt -d postgres -c "$2"
}
query_says() { [ "$(query "$1" "$2" 2>/dev/null)" = "$3" ]; }
through_proxy() { on h3 timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/5000 && printf "\0\0\0\10\4\322\26\57" >&3 && head -c 1 <&3' | grep -q '[NS]'; }

step "PostgreSQL: the first deployment"
ctl_converged() { ctl status >/dev/null 2>&1; }
main_process() { on "$1" systemctl show --value --property MainPID postgresql@15-main; }
work_mem=4MB max_connections=50
postgresql_model h2 h1
switch_cluster
query_says h2 'select pg_is_in_recovery()' f
query_says h1 'select pg_is_in_recovery()' t
# The package did not start its server before its settings were there: it started once.
[ "$(on h2 journalctl -u postgresql@15-main --no-pager -q -o cat | grep -c '^Started')" = 1 ]
query h2 'insert into kept values (1)'
soon query_says h1 'select count(*) from kept' 1
soon through_proxy

step "PostgreSQL: a setting for which it is reloaded, and one for which it is restarted"
processes="$(main_process h1) $(main_process h2)"
work_mem=8MB
postgresql_model h2 h1
switch_cluster
soon query_says h1 'show work_mem' 8MB
soon query_says h2 'show work_mem' 8MB
[ "$(main_process h1) $(main_process h2)" = "$processes" ]
max_connections=60
postgresql_model h2 h1
switch_cluster
query_says h1 'show max_connections' 60
query_says h2 'show max_connections' 60

step "PostgreSQL: a wrong setting is rolled back"
max_connections=many
postgresql_model h2 h1
publish_cluster
fails ctl switch $cluster_generation --on-failure rollback --wait 5m
soon ctl_converged
query_says h1 'show max_connections' 60
query_says h2 'show max_connections' 60
query_says h2 'select count(*) from kept' 1

step "PostgreSQL: power is lost during a switch"
max_connections=70
postgresql_model h2 h1
publish_cluster
ctl switch $cluster_generation >/dev/null 2>&1
bed power-off h1
bed power-on h1
# It gives the generations out, too.
on h1 systemd-run --quiet --unit=cluster-serve cobgen serve --depot $site/depot --listen tcp://10.77.0.1:7070
soon ctl_converged
query_says h1 'show max_connections' 70
query_says h2 'show max_connections' 70
query h2 'insert into kept values (2)'
soon query_says h1 'select count(*) from kept' 2

step "PostgreSQL: the primary is lost, and the standby takes over with two commands"
bed power-off h2
postgresql_model h1
publish_cluster
ctl fence h2 --yes >/dev/null
result=0
ctl switch $cluster_generation >/dev/null 2>&1 || result=$?
# All are told but the lost host.
[ $result = 3 ]
# What makes it the primary starts it for a moment, too, and lets nobody else in.
soon through_proxy
query_says h1 'select pg_is_in_recovery()' f
query_says h1 'select count(*) from kept' 2
query h1 'insert into kept values (3)'
on h3 grep -q '10.77.0.1:5432' /etc/haproxy/haproxy.cfg

step "PostgreSQL: the lost host is replaced, and is the standby"
# Another machine of the same name: it has neither the state folder nor anything of PostgreSQL.
bed power-on h2
on h2 systemctl stop cobd
on h2 sh -c 'rm -rf /var/lib/cob/* /var/lib/cob/.[!.]*; systemctl stop "postgresql@*"; export DEBIAN_FRONTEND=noninteractive
    rm -f /etc/systemd/system/postgresql@15-main.service; rm -rf /etc/systemd/system/postgresql@15-main.service.d; systemctl daemon-reload
    apt-get purge -y -q "postgresql*" ssl-cert >/dev/null 2>&1; rm -rf /var/lib/postgresql /etc/postgresql /etc/postgresql-common'
invitation=$(on h1 cobgen enroll h2 --depot $site/depot --server tcp://10.77.0.1:7070 2>/dev/null | grep -oE 'cob1\.[^ ]*\.h2\b' | head -n 1)
on h2 cobd join tcp://10.77.0.1:7070 - <<< "$invitation" >/dev/null
postgresql_model h1 h2
publish_cluster
on h2 systemctl restart cobd
reach_cluster
soon ctl_converged
query_says h2 'select pg_is_in_recovery()' t
soon query_says h2 'select count(*) from kept' 3

step "PostgreSQL: it is removed, and the hosts are as before"
on h1 sh -c "cd $site && rm postgresql.yaml role.sh settings.sh *.conf haproxy.cfg replication"
switch_cluster
for host in h1 h2 h3; do
    [ "$(users_of $host)" = "${users_before[$host]}" ] ||
        { echo "$host:" >&2; diff <(echo "${users_before[$host]}") <(users_of $host) >&2; false; }
done
is_as_before
unset -f diagnose
