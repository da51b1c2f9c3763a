//! The program `psql`: runs statements as a superuser, over the local socket.
//!
//! Statements go through its standard input. Names and texts from a content are quoted here; the text of a password is
//! never in a statement.

use std::collections::BTreeMap;
use std::process::Command as Process;

use cob_kinds::PostgresqlServer;
use cob_types::Command;
use serde_json::Value;

use crate::kinds::native::{has_program, run_bounded};
use crate::kinds::service::{RunAs, words_as};

/// Settings of each session: quotes as [`literal`] writes them, no wait without end, no statement in the server's log.
const OPTIONS: &str = "-c standard_conforming_strings=on -c lock_timeout=20000 -c log_statement=none \
                       -c log_min_error_statement=panic -c client_min_messages=warning";

/// Whether the program is installed.
///
/// # Errors
/// The reason, with the name of the package.
pub(super) fn is_installed() -> Result<(), String> {
    if has_program("psql") {
        Ok(())
    } else {
        Err("psql: not found on this host; install the package postgresql-client, or postgresql of Red Hat".to_owned())
    }
}

/// Runs statements and returns the output.
pub(super) fn run(server: &PostgresqlServer, statements: &str) -> Result<String, String> {
    is_installed()?;
    let mut words: Vec<String> = ["psql", "-X", "-q", "-A", "-t", "-w", "-d", "postgres", "-v", "ON_ERROR_STOP=1"]
        .into_iter()
        .chain(["-v", "VERBOSITY=terse", "-f", "-", "-p"])
        .map(str::to_owned)
        .collect();
    words.push(server.port.to_string());
    if let Some(socket) = &server.socket {
        words.extend(["-h".to_owned(), socket.display().to_string()]);
    }
    let is_root = rustix::process::geteuid().is_root();
    let run_as = if is_root { Some(RunAs::find(&server.account, None)?) } else { None };
    let mut variables: BTreeMap<String, String> =
        [("PGCLIENTENCODING", "UTF8"), ("PGCONNECT_TIMEOUT", "10"), ("PGOPTIONS", OPTIONS), ("LC_ALL", "C.UTF-8")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    if let Some(run_as) = &run_as {
        run_as.add_to(&mut variables);
    }
    let words = words_as(run_as.as_ref(), &Command::Argv(words));
    let mut process = Process::new(&words[0]);
    process.args(&words[1..]).envs(variables).current_dir("/");
    let ran = run_bounded(&mut process, statements.as_bytes())?;
    if ran.code == Some(0) {
        return Ok(ran.out);
    }
    // `psql:<stdin>:1: ERROR:  …`, and `psql: error: connection to server …` with advice in the lines behind.
    let after = |mark: &str| ran.err.lines().find_map(|line| Some(line.split_once(mark)?.1.trim().to_owned()));
    Err(after("ERROR:")
        .or_else(|| after("psql: error:"))
        .map_or_else(|| ran.complaint(), |why| format!("PostgreSQL: {why}")))
}

/// The JSON that a query returns. `None`: it returns no row.
pub(super) fn row(server: &PostgresqlServer, query: &str) -> Result<Option<Value>, String> {
    let text = run(server, query)?;
    match text.trim() {
        "" => Ok(None),
        text => serde_json::from_str(text).map(Some).map_err(|error| format!("psql: {error}")),
    }
}

/// A name in a statement.
pub(super) fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in a statement.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
