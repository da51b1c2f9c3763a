//! The folder in which a service is supervised: its files and their meaning.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_processes::Trail;
use cob_types::Command;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use zeroize::Zeroizing;

use super::commands::{RunAs, SHOWN, last_words};
use crate::clock::wall_ns;
use crate::durable::{self, Sync};
use crate::run::endings;
use crate::run::{Exit, Opener, OutputFile, present, read_capped, tail};

/// The lock (flock) that the supervisor (`keeper`) holds, with its process id.
pub(super) const LOCK: &str = "lock";
/// The output of the service.
pub(super) const OUTPUT: &str = "output";
/// The output of the previous run.
pub(super) const OLD_OUTPUT: &str = "output.old";
/// The output of `ready`, `stop`, `start` and `status`.
pub(super) const COMMANDS: &str = "commands";
/// Created to make the supervisor stop the service.
pub(super) const STOP: &str = "stop";
/// Created before a stop command: the following end of the service is intended.
pub(super) const STOPPING: &str = "stopping";
const PLAN: &str = "plan";
/// Written by the supervisor after the end of the service.
pub(super) const ENDED: &str = "ended";
const READY: &str = "ready";
/// The process id of the service's main process.
const MAIN: &str = "main";
/// How to restart a service that ran before the first transition.
const RAN: &str = "ran";
/// The id of the departure under way; deleted when the change object comes back.
const DEPARTED: &str = "departed";
/// The variable with the folder's path, which marks processes that belong to the service.
pub(super) const SERVICE_VARIABLE: &str = "COB_SERVICE";
const FORMAT: u32 = 1;
const MAX_FILE: usize = 1 << 20;
/// The file with the environment in a private folder.
const ENVIRONMENT: &str = "environment";
const MAX_ENVIRONMENT: usize = 64 << 20;
/// A check also takes the lock for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The description of a run, written by the mover.
#[skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) format: u32,
    /// See `identity` in the back end.
    pub(super) identity: String,
    /// The boot of the machine in which the run started.
    pub(super) boot: String,
    pub(super) start: Command,
    /// The stop command, also if the next content has another one.
    #[serialize_always]
    pub(super) stop: Option<Command>,
    /// The status command. `None`: the supervisor knows.
    pub(super) status: Option<Command>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) working_folder: PathBuf,
    pub(super) grace_ms: u64,
    /// The user of the service's processes.
    pub(super) run_as: Option<RunAs>,
    /// For contents with secrets: the private folder in memory, which has the environment and the service's output.
    pub(super) private: Option<PathBuf>,
    /// The id of this run: its start in nanoseconds.
    #[serde(default)]
    pub(super) life: u64,
    /// The id of the previous run.
    #[serde(default)]
    pub(super) life_before: u64,
}

/// The end of a service.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndedFile {
    pub(super) format: u32,
    pub(super) exit: Exit,
    /// The end was intended.
    pub(super) asked: bool,
    pub(super) ended_ns: u64,
}

/// The result of a look at the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// The service runs, with the identity if it is known.
    Running { identity: Option<String>, ready: bool },
    /// The service does not run, as intended.
    Stopped,
    /// The service ended by itself.
    Ended(String),
    /// The supervisor was killed, and the service has ended.
    Killed,
    /// The supervisor was killed, and processes of the service still run.
    Unsupervised,
}

/// The folder of a service.
#[derive(Debug, Clone)]
pub(super) struct ServiceFolder(PathBuf);

