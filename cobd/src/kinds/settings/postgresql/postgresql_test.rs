//! Roles and databases of a real server with a socket in a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cob_kinds::{PostgresqlServer, aside_name};

use super::super::tests::{moved, setting};
use super::psql;
use crate::kinds::Outcome;
use crate::kinds::contract::Case;
use crate::kinds::contract::tests::holds;
use crate::kinds::testing::{Bench, reason};
use crate::run::testing::wait_for;

/// A server, which ends with the value.
pub(super) struct Running {
    folder: tempfile::TempDir,
    process: Child,
}

impl Running {
    /// Returns `None` without a server's programs, its account or root.
    pub(super) fn new() -> Option<Self> {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let programs = versions.map(|version| version.path().join("bin")).find(|bin| bin.join("initdb").exists());
        let is_there = programs.is_some() && psql::is_installed().is_ok() && rustix::process::geteuid().is_root();
        let Some(programs) = programs.filter(|_| is_there) else {
            eprintln!("skipped: it takes PostgreSQL and root");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let owned = Command::new("chown").arg("postgres:postgres").arg(folder.path()).status().expect("run");
        if !owned.success() {
            eprintln!("skipped: there is no account postgres");
            return None;
        }
        let run = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(programs.join(program));
            command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let data = folder.path().join("data");
        let made = run("initdb")
            .arg("-D")
            .arg(&data)
            .args(["-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"])
            .status();
        assert!(made.expect("run").success());
        let mut server = run("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(folder.path());
        let process = server.args(["-c", "listen_addresses=", "-c", "fsync=off", "-p", "5432"]).spawn().expect("run");
        let running = Self { folder, process };
        wait_for("the server answers", || psql::run(&running.server(), "SELECT 1;").is_ok());
        Some(running)
    }

    pub(super) fn server(&self) -> PostgresqlServer {
        PostgresqlServer { socket: Some(self.socket()), port: 5432, account: "postgres".to_owned() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(super) fn content(&self, keys: &str) -> String {
        content(&self.socket(), keys)
    }

    pub(super) fn says(&self, statements: &str) -> String {
        psql::run(&self.server(), statements).expect("run").trim().to_owned()
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

fn content(socket: &Path, keys: &str) -> String {
    format!(r#"{{"socket":"{}",{keys}}}"#, socket.display())
}

/// All roles and databases, with the owners and the roles that have a password.
const EVERYTHING: &str = "SELECT json_agg(json_build_array(rolname, rolcanlogin, rolsuper, rolcreatedb, rolconnlimit,
        rolpassword IS NULL) ORDER BY rolname) FROM pg_authid WHERE rolname !~ '^pg_';
    SELECT json_agg(json_build_array(r.rolname, m.roleid::regrole, datname) ORDER BY 1, 2, 3) FROM pg_database
        JOIN pg_authid r ON r.oid = datdba LEFT JOIN pg_auth_members m ON m.member = r.oid AND m.roleid::regrole::text !~ '^pg_';";

#[tokio::test]
async fn roles_and_databases_keep_the_contract() {
    let Some(running) = Running::new() else { return };
    running.says(
        "CREATE ROLE ops; CREATE ROLE owner; CREATE ROLE old CONNECTION LIMIT 3 PASSWORD 'theirs'; GRANT ops TO old;",
    );
    let probed = running.server();
    let probe = move || psql::run(&probed, EVERYTHING).expect("run");
    for (kind, one, other) in [
        (
            "postgresql-role",
            r#""name":"a \"b\"; DROP ROLE ops; --","password":"it's \\ :x","create_db":true,"member_of":["ops"]"#,
            r#""name":"a \"b\"; DROP ROLE ops; --","password":"other","connection_limit":7"#,
        ),
        ("postgresql-role", r#""name":"old","absent":true"#, r#""name":"new","absent":true"#),
        (
            "postgresql-database",
            r#""name":"a'; DROP ROLE ops; --","owner":"owner","encoding":"utf-8","locale":"C","drop":true"#,
            r#""name":"b","drop":true"#,
        ),
    ] {
        // The server goes on with `CREATE DATABASE` for a moment after its client was killed: the bed kills there.
        let kills = u32::from(kind == "postgresql-role");
        let case = Case::new(setting(kind), &running.content(one)).other(&running.content(other));
        holds(&case.probing(probe.clone()).kills(kills), &[]).await;
    }
}

#[tokio::test]
async fn a_role_has_its_password_and_no_record_has_it() {
    let Some(running) = Running::new() else { return };
    let mut bench = Bench::new();
    let stored = || running.says("SELECT rolpassword FROM pg_authid WHERE rolname = 'app';");
    let role = setting("postgresql-role");
    let context = bench.context(&role, &running.content(r#""name":"app","password":"pencil-4711""#));
    moved(&mut bench, &context, "absent", "present").await;
    let first = stored();
    running.says("ALTER ROLE app NOLOGIN;");
    moved(&mut bench, &context, "outdated", "present").await;
    assert!(first.starts_with("SCRAM-SHA-256$4096:"), "{first}");
    assert_eq!(stored(), first, "the same password is not stored again");
    for statement in
        ["ALTER ROLE app PASSWORD 'x'", "ALTER ROLE app PASSWORD NULL", "ALTER ROLE app NOLOGIN", "DROP ROLE app"]
    {
        running.says(&format!("{statement};"));
        let found = bench.check(&context).await;
        assert_eq!(found.state.expect("known").as_str(), "outdated", "{statement}");
        assert!(!found.difference.contains("SCRAM") && !found.difference.contains("pencil"), "{}", found.difference);
        moved(&mut bench, &context, "outdated", "present").await;
    }
    let changed = bench.context(&role, &running.content(r#""name":"app","password":"brush-4711""#));
    assert_eq!(bench.state(&changed).await, "outdated");
    moved(&mut bench, &changed, "outdated", "present").await;
    let all = Command::new("grep").args(["-rlE", "(pencil|brush)-4711"]).arg(bench.folder.path().join("cobs")).output();
    assert_eq!(String::from_utf8_lossy(&all.expect("run").stdout), "", "no record has the password");
    let odd = bench.context(&role, &running.content(r#""name":"app","password":"Zoë""#));
    let why = reason(bench.transition(&odd, "outdated", "present").await);
    assert!(why.contains("printable ASCII") && !why.contains("Zo"), "{why}");
    moved(&mut bench, &changed, "outdated", "present").await;
    // A role that was there before gets its attributes and its password back.
    let attributes = || {
        running.says("SELECT rolcanlogin, rolpassword, pg_has_role('old', 'ops', 'member') FROM pg_authid WHERE rolname = 'old';")
    };
    running.says("CREATE ROLE ops; CREATE ROLE old PASSWORD 'theirs'; GRANT ops TO old;");
    let before = attributes();
    let old = bench.context(&role, &running.content(r#""name":"old","password":"ours","member_of":[]"#));
    let mut other = Bench::new();
    moved(&mut other, &old, "absent", "present").await;
    assert!(attributes().starts_with("t|") && attributes().ends_with("|f"), "{}", attributes());
    moved(&mut other, &old, "present", "absent").await;
    assert_eq!(attributes(), before);
    // A role that owns something stays without a login.
    running.says("CREATE DATABASE data OWNER app;");
    moved(&mut bench, &changed, "present", "absent").await;
    assert_eq!(running.says("SELECT rolcanlogin, rolpassword IS NULL FROM pg_authid WHERE rolname = 'app';"), "f|t");
}

#[tokio::test]
async fn a_database_stays_unless_the_content_says_otherwise() {
    let Some(running) = Running::new() else { return };
    let mut bench = Bench::new();
    let databases =
        || running.says("SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database WHERE NOT datistemplate;");
    let kind = setting("postgresql-database");
    let context = bench.context(&kind, &running.content(r#""name":"kept","connection_limit":5"#));
    moved(&mut bench, &context, "absent", "present").await;
    running.says("ALTER DATABASE kept CONNECTION LIMIT 9;");
    assert!(bench.check(&context).await.difference.contains("connection_limit"));
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(databases(), "kept postgres");
    let encoded = bench.context(&kind, &running.content(r#""name":"kept","encoding":"LATIN1""#));
    let why = reason(bench.transition(&encoded, "absent", "present").await);
    assert!(why.contains("PostgreSQL can't change it"), "{why}");
    // The earlier limit of a database that was there before returns.
    let context = bench.context(&kind, &running.content(r#""name":"kept","connection_limit":2,"drop":true"#));
    moved(&mut bench, &context, "outdated", "present").await;
    moved(&mut bench, &context, "present", "absent").await;
    assert_eq!(running.says("SELECT datconnlimit FROM pg_database WHERE datname = 'kept';"), "5");
    // An absent database waits under another name.
    let absent = bench.context(&kind, &running.content(r#""name":"kept","absent":true"#));
    moved(&mut bench, &absent, "absent", "present").await;
    assert_eq!(databases(), format!("{} postgres", aside_name("kept")));
    running.says("CREATE DATABASE kept;");
    let why = reason(bench.transition(&absent, "outdated", "present").await);
    assert!(why.contains("exists again"), "{why}");
    running.says("DROP DATABASE kept;");
    moved(&mut bench, &absent, "outdated", "present").await;
    moved(&mut bench, &absent, "present", "absent").await;
    assert_eq!(databases(), "kept postgres");
    // A server that does not answer.
    let away = bench.context(&kind, &content(Path::new("/nonexistent"), r#""name":"x""#));
    let outcome = bench.transition(&away, "absent", "present").await;
    assert!(matches!(&outcome, Outcome::Failed { reason } if reason.contains("connection to server")), "{outcome:?}");
    assert_eq!(databases(), "kept postgres");
}
