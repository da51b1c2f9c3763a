//! Privileges and extensions on a real server.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::super::sql::literal;
use super::super::tests::{moved, setting, spec_in};
use super::postgresql_test::Running;
use super::{GrantSetting, psql};
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};

/// All privileges in a database, without those of owners, and its extensions.
const EVERYTHING: &str = "SET search_path = '';
    SELECT json_build_array(o, a.grantee::regrole, a.privilege_type, a.is_grantable)::text line FROM (
        SELECT 'schema ' || nspname o, coalesce(nspacl, acldefault('n', nspowner)) l, nspowner w FROM pg_namespace
        UNION ALL SELECT 'relation ' || c.oid::regclass, coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", relowner)), relowner
            FROM pg_class c WHERE relkind IN ('r', 'v', 'S') AND relnamespace = 'shop'::regnamespace
        UNION ALL SELECT 'routine ' || oid::regprocedure, coalesce(proacl, acldefault('f', proowner)), proowner
            FROM pg_proc WHERE pronamespace = 'shop'::regnamespace
        UNION ALL SELECT 'database ' || datname, coalesce(datacl, acldefault('d', datdba)), datdba FROM pg_database
        UNION ALL SELECT 'default ' || defaclrole::regrole || defaclobjtype::text, defaclacl, defaclrole FROM pg_default_acl
    ) all_of, aclexplode(l) a WHERE a.grantee <> w ORDER BY line;
    SELECT extname, extversion FROM pg_extension ORDER BY 1;";

