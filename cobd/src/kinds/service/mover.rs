//! The mover: the action that brings one service up or down.
//!
//! It is a process below a runner, as the commands of other kinds are. So it survives the daemon, has a
//! timeout, and can be cancelled. It says how it went in `COB_RESULT_OUT`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cob_types::Command;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::backend::{Content, read};
use super::folder::{COMMANDS, Look, OUTPUT, Plan, STOP, STOPPING, ServiceFolder, boot, write_environment};
use crate::kinds::backend::make_folder;
use crate::run::supervise::{self, Group, Rest, Watch};
use crate::run::{
    Exit, KEEP_SERVICE, Opened, OutputFile, Program, Redactor, base_environment, escape, remove_folder, tail,
};

/// Between two looks at a service that starts or stops, and between two attempts of `ready`.
const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// One attempt of `ready` or `status` may take this long.
const ATTEMPT: Duration = Duration::from_secs(10);
/// This much of what a service said is shown when it does not start.
const SHOWN: usize = 2 << 10;

/// What is to be done; the second argument, as JSON. Everybody can read it there, so the service's
/// variables come with the content.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Wish {
    pub(super) up: bool,
    pub(super) folder: PathBuf,
    pub(super) identity: String,
    pub(super) working_folder: PathBuf,
    /// With secrets: where their values may lie as long as the service runs.
    pub(super) private: Option<PathBuf>,
    pub(super) timeout_ms: u64,
    pub(super) grace_ms: u64,
}

/// How it went.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Done,
    Failed(String),
}

