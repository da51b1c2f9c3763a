//! The mover: the action that carries out a transition of a service.
//!
//! It is a process below a runner, like the commands of other kinds. Therefore it survives the daemon, has a timeout,
//! and can be cancelled. It writes its result to `COB_RESULT_OUT`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use cob_kinds::Service;
use cob_types::Command;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::backend::{form, read};
use super::commands::{ATTEMPT, Commands, RunAs, environment, last_words};
use super::external::{Driven, wait_until};
use super::folder::{Look, Plan, ServiceFolder, boot, write_environment};
use super::former;
use super::ready::Attempts;
use super::supervised::Kept;
use super::unit;
use crate::kinds::backend::make_folder;
use crate::kinds::systemd::Systemd;
use crate::run::{Exit, KEEP_SERVICE, Opened, Program, remove_folder};

/// How long the supervisor may take to note the service's process after its start.
const NOTED: Duration = Duration::from_secs(2);

/// The task (`Task`): the second argument, as JSON. Command lines are public, so the service's variables come with the
/// content.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::kinds) struct Task {
    pub(in crate::kinds) goal: Goal,
    pub(in crate::kinds) folder: PathBuf,
    pub(super) identity: String,
    pub(super) working_folder: PathBuf,
    /// For contents with secrets: the folder for their values while the service runs.
    pub(super) private: Option<PathBuf>,
    pub(in crate::kinds) timeout_ms: u64,
    pub(super) grace_ms: u64,
    /// How to reach systemd, for units.
    pub(super) systemd: Systemd,
    /// The fingerprint of its dependencies.
    pub(super) rests_on: Option<String>,
    /// Its preferred state is down.
    pub(super) rests_down: bool,
    /// It departs, so the original state is restored.
    pub(in crate::kinds) leaving: bool,
    /// For a unit with the preferred state down: the timers, sockets and paths that change objects of this host manage.
    pub(super) triggers: BTreeSet<String>,
    /// For a socket: the units whose change objects on this host have the preferred state up.
    #[serde(default)]
    pub(super) wanted: BTreeSet<String>,
}

/// The goal of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::kinds) enum Goal {
    /// The service runs.
    Start,
    /// The running service has loaded the desired content.
    Reload,
    /// The differences that need no restart are corrected.
    Adjust,
    /// The service does not run.
    Stop,
}

/// The result.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Done,
    Failed(String),
}

/// Carries out the transition. `main_if_runner` calls it in a separate process.
pub(crate) fn make_move(program: &Program, task: &OsStr) -> ExitCode {
    answer(Task::read(task).and_then(|(task, content)| match &content.start {
        None => unit::make_move(&task, content),
        Some(start) => Mover::new(program, task, start.clone(), content)?.go(),
    }))
}

/// Carries out the transition of a unit.
///
/// # Errors
/// The reason of the failure, as text.
pub(in crate::kinds) fn move_unit(task: &Task, content: Service) -> Result<(), String> {
    make_folder(&task.folder).map_err(|e| format!("{}: {e}", task.folder.display()))?;
    unit::make_move(task, content)
}

/// Writes the result of a transition.
pub(in crate::kinds) fn answer(moved: Result<(), String>) -> ExitCode {
    let (answer, code) = match moved {
        Ok(()) => (Answer::Done, ExitCode::SUCCESS),
        Err(reason) => {
            // Shown in the action's output.
            let _ = writeln!(std::io::stderr(), "{reason}");
            (Answer::Failed(reason), ExitCode::FAILURE)
        }
    };
    let text = serde_json::to_string(&answer).expect("text is JSON");
    let told = std::env::var_os("COB_RESULT_OUT").is_some_and(|path| fs::write(path, text).is_ok());
    if told { code } else { ExitCode::FAILURE }
}

struct Mover<'a> {
    program: &'a Program,
    task: Task,
    content: Service,
    start: Command,
    commands: Commands,
    /// The values of secrets.
    secrets: Option<Opened>,
    folder: ServiceFolder,
    /// The time limit, a little before the runner ends the process.
    limit: Instant,
    grace: Duration,
}

