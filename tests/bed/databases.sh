# Sourced by run.sh: roles, databases, privileges and extensions of a real PostgreSQL server, and users, databases and
# privileges of a real MariaDB server; with a password that clients use, with a person's edits, and with daemons and
# actions that are killed again and again.
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
    setpriv --reuid=postgres --regid=postgres --init-groups $bin/initdb -D /var/lib/bedpg/data --auth-local=peer --auth-host=scram-sha-256 --no-sync -E UTF8 --locale=C.UTF-8 >/dev/null'
start_pg() {
    on h2 sh -c 'systemd-run --quiet --unit=bed-pg --uid=postgres $(ls -d /usr/lib/postgresql/*/bin | tail -n 1)/postgres \
        -D /var/lib/bedpg/data -k /run/bedpg -p 5499 -c listen_addresses=127.0.0.1'
}
start_pg
sql() { on h2 setpriv --reuid=postgres --regid=postgres --init-groups psql -qXAt -h /run/bedpg -p 5499 -d "${2:-postgres}" -c "$1"; }
soon sql 'SELECT 1'
sql "CREATE ROLE staff; CREATE ROLE guest LOGIN CONNECTION LIMIT 3"
sql "CREATE DATABASE former"
sql "CREATE TABLE kept (n integer); INSERT INTO kept VALUES (7)" former
on h1 sh -c "umask 077; echo 'bed password 4711' > $site/dbpassword"

sql "CREATE DATABASE shop OWNER staff"
sql "CREATE EXTENSION citext; CREATE TABLE orders (n integer); CREATE TABLE items (n integer); ALTER TABLE items OWNER TO staff;
    GRANT DELETE ON orders TO guest" shop

mariadb_is_there=yes
if ! on h2 sh -c 'command -v mariadb mariadbd mariadb-install-db >/dev/null && getent passwd mysql >/dev/null'; then
    echo "skipped: databases of MariaDB, for the host lacks it"
    mariadb_is_there=no
fi
my() { on h2 mariadb --no-defaults -NBr -S /run/bedmy/socket -e "$1"; }
if [ $mariadb_is_there = yes ]; then
    on h2 sh -c 'rm -rf /var/lib/bedmy; install -d -o mysql -g mysql -m 755 /var/lib/bedmy /run/bedmy
        mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/bedmy/data --skip-test-db --auth-root-authentication-method=socket >/dev/null
        systemd-run --quiet --unit=bed-my mariadbd --no-defaults --user=mysql --datadir=/var/lib/bedmy/data --socket=/run/bedmy/socket \
            --skip-networking --general-log --general-log-file=/var/lib/bedmy/log'
    soon my 'SELECT 1'
    my "CREATE USER old@localhost IDENTIFIED BY 'theirs'; CREATE USER guest@'%' IDENTIFIED BY 'theirs' WITH MAX_QUERIES_PER_HOUR 9"
    my "CREATE DATABASE former COLLATE latin1_bin; CREATE TABLE former.kept (n int); INSERT INTO former.kept VALUES (7)"
    my "CREATE DATABASE shop_1; CREATE TABLE shop_1.orders (n int, m int); GRANT SELECT (n), DELETE ON shop_1.orders TO guest@'%'"
    my "GRANT INSERT ON shop_1.* TO guest@'%' WITH GRANT OPTION; GRANT ALL ON former.* TO old@localhost"
fi

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
  h2/all-connect:
    kind: postgresql-grant
    content: {role: public, database: shop, absent: true, socket: /run/bedpg, port: 5499}
  h2/app-connects:
    kind: postgresql-grant
    requires: [h2/app-role]
    content: {role: app, database: shop, privileges: [CONNECT, TEMPORARY], grant_option: true, socket: /run/bedpg, port: 5499}
  h2/guest-reads:
    kind: postgresql-grant
    content: {role: guest, database: shop, schema: public, on: tables, privileges: [SELECT], creators: [staff], socket: /run/bedpg, port: 5499}
  h2/app-hstore:
    kind: postgresql-extension
    requires: [h2/app-db]
    content: {name: hstore, database: "app; DROP ROLE staff", socket: /run/bedpg, port: 5499}
  h2/no-citext:
    kind: postgresql-extension
    content: {name: citext, database: shop, absent: true, socket: /run/bedpg, port: 5499}