impl ServiceFolder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Looks at the folder without changes.
    pub(super) fn look(&self) -> Look {
        if self.is_running() {
            return Look::Running { identity: self.recorded_identity(), ready: present(&self.file(READY)) };
        }
        match (self.read::<EndedFile>(ENDED), self.plan()) {
            (Some(ended), _) if ended.asked => Look::Stopped,
            // The supervisor has redacted the output before.
            (Some(ended), _) => Look::Ended(exit_in_words(&ended.exit) + &last_words(&tail(&self.file(OUTPUT), SHOWN))),
            (None, Some(plan)) if plan.boot == boot() => {
                if self.trail().is_some_and(|trail| trail.leads_anywhere()) {
                    Look::Unsupervised
                } else {
                    Look::Killed
                }
            }
            (None, Some(_) | None) => Look::Stopped,
        }
    }

    /// Whether the service runs. The supervisor lives a moment longer, to write the end.
    pub(super) fn is_running(&self) -> bool {
        if present(&self.file(ENDED)) {
            return false;
        }
        let lock = File::open(self.file(LOCK));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    pub(super) fn plan(&self) -> Option<Plan> {
        self.read(PLAN)
    }

    pub(super) fn recorded_identity(&self) -> Option<String> {
        self.plan().map(|p| p.identity)
    }

    /// Takes the lock, to hand it to a supervisor.
    pub(super) fn take_lock(&self) -> io::Result<File> {
        self.take_lock_until(Instant::now() + LOCK_PATIENCE)
    }

    /// Takes the lock, with a longer limit.
    pub(super) fn take_lock_until(&self, limit: Instant) -> io::Result<File> {
        let path = self.file(LOCK);
        let lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) if Instant::now() < limit => std::thread::sleep(Duration::from_millis(2)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Deletes the files of the previous run, and writes the plan of the next run. The caller holds the lock.
    pub(super) fn prepare(&self, plan: Plan) -> io::Result<()> {
        let life_before = self.plan().map_or(0, |before| before.life);
        let plan = Plan { life: wall_ns().max(life_before + 1), life_before, ..plan };
        for name in [ENDED, READY, STOP, STOPPING, COMMANDS, MAIN] {
            remove(&self.file(name))?;
        }
        match fs::rename(self.file(OUTPUT), self.file(OLD_OUTPUT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.record(&plan)?;
        if plan.private.is_none() {
            // A follower of the output finds the file of this run at once.
            drop(OutputFile::open(&self.0, OUTPUT)?);
        }
        Ok(())
    }

    pub(super) fn record(&self, plan: &Plan) -> io::Result<()> {
        self.write(PLAN, plan)
    }

    /// Notes the main process of the service. The file need not be durable, because the process is not durable either.
    pub(super) fn note_main(&self, pid: i32) -> io::Result<()> {
        fs::write(self.file(MAIN), pid.to_string())
    }

    /// The main process of the service while it runs.
    pub(super) fn main_pid(&self) -> Option<i32> {
        fs::read_to_string(self.file(MAIN)).ok()?.parse().ok().filter(|_| self.is_running())
    }

    /// Notes how to restart the service, only once.
    pub(super) fn note_that_it_ran(&self, plan: &Plan) -> io::Result<()> {
        if present(&self.file(RAN)) {
            return Ok(());
        }
        durable::write_file(&self.0, RAN, 0o600, &serde_json::to_vec(plan)?, Sync::Now)
    }

    /// How to restart a service that ran before the first transition.
    pub(super) fn ran(&self) -> Option<Plan> {
        self.read(RAN)
    }

    /// Deletes the plan of the last run.
    pub(super) fn forget_plan(&self) -> io::Result<()> {
        remove(&self.file(PLAN))
    }

    pub(super) fn forget_that_it_ran(&self) -> io::Result<()> {
        remove(&self.file(RAN))
    }

    /// Notes a departure of the change object, with its id.
    pub(super) fn note_departure(&self, word: &str) -> io::Result<()> {
        durable::write_file(&self.0, DEPARTED, 0o600, word.as_bytes(), Sync::Later)
    }

    /// The id of the departure under way.
    pub(super) fn departure(&self) -> Option<String> {
        fs::read_to_string(self.file(DEPARTED)).ok()
    }

    /// Deletes the note of a departure: the change object is back, or the departure is complete.
    pub(super) fn forget_departure(&self) -> io::Result<()> {
        remove(&self.file(DEPARTED))
    }

    pub(super) fn mark_ready(&self) -> io::Result<()> {
        fs::write(self.file(READY), "")
    }

    pub(super) fn write_ended(&self, exit: Exit, asked: bool) -> io::Result<()> {
        self.write(ENDED, &EndedFile { format: FORMAT, exit, asked, ended_ns: wall_ns() })
    }

    /// The end of the service as text. `None`: it has not ended.
    pub(super) fn end_in_words(&self) -> Option<String> {
        self.read::<EndedFile>(ENDED).map(|e| exit_in_words(&e.exit))
    }

    /// The output file of the service. With secrets, a running service has a private file.
    pub(super) fn output(&self) -> PathBuf {
        let private = self.plan().and_then(|plan| plan.private).map(|folder| folder.join(OUTPUT));
        private.filter(|path| present(path)).unwrap_or_else(|| self.file(OUTPUT))
    }

    /// Bounds the output of background processes that commands have left.
    pub(super) fn bound_commands(&self) {
        if present(&self.file(COMMANDS)) {
            // After a failure, the next check tries again.
            let _ = OutputFile::open(&self.0, COMMANDS).map(|mut output| output.bound());
        }
    }

    /// Ends the processes that a killed supervisor left behind.
    pub(super) fn end_unsupervised(&self, grace: Duration) {
        if let Some(trail) = self.trail() {
            trail.end(grace);
        }
    }

    /// The marks that find the service's processes. `None`: the supervisor has not started the service.
    fn trail(&self) -> Option<Trail> {
        let signed = fs::read_to_string(self.file(LOCK)).ok()?;
        let main = fs::read_to_string(self.file(MAIN)).ok().and_then(|text| text.trim().parse().ok());
        let mark = format!("{SERVICE_VARIABLE}={}", self.0.display());
        let trail = Trail::new(Some(&signed), mark).with_group(main).with_outputs([self.output()]);
        Some(trail).filter(Trail::has_session)
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&read_capped(&self.file(name), MAX_FILE).ok()?).ok()
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        durable::write_file(&self.0, name, 0o600, &serde_json::to_vec(value)?, Sync::Later)
    }
}

impl Plan {
    pub(super) const FORMAT: u32 = FORMAT;
}

/// Deletes private data in memory of services that no longer run.
pub(in crate::kinds) fn clear_leftovers(state_dir: &Path, opener: &Opener) {
    opener.clear("services", |name| ServiceFolder::new(state_dir.join("services").join(name)).is_running());
}

/// Writes the environment of a service with secrets into its private folder.
pub(super) fn write_environment(folder: &Path, environment: &BTreeMap<String, String>) -> io::Result<()> {
    let bytes = Zeroizing::new(serde_json::to_vec(environment)?);
    durable::write_file(folder, ENVIRONMENT, 0o600, &bytes, Sync::Later)
}

/// Reads the environment and deletes the file.
pub(super) fn take_environment(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let path = folder.join(ENVIRONMENT);
    let bytes = Zeroizing::new(read_capped(&path, MAX_ENVIRONMENT)?);
    fs::remove_file(&path)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The id of the machine's present boot.
pub(super) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn exit_in_words(exit: &Exit) -> String {
    match exit {
        Exit::Exited(code) => format!("exit status {code}"),
        Exit::Signal(number) => endings::signal(*number),
        Exit::SpawnFailed(why) => why.clone(),
        Exit::TimedOut | Exit::Cancelled => "it was ended".to_owned(),
        Exit::Lost => "its end is unknown".to_owned(),
    }
}