impl Task {
    fn read(text: &OsStr) -> Result<(Self, Service), String> {
        let task: Self = serde_json::from_slice(text.as_encoded_bytes()).map_err(|e| format!("the wish: {e}"))?;
        let path = content_path();
        let content = fs::read_to_string(&path).map(Zeroizing::new).map_err(|e| format!("{}: {e}", path.display()))?;
        make_folder(&task.folder).map_err(|e| format!("{}: {e}", task.folder.display()))?;
        Ok((task, read(&content)?))
    }
}

/// The file with the content of the change object.
pub(in crate::kinds) fn content_path() -> PathBuf {
    std::env::var_os("COB_CONTENT").unwrap_or_default().into()
}

impl<'a> Mover<'a> {
    fn new(program: &'a Program, task: Task, start: Command, content: Service) -> Result<Self, String> {
        // The action's own private folder has the values.
        let own = content_path().parent().map(Path::to_owned);
        let secrets = match (&task.private, &own) {
            (Some(_), Some(own)) => Some(Opened::read(own).map_err(|e| format!("its secrets are gone: {e}"))?),
            (_, _) => None,
        };
        let time = Duration::from_millis(task.timeout_ms);
        let grace = Duration::from_millis(task.grace_ms);
        let run_as = content.user.as_ref().map(|user| RunAs::find(user, content.group.as_deref()));
        // The user is not needed for a stop.
        let run_as = if task.goal == Goal::Stop { run_as.and_then(Result::ok) } else { run_as.transpose()? };
        let mut environment = environment(&content.env);
        if let Some(run_as) = &run_as {
            run_as.add_to(&mut environment);
            environment.extend(content.env.clone());
        }
        let commands = Commands {
            place: own.filter(|_| secrets.is_some()).unwrap_or_else(|| task.folder.clone()),
            working_folder: task.working_folder.clone(),
            environment,
            redactor: secrets.as_ref().map(Opened::redactor),
            grace,
            run_as,
        };
        Ok(Self {
            program,
            start,
            commands,
            secrets,
            content,
            folder: ServiceFolder::new(task.folder.clone()),
            // The last quarter is for stopping a service that did not become ready.
            limit: Instant::now() + time - time / 4,
            grace,
            task,
        })
    }

    fn go(&self) -> Result<(), String> {
        unit::end_former(&self.folder, self.limit)?;
        former::end_commands(&self.folder, form(&self.content), &self.commands, self.limit)?;
        match self.task.goal {
            Goal::Start | Goal::Adjust => self.up(),
            Goal::Reload => self.reload(),
            Goal::Stop => self.down(),
        }
    }

    fn up(&self) -> Result<(), String> {
        if let Some(status) = &self.content.status {
            return self.up_by_commands(status);
        }
        match self.folder.look() {
            // Started by an earlier attempt.
            Look::Running { identity: Some(identity), .. } if identity == self.task.identity => {}
            Look::Running { .. } => {
                self.kept().stop(self.limit)?;
                self.begin()?;
            }
            Look::Unsupervised => {
                self.folder.end_unsupervised(self.grace);
                self.begin()?;
            }
            Look::Stopped | Look::Ended(_) | Look::Killed => self.begin()?,
        }
        if let Err(why) = self.become_ready() {
            self.show_output();
            // A service that is not ready must not look as if it were up. If it ended by itself, its own end is
            // reported.
            let stopped = self.kept().stop(self.limit + self.grace);
            return Err(stopped.err().map_or(why.clone(), |still| format!("{why}; {still}")));
        }
        self.folder.mark_ready().map_err(|e| format!("marking it as ready: {e}"))
    }

    fn down(&self) -> Result<(), String> {
        if let Some(status) = &self.content.status {
            return self.down_by_commands(status);
        }
        if self.folder.look() == Look::Stopped {
            return Ok(());
        }
        self.kept().end(self.limit)?;
        // A service that ended by itself counts as intentionally down from now on.
        self.folder.write_ended(Exit::Cancelled, true).map_err(|e| format!("writing that it is down: {e}"))
    }

