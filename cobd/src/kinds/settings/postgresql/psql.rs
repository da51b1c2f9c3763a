//! The program `psql`: runs statements as a superuser, over the local socket.
//!
//! Names and texts from a content are quoted here; the text of a password is never in a statement.

use cob_kinds::PostgresqlServer;
use serde_json::Value;

use super::super::sql;
use crate::kinds::native::needs_program;

/// Settings of each session: quotes as [`sql::literal`] writes them, no wait without end, no statement in the server's
/// log, messages that can be read.
const OPTIONS: &str = "-c standard_conforming_strings=on -c lock_timeout=20000 -c log_statement=none \
                       -c log_min_error_statement=panic -c client_min_messages=warning -c lc_messages=C";
/// The database that each server has.
const ANY: &str = "postgres";

/// Whether the program is installed.
///
/// # Errors
/// The reason, with the name of the package.
pub(super) fn is_installed() -> Result<(), String> {
    needs_program("psql", "postgresql-client, or postgresql of Red Hat")
}

/// Runs statements about the whole server and returns the output.
pub(super) fn run(server: &PostgresqlServer, statements: &str) -> Result<String, String> {
    run_in(server, ANY, statements)
}

/// Runs statements in a database and returns the output.
pub(super) fn run_in(server: &PostgresqlServer, database: &str, statements: &str) -> Result<String, String> {
    is_installed()?;
    let mut words: Vec<String> = ["psql", "-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1"]
        .into_iter()
        .chain(["-v", "VERBOSITY=terse", "-f", "-", "-p"])
        .map(str::to_owned)
        .collect();
    words.push(server.port.to_string());
    if let Some(socket) = &server.socket {
        words.extend(["-h".to_owned(), socket.display().to_string()]);
    }
    // As an argument, the name `a=b` would be a description of a connection.
    let variables = [
        ("PGDATABASE", database),
        ("PGCLIENTENCODING", "UTF8"),
        ("PGCONNECT_TIMEOUT", "10"),
        ("PGOPTIONS", OPTIONS),
        ("LC_ALL", "C.UTF-8"),
    ];
    let ran = sql::run_client(words, &server.account, &variables, statements)?;
    if ran.code == Some(0) {
        return Ok(ran.out);
    }
    // `psql:<stdin>:1: ERROR:  …`, and `psql: error: connection to server …` with advice in the lines behind.
    let after = |mark: &str| ran.err.lines().find_map(|line| Some(line.split_once(mark)?.1.trim().to_owned()));
    Err(match after("ERROR:").or_else(|| after("FATAL:")) {
        Some(why) => format!("PostgreSQL: {why}"),
        None => match after("psql: error:") {
            Some(why) => sql::unreachable("PostgreSQL", &why, "postgresql"),
            None => ran.complaint(),
        },
    })
}

/// The JSON that a query about the whole server returns. `None`: it returns no row.
pub(super) fn row(server: &PostgresqlServer, query: &str) -> Result<Option<Value>, String> {
    Ok(sql::rows(&run(server, query)?)?.into_iter().next())
}

/// Whether a database exists.
pub(super) fn has_database(server: &PostgresqlServer, database: &str) -> Result<bool, String> {
    let query = format!("SELECT 1 FROM pg_database WHERE datname = {};", sql::literal(database));
    Ok(row(server, &query)?.is_some())
}

/// A name in a statement.
pub(super) fn name(name: &str) -> String {
    sql::quoted('"', name)
}
