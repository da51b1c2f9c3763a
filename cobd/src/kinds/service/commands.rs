//! Runs a service's own commands: `start`, `stop`, `status`, `reload`, `ready`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_types::Command;
use serde::{Deserialize, Serialize};

use super::folder::{COMMANDS, Plan};
use crate::clock::wall_ns;
use crate::kinds::native::run_bounded;
use crate::run::endings;
use crate::run::supervise::{self, Group, Rest, Watch};
use crate::run::{Exit, JOB_VARIABLE, OutputFile, Redactor, base_environment, escape, tail};

/// Marks the processes of a command, among other processes in its session.
const COMMAND_VARIABLE: &str = "COB_COMMAND";
/// The time limit of an attempt of `ready` or `status`.
pub(super) const ATTEMPT: Duration = Duration::from_secs(10);
/// The pause between two looks at a running command.
const LOOK: Duration = Duration::from_millis(500);
/// The most output bytes of a service that are shown if it does not start.
pub(super) const SHOWN: usize = 2 << 10;
/// The most output lines that are appended to a reason.
const LAST_WORDS: usize = 3;

/// The answer of `status`.
pub(super) enum Status {
    Runs,
    Stopped,
    /// Unknown, with the reason: it did not end in time, or could not be executed.
    Unknown(String),
}

impl Status {
    /// Reads the end of `status`. If the end is no answer, `why` returns the reason.
    pub(super) fn of(exit: &Exit, why: impl FnOnce() -> String) -> Self {
        match exit {
            Exit::Exited(0) => Self::Runs,
            // The shell's exit status for a program that can't be executed or does not exist.
            Exit::Exited(126 | 127) => Self::Unknown(why()),
            Exit::Exited(_) => Self::Stopped,
            Exit::Signal(_) | Exit::TimedOut | Exit::Cancelled | Exit::SpawnFailed(_) | Exit::Lost => {
                Self::Unknown(why())
            }
        }
    }
}

/// The user of a service's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunAs {
    user: String,
    uid: u32,
    /// The group in the content, or the user's primary group.
    gid: String,
    home: String,
}

impl RunAs {
    /// Finds the user in all sources of this host.
    ///
    /// # Errors
    /// The reason as text, with advice.
    pub(crate) fn find(user: &str, group: Option<&str>) -> Result<Self, String> {
        Self::look_up(user, group)?.ok_or_else(|| {
            format!(
                "there is no user {user} on this host; let the service `require` a change object of the kind `user`"
            )
        })
    }

    /// The same; absent: the host has no user of this name.
    ///
    /// # Errors
    /// In words, when this host can't be asked.
    pub(crate) fn look_up(user: &str, group: Option<&str>) -> Result<Option<Self>, String> {
        let mut asked = std::process::Command::new("getent");
        let answer = run_bounded(asked.args(["passwd", "--", user]), b"")?;
        let fields: Vec<&str> = answer.out.trim_end().split(':').collect();
        let (Some(Ok(uid)), Some(gid), Some(home)) =
            (fields.get(2).map(|uid| uid.parse()), fields.get(3), fields.get(5))
        else {
            return Ok(None);
        };
        let gid = group.unwrap_or(gid).to_owned();
        Ok(Some(Self { user: user.to_owned(), uid, gid, home: (*home).to_owned() }))
    }

    /// The number of the user.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// The words before a program that run it as this user.
    pub(crate) fn words(&self) -> [OsString; 5] {
        let of = |key: &str, value: &str| OsString::from(format!("--{key}={value}"));
        let uid = self.uid.to_string();
        ["setpriv".into(), of("reuid", &uid), of("regid", &self.gid), "--init-groups".into(), "--".into()]
    }

    /// Adds the user's variables to the environment of the program.
    pub(crate) fn add_to(&self, environment: &mut BTreeMap<String, String>) {
        let known = [("HOME", &self.home), ("USER", &self.user), ("LOGNAME", &self.user)];
        environment.extend(known.map(|(name, value)| (name.to_owned(), value.clone())));
    }
}

/// The words to execute for a command, as this user.
pub(crate) fn words_as(run_as: Option<&RunAs>, command: &Command) -> Vec<OsString> {
    let mut words: Vec<OsString> = run_as.into_iter().flat_map(RunAs::words).collect();
    words.extend(supervise::words(command));
    words
}

/// The inputs for running a service's commands.
pub(super) struct Commands {
    /// The folder for the output file.
    pub(super) place: PathBuf,
    pub(super) working_folder: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
    /// Redacts the values of secrets in shown text. `None`: there are no secrets.
    pub(super) redactor: Option<Redactor>,
    pub(super) grace: Duration,
    /// The user for `start`, `stop` and `reload`. `None`: the daemon's user.
    pub(super) run_as: Option<RunAs>,
}