    /// Reloads the running service; a stopped service is started.
    fn reload(&self) -> Result<(), String> {
        let Some(reload) = &self.content.reload else { return self.up() };
        let runs = match &self.content.status {
            Some(status) => self.driven(status).runs()?,
            None => self.folder.is_running(),
        };
        let Some(mut plan) = self.folder.plan().filter(|_| runs) else { return self.up() };
        self.kept().run_on_it(reload, self.limit).map_err(|why| format!("reload: {why}"))?;
        match &self.content.status {
            Some(status) => self.answers_ready(status)?,
            None => self.become_ready()?,
        }
        plan.identity.clone_from(&self.task.identity);
        self.folder.record(&plan).map_err(|e| format!("noting its configuration: {e}"))
    }

    /// Starts the service below a supervisor.
    fn begin(&self) -> Result<(), String> {
        let lock = self.folder.take_lock().map_err(|e| format!("taking its lock: {e}"))?;
        self.hand_over_secrets().map_err(|e| format!("putting its secrets into memory: {e}"))?;
        self.folder.prepare(self.plan()).map_err(|e| format!("writing its plan: {e}"))?;
        let mut keeper = self.program.command(KEEP_SERVICE, self.folder.path());
        keeper.stdin(Stdio::from(lock));
        keeper.spawn().map(|_| ()).map_err(|e| format!("starting its supervisor: {e}"))
    }

    /// Writes the supervisor's input into the service's private folder.
    fn hand_over_secrets(&self) -> io::Result<()> {
        let (Some(private), Some(opened)) = (&self.task.private, &self.secrets) else { return Ok(()) };
        remove_folder(private)?;
        make_folder(private)?;
        opened.write(private)?;
        write_environment(private, &self.commands.environment)
    }

    fn plan(&self) -> Plan {
        let private = self.task.private.clone();
        Plan {
            format: Plan::FORMAT,
            identity: self.task.identity.clone(),
            boot: boot(),
            start: self.start.clone(),
            stop: self.content.stop.clone(),
            status: self.content.status.clone(),
            environment: if private.is_none() { self.commands.environment.clone() } else { BTreeMap::new() },
            working_folder: self.task.working_folder.clone(),
            grace_ms: self.task.grace_ms,
            run_as: self.commands.run_as.clone(),
            private,
            life: 0,
            life_before: 0,
        }
    }

    /// Waits until the service is ready and its own process has lived for `settle`: another one may answer `ready`.
    fn become_ready(&self) -> Result<(), String> {
        let settled = Instant::now() + self.content.settle.0;
        let mut attempts = Attempts::of("ready");
        let mut is_ready = self.content.ready.is_none();
        let ready = wait_until(self.limit, || {
            if let Some(command) = self.content.ready.as_ref().filter(|_| !is_ready && attempts.is_due()) {
                match self.run(command, self.limit) {
                    Ok(()) => is_ready = true,
                    Err(why) => attempts.failed(why),
                }
            }
            // Checked after `ready`: the service may have ended meanwhile.
            if !self.folder.is_running() {
                let how = self.folder.end_in_words().unwrap_or_else(|| "its supervisor was killed".to_owned());
                return Some(Err(format!("it ended before it was ready: {how}{}", self.last_said())));
            }
            (is_ready && Instant::now() >= settled && self.is_noted(settled)).then_some(Ok(()))
        });
        ready.unwrap_or_else(|| {
            let within = Duration::from_millis(self.task.timeout_ms);
            let why = format!("it was not ready within three quarters of {within:?}{}", attempts.words());
            Err(why + &self.last_words_behind())
        })
    }

    /// The last output of the service itself, to append after the output of `ready`.
    fn last_words_behind(&self) -> String {
        let said = self.last_said();
        said.strip_prefix(": ").map(|said| format!("; the service said last: {said}")).unwrap_or_default()
    }

    /// Whether the supervisor has noted the main process. On a full disk it is up without the note.
    fn is_noted(&self, settled: Instant) -> bool {
        self.folder.main_pid().is_some() || Instant::now() >= settled + NOTED
    }

