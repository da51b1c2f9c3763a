//! Running a service's own commands: `start`, `stop`, `status`, `reload`, `ready`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_types::Command;

use super::folder::{COMMANDS, Plan};
use crate::run::supervise::{self, Group, Rest, Watch};
use crate::run::{Exit, JOB_VARIABLE, OutputFile, Redactor, base_environment, escape, now_ns, tail};

/// Tells the processes of one command from those of others in its session.
const COMMAND_VARIABLE: &str = "COB_COMMAND";
/// One attempt of `ready` or `status` may take this long.
pub(super) const ATTEMPT: Duration = Duration::from_secs(10);
/// Between two looks at a command that runs.
const LOOK: Duration = Duration::from_millis(500);
/// This much of what a service said is shown when it does not start.
const SHOWN: usize = 2 << 10;

/// What `status` says.
pub(super) enum Status {
    Runs,
    Stopped,
    /// Neither, and why: it did not end in time, or could not be executed.
    Unknown(String),
}

impl Status {
    /// What its end says; `why` is asked where that says nothing.
    pub(super) fn of(exit: &Exit, why: impl FnOnce() -> String) -> Self {
        match exit {
            Exit::Exited(0) => Self::Runs,
            // The shell's own words for what can't be executed, or is not there.
            Exit::Exited(126 | 127) => Self::Unknown(why()),
            Exit::Exited(_) => Self::Stopped,
            Exit::Signal(_) | Exit::TimedOut | Exit::Cancelled | Exit::SpawnFailed(_) | Exit::Lost => {
                Self::Unknown(why())
            }
        }
    }
}

/// What commands of a service need to be run.
pub(super) struct Commands {
    /// Where what they print is written.
    pub(super) place: PathBuf,
    pub(super) working_folder: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
    /// Takes the values of secrets out of what is shown; none: there are no secrets.
    pub(super) redactor: Option<Redactor>,
    pub(super) grace: Duration,
}

impl Commands {
    /// What commands of a plan need to be run, where these are run.
    pub(super) fn of(plan: &Plan, here: &Self) -> Self {
        // The files that travelled with it may have gone.
        let folder = if plan.working_folder.is_dir() { &plan.working_folder } else { &here.working_folder };
        Self {
            place: here.place.clone(),
            working_folder: folder.clone(),
            environment: plan.environment.clone(),
            redactor: None,
            grace: Duration::from_millis(plan.grace_ms),
        }
    }

    /// Runs a command that takes a moment; the error says why it did not succeed.
    pub(super) fn run(&self, command: &Command, limit: Instant) -> Result<(), String> {
        self.run_until(command, limit.min(Instant::now() + ATTEMPT), &[])
    }

    /// Runs `status`.
    pub(super) fn ask(&self, status: &Command, limit: Instant) -> Status {
        match self.end_of(status, limit.min(Instant::now() + ATTEMPT), &[]) {
            Ok(exit) => Status::of(&exit, || self.complaint(&exit)),
            Err(why) => Status::Unknown(why),
        }
    }

    /// Runs a command, with further variables; the error says why it did not succeed.
    pub(super) fn run_until(
        &self,
        command: &Command,
        limit: Instant,
        variables: &[(String, String)],
    ) -> Result<(), String> {
        let exit = self.end_of(command, limit, variables)?;
        if exit == Exit::Exited(0) { Ok(()) } else { Err(self.complaint(&exit)) }
    }

    /// Runs a command to its end; the error says why it could not be begun.
    fn end_of(&self, command: &Command, limit: Instant, variables: &[(String, String)]) -> Result<Exit, String> {
        let words = supervise::words(command);
        let (program, arguments) = words.split_first().ok_or("an empty command")?;
        let mut output = [OutputFile::open(&self.place, COMMANDS).map_err(|e| e.to_string())?];
        let mut child = std::process::Command::new(program);
        child.args(arguments).current_dir(&self.working_folder);
        child.env_clear().envs(&self.environment).envs(variables.iter().cloned());
        // Within an action it ends with that, and with its own time.
        child.envs(std::env::var_os(JOB_VARIABLE).map(|folder| (JOB_VARIABLE, folder)));
        let own = format!("{}.{}", std::process::id(), now_ns());
        child.env(COMMAND_VARIABLE, &own);
        let mark = format!("{COMMAND_VARIABLE}={own}");
        let group = Group::begin(&mut child, [&output[0], &output[0]])
            .map_err(|e| supervise::why_not_begun(&words, &self.working_folder, &e))?;
        // `start` and `stop` of a service that looks after itself may leave it in the background.
        let watch = Watch { asked: &|| false, alarm: None, longest: LOOK, rest: Rest::Leave, mark: Some(&mark) };
        let ended = group.wait(&mut output, Some(limit), self.grace, &watch);
        // Not put together anew: who was left in the background goes on to print into this very file.
        let [mut output] = output;
        output.bound();
        Ok(ended.map_or(Exit::Lost, |(status, ended)| supervise::exit(status, ended)))
    }

    /// How a command ended, and the last that it said.
    fn complaint(&self, exit: &Exit) -> String {
        let how = match exit {
            Exit::Exited(code) => format!("exit status {code}"),
            Exit::Signal(number) => format!("ended by signal {number}"),
            Exit::TimedOut | Exit::Cancelled => "took too long".to_owned(),
            Exit::SpawnFailed(_) | Exit::Lost => return "its end is not known".to_owned(),
        };
        how + &last_line(&self.said(&self.place.join(COMMANDS)))
    }

    /// The end of what something printed, without the values of secrets.
    pub(super) fn said(&self, path: &Path) -> String {
        self.redactor.as_ref().map_or_else(|| tail(path, SHOWN), |redactor| redactor.tail(path, SHOWN))
    }
}

/// What a service and its commands find in their environment: what every action finds, its own
/// variables, and who it is.
pub(super) fn environment(own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = base_environment();
    all.extend(own.clone());
    let known = |name: &str| std::env::var(name).ok().map(|value| (name.to_owned(), value));
    all.extend(["COB_ID", "COB_HOST", "COB_STATE_DIR"].into_iter().filter_map(known));
    all
}

/// The last line that says something, to be put behind a reason.
pub(super) fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|l| !l.is_empty());
    last.map(|l| format!(": {}", escape(&l.chars().take(200).collect::<String>()))).unwrap_or_default()
}
