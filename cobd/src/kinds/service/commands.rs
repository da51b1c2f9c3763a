//! Running a service's own commands: `start`, `stop`, `status`, `reload`, `ready`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_types::Command;

use super::folder::COMMANDS;
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
    /// Runs a command that takes a moment; the error says why it did not succeed.
    pub(super) fn run(&self, command: &Command, limit: Instant) -> Result<(), String> {
        self.run_until(command, limit.min(Instant::now() + ATTEMPT), &[])
    }

    /// Runs a command, with further variables; the error says why it did not succeed.
    pub(super) fn run_until(
        &self,
        command: &Command,
        limit: Instant,
        variables: &[(String, String)],
    ) -> Result<(), String> {
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
        let [output] = output;
        output.finish();
        let said = || last_line(&self.said(&self.place.join(COMMANDS)));
        match ended.map(|(status, ended)| supervise::exit(status, ended)) {
            Ok(Exit::Exited(0)) => Ok(()),
            Ok(Exit::Exited(code)) => Err(format!("exit status {code}{}", said())),
            Ok(Exit::Signal(number)) => Err(format!("ended by signal {number}{}", said())),
            Ok(Exit::TimedOut | Exit::Cancelled) => Err(format!("took too long{}", said())),
            Ok(Exit::SpawnFailed(_) | Exit::Lost) | Err(_) => Err("its end is not known".to_owned()),
        }
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
