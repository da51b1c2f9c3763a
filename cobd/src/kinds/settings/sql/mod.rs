//! The common part of the kinds of database servers: client programs, their answers, and texts in statements.
//!
//! Statements go through the standard input of the client, so that no argument has them, and answers are JSON. [`aside`]
//! is the absence of an object, which waits under another name, [`grants`] are the privileges on objects.

pub(super) mod aside;
pub(super) mod grants;

use std::collections::BTreeMap;
use std::process::Command as Process;

use cob_types::Command;
use serde_json::{Map, Value};

use crate::kinds::native::{Ran, run_bounded};
use crate::kinds::service::{RunAs, words_as};

/// Runs a client as an account of the host, with statements on its standard input.
///
/// # Errors
/// The reason as text: the account does not exist, or the client can't be started.
pub(super) fn run_client(
    words: Vec<String>,
    account: &str,
    variables: &[(&str, &str)],
    statements: &str,
) -> Result<Ran, String> {
    let is_root = rustix::process::geteuid().is_root();
    let run_as = if is_root { Some(RunAs::find(account, None)?) } else { None };
    let mut environment: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    if let Some(run_as) = &run_as {
        run_as.add_to(&mut environment);
    }
    let words = words_as(run_as.as_ref(), &Command::Argv(words));
    let mut process = Process::new(&words[0]);
    process.args(&words[1..]).envs(environment).current_dir("/");
    run_bounded(&mut process, statements.as_bytes())
}

/// The rows of an answer; each is a JSON value.
///
/// # Errors
/// The answer is too long, or no JSON.
pub(super) fn rows(answer: &str) -> Result<Vec<Value>, String> {
    let rows: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(answer).into_iter().collect();
    rows.map_err(|error| format!("the answer of the server can't be read, or has more than 1 MiB: {error}"))
}

/// The reason why a server can't be reached, with the remedy. `service`: its usual unit.
pub(super) fn unreachable(server: &str, why: &str, service: &str) -> String {
    format!("{server}: {why}; start the service {service}, and let this change object `require` its change object")
}

/// Checks that every client would send the same bytes for a password: other characters have several forms.
///
/// # Errors
/// The fault, without the password.
pub(super) fn check_password(password: &str) -> Result<(), String> {
    if password.is_empty() || !password.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
        return Err("the password must consist of printable ASCII characters".to_owned());
    }
    Ok(())
}

/// A content for a note, without passwords.
pub(super) fn without_secrets(content: &str) -> String {
    let Ok(mut content) = serde_json::from_str::<Map<String, Value>>(content) else { return "{}".to_owned() };
    for key in ["password", "password_hash"] {
        if let Some(secret) = content.get_mut(key) {
            *secret = "not noted".into();
        }
    }
    Value::Object(content).to_string()
}

/// A text in a statement.
pub(super) fn literal(text: &str) -> String {
    quoted('\'', text)
}

/// A text between quotes.
pub(super) fn quoted(quote: char, text: &str) -> String {
    let mut quoted = String::from(quote);
    for c in text.chars() {
        quoted.extend(std::iter::repeat_n(c, if c == quote { 2 } else { 1 }));
    }
    quoted.push(quote);
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text between quotes, and the rest behind it, as a server reads both.
    fn unquoted(quote: char, statement: &str) -> Option<(String, &str)> {
        let mut text = String::new();
        let mut rest = statement.strip_prefix(quote)?;
        loop {
            let (before, after) = rest.split_once(quote)?;
            text.push_str(before);
            match after.strip_prefix(quote) {
                Some(after) => {
                    text.push(quote);
                    rest = after;
                }
                None => return Some((text, after)),
            }
        }
    }

    proptest! {
        #[test]
        fn a_quoted_text_ends_where_it_should(text in r#"['"`;\\ a-z_.*%-]{0,12}|.{0,12}"#, quote in r#"['"`]"#) {
            let quote = quote.chars().next().expect("one");
            let statement = quoted(quote, &text) + "; DROP";
            prop_assert_eq!(unquoted(quote, &statement), Some((text, "; DROP")));
        }
    }
}