impl Commands {
    /// The inputs for the commands of a plan. `here` are the inputs for the present content.
    pub(super) fn of(plan: &Plan, here: &Self) -> Self {
        // The folder of the plan's files may be gone.
        let folder = if plan.working_folder.is_dir() { &plan.working_folder } else { &here.working_folder };
        Self {
            place: here.place.clone(),
            working_folder: folder.clone(),
            environment: plan.environment.clone(),
            redactor: None,
            grace: Duration::from_millis(plan.grace_ms),
            run_as: plan.run_as.clone(),
        }
    }

    /// Runs a short command. The error is the reason of its failure.
    pub(super) fn run(&self, command: &Command, limit: Instant) -> Result<(), String> {
        let exit = self.end_of(&supervise::words(command), limit.min(Instant::now() + ATTEMPT), &[])?;
        if exit == Exit::Exited(0) { Ok(()) } else { Err(self.complaint(&exit)) }
    }

    /// Runs `status`.
    pub(super) fn ask(&self, status: &Command, limit: Instant) -> Status {
        match self.end_of(&supervise::words(status), limit.min(Instant::now() + ATTEMPT), &[]) {
            Ok(exit) => Status::of(&exit, || self.complaint(&exit)),
            Err(why) => Status::Unknown(why),
        }
    }

    /// Runs a command as the service's user, with additional variables. The error is the reason of its failure.
    pub(super) fn run_until(
        &self,
        command: &Command,
        limit: Instant,
        variables: &[(String, String)],
    ) -> Result<(), String> {
        let exit = self.end_of(&words_as(self.run_as.as_ref(), command), limit, variables)?;
        if exit == Exit::Exited(0) { Ok(()) } else { Err(self.complaint(&exit)) }
    }

    /// Runs a command to its end. The error is the reason why it did not start.
    fn end_of(&self, words: &[OsString], limit: Instant, variables: &[(String, String)]) -> Result<Exit, String> {
        let (program, arguments) = words.split_first().ok_or("an empty command")?;
        let mut output = [OutputFile::open(&self.place, COMMANDS).map_err(|e| e.to_string())?];
        let mut child = std::process::Command::new(program);
        child.args(arguments).current_dir(&self.working_folder);
        child.env_clear().envs(&self.environment).envs(variables.iter().cloned());
        // A command within an action ends with the action and with its own time limit.
        child.envs(std::env::var_os(JOB_VARIABLE).map(|folder| (JOB_VARIABLE, folder)));
        let own = format!("{}.{}", std::process::id(), wall_ns());
        child.env(COMMAND_VARIABLE, &own);
        let mark = format!("{COMMAND_VARIABLE}={own}");
        let group = Group::begin(&mut child, [&output[0], &output[0]])
            .map_err(|e| supervise::why_not_begun(words, &self.working_folder, &e))?;
        // `start` and `stop` of an external service may leave background processes.
        let watch = Watch { asked: &|| false, alarm: None, longest: LOOK, rest: Rest::Leave, mark: Some(&mark) };
        let ended = group.wait(&mut output, Some(limit), self.grace, &watch);
        // The file is not replaced, because background processes continue to write into it.
        let [mut output] = output;
        output.bound();
        Ok(ended.map_or(Exit::Lost, |(status, ended)| supervise::exit(status, ended)))
    }

    /// The end of a command, with its last output line.
    fn complaint(&self, exit: &Exit) -> String {
        let how = match exit {
            Exit::Exited(code) => format!("exit status {code}"),
            Exit::Signal(number) => format!("ended by {}", endings::signal(*number)),
            Exit::TimedOut | Exit::Cancelled => "took too long".to_owned(),
            Exit::SpawnFailed(_) | Exit::Lost => return "its end is not known".to_owned(),
        };
        how + &last_line(&self.said(&self.place.join(COMMANDS)))
    }

    /// The last output lines of commands, to append to a reason.
    pub(super) fn last_said(&self) -> String {
        last_words(&self.said(&self.place.join(COMMANDS)))
    }

    /// The end of an output file, with the values of secrets redacted.
    pub(super) fn said(&self, path: &Path) -> String {
        self.redactor.as_ref().map_or_else(|| tail(path, SHOWN), |redactor| redactor.tail(path, SHOWN))
    }
}

/// The environment of a service and its commands: the common variables of actions, the service's own variables, and its
/// ids.
pub(super) fn environment(own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = base_environment();
    all.extend(own.clone());
    let known = |name: &str| std::env::var(name).ok().map(|value| (name.to_owned(), value));
    all.extend(["COB_ID", "COB_HOST", "COB_STATE_DIR"].into_iter().filter_map(known));
    all
}

/// The last lines that are not empty, to append to a reason. The very last line is often only a link to a manual.
pub(super) fn last_words(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.dedup();
    let last = &lines[lines.len().saturating_sub(LAST_WORDS)..];
    let cut = |line: &&str| escape(&line.chars().take(200).collect::<String>());
    if last.is_empty() { String::new() } else { format!(": {}", last.iter().map(cut).collect::<Vec<_>>().join(" / ")) }
}

/// The last line that is not empty, to append to a reason.
pub(in crate::kinds) fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|l| !l.is_empty());
    last.map(|l| format!(": {}", escape(&l.chars().take(200).collect::<String>()))).unwrap_or_default()
}
