//! Users, databases and privileges of a real server with a socket in a folder.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use cob_kinds::{MariadbServer, aside_name};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::super::sql::literal;
use super::super::tests::{moved, setting, spec_in};
use super::{account, client};
use crate::kinds::Outcome;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};
use crate::run::testing::wait_for;

/// A server, which ends with the value.
struct Running {
    folder: tempfile::TempDir,
    process: Child,
}

impl Running {
    /// Returns `None` without a server's programs, its account or root.
    fn new() -> Option<Self> {
        let has = |program: &str| crate::kinds::native::has_program(program);
        let is_there = has("mariadbd") && has("mariadb-install-db") && client::is_installed().is_ok();
        if !is_there || !rustix::process::geteuid().is_root() {
            eprintln!("skipped: it takes MariaDB and root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let owned = Command::new("chown").arg("mysql:mysql").arg(folder.path()).status().expect("run");
        if !owned.success() {
            eprintln!("skipped: there is no account mysql");
            return None;
        }
        let data = format!("--datadir={}", folder.path().join("data").display());
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", "--user=mysql", "--skip-test-db", "--auth-root-authentication-method=socket"]);
        let made = install.arg(&data).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(made.expect("run").success());
        let mut server = Command::new("mariadbd");
        server.args(["--no-defaults", "--user=mysql", "--skip-networking", "--innodb-flush-log-at-trx-commit=0"]);
        server.arg(&data).arg(format!("--socket={}", folder.path().join("socket").display()));
        server.arg("--general-log").arg(format!("--general-log-file={}", folder.path().join("log").display()));
        let process = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run");
        let running = Self { folder, process };
        wait_for("the server answers", || client::run(&running.server(), "SELECT 1;").is_ok());
        Some(running)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn server(&self) -> MariadbServer {
        MariadbServer { socket: Some(self.socket()), account: "root".to_owned() }
    }

    fn content(&self, keys: &str) -> String {
        format!(r#"{{"socket":"{}",{keys}}}"#, self.socket().display())
    }

    fn says(&self, statements: &str) -> String {
        client::run(&self.server(), statements).expect("run").trim().to_owned()
    }

    fn everything(&self) -> String {
        everything(&self.server())
    }

    /// Whether a password logs in.
    fn logs_in(&self, user: &str, password: &str) -> bool {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-e", "SELECT 1", "-u", user]).env("MYSQL_PWD", password);
        let ran = client.arg("-S").arg(self.socket()).output().expect("run");
        ran.status.success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let folder = self.folder.path().to_str().expect("text").to_owned();
        if !std::thread::panicking() {
            wait_for("the server has ended", || !crate::run::testing::anybody_with(&folder));
        }
    }
}

/// All users with their privileges, databases and tables.
fn everything(server: &MariadbServer) -> String {
    let says = |statements: &str| client::run(server, statements).expect("run");
    let users = says(
        "SELECT User, Host, COALESCE(JSON_VALUE(Priv, '$.account_locked'), 0) FROM mysql.global_priv ORDER BY 1, 2;
         SELECT CONCAT('SHOW CREATE USER `', REPLACE(User, '`', '``'), '`@`', Host, '`; SHOW GRANTS FOR `',
            REPLACE(User, '`', '``'), '`@`', Host, '`;') FROM mysql.global_priv ORDER BY 1;",
    );
    let (listed, shown): (Vec<&str>, Vec<&str>) = users.lines().partition(|line| !line.starts_with("SHOW "));
    // An explicit default is the same as none.
    let shown = says(&shown.join("\n")).replace(" ACCOUNT UNLOCK", "");
    let databases = says(
        "SELECT schema_name, default_character_set_name, default_collation_name FROM information_schema.schemata ORDER BY 1;
         SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT IN
            ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1, 2;",
    );
    format!("{}\n{shown}{databases}", listed.join("\n"))
}

#[tokio::test]
async fn users_databases_and_privileges_keep_the_contract() {
    let Some(running) = Running::new() else { return };
    running.says(
        "CREATE USER 'old'@'%' IDENTIFIED VIA unix_socket OR mysql_native_password USING 'invalid' REQUIRE X509 WITH
            MAX_QUERIES_PER_HOUR 7;
         CREATE DATABASE `my_db` COLLATE latin1_bin; CREATE TABLE my_db.kept (n int, m int); INSERT INTO my_db.kept VALUES (7, 8);
         CREATE TABLE my_db.`it's; ``odd` (n int PRIMARY KEY);
         CREATE TABLE my_db.child (n int, FOREIGN KEY (n) REFERENCES `it's; ``odd` (n));
         GRANT ALL ON `my_db`.* TO 'old'@'%'; GRANT SELECT (n), INSERT ON my_db.kept TO 'old'@'%' WITH GRANT OPTION;
         GRANT PROCESS ON *.* TO 'old'@'%'; CREATE USER plain@localhost; GRANT SELECT ON my_db.kept TO plain@localhost;",
    );
    let probed = running.server();
    let probe = move || everything(&probed);
    for (kind, one, other) in [
        (
            "mariadb-user",
            r#""name":"a'b`\"; DROP USER plain@localhost; --","host":"10.0.%","password":"it's \\ :x","tls":"required""#,
            r#""name":"a'b`\"; DROP USER plain@localhost; --","host":"10.0.%","unix_socket":true,"max_user_connections":4"#,
        ),
        (
            "mariadb-user",
            r#""name":"old","host":"%","password":"new","tls":"optional","max_queries_per_hour":0"#,
            r#""name":"old","host":"%","locked":true,"max_updates_per_hour":9"#,
        ),
        ("mariadb-user", r#""name":"old","host":"%","absent":true"#, r#""name":"new","absent":true"#),
        (
            "mariadb-database",
            r#""name":"it's; `odd`","character_set":"utf8mb4","collation":"utf8mb4_unicode_ci","drop":true"#,
            r#""name":"it's; `odd`","character_set":"latin1","drop":true"#,
        ),
        ("mariadb-database", r#""name":"my_db","absent":true"#, r#""name":"none","absent":true"#),
        (
            "mariadb-grant",
            r#""user":"old","host":"%","database":"my_db","privileges":["SELECT","CREATE TEMPORARY TABLES"]"#,
            r#""user":"old","host":"%","database":"my_db","privileges":["ALL"],"grant_option":true"#,
        ),
        (
            "mariadb-grant",
            r#""user":"old","host":"%","database":"my_db","table":"kept","privileges":["SELECT","DELETE"]"#,
            r#""user":"old","host":"%","database":"my_db","table":"kept","absent":true"#,
        ),
    ] {
        let case = Case::new(setting(kind), &running.content(one)).other(&running.content(other));
        holds(&case.probing(probe.clone()).kills(1), &[]).await;
    }
    let before = running.everything();
    for (is_grant, keys) in [
        (false, r#""name":"my_db","character_set":"utf8mb4""#),
        (false, r#""name":"my_db","collation":"utf8mb4_bin""#),
        (true, r#""user":"plain","privileges":["PROCESS","RELOAD"],"grant_option":true"#),
        (true, r#""user":"old","host":"%","privileges":["BINLOG MONITOR","SELECT"]"#),
        (true, r#""user":"plain","database":"none; `","privileges":["ALL"]"#),
        (true, r#""user":"plain","database":"my_db","table":"it's; `odd","privileges":["ALL"]"#),
    ] {
        let content = running.content(keys);
        let spec = match is_grant {
            true => spec_in(&super::GrantSetting, &content, "n1/a"),
            false => spec_in(&super::DatabaseSetting, &content, "n1/a"),
        };
        let spec = spec.expect("a content");
        let noted = spec.before().expect("seen");
        spec.apply(noted.as_ref()).expect("applied");
        assert_eq!(spec.look(noted.as_ref()).expect("seen"), Some(spec.wanted()), "{keys}");
        assert_ne!(running.everything(), before, "{keys}");
        spec.restore(noted.as_ref()).expect("restored");
        assert_eq!(running.everything(), before, "{keys}");
    }
    assert_eq!(running.says("SELECT n, m FROM my_db.kept;"), "7\t8");
}

#[tokio::test]
async fn a_user_logs_in_as_the_content_says_and_no_record_has_the_password() {
    let Some(running) = Running::new() else { return };
    let mut bench = Bench::new();
    let kind = setting("mariadb-user");
    let context = bench.context(&kind, &running.content(r#""name":"app","password":"pencil-4711""#));
    moved(&mut bench, &context, "absent", "present").await;
    assert!(running.logs_in("app", "pencil-4711") && !running.logs_in("app", "") && !running.logs_in("app", "x"));
    for edit in [
        "SET PASSWORD FOR app@localhost = PASSWORD('x')",
        "ALTER USER app@localhost ACCOUNT LOCK",
        "ALTER USER app@localhost IDENTIFIED VIA unix_socket",
        "DROP USER app@localhost",
    ] {
        running.says(&format!("{edit};"));
        let found = bench.check(&context).await;
        assert_eq!(found.state.expect("known").as_str(), "outdated", "{edit}");
        assert!(!found.difference.contains('*') && !found.difference.contains("pencil"), "{}", found.difference);
        moved(&mut bench, &context, "outdated", "present").await;
        assert!(running.logs_in("app", "pencil-4711"), "{edit}");
    }
    let hash = account::hash("brush-4711");
    let by_hash = bench.context(&kind, &running.content(&format!(r#""name":"app","password_hash":"{hash}""#)));
    moved(&mut bench, &by_hash, "outdated", "present").await;
    assert!(running.logs_in("app", "brush-4711"));
    let hashes = [hash.as_str(), &account::hash("pencil-4711")].map(|hash| hash.trim_start_matches('*').to_owned());
    let secrets = format!("(pencil|brush)-4711|{}", hashes.join("|"));
    let places = [bench.folder.path().join("cobs"), running.folder.path().join("log")];
    let all = Command::new("grep").args(["-raoE", &secrets]).args(&places).output().expect("run");
    assert_eq!(String::from_utf8_lossy(&all.stdout), "", "no record and no log has the password or its hash");
    let odd = bench.context(&kind, &running.content(r#""name":"app","password":"Zoë""#));
    let why = reason(bench.transition(&odd, "outdated", "present").await);
    assert!(why.contains("printable ASCII") && !why.contains("Zo"), "{why}");
    // Privileges of others keep a user, without a login.
    running.says("CREATE DATABASE data; GRANT SELECT ON data.* TO app@localhost;");
    moved(&mut bench, &by_hash, "outdated", "absent").await;
    assert!(!running.logs_in("app", "brush-4711"));
    assert!(running.says("SHOW CREATE USER app@localhost;").ends_with("ACCOUNT LOCK"));
    running.says("REVOKE SELECT ON data.* FROM app@localhost; DROP USER app@localhost;");
    // Without a way to log in, a new user can't log in; as the account of the host it can.
    let plain = bench.context(&kind, &running.content(r#""name":"nobody","max_user_connections":3"#));
    moved(&mut bench, &plain, "absent", "present").await;
    assert!(!running.logs_in("nobody", ""));
    let socket = bench.context(&kind, &running.content(r#""name":"nobody","unix_socket":true"#));
    moved(&mut bench, &socket, "outdated", "present").await;
    running.says("CREATE DEFINER = nobody@localhost VIEW data.seen AS SELECT 1 AS n;");
    moved(&mut bench, &socket, "present", "absent").await;
    assert!(running.says("SHOW CREATE USER nobody@localhost;").ends_with("ACCOUNT LOCK"));
    // A server that does not answer.
    let away = bench.context(&kind, r#"{"name":"x","socket":"/nonexistent/socket"}"#);
    let outcome = bench.transition(&away, "absent", "present").await;
    let Outcome::Failed { reason } = &outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("/nonexistent/socket") && reason.contains("start the service mariadb"), "{reason}");
}

#[tokio::test]
async fn a_database_keeps_its_data_and_privileges_are_exact() {
    let Some(running) = Running::new() else { return };
    let mut bench = Bench::new();
    let kind = setting("mariadb-database");
    let databases = || {
        running.says(
            "SELECT GROUP_CONCAT(schema_name ORDER BY 1 SEPARATOR ' ') FROM information_schema.schemata
            WHERE schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema');",
        )
    };
    let context = bench.context(&kind, &running.content(r#""name":"kept","collation":"utf8mb4_unicode_ci""#));
    moved(&mut bench, &context, "absent", "present").await;
    running.says("ALTER DATABASE kept COLLATE utf8mb4_bin; CREATE TABLE kept.t (n int);");
    assert!(bench.check(&context).await.difference.contains("collation"));
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(databases(), "kept");
    // What can't be moved keeps an absent database.
    running.says("CREATE VIEW kept.v AS SELECT * FROM kept.t;");
    let absent = bench.context(&kind, &running.content(r#""name":"kept","absent":true"#));
    let why = reason(bench.transition(&absent, "absent", "present").await);
    assert!(why.contains(r#"can't move the view "v" of the database "kept""#), "{why}");
    assert_eq!(databases(), "kept");
    running.says("DROP VIEW kept.v; INSERT INTO kept.t VALUES (7);");
    moved(&mut bench, &absent, "outdated", "present").await;
    assert_eq!(databases(), aside_name("kept"));
    running.says("CREATE DATABASE kept; CREATE TABLE kept.t (n int);");
    let why = reason(bench.transition(&absent, "outdated", "present").await);
    assert!(why.contains("exists again"), "{why}");
    // An empty database that users made does not change the earlier database.
    running.says("DROP DATABASE kept; CREATE DATABASE kept COLLATE latin1_bin;");
    moved(&mut bench, &absent, "outdated", "present").await;
    moved(&mut bench, &absent, "present", "absent").await;
    assert!(running.says("SHOW CREATE DATABASE kept;").contains("utf8mb4_unicode_ci"));
    assert_eq!((databases().as_str(), running.says("SELECT n FROM kept.t;").as_str()), ("kept", "7"));
    // Privileges: a pattern of others is another spelling of the same database.
    running.says("CREATE DATABASE my_db; CREATE USER app@localhost; GRANT DELETE ON `my_db`.* TO app@localhost;");
    let kind = setting("mariadb-grant");
    let before = running.everything();
    let context = bench.context(&kind, &running.content(r#""user":"app","database":"my_db","privileges":["SELECT"]"#));
    moved(&mut bench, &context, "absent", "present").await;
    let grants = || running.says("SHOW GRANTS FOR app@localhost;");
    assert!(grants().ends_with("GRANT SELECT ON `my\\_db`.* TO `app`@`localhost`"), "{}", grants());
    for edit in [
        "REVOKE SELECT ON `my\\_db`.* FROM app@localhost",
        "GRANT INSERT ON `my\\_db`.* TO app@localhost",
        "GRANT ALL ON `my\\_db`.* TO app@localhost WITH GRANT OPTION",
        "GRANT SELECT ON `my_db`.* TO app@localhost",
    ] {
        running.says(&format!("{edit};"));
        assert_eq!(bench.state(&context).await, "outdated", "{edit}");
        moved(&mut bench, &context, "outdated", "present").await;
        assert!(grants().ends_with("GRANT SELECT ON `my\\_db`.* TO `app`@`localhost`"), "{}", grants());
    }
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(running.everything(), before);
    let nobody = bench.context(&kind, &running.content(r#""user":"nobody","privileges":["ALL"]"#));
    let why = reason(bench.transition(&nobody, "absent", "present").await);
    assert!(why.contains("the user nobody@localhost does not exist") && why.contains("`require`"), "{why}");
    moved(&mut bench, &nobody, "outdated", "absent").await;
    // A user that is gone takes the privileges along.
    moved(&mut bench, &context, "absent", "present").await;
    running.says("DROP USER app@localhost;");
    moved(&mut bench, &context, "outdated", "absent").await;
}

#[test]
fn odd_names_are_names_and_nothing_else() {
    let Some(running) = Running::new() else { return };
    let before = running.everything();
    let names = r#"['"`;\\:=$%_ a-zé-]{0,19}[a-z'"`\\;]"#;
    let mut runner = TestRunner::new(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() });
    runner
        .run(&names, |text| {
            let (name, user) = (client::name(&text), client::account(&text, "localhost"));
            running.says(&format!("CREATE DATABASE {name}; CREATE USER {user};"));
            let found = running.says(&format!(
                "SELECT COUNT(*) FROM information_schema.schemata, mysql.global_priv WHERE BINARY schema_name = {0} AND
                 User = {0};",
                literal(&text)
            ));
            prop_assert_eq!(found, "1");
            let content = running
                .content(&format!(r#""user":{0},"database":{0},"privileges":["SELECT"]"#, serde_json::json!(text)));
            let grant = spec_in(&super::GrantSetting, &content, "n1/a").expect("a grant");
            grant.apply(None).expect("granted");
            prop_assert_eq!(grant.look(None).expect("seen"), Some(grant.wanted()));
            running.says(&format!("DROP DATABASE {name}; DROP USER {user};"));
            Ok(())
        })
        .expect("all names");
    assert_eq!(running.everything(), before);
}
