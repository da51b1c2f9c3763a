//! The kind back end `exec`: a command that is run if its work is not done yet.
//!
//! Conditions (`creates`, `removes`, `unless`, `only_if`) say whether there is work. Without conditions, a note in the
//! change object's own folder says which command has run. The note is written before the command starts, so a killed
//! command is known. It also has the output of `save`, which runs once, before the first run of the command.
//!
//! | state | note | work |
//! | --- | --- | --- |
//! | `absent` | no note | the difference says whether the command would run |
//! | `present` | a note | done |
//! | `outdated` | a note | to be done (again), or the command was changed, has failed or was interrupted |

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command as Process, ExitStatus, Stdio};

use cob_kinds::{Content as _, Exec};
use cob_types::message::Values;
use cob_types::{CobId, Command, canonical};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_with::skip_serializing_none;

use super::backend::TransitionAttempt;
use super::departure::Attempt;
use super::exec_departure::{self, After};
use super::native::{Call, Found, Made, NOTE, Native, note, run_bounded};
use super::service::{RunAs, words_as};
use crate::run::endings;

/// The longest output of `save` that is kept.
const MAX_SAVED: usize = 64 << 10;

/// The back end `exec`.
#[derive(Debug)]
pub(super) struct ExecKind;

/// What is known about earlier runs.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// A hash of the command with its user, folder and variables.
    command: String,
    run: Run,
    /// What `save` found before the first run.
    saved: Option<Saved>,
}

/// The earlier value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    /// The exit status of `save`.
    status: i32,
    /// Its output, without line ends at the end.
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Run {
    /// The command was started. Its end is not known, or it has failed.
    Begun,
    /// The command has succeeded.
    Succeeded,
    /// The work was done already: the command was not run.
    NotNeeded,
}

/// What the conditions say, with the reason.
enum Work {
    Done(String),
    ToDo(String),
    /// There is no condition.
    NoCondition,
}

impl Native for ExecKind {
    fn name(&self) -> &'static str {
        Exec::KIND.name
    }

    fn states(&self) -> &'static [&'static str] {
        Exec::KIND.states
    }

    fn accept(&self, content: &str) -> Result<(), String> {
        cob_kinds::read::<Exec>(content).map(|_| ())
    }

    fn check(&self, call: &Call) -> Result<Found, String> {
        let exec = Executable::of(call)?;
        let Some(noted) = note::read::<Note>(&call.own)? else { return Ok(exec.unmanaged(call.observed)) };
        Ok(match exec.work()? {
            // The transition notes the end; it does not run the command again.
            Work::Done(_) if noted.run == Run::Begun => {
                Found::differing("outdated", "the last run of the command has failed or was interrupted")
            }
            Work::Done(_) => Found::state("present"),
            Work::ToDo(why) => Found::differing("outdated", format!("the command would run: {why}")),
            Work::NoCondition => match exec.reason_to_repeat(&noted) {
                None => Found::state("present"),
                Some(why) => Found::differing("outdated", format!("the command would run: {why}")),
            },
        })
    }

    fn make(&self, call: &Call, attempt: &TransitionAttempt) -> Made {
        let made = Executable::of(call).and_then(|exec| match attempt.to.as_str() {
            "present" => {
                // The command of an earlier departure must not run beside the command.
                exec_departure::end(&call.own, call.timeout() / 2)?;
                exec.present(call, attempt)
            }
            "absent" => exec.absent(call),
            other => Err(format!("it has no transition to {other}")),
        });
        made.map(|()| Values::new()).into()
    }

    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, exec_departure::AFTER]
    }

    fn departed(&self, own: &Path, cob: &CobId) -> Option<Attempt> {
        exec_departure::attempt(own.to_owned(), cob)
    }

    fn is_here(&self, own: &Path) -> Result<(), String> {
        exec_departure::forget(own)
    }
}

/// A content, ready to run its commands.
struct Executable {
    content: Exec,
    /// A hash of the command with its user, folder and variables.
    command: String,
}