MODEL
    [ $mariadb_is_there = yes ] || return 0
    cat <<MODEL
  h2/my-app:
    kind: mariadb-user
    content: {name: app, password: "{{ secret('db') }}", max_user_connections: $1, socket: /run/bedmy/socket}
  h2/my-guest:
    kind: mariadb-user
    content: {name: guest, host: "%", locked: true, tls: required, max_queries_per_hour: $1, socket: /run/bedmy/socket}
  h2/my-old:
    kind: mariadb-user
    content: {name: old, absent: true, socket: /run/bedmy/socket}
  h2/my-db:
    kind: mariadb-database
    content: {name: "app\`; DROP DATABASE shop_1", character_set: utf8mb4, drop: true, socket: /run/bedmy/socket}
  h2/my-former:
    kind: mariadb-database
    content: {name: former, absent: true, socket: /run/bedmy/socket}
  h2/my-app-may:
    kind: mariadb-grant
    requires: [h2/my-app, h2/my-db]
    content: {user: app, database: "app\`; DROP DATABASE shop_1", privileges: [ALL], socket: /run/bedmy/socket}
  h2/my-guest-reads:
    kind: mariadb-grant
    requires: [h2/my-guest]
    content: {user: guest, host: "%", database: shop_1, privileges: [SELECT], socket: /run/bedmy/socket}
  h2/my-guest-orders:
    kind: mariadb-grant
    requires: [h2/my-guest]
    content: {user: guest, host: "%", database: shop_1, table: orders, absent: true, socket: /run/bedmy/socket}
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
    sql "SELECT o, a.grantee::regrole, a.privilege_type, a.is_grantable FROM (
            SELECT 'database ' || datname o, coalesce(datacl, acldefault('d', datdba)) l, datdba w FROM pg_database
            UNION ALL SELECT 'table ' || relname, relacl, relowner FROM pg_class WHERE relnamespace = 'public'::regnamespace
            UNION ALL SELECT 'default ' || defaclrole::regrole, defaclacl, defaclrole FROM pg_default_acl
        ) all_of, aclexplode(l) a WHERE a.grantee <> w ORDER BY 1, 2, 3; SELECT extname FROM pg_extension ORDER BY 1" shop
    sql "SELECT 'in it: ' || extname FROM pg_extension ORDER BY 1" 'app; DROP ROLE staff' 2>/dev/null || true
    [ $mariadb_is_there = yes ] || return 0
    my "SELECT schema_name, default_collation_name FROM information_schema.schemata ORDER BY 1"
    my "SELECT table_schema, table_name FROM information_schema.tables WHERE table_name IN ('kept', 'orders') ORDER BY 1, 2"
    my "SELECT User, Host FROM mysql.global_priv ORDER BY 1, 2"
    local account
    # The names have no quotes.
    for account in $(my "SELECT CONCAT(User, '@', Host) FROM mysql.global_priv WHERE User NOT LIKE 'mariadb%' ORDER BY 1"); do
        my "SHOW CREATE USER '${account%@*}'@'${account#*@}'; SHOW GRANTS FOR '${account%@*}'@'${account#*@}'"
    done
}
logs_in() { [ "$(on h2 env "PGPASSWORD=$1" psql -qXAt -h 127.0.0.1 -p 5499 -U app -d 'app; DROP ROLE staff' -c 'SELECT current_user' 2>/dev/null)" = app ]; }
my_logs_in() {
    [ $mariadb_is_there = no ] ||
        [ "$(on h2 env "MYSQL_PWD=$1" mariadb --no-defaults -NBr -S /run/bedmy/socket -u app 'app`; DROP DATABASE shop_1' -e 'SELECT CURRENT_USER()' 2>/dev/null)" = app@localhost ]
}
data_is_kept() { # the earlier names have their data
    [ "$(sql 'SELECT n FROM kept' former)" = 7 ] && { [ $mariadb_is_there = no ] || [ "$(my 'SELECT n FROM former.kept')" = 7 ]; }
}
databases_before=$(everything)
is_gone() { [ "$(everything)" = "$databases_before" ] || { diff <(echo "$databases_before") <(everything) >&2; return 1; }; }
list_before

