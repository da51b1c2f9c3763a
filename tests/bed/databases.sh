# Sourced by run.sh: roles and databases of a real PostgreSQL server; with a password that a client uses, with a person's
# edits, and with daemons and actions that are killed again and again.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

kills=${COB_BED_KILLS:-12}

if ! on h2 sh -c 'command -v psql >/dev/null && ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && getent passwd postgres >/dev/null'; then
    echo "skipped: databases, for the host lacks PostgreSQL"
    return 0
fi

step "databases: a server with things of others"
on h2 sh -c 'bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); rm -rf /var/lib/bedpg; install -d -o postgres -g postgres -m 755 /var/lib/bedpg /run/bedpg
    setpriv --reuid=postgres --regid=postgres --init-groups $bin/initdb -D /var/lib/bedpg/data --auth-local=peer --auth-host=scram-sha-256 --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null
    systemd-run --quiet --unit=bed-pg --uid=postgres $bin/postgres -D /var/lib/bedpg/data -k /run/bedpg -p 5499 -c listen_addresses=127.0.0.1'
sql() { on h2 setpriv --reuid=postgres --regid=postgres --init-groups psql -qXAt -h /run/bedpg -p 5499 -d "${2:-postgres}" -c "$1"; }
soon sql 'SELECT 1'
sql "CREATE ROLE staff; CREATE ROLE guest LOGIN CONNECTION LIMIT 3"
sql "CREATE DATABASE former"
sql "CREATE TABLE kept (n integer); INSERT INTO kept VALUES (7)" former
on h1 sh -c "umask 077; echo 'bed password 4711' > $site/dbpassword"

databases_model() { # CONNECTION-LIMIT
    cat <<MODEL
secrets: {db: {file: dbpassword}}
cobs:
  h2/app-role:
    kind: postgresql-role
    content: {name: app, password: "{{ secret('db') }}", create_db: true, member_of: [staff], socket: /run/bedpg, port: 5499}
  h2/guest:
    kind: postgresql-role
    content: {name: guest, login: false, connection_limit: $1, socket: /run/bedpg, port: 5499}
  h2/app-db:
    kind: postgresql-database
    requires: [h2/app-role]
    content: {name: "app; DROP ROLE staff", owner: app, encoding: UTF8, drop: true, socket: /run/bedpg, port: 5499}
  h2/former:
    kind: postgresql-database
    content: {name: former, absent: true, socket: /run/bedpg, port: 5499}
MODEL
}
set_databases() { # the model, from standard input, is made and published
    put h1 $site/databases.yaml
    publish_cluster
}
nothing() { echo 'cobs: {h2/nothing: {kind: noop}}'; }
everything() {
    sql "SELECT rolname, rolcanlogin, rolcreatedb, rolconnlimit, rolpassword IS NULL FROM pg_authid WHERE rolname !~ '^pg_' ORDER BY 1"
    sql "SELECT m.member::regrole, m.roleid::regrole FROM pg_auth_members m WHERE m.roleid::regrole::text !~ '^pg_' ORDER BY 1, 2"
    sql "SELECT datname, datdba::regrole, pg_encoding_to_char(encoding), datconnlimit FROM pg_database ORDER BY 1"
}
logs_in() { [ "$(on h2 env "PGPASSWORD=$1" psql -qXAt -h 127.0.0.1 -p 5499 -U app -d 'app; DROP ROLE staff' -c 'SELECT current_user' 2>/dev/null)" = app ]; }
databases_before=$(everything)
is_gone() { [ "$(everything)" = "$databases_before" ] || { diff <(echo "$databases_before") <(everything) >&2; return 1; }; }
list_before

step "databases: a client uses the password, and nobody else sees it"
set_databases < <(databases_model 5)
reach_cluster
soon logs_in 'bed password 4711'
fails logs_in 'another password'
databases_there=$(everything)
grep -q "^app|t|t|-1|f$" <<< "$databases_there" && grep -q "^app|staff$" <<< "$databases_there"
grep -q "^guest|f|f|5|t$" <<< "$databases_there" && grep -q "^former.cob-before|" <<< "$databases_there"
[ -z "$(on h2 sh -c "grep -rlF 'bed password 4711' /var/lib/cob /var/lib/bedpg /var/log 2>/dev/null")" ]
fails on h2 sh -c "journalctl --no-pager -q | grep -qF 'bed password 4711'"

step "databases: what a person changes is drift, and comes back"
has_all() { ctl check >/dev/null 2>&1; [ "$(everything)" = "$databases_there" ]; }
for edit in "ALTER ROLE app PASSWORD 'x'" "ALTER ROLE app NOCREATEDB" "REVOKE staff FROM app" "ALTER ROLE guest LOGIN CONNECTION LIMIT 9" \
    "ALTER DATABASE \"app; DROP ROLE staff\" OWNER TO staff" "DROP DATABASE \"app; DROP ROLE staff\""; do
    sql "$edit"
    soon has_all
    soon logs_in 'bed password 4711'
done

step "databases: they leave, and the server is as it was"
set_databases < <(nothing)
reach_cluster
is_gone
[ "$(sql 'SELECT n FROM kept' former)" = 7 ]
is_as_before

step "the daemon of the host and its actions are killed $kills times while databases come and go"
RANDOM=17
permit_many_starts h2
killed=0
round=0
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    set_databases < <(if [ $((round % 2)) = 1 ]; then databases_model 5; else nothing; fi)
    ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 7))$((RANDOM % 10))"
        if [ $((RANDOM % 3)) = 0 ]; then
            on h2 pkill -KILL -x psql 2>/dev/null && killed=$((killed + 1))
        else
            on h2 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
        fi
    done
    wait $switching || true
    is_settled() { ctl status >/dev/null 2>&1 || { ctl retry --all >/dev/null 2>&1; false; }; }
    patience=120 soon is_settled
    if [ $((round % 2)) = 1 ]; then
        [ "$(everything)" = "$databases_there" ]
        logs_in 'bed password 4711'
    else
        is_gone
    fi
done
echo "       $killed kills in $round switches"
set_databases < <(nothing)
reach_cluster
is_gone
[ "$(sql 'SELECT n FROM kept' former)" = 7 ]

on h2 sh -c 'systemctl stop bed-pg; rm -rf /var/lib/bedpg /run/bedpg'
limit_starts h2
on h1 rm $site/databases.yaml $site/dbpassword
switch_cluster
