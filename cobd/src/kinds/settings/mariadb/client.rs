//! The client program of MariaDB: runs statements with all privileges, over the local socket.
//!
//! Names and texts from a content are quoted here; the text of a password is never in a statement.

use cob_kinds::MariadbServer;
use serde_json::Value;

use super::super::sql;
use crate::kinds::native::{has_program, not_found};

/// The names of the program; earlier packages have the second name.
const PROGRAMS: [&str; 2] = ["mariadb", "mysql"];
/// Settings of each session: quotes as [`sql::literal`] writes them, no user without CREATE USER, no wait without end,
/// no statement in the logs of the server.
const OPTIONS: &str = "SET sql_mode = 'NO_BACKSLASH_ESCAPES,NO_AUTO_CREATE_USER', sql_quote_show_create = 1, \
                       lock_wait_timeout = 20, sql_log_off = 1, slow_query_log = 0";
/// The code of a server that does not answer at a socket.
const NO_SERVER: &str = "ERROR 2002 ";

fn program() -> Option<&'static str> {
    PROGRAMS.into_iter().find(|name| has_program(name))
}

/// Whether the program is installed.
///
/// # Errors
/// The reason, with the name of the package.
pub(super) fn is_installed() -> Result<(), String> {
    program().map(|_| ()).ok_or_else(|| not_found("mariadb", "mariadb-client, or mariadb of Red Hat"))
}

/// Runs statements and returns the output.
pub(super) fn run(server: &MariadbServer, statements: &str) -> Result<String, String> {
    is_installed()?;
    let mut words: Vec<String> = [program().unwrap_or_default(), "--no-defaults", "--batch", "--skip-column-names"]
        .into_iter()
        // The statement of an error may have the hash of a password.
        .chain(["--raw", "--binary-mode", "--loose-skip-print-query-on-error", "--default-character-set=utf8mb4"])
        .chain(["--connect-timeout=10", "--protocol=socket"])
        .map(str::to_owned)
        .collect();
    words.extend([format!("--init-command={OPTIONS}"), format!("--user={}", server.account)]);
    words.extend(server.socket.as_ref().map(|socket| format!("--socket={}", socket.display())));
    let ran = sql::run_client(words, &server.account, &[("LC_ALL", "C.UTF-8")], statements)?;
    if ran.code == Some(0) {
        return Ok(ran.out);
    }
    // `ERROR 1008 (HY000) at line 1: …`
    let error = ran.err.lines().find(|line| line.starts_with("ERROR "));
    let Some((code, why)) = error.and_then(|line| line.split_once(": ")) else { return Err(ran.complaint()) };
    if code.starts_with(NO_SERVER) {
        return Err(sql::unreachable("MariaDB", why, "mariadb"));
    }
    Err(format!("MariaDB: {why}"))
}

/// The JSON that a query returns. `None`: it returns no row.
pub(super) fn row(server: &MariadbServer, query: &str) -> Result<Option<Value>, String> {
    Ok(sql::rows(&run(server, query)?)?.into_iter().next())
}

/// A name in a statement.
pub(super) fn name(name: &str) -> String {
    sql::quoted('`', name)
}

/// An account in a statement.
pub(super) fn account(user: &str, host: &str) -> String {
    format!("{}@{}", name(user), name(host))
}
