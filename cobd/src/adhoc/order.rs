//! Validates an order to run a command, before the host acts on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cob_types::Command;
use cob_types::command_run::{DEFAULT_MS, LONGEST_LINE, LONGEST_MS, MOST_VARIABLES, RunOrder, shown};
use cob_types::words::span;

use crate::kinds::{RunAs, words_as};
use crate::web::{Refusal, RefusalKind};

/// The longest path of a working folder (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;
/// The longest name of a user (`LOGIN_NAME_MAX`).
const LONGEST_NAME: usize = 256;
/// Where a command runs whose order does not say.
const FOLDER: &str = "/";

/// An order that can be carried out here.
pub(super) struct Checked {
    pub(super) command: Command,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
    pub(super) timeout: Duration,
    pub(super) user: Option<String>,
    /// The command line as it is shown.
    pub(super) line: String,
}

/// Checks the parts that do not depend on this host.
pub(super) fn check(order: &RunOrder) -> Result<(), Refusal> {
    check_command(&order.command)?;
    check_variables(&order.env)?;
    let limit = order.timeout_ms.unwrap_or(DEFAULT_MS);
    if !(1..=LONGEST_MS).contains(&limit) {
        let longest = span(LONGEST_MS * 1_000_000);
        return Err(invalid(
            format!("the time limit of a command is from 1 ms to {longest}"),
            "give a shorter time limit",
        ));
    }
    if let Some(cwd) = &order.cwd
        && (!cwd.starts_with('/') || cwd.len() > LONGEST_PATH || cwd.contains('\0'))
    {
        return Err(invalid(
            format!("the working folder {cwd:?} is no absolute path"),
            "write an absolute path, from / on",
        ));
    }
    let is_name = |user: &str| {
        !user.is_empty() && user.len() <= LONGEST_NAME && !user.contains(|c: char| c.is_control() || ":/".contains(c))
    };
    match &order.user {
        Some(user) if !is_name(user) => Err(invalid(format!("{user:?} is no name of a user"), "")),
        Some(_) | None => Ok(()),
    }
}

fn check_command(command: &Command) -> Result<(), Refusal> {
    let (length, has_nul, is_empty) = match command {
        Command::Shell(line) => (line.len(), line.contains('\0'), line.trim().is_empty()),
        Command::Argv(words) => (
            words.iter().map(|word| word.len() + 1).sum(),
            words.iter().any(|word| word.contains('\0')),
            words.first().is_none_or(String::is_empty),
        ),
    };
    if is_empty {
        return Err(invalid("the command is empty".to_owned(), "name a program, or a line for the shell"));
    }
    if has_nul {
        return Err(invalid(
            "the command has a NUL character in it".to_owned(),
            "arguments of programs cannot contain NUL",
        ));
    }
    if length > LONGEST_LINE {
        let what = format!("the command line has {length} bytes; at most {LONGEST_LINE} are allowed");
        return Err(invalid(
            what,
            "put a script on the hosts (a change object of the kind `file-tree`), and run the script",
        ));
    }
    Ok(())
}

fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if variables.len() > MOST_VARIABLES {
        let what = format!("the order has {} variables; at most {MOST_VARIABLES} are allowed", variables.len());
        return Err(invalid(what, ""));
    }
    for (name, value) in variables {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !(name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())) {
            return Err(invalid(format!("{name:?} is no name of a variable"), "letters, digits and `_`"));
        }
        if name.starts_with("COB_") {
            return Err(invalid(
                format!("{name}: variables that begin with COB_ are the daemon's"),
                "choose another name",
            ));
        }
        if value.contains('\0') {
            return Err(invalid(format!("the variable {name} has a NUL character in it"), ""));
        }
    }
    Ok(())
}

impl Checked {
    /// Looks up user and folder on this host. The order has been [checked](check). Blocks.
    pub(super) fn of(order: RunOrder) -> Result<Self, Refusal> {
        let RunOrder { command, user, cwd, env, timeout_ms, .. } = order;
        let line = shown(&command);
        let mut environment = BTreeMap::new();
        let command = match &user {
            None => command,
            Some(user) => {
                let found = RunAs::look_up(user, None).map_err(|why| invalid(why, ""))?;
                let user = found.ok_or_else(|| invalid(format!("there is no user {user} on this host"), ""))?;
                user.add_to(&mut environment);
                as_user(&user, command)?
            }
        };
        environment.extend(env);
        let folder = PathBuf::from(cwd.unwrap_or_else(|| FOLDER.to_owned()));
        if !folder.is_dir() {
            return Err(invalid(format!("there is no folder {} on this host", folder.display()), ""));
        }
        let timeout = Duration::from_millis(timeout_ms.unwrap_or(DEFAULT_MS));
        Ok(Self { command, environment, folder, timeout, user, line })
    }
}

