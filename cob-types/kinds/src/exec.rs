//! The kind `exec`: a command that is run if its work is not done yet.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cob_types::Command;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::commands::{CommandSchema, KindTime, check_account, check_variables};
use super::{Builtin, Content, Faults, Place, Scalar, TIMEOUT_MS};

/// The content of `exec`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-instead" = instead()))]
pub struct Exec {
    /// The command: a text for the shell, or a list of words. Without the four keys below it runs once, and again when
    /// it changes.
    #[schemars(with = "CommandSchema")]
    pub command: Command,
    /// The work is done while this path exists.
    pub creates: Option<PathBuf>,
    /// The work is done while this path does not exist.
    pub removes: Option<PathBuf>,
    /// The work is done while this command succeeds.
    #[schemars(with = "Option<CommandSchema>")]
    pub unless: Option<Command>,
    /// There is work only while this command succeeds.
    #[schemars(with = "Option<CommandSchema>")]
    pub only_if: Option<Command>,
    /// Takes the work back when the change object leaves; default: the work stays.
    #[schemars(with = "Option<CommandSchema>")]
    pub undo: Option<Command>,
    /// Runs once, before the first run of the command; the command and `undo` find its output in `COB_SAVED`.
    #[schemars(with = "Option<CommandSchema>")]
    pub save: Option<Command>,
    /// Runs after the change object and all that leaves with it have left, without `env`.
    #[schemars(with = "Option<CommandSchema>")]
    pub after_departure: Option<Command>,
    /// The user of all these commands; default: root.
    pub user: Option<String>,
    /// With `user`: the group; default: that of the user.
    pub group: Option<String>,
    /// The working folder, absolute; default: where the files that travel with it are.
    pub dir: Option<PathBuf>,
    /// Variables of the environment; numbers, as they are written, and truth values become texts.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, Scalar>", extend("x-texts" = true))]
    pub env: BTreeMap<String, String>,
    /// The time that the command may take; default: 5m.
    #[schemars(with = "Option<KindTime>")]
    pub timeout: Option<String>,
    /// Between asking it to end and killing it; default: 10s.
    #[schemars(with = "Option<KindTime>")]
    pub grace: Option<String>,
    /// How often a failed command is tried again; default: 2.
    pub retries: Option<u32>,
    /// Before the first retry; default: 1s.
    #[schemars(with = "Option<KindTime>")]
    pub retry_delay: Option<String>,
}

/// The right keys for keys of other tools.
fn instead() -> Json {
    let named: [(&[&str], &str); 6] = [
        (&["cmd", "run", "exec", "shell", "argv", "script"], "`command` is the command, a text or a list of words"),
        (&["cwd", "chdir", "workdir", "working_dir"], "`dir` is the working folder"),
        (&["onlyif", "when", "if"], "`only_if` is a command: there is work only while it succeeds"),
        (&["environment", "variables", "vars"], "`env` has the variables: `{PORT: \"80\"}`"),
        (&["become", "become_user", "run_as"], "`user` is the user of the commands"),
        (
            &["refreshonly", "notify", "subscribe", "requires", "after", "restarts_on"],
            "dependencies stand beside `content`; with `restarts_on: [X]` the command runs again when X changes",
        ),
    ];
    let all = named.into_iter().flat_map(|(keys, help)| keys.iter().map(move |key| ((*key).to_owned(), help.into())));
    Json::Object(all.collect())
}

impl Content for Exec {
    /// It is `present` while its work is done.
    const KIND: Builtin =
        Builtin { timeout_ms: TIMEOUT_MS, interval_ms: Some(300_000), restores: false, ..Builtin::setting("exec") };

    fn check(&self, faults: &mut Faults) {
        let commands = [
            ("command", Some(&self.command)),
            ("unless", self.unless.as_ref()),
            ("only_if", self.only_if.as_ref()),
            ("undo", self.undo.as_ref()),
            ("save", self.save.as_ref()),
            ("after_departure", self.after_departure.as_ref()),
        ];
        for (key, command) in commands {
            if command.is_some_and(is_empty) {
                faults.add_as("empty-command", key, format!("`{key}` is empty"), "write a command, or remove the key");
            }
        }
        faults.check_absolute("creates", self.creates.as_ref());
        faults.check_absolute("removes", self.removes.as_ref());
        faults.check_absolute("dir", self.dir.as_ref());
        if self.creates.is_some() && self.creates == self.removes {
            let what = "`creates` and `removes` name the same path: the work would always be done";
            faults.add(Place::Key("removes"), what, "remove `creates` or `removes`");
        }
        check_account(self.user.as_deref(), self.group.as_deref(), faults);
        check_variables(&self.env, faults);
    }
}

/// Whether a command has no words.
pub(super) fn is_empty(command: &Command) -> bool {
    match command {
        Command::Shell(text) => text.trim().is_empty(),
        Command::Argv(words) => words.first().is_none_or(|program| program.trim().is_empty()),
    }
}