    fn kept(&self) -> Kept<'_> {
        Kept { folder: &self.folder, commands: &self.commands, grace: self.grace }
    }

    fn up_by_commands(&self, status: &Command) -> Result<(), String> {
        let recorded = self.folder.plan();
        if self.driven(status).runs()? {
            self.note_that_it_ran(recorded.is_some())?;
            if recorded.as_ref().is_some_and(|p| p.identity == self.task.identity) {
                return self.answers_ready(status);
            }
            let stop = recorded.and_then(|p| p.stop).or_else(|| self.content.stop.clone());
            self.driven(status).stop(stop.as_ref())?;
        }
        let started = self.commands.run_until(&self.start, self.limit, &[]);
        started.map_err(|why| format!("start: {why}"))?;
        // Without the identity until it is ready: after a failed transition it must not look like the desired service.
        let plan = self.plan();
        let note = |plan: &Plan| self.folder.record(plan).map_err(|e| format!("noting the started service: {e}"));
        note(&Plan { identity: String::new(), ..plan.clone() })?;
        if let Err(why) = self.answers_ready(status) {
            let ended = Driven { limit: self.limit + self.grace, ..self.driven(status) };
            let stopped =
                ended.runs().and_then(|runs| if runs { ended.stop(self.content.stop.as_ref()) } else { Ok(()) });
            return Err(stopped.err().map_or(why.clone(), |still| format!("{why}; stopping it again: {still}")));
        }
        note(&plan)
    }

    /// Waits until `ready` (or without it, `status`) succeeds. At the end of `settle`, `status` must say that the
    /// service runs, because another process may have answered `ready`.
    fn answers_ready(&self, status: &Command) -> Result<(), String> {
        let settled = Instant::now() + self.content.settle.0;
        let (command, name) = self.content.ready.as_ref().map_or((status, "status"), |ready| (ready, "ready"));
        let mut attempts = Attempts::of(name);
        let answered = wait_until(self.limit, || {
            if !attempts.is_due() {
                return None;
            }
            self.run(command, self.limit).map_err(|why| attempts.failed(why)).ok()
        });
        answered.ok_or_else(|| format!("it was started, but is not ready{}", attempts.words()))?;
        wait_until(settled.min(self.limit), || None::<()>);
        let limit = self.limit.min(Instant::now() + ATTEMPT);
        if (Driven { limit, ..self.driven(status) }).ask_until(|runs| runs)? {
            return Ok(());
        }
        Err(format!(
            "the service ended before it was ready: `status` says that it does not run{}",
            self.commands.last_said()
        ))
    }

    fn down_by_commands(&self, status: &Command) -> Result<(), String> {
        if !self.driven(status).runs()? {
            return Ok(());
        }
        let recorded = self.folder.plan();
        self.note_that_it_ran(recorded.is_some())?;
        let stop = recorded.and_then(|p| p.stop).or_else(|| self.content.stop.clone());
        self.driven(status).stop(stop.as_ref())
    }

    /// Notes a running service that was not started from here, to restart it after the departure.
    fn note_that_it_ran(&self, started_from_here: bool) -> Result<(), String> {
        // The note would contain the values.
        if started_from_here || self.secrets.is_some() {
            return Ok(());
        }
        self.folder.note_that_it_ran(&self.plan()).map_err(|e| format!("noting that it ran before: {e}"))
    }

    fn driven<'s>(&'s self, status: &'s Command) -> Driven<'s> {
        Driven { commands: &self.commands, status, limit: self.limit }
    }

    /// Runs a short command.
    fn run(&self, command: &Command, limit: Instant) -> Result<(), String> {
        self.commands.run(command, limit)
    }

    fn last_said(&self) -> String {
        last_words(&self.commands.said(&self.folder.output()))
    }

    /// Adds the service's output to the action's output.
    fn show_output(&self) {
        let said = self.commands.said(&self.folder.output());
        let _ = writeln!(std::io::stderr(), "{}", said.trim_end());
    }
}