impl Executable {
    fn of(call: &Call) -> Result<Self, String> {
        let content: Exec = cob_kinds::parse(&call.content)?;
        let Exec { command, user, group, dir, env, .. } = &content;
        let work = json!([command, user, group, dir, env]);
        let command = canonical::fingerprint(&[canonical::json(&work).as_bytes()]).to_string();
        Ok(Self { content, command })
    }

    /// The state without a note. In observe mode, done work counts, no matter which program did it.
    fn unmanaged(&self, observed: bool) -> Found {
        match self.work() {
            Ok(Work::Done(_)) if observed => Found::state("present"),
            Ok(Work::Done(why)) => Found::differing("absent", format!("the command would not run: {why}")),
            Ok(Work::ToDo(why)) => Found::differing("absent", format!("the command would run: {why}")),
            Ok(Work::NoCondition) => Found::differing("absent", "the command would run: it has not run yet"),
            Err(why) => Found::differing("absent", format!("it can't be told whether the command would run: {why}")),
        }
    }

    /// Why a command without conditions runs again.
    fn reason_to_repeat(&self, note: &Note) -> Option<&'static str> {
        match note.run {
            Run::Begun => Some("its last run has failed or was interrupted"),
            Run::Succeeded | Run::NotNeeded if note.command != self.command => Some("it was changed"),
            Run::Succeeded | Run::NotNeeded => None,
        }
    }

    /// Whether there is work, by the conditions.
    fn work(&self) -> Result<Work, String> {
        let Exec { creates, removes, unless, only_if, .. } = &self.content;
        let mut to_do = Vec::new();
        for (path, wanted) in creates.iter().map(|path| (path, true)).chain(removes.iter().map(|path| (path, false))) {
            let is_there = exists(path)?;
            let is = if is_there { "exists" } else { "does not exist" };
            let why = format!("{} {is}", path.display());
            if is_there == wanted {
                return Ok(Work::Done(why));
            }
            to_do.push(why);
        }
        let unless = unless.iter().map(|command| ("unless", command, true));
        let only_if = only_if.iter().map(|command| ("only_if", command, false));
        for (key, command, done_if) in unless.chain(only_if) {
            let succeeds = self.condition(key, command)?;
            let why = format!("`{key}` {}", if succeeds { "succeeds" } else { "fails" });
            if succeeds == done_if {
                return Ok(Work::Done(why));
            }
            to_do.push(why);
        }
        Ok(if to_do.is_empty() { Work::NoCondition } else { Work::ToDo(to_do.join(", ")) })
    }

    /// Whether the command of a condition succeeds.
    fn condition(&self, key: &str, command: &Command) -> Result<bool, String> {
        let status = self.run(command, None)?;
        match status.code() {
            // The shell's exit status for a program that can't be executed or does not exist.
            Some(code @ (126 | 127)) => Err(format!("`{key}` can't be run: exit status {code}")),
            Some(code) => Ok(code == 0),
            None => Err(format!("`{key}` was {}", ending(status))),
        }
    }

    fn present(&self, call: &Call, attempt: &TransitionAttempt) -> Result<(), String> {
        let noted = note::read::<Note>(&call.own)?;
        let is_needed = match self.work()? {
            Work::Done(_) => false,
            Work::ToDo(_) => true,
            // From `outdated` the command runs also without a change of its own: its dependencies have changed.
            Work::NoCondition => {
                attempt.from.as_str() == "outdated"
                    || noted.as_ref().is_none_or(|noted| self.reason_to_repeat(noted).is_some())
            }
        };
        if !is_needed {
            // A run of an earlier attempt, or of an earlier content, stays on record: its work can be taken back.
            let run = noted.as_ref().map_or(Run::NotNeeded, |noted| match noted.run {
                Run::Begun | Run::Succeeded => Run::Succeeded,
                Run::NotNeeded => Run::NotNeeded,
            });
            return note::write(&call.own, &self.note(run, noted.and_then(|noted| noted.saved)));
        }
        // After a run of the command, the earlier value is known or lost.
        let is_first = noted.as_ref().is_none_or(|noted| noted.run == Run::NotNeeded);
        let saved = if is_first { self.save()? } else { noted.and_then(|noted| noted.saved) };
        note::write(&call.own, &self.note(Run::Begun, saved.clone()))?;
        self.succeed("the command", &self.content.command, saved.as_ref())?;
        if let Work::ToDo(why) = self.work()? {
            return Err(format!("the command has succeeded, but its work is not done: {why}"));
        }
        note::write(&call.own, &self.note(Run::Succeeded, saved))
    }

    fn absent(&self, call: &Call) -> Result<(), String> {
        let Some(noted) = note::read::<Note>(&call.own)? else { return Ok(()) };
        let has_run = noted.run != Run::NotNeeded;
        if let Some(undo) = self.content.undo.as_ref().filter(|_| has_run) {
            self.succeed("`undo`", undo, noted.saved.as_ref())?;
        }
        if let Some(after) = self.content.after_departure.clone().filter(|_| has_run && call.leaving) {
            let Exec { user, group, dir, .. } = self.content.clone();
            let (variables, timeout_ms) = (variables_of(noted.saved.as_ref()), call.timeout_ms());
            After { command: after, user, group, dir, variables, timeout_ms }.write(&call.own)?;
        }
        note::delete(&call.own)
    }

    fn note(&self, run: Run, saved: Option<Saved>) -> Note {
        Note { command: self.command.clone(), run, saved }
    }

    /// Runs `save` and keeps its output.
    fn save(&self) -> Result<Option<Saved>, String> {
        let Some(command) = &self.content.save else { return Ok(None) };
        let ran = run_bounded(&mut self.process(command, None)?, b"")?;
        match ran.code {
            Some(code @ (126 | 127)) => Err(format!("`save` can't be run: exit status {code}")),
            Some(_) if ran.out.len() > MAX_SAVED => {
                Err(format!("the output of `save` is longer than {MAX_SAVED} bytes"))
            }
            Some(_) if ran.out.contains(['\0', char::REPLACEMENT_CHARACTER]) => {
                Err("the output of `save` is no text in UTF-8".to_owned())
            }
            Some(status) => Ok(Some(Saved { status, text: ran.out.trim_end_matches('\n').to_owned() })),
            None => Err("`save` was ended by a signal".to_owned()),
        }
    }

    fn succeed(&self, what: &str, command: &Command, saved: Option<&Saved>) -> Result<(), String> {
        let status = self.run(command, saved)?;
        if status.success() { Ok(()) } else { Err(format!("{what} has failed: {}", ending(status))) }
    }

    /// Runs a command. Its output is that of this process.
    fn run(&self, command: &Command, saved: Option<&Saved>) -> Result<ExitStatus, String> {
        let mut process = self.process(command, saved)?;
        let program = process.get_program().to_string_lossy().into_owned();
        process.stdin(Stdio::null()).status().map_err(|error| format!("{program}: {error}"))
    }

    /// A process with the user, folder and variables of the content.
    fn process(&self, command: &Command, saved: Option<&Saved>) -> Result<Process, String> {
        let Exec { user, group, dir, env, .. } = &self.content;
        let run_as = user.as_ref().map(|user| RunAs::find(user, group.as_deref())).transpose()?;
        let mut variables = BTreeMap::new();
        if let Some(run_as) = &run_as {
            run_as.add_to(&mut variables);
        }
        variables.extend(env.clone());
        variables.extend(variables_of(saved));
        let words = words_as(run_as.as_ref(), command);
        let mut process = Process::new(&words[0]);
        process.args(&words[1..]).envs(variables);
        if let Some(dir) = dir {
            if !dir.is_dir() {
                return Err(format!("the working folder {} does not exist", dir.display()));
            }
            process.current_dir(dir);
        }
        Ok(process)
    }
}

/// The variables about the earlier value.
fn variables_of(saved: Option<&Saved>) -> BTreeMap<String, String> {
    let all =
        saved.map(|Saved { status, text }| [("COB_SAVED", text.clone()), ("COB_SAVED_STATUS", status.to_string())]);
    all.into_iter().flatten().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn exists(path: &Path) -> Result<bool, String> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// How a process has ended.
pub(super) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by {}", endings::signal(signal)),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

#[cfg(test)]
#[path = "exec_test.rs"]
mod tests;