/// Does what the wish says. Called by `main_if_runner`, in a process of its own.
pub(crate) fn make_move(program: &Program, wish: &OsStr) -> ExitCode {
    let moved = Mover::new(program, wish).and_then(|mover| if mover.wish.up { mover.up() } else { mover.down() });
    let (answer, code) = match moved {
        Ok(()) => (Answer::Done, ExitCode::SUCCESS),
        Err(reason) => {
            // For those who look at the action's output.
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
    wish: Wish,
    content: Content,
    environment: BTreeMap<String, String>,
    /// The action's own private folder, and the values.
    secrets: Option<(PathBuf, Opened)>,
    redactor: Redactor,
    folder: ServiceFolder,
    /// Until then it must have said how it went: a little before the runner ends it.
    limit: Instant,
    grace: Duration,
}

impl<'a> Mover<'a> {
    fn new(program: &'a Program, wish: &OsStr) -> Result<Self, String> {
        let wish: Wish = serde_json::from_slice(wish.as_encoded_bytes()).map_err(|e| format!("the wish: {e}"))?;
        let path = std::env::var_os("COB_CONTENT").unwrap_or_default();
        let content = fs::read_to_string(&path).map(Zeroizing::new).map_err(|e| format!("{}: {e}", path.display()))?;
        let content = read(&content)?;
        let secrets = match (&wish.private, PathBuf::from(path).parent()) {
            (Some(_), Some(own)) => {
                Some((own.to_owned(), Opened::read(own).map_err(|e| format!("its secrets are gone: {e}"))?))
            }
            (_, _) => None,
        };
        let time = Duration::from_millis(wish.timeout_ms);
        make_folder(&wish.folder).map_err(|e| format!("{}: {e}", wish.folder.display()))?;
        Ok(Self {
            program,
            environment: environment(&content),
            redactor: secrets.as_ref().map(|(_, opened)| opened.redactor()).unwrap_or_default(),
            secrets,
            content,
            folder: ServiceFolder::new(wish.folder.clone()),
            // The rest is for stopping again what did not become ready.
            limit: Instant::now() + time - time / 4,
            grace: Duration::from_millis(wish.grace_ms),
            wish,
        })
    }

    fn up(&self) -> Result<(), String> {
        if let Some(status) = &self.content.status {
            return self.up_by_commands(status);
        }
        match self.folder.look() {
            // Begun by an attempt before this one.
            Look::Running { identity: Some(identity), .. } if identity == self.wish.identity => {}
            Look::Running { .. } => {
                self.stop(self.limit)?;
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
            // What is not ready is not up, and must not look like it. Its own end is told if it came.
            let stopped = self.stop(self.limit + self.grace);
            return Err(stopped.err().map_or(why.clone(), |still| format!("{why}; {still}")));
        }
        self.folder.mark_ready().map_err(|e| format!("marking it as ready: {e}"))
    }

    fn down(&self) -> Result<(), String> {
        if let Some(status) = &self.content.status {
            return self.down_by_commands(status);
        }
        match self.folder.look() {
            Look::Stopped => return Ok(()),
            Look::Running { .. } => self.stop(self.limit)?,
            Look::Unsupervised => self.folder.end_unsupervised(self.grace),
            Look::Ended(_) | Look::Killed => {}
        }
        // What ended by itself is meant to be down from here on.
        self.folder.write_ended(Exit::Cancelled, true).map_err(|e| format!("writing that it is down: {e}"))
    }

    /// Begins the service below a keeper.
    fn begin(&self) -> Result<(), String> {
        let lock = self.folder.take_lock().map_err(|e| format!("taking its lock: {e}"))?;
        self.hand_over_secrets().map_err(|e| format!("putting its secrets into memory: {e}"))?;
        self.folder.prepare(&self.plan()).map_err(|e| format!("writing its plan: {e}"))?;
        let mut keeper = self.program.command(KEEP_SERVICE, self.folder.path());
        keeper.stdin(Stdio::from(lock));
        keeper.spawn().map(|_| ()).map_err(|e| format!("starting its keeper: {e}"))
    }

    /// Puts what the keeper needs into the service's private folder.
    fn hand_over_secrets(&self) -> io::Result<()> {
        let (Some(private), Some((_, opened))) = (&self.wish.private, &self.secrets) else { return Ok(()) };
        remove_folder(private)?;
        make_folder(private)?;
        opened.write(private)?;
        write_environment(private, &self.environment)
    }

    fn plan(&self) -> Plan {
        let private = self.wish.private.clone();
        Plan {
            format: Plan::FORMAT,
            identity: self.wish.identity.clone(),
            boot: boot(),
            start: self.content.start.clone(),
            stop: self.content.stop.clone(),
            environment: if private.is_none() { self.environment.clone() } else { BTreeMap::new() },
            working_folder: self.wish.working_folder.clone(),
            grace_ms: self.wish.grace_ms,
            private,
        }
    }

    fn become_ready(&self) -> Result<(), String> {
        let settled = Instant::now() + self.content.settle;
        let mut complaint = String::new();
        let ready = wait_until(self.limit, || {
            if !self.folder.is_running() {
                let how = self.folder.end_in_words().unwrap_or_else(|| "its keeper was killed".to_owned());
                return Some(Err(format!("it ended before it was ready: {how}{}", self.last_said())));
            }
            match &self.content.ready {
                None => (Instant::now() >= settled).then_some(Ok(())),
                Some(command) => match self.run(command, self.limit) {
                    Ok(()) => Some(Ok(())),
                    Err(why) => {
                        complaint = why;
                        None
                    }
                },
            }
        });
        ready.unwrap_or_else(|| {
            let within = Duration::from_millis(self.wish.timeout_ms);
            Err(format!("it was not ready within three quarters of {within:?}; `ready` said last: {complaint}"))
        })
    }

    /// Ends a running service: by its own command if it has one, then by the keeper.
    fn stop(&self, limit: Instant) -> Result<(), String> {
        if let Some(command) = self.folder.plan().and_then(|p| p.stop) {
            fs::write(self.folder.file(STOPPING), "").map_err(|e| format!("announcing its end: {e}"))?;
            let asked = self.run(&command, limit.min(Instant::now() + self.grace.max(ATTEMPT)));
            let patience = if asked.is_ok() { self.grace } else { Duration::ZERO };
            wait_until(limit.min(Instant::now() + patience), || (!self.folder.is_running()).then_some(()));
        }
        if self.folder.is_running() {
            fs::write(self.folder.file(STOP), "").map_err(|e| format!("asking its keeper to end it: {e}"))?;
        }
        let gone = wait_until(limit.max(Instant::now() + LOOK.1), || (!self.folder.is_running()).then_some(()));
        gone.ok_or_else(|| "it does not end".to_owned())
    }

    fn up_by_commands(&self, status: &Command) -> Result<(), String> {
        let recorded = self.folder.plan();
        if self.run(status, self.limit).is_ok() {
            if recorded.as_ref().is_some_and(|p| p.identity == self.wish.identity) {
                return self.answers_ready(status);
            }
            let stop = recorded.and_then(|p| p.stop).or_else(|| self.content.stop.clone());
            self.stop_by(stop.as_ref(), status)?;
        }
        self.run(&self.content.start, self.limit).map_err(|why| format!("start: {why}"))?;
        self.folder.record(&self.plan()).map_err(|e| format!("writing down what was started: {e}"))?;
        self.answers_ready(status)
    }

    fn answers_ready(&self, status: &Command) -> Result<(), String> {
        let command = self.content.ready.as_ref().unwrap_or(status);
        let mut complaint = String::new();
        let ready = wait_until(self.limit, || match self.run(command, self.limit) {
            Ok(()) => Some(()),
            Err(why) => {
                complaint = why;
                None
            }
        });
        ready.ok_or_else(|| format!("it was started, but is not ready: {complaint}"))
    }

    fn down_by_commands(&self, status: &Command) -> Result<(), String> {
        if self.run(status, self.limit).is_err() {
            return Ok(());
        }
        let stop = self.folder.plan().and_then(|p| p.stop).or_else(|| self.content.stop.clone());
        self.stop_by(stop.as_ref(), status)
    }

    fn stop_by(&self, stop: Option<&Command>, status: &Command) -> Result<(), String> {
        let stop = stop.ok_or("it has no `stop`")?;
        self.run(stop, self.limit).map_err(|why| format!("stop: {why}"))?;
        let gone = wait_until(self.limit, || self.run(status, self.limit).err());
        gone.map(|_| ()).ok_or_else(|| "`stop` succeeded, but `status` says that it still runs".to_owned())
    }

    /// Runs one of the service's commands; the error says why it did not succeed.
    fn run(&self, command: &Command, limit: Instant) -> Result<(), String> {
        let words = supervise::words(command);
        let (program, arguments) = words.split_first().ok_or("an empty command")?;
        let place = self.secrets.as_ref().map_or(self.folder.path(), |(own, _)| own);
        let mut output = [OutputFile::open(place, COMMANDS).map_err(|e| e.to_string())?];
        let mut child = std::process::Command::new(program);
        child.args(arguments).current_dir(&self.wish.working_folder);
        child.env_clear().envs(&self.environment);
        let group = Group::begin(&mut child, [&output[0], &output[0]])
            .map_err(|e| supervise::why_not_begun(&words, &self.wish.working_folder, &e))?;
        let limit = if *command == self.content.start { limit } else { limit.min(Instant::now() + ATTEMPT) };
        // `start` and `stop` of a service that looks after itself may leave it in the background.
        let watch = Watch { asked: &|| false, alarm: None, longest: LOOK.1, rest: Rest::Leave };
        let ended = group.wait(&mut output, Some(limit), self.grace, &watch);
        let [output] = output;
        output.finish();
        let said = || last_line(&self.said(&place.join(COMMANDS)));
        match ended.map(|(status, ended)| supervise::exit(status, ended)) {
            Ok(Exit::Exited(0)) => Ok(()),
            Ok(Exit::Exited(code)) => Err(format!("exit status {code}{}", said())),
            Ok(Exit::Signal(number)) => Err(format!("ended by signal {number}{}", said())),
            Ok(Exit::TimedOut | Exit::Cancelled) => Err(format!("took too long{}", said())),
            Ok(Exit::SpawnFailed(_) | Exit::Lost) | Err(_) => Err("its end is not known".to_owned()),
        }
    }

    fn last_said(&self) -> String {
        last_line(&self.said(&self.output()))
    }

    /// The end of what something printed, without the values of secrets.
    fn said(&self, path: &Path) -> String {
        if self.secrets.is_some() { self.redactor.tail(path, SHOWN) } else { tail(path, SHOWN) }
    }

    /// What the service prints.
    fn output(&self) -> PathBuf {
        self.folder.private_output().unwrap_or_else(|| self.folder.file(OUTPUT))
    }

    /// What the service said becomes part of what the action said.
    fn show_output(&self) {
        let said = self.said(&self.output());
        let _ = writeln!(std::io::stderr(), "{}", said.trim_end());
    }
}

/// What a service and its commands find in their environment: what every action finds, its own
/// variables, and who it is.
fn environment(content: &Content) -> BTreeMap<String, String> {
    let mut all = base_environment();
    all.extend(content.env.clone());
    let own = |name: &str| std::env::var(name).ok().map(|value| (name.to_owned(), value));
    all.extend(["COB_ID", "COB_HOST", "COB_STATE_DIR"].into_iter().filter_map(own));
    all
}

fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|l| !l.is_empty());
    last.map(|l| format!(": {}", escape(&l.chars().take(200).collect::<String>()))).unwrap_or_default()
}

/// Looks again and again, ever more slowly, and at least once.
fn wait_until<T>(limit: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut pause = LOOK.0;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LOOK.1);
    }
}