/// The command, by way of the program that becomes the user.
fn as_user(user: &RunAs, command: Command) -> Result<Command, Refusal> {
    let me = rustix::process::geteuid().as_raw();
    if user.uid() == me {
        return Ok(command);
    }
    if me != 0 {
        let what = "the daemon does not run as root and can't become another user".to_owned();
        return Err(invalid(what, "leave the user out"));
    }
    let words = words_as(Some(user), &command);
    Ok(Command::Argv(words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect()))
}

fn invalid(what: String, hint: &str) -> Refusal {
    Refusal::new(RefusalKind::Invalid, what, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(command: Command) -> RunOrder {
        RunOrder { command, run: None, user: None, cwd: None, env: BTreeMap::new(), timeout_ms: None, who: None }
    }

    fn argv(words: &[&str]) -> RunOrder {
        order(Command::Argv(words.iter().map(|word| (*word).to_owned()).collect()))
    }

    #[test]
    fn orders_within_the_limits_are_taken() {
        let env = BTreeMap::from([("A_1".to_owned(), "x y".to_owned())]);
        for good in [
            argv(&["true"]),
            argv(&["echo", ""]),
            argv(&["x", &"y".repeat(LONGEST_LINE - 3)]),
            order(Command::Shell("a | b".to_owned())),
            RunOrder { env, cwd: Some("/tmp".to_owned()), timeout_ms: Some(LONGEST_MS), ..argv(&["true"]) },
            RunOrder { user: Some("www-data".to_owned()), ..argv(&["true"]) },
        ] {
            assert_eq!(check(&good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn orders_beyond_the_limits_are_refused_with_the_reason() {
        let variable = |name: &str, value: &str| RunOrder {
            env: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..argv(&["true"])
        };
        let many = (0..=MOST_VARIABLES).map(|n| (format!("V{n}"), String::new())).collect();
        for (bad, why) in [
            (argv(&[]), "empty"),
            (argv(&["", "x"]), "empty"),
            (order(Command::Shell(" \n".to_owned())), "empty"),
            (argv(&["a\0b"]), "NUL"),
            (argv(&["x", &"y".repeat(LONGEST_LINE - 2)]), "are allowed"),
            (order(Command::Shell("y".repeat(LONGEST_LINE + 1))), "are allowed"),
            (RunOrder { timeout_ms: Some(LONGEST_MS + 1), ..argv(&["true"]) }, "time limit"),
            (RunOrder { timeout_ms: Some(0), ..argv(&["true"]) }, "time limit"),
            (RunOrder { cwd: Some("tmp".to_owned()), ..argv(&["true"]) }, "absolute"),
            (RunOrder { user: Some("a:b".to_owned()), ..argv(&["true"]) }, "name of a user"),
            (RunOrder { user: Some(String::new()), ..argv(&["true"]) }, "name of a user"),
            (RunOrder { env: many, ..argv(&["true"]) }, "variables"),
            (variable("1A", ""), "name of a variable"),
            (variable("A=B", ""), "name of a variable"),
            (variable("COB_JOB", "x"), "daemon's"),
            (variable("A", "\0"), "NUL"),
        ] {
            let refused = check(&bad).expect_err(why);
            assert!(refused.kind == RefusalKind::Invalid && refused.error.contains(why), "{}", refused.error);
        }
    }

    #[test]
    fn a_user_or_folder_that_is_not_there_is_named() {
        let user = RunOrder { user: Some("nobody-of-this-name".to_owned()), ..argv(&["true"]) };
        let folder = RunOrder { cwd: Some("/missing/folder".to_owned()), ..argv(&["true"]) };
        for (order, why) in [(user, "no user nobody-of-this-name"), (folder, "no folder /missing/folder")] {
            let refused = Checked::of(order).err().expect(why);
            assert!(refused.error.contains(why), "{}", refused.error);
        }
    }
}