/// A database with objects of the role `maker`, and the role `app`.
fn with_shop(running: &Running) {
    running.says("CREATE ROLE app; CREATE ROLE maker; CREATE ROLE guest;");
    running.says("CREATE DATABASE \"shop=1\" OWNER maker;");
    in_shop(
        running,
        "SET client_min_messages = error; CREATE SCHEMA shop AUTHORIZATION maker; SET ROLE maker; SET search_path = shop;
         CREATE TABLE orders (n serial); CREATE TABLE \"it's; \"\"odd\" (n integer); CREATE VIEW seen AS SELECT * FROM orders;
         CREATE FUNCTION f(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1';
         CREATE FUNCTION f(text) RETURNS integer LANGUAGE sql AS 'SELECT 2';
         CREATE PROCEDURE p(x integer) LANGUAGE sql AS 'SELECT 1';
         GRANT SELECT, DELETE ON orders TO app; GRANT INSERT ON seen TO app WITH GRANT OPTION;
         ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT DELETE ON TABLES TO app;",
    );
}

fn in_shop(running: &Running, statements: &str) -> String {
    psql::run_in(&running.server(), "shop=1", statements).expect("run").trim().to_owned()
}

#[tokio::test]
async fn privileges_keep_the_contract() {
    let Some(running) = Running::new() else { return };
    with_shop(&running);
    let probed = running.server();
    let probe = move || psql::run_in(&probed, "shop=1", EVERYTHING).expect("run");
    let of = |keys: &str| running.content(&format!(r#""role":"app","database":"shop=1",{keys}"#));
    for (one, other) in [
        (r#""privileges":["CONNECT","CREATE"],"grant_option":true"#, r#""privileges":["ALL"]"#),
        (
            r#""schema":"shop","on":"tables","privileges":["SELECT","INSERT"],"creators":["maker","guest"]"#,
            r#""schema":"shop","on":"tables","names":["it's; \"odd","seen"],"privileges":["ALL"],"grant_option":true"#,
        ),
        (
            r#""schema":"shop","on":"functions","names":["f"],"privileges":["EXECUTE"]"#,
            r#""schema":"shop","on":"functions","privileges":["EXECUTE"],"creators":["maker"]"#,
        ),
    ] {
        let case = Case::new(setting("postgresql-grant"), &of(one)).other(&of(other)).probing(probe.clone());
        holds(&case.kills(1), &[]).await;
    }
    let before = probe();
    for content in [
        of(r#""schema":"shop","privileges":["USAGE"]"#),
        of(r#""schema":"shop","on":"sequences","names":["orders_n_seq"],"privileges":["ALL"],"grant_option":true"#),
        of(r#""schema":"shop","on":"sequences","creators":["guest"],"privileges":["USAGE"]"#),
        running.content(r#""role":"public","database":"shop=1","schema":"shop","on":"functions","absent":true"#),
    ] {
        let grant = spec_in(&GrantSetting, &content, "n1/a").expect("a grant");
        let noted = grant.before().expect("seen");
        grant.apply(noted.as_ref()).expect("granted");
        assert_eq!(grant.look(noted.as_ref()).expect("seen"), Some(grant.wanted()), "{content}");
        assert_ne!(probe(), before, "{content}");
        grant.restore(noted.as_ref()).expect("restored");
        assert_eq!(probe(), before, "{content}");
    }
}

#[tokio::test]
async fn later_tables_and_edits_are_noticed_and_the_earlier_privileges_return() {
    let Some(running) = Running::new() else { return };
    with_shop(&running);
    let mut bench = Bench::new();
    let kind = setting("postgresql-grant");
    let of = |keys: &str| {
        running.content(&format!(r#""role":"app","database":"shop=1","schema":"shop","on":"tables",{keys}"#))
    };
    let can = |privilege: &str, table: &str| {
        in_shop(&running, &format!("SELECT has_table_privilege('app', 'shop.{table}', '{privilege}');")) == "t"
    };
    let before = in_shop(&running, EVERYTHING);
    let context = bench.context(&kind, &of(r#""privileges":["SELECT"],"creators":["maker"]"#));
    moved(&mut bench, &context, "absent", "present").await;
    assert!(can("SELECT", "seen") && !can("INSERT", "seen") && !can("DELETE", "orders"));
    // A table of a creator has the privileges at once, and a table of another role after the next check.
    in_shop(&running, "SET ROLE maker; CREATE TABLE shop.later ();");
    assert!(can("SELECT", "later") && !can("DELETE", "later"));
    assert_eq!(bench.state(&context).await, "present");
    in_shop(&running, "CREATE TABLE shop.other (); REVOKE SELECT ON shop.orders FROM app;");
    let found = bench.check(&context).await;
    assert!(
        found.difference.contains("shop.other") && found.difference.contains("shop.orders"),
        "{}",
        found.difference
    );
    moved(&mut bench, &context, "outdated", "present").await;
    assert!(can("SELECT", "other") && can("SELECT", "orders"));
    // A content with fewer tables gives the others their earlier privileges.
    let fewer = bench.context(&kind, &of(r#""names":["seen"],"privileges":["UPDATE"]"#));
    assert_eq!(bench.state(&fewer).await, "outdated");
    moved(&mut bench, &fewer, "outdated", "present").await;
    assert!(can("DELETE", "orders") && can("UPDATE", "seen") && !can("SELECT", "seen"));
    assert!(!can("SELECT", "other") && can("DELETE", "later"), "the rule of the creator is the earlier one");
    moved(&mut bench, &fewer, "present", "absent").await;
    in_shop(&running, "DROP TABLE shop.later, shop.other;");
    assert_eq!(in_shop(&running, EVERYTHING), before);
    // What only a content that was never applied is about stays.
    moved(&mut bench, &fewer, "absent", "present").await;
    let never = bench.context(&kind, &of(r#""privileges":["DELETE"],"creators":["maker","guest"]"#));
    assert_eq!(bench.state(&never).await, "outdated");
    moved(&mut bench, &never, "outdated", "absent").await;
    assert_eq!(in_shop(&running, EVERYTHING), before);
    // A table, a role or a database that does not exist.
    let missing = bench.context(&kind, &of(r#""names":["nothing"],"privileges":["UPDATE"]"#));
    let why = reason(bench.transition(&missing, "absent", "present").await);
    assert!(why.contains(r#"the object "nothing" does not exist"#) && why.contains("`require`"), "{why}");
    moved(&mut bench, &missing, "outdated", "absent").await;
    let nobody = running.content(r#""role":"nobody","database":"nowhere","privileges":["ALL"]"#);
    let nobody = bench.context(&kind, &nobody);
    let why = reason(bench.transition(&nobody, "absent", "present").await);
    assert!(why.contains(r#"the role "nobody" or the database "nowhere" does not exist"#), "{why}");
    moved(&mut bench, &nobody, "outdated", "absent").await;
}

#[test]
fn odd_names_are_names_and_nothing_else() {
    let Some(running) = Running::new() else { return };
    let names = r#"['"`;\\:=$ a-zé-]{1,20}"#;
    let mut runner = TestRunner::new(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() });
    runner
        .run(&names, |text| {
            let (role, quoted) = (psql::name(&text), literal(&text));
            running.says(&format!("CREATE ROLE {role}; CREATE DATABASE {role};"));
            let database = psql::run_in(&running.server(), &text, "SELECT current_database();").expect("run");
            prop_assert_eq!(database.trim_end_matches('\n'), &text);
            let found = running.says(&format!("SELECT count(*) FROM pg_authid WHERE rolname = {quoted};"));
            prop_assert_eq!(found, "1");
            running.says(&format!("DROP DATABASE {role}; DROP ROLE {role};"));
            Ok(())
        })
        .expect("all names");
    assert_eq!(running.says("SELECT count(*) FROM pg_database;"), "3");
}

#[tokio::test]
async fn extensions_keep_the_contract_and_their_data() {
    let Some(running) = Running::new() else { return };
    with_shop(&running);
    if in_shop(&running, "SELECT count(*) FROM pg_available_extensions WHERE name = 'hstore';") == "0" {
        eprintln!("skipped: it takes postgresql-contrib");
        return;
    }
    let probed = running.server();
    let probe = move || psql::run_in(&probed, "shop=1", EVERYTHING).expect("run");
    let of = |keys: &str| running.content(&format!(r#""database":"shop=1",{keys}"#));
    let kind = setting("postgresql-extension");
    in_shop(&running, "CREATE EXTENSION citext;");
    for (one, other) in [
        (r#""name":"hstore","schema":"shop""#, r#""name":"hstore","schema":"public""#),
        (r#""name":"citext","absent":true"#, r#""name":"unaccent","absent":true"#),
    ] {
        let case = Case::new(kind.clone(), &of(one)).other(&of(other)).probing(probe.clone());
        holds(&case.kills(1), &[]).await;
    }
    let mut bench = Bench::new();
    let unknown = bench.context(&kind, &of(r#""name":"no-such""#));
    let why = reason(bench.transition(&unknown, "absent", "present").await);
    assert!(why.contains(r#"has no extension "no-such": install its package"#), "{why}");
    moved(&mut bench, &unknown, "outdated", "absent").await;
    let version = bench.context(&kind, &of(r#""name":"hstore","version":"0""#));
    let why = reason(bench.transition(&version, "absent", "present").await);
    assert!(why.contains(r#"no version "0" here: packages bring 1."#), "{why}");
    moved(&mut bench, &version, "outdated", "absent").await;
    let nowhere = bench.context(&kind, &running.content(r#""name":"hstore","database":"nowhere""#));
    let why = reason(bench.transition(&nowhere, "absent", "present").await);
    assert!(why.contains(r#"there is no database "nowhere""#), "{why}");
    moved(&mut bench, &nowhere, "outdated", "absent").await;
    // A column of its type keeps an extension.
    let used = bench.context(&kind, &of(r#""name":"hstore""#));
    moved(&mut bench, &used, "absent", "present").await;
    in_shop(&running, "DROP EXTENSION hstore;");
    assert_eq!(bench.state(&used).await, "outdated");
    moved(&mut bench, &used, "outdated", "present").await;
    in_shop(&running, "CREATE TABLE shop.uses (h hstore);");
    moved(&mut bench, &used, "present", "absent").await;
    assert_eq!(in_shop(&running, "SELECT count(*) FROM pg_extension WHERE extname = 'hstore';"), "1");
    // Scripts lead to a later version only: the earlier version can't return.
    in_shop(&running, "DROP TABLE shop.uses; DROP EXTENSION hstore; CREATE EXTENSION hstore VERSION '1.4';");
    let newer = bench.context(&kind, &of(r#""name":"hstore","version":"1.5""#));
    moved(&mut bench, &newer, "absent", "present").await;
    moved(&mut bench, &newer, "present", "absent").await;
    assert_eq!(in_shop(&running, "SELECT extversion FROM pg_extension WHERE extname = 'hstore';"), "1.5");
}