step "databases: a client uses the password, and nobody else sees it"
set_databases < <(databases_model 5)
reach_cluster
soon logs_in 'bed password 4711'
soon my_logs_in 'bed password 4711'
fails logs_in 'another password'
databases_there=$(everything)
has_line() { grep -q "^$1$" <<< "$databases_there"; }
has_line "app|t|t|-1|f"
has_line "app|staff"
has_line "guest|f|f|5|t"
has_line "former.cob-before|.*"
has_line "table orders|guest|SELECT|f"
has_line "default staff|guest|SELECT|f"
has_line "database shop|app|CONNECT|t"
has_line "in it: hstore"
fails has_line "citext"
fails has_line ".*|guest|DELETE|."
fails has_line "database shop|-|.*"
if [ $mariadb_is_there = yes ]; then
    fails my_logs_in 'another password'
    has_line 'GRANT ALL PRIVILEGES ON `app``; DROP DATABASE shop..1`\.\* TO `app`@`localhost`'
    has_line 'GRANT SELECT ON `shop\\_1`\.\* TO `guest`@`%`'
    fails has_line ".*shop_1.*orders.*guest.*"
    has_line "former.cob-before	kept"
    has_line "old.cob-before	localhost"
fi
[ -z "$(on h2 sh -c "grep -rlF 'bed password 4711' /var/lib/cob /var/lib/bedpg /var/lib/bedmy /var/log 2>/dev/null")" ]
fails on h2 sh -c "journalctl --no-pager -q | grep -qF 'bed password 4711'"

step "databases: what a person changes is drift, and comes back"
has_all() { ctl check >/dev/null 2>&1; [ "$(everything)" = "$databases_there" ]; }
for edit in "ALTER ROLE app PASSWORD 'x'" "ALTER ROLE app NOCREATEDB" "REVOKE staff FROM app" "ALTER ROLE guest LOGIN CONNECTION LIMIT 9" \
    "ALTER DATABASE \"app; DROP ROLE staff\" OWNER TO staff" "DROP DATABASE \"app; DROP ROLE staff\"" \
    "GRANT CONNECT ON DATABASE shop TO PUBLIC" "REVOKE GRANT OPTION FOR CONNECT ON DATABASE shop FROM app"; do
    sql "$edit"
    soon has_all
    soon logs_in 'bed password 4711'
done
for edit in "GRANT ALL ON orders TO guest" "REVOKE SELECT ON items FROM guest" "CREATE EXTENSION citext" \
    "ALTER DEFAULT PRIVILEGES FOR ROLE staff IN SCHEMA public REVOKE SELECT ON TABLES FROM guest"; do
    sql "$edit" shop
    soon has_all
done
if [ $mariadb_is_there = yes ]; then
    for edit in "SET PASSWORD FOR app@localhost = PASSWORD('x')" "DROP USER app@localhost" "CREATE USER old@localhost" \
        "ALTER USER guest@'%' REQUIRE NONE ACCOUNT UNLOCK" "GRANT ALL ON shop_1.orders TO guest@'%'" "CREATE DATABASE former" \
        "DROP DATABASE \`app\`\`; DROP DATABASE shop_1\`" "REVOKE SELECT ON \`shop\\_1\`.* FROM guest@'%'"; do
        my "$edit"
        soon has_all
        soon my_logs_in 'bed password 4711'
    done
fi

step "databases: a server that is down is named, with its service"
on h2 systemctl stop bed-pg
says_so() { ctl check >/dev/null 2>&1; ctl_status_says "start the service"; }
soon says_so
start_pg
soon has_all
soon ctl status

step "databases: they leave, and the server is as it was"
set_databases < <(nothing)
reach_cluster
is_gone
data_is_kept
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
            on h2 pkill -KILL -x 'psql|mariadb' 2>/dev/null && killed=$((killed + 1))
        else
            on h2 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
        fi
    done
    wait $switching || true
    is_settled() { ctl status >/dev/null 2>&1 || { ctl retry --all >/dev/null 2>&1; false; }; }
    patience=120 soon is_settled
    if [ $((round % 2)) = 1 ]; then
        [ "$(everything)" = "$databases_there" ] || { diff <(echo "$databases_there") <(everything) >&2; false; }
        logs_in 'bed password 4711'
        my_logs_in 'bed password 4711'
    else
        is_gone
    fi
done
echo "       $killed kills in $round switches"
set_databases < <(nothing)
reach_cluster
is_gone
data_is_kept

on h2 sh -c 'systemctl stop bed-pg bed-my 2>/dev/null; rm -rf /var/lib/bedpg /run/bedpg /var/lib/bedmy /run/bedmy'
limit_starts h2
on h1 rm $site/databases.yaml $site/dbpassword
switch_cluster
