//! The folder in which one service is looked after: what is in it, and what that says.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_types::Command;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::commands::RunAs;
use crate::durable::{self, Sync};
use crate::run::endings;
use crate::run::leftovers::Trail;
use crate::run::{Exit, Opener, OutputFile, present, read_capped};

/// Held (flock) by the keeper; says which process that is.
pub(super) const LOCK: &str = "lock";
/// What the service prints.
pub(super) const OUTPUT: &str = "output";
/// What it had printed in its life before.
pub(super) const OLD_OUTPUT: &str = "output.old";
/// What `ready`, `stop`, `start` and `status` print.
pub(super) const COMMANDS: &str = "commands";
/// Put there to make the keeper end the service.
pub(super) const STOP: &str = "stop";
/// Put there before a stop command runs: the end that follows is wanted.
pub(super) const STOPPING: &str = "stopping";
const PLAN: &str = "plan";
/// Written by the keeper when the service has ended.
pub(super) const ENDED: &str = "ended";
const READY: &str = "ready";
/// The number of the process that `start` has become.
const MAIN: &str = "main";
/// How what ran before the first move is started again.
const RAN: &str = "ran";
/// Which departure of its change object goes on; gone when the change object is back.
const DEPARTED: &str = "departed";
/// The variable that names the folder; what is left of a service is found by it.
pub(super) const SERVICE_VARIABLE: &str = "COB_SERVICE";
const FORMAT: u32 = 1;
const MAX_FILE: usize = 1 << 20;
/// The file of the environment in a private folder.
const ENVIRONMENT: &str = "environment";
const MAX_ENVIRONMENT: usize = 64 << 20;
/// A check holds the lock for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// What the mover wants kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) format: u32,
    /// See `identity` in the back end.
    pub(super) identity: String,
    /// The machine's start in which it was begun.
    pub(super) boot: String,
    pub(super) start: Command,
    /// How it is stopped, also when the next content says otherwise.
    pub(super) stop: Option<Command>,
    /// How it is asked whether it runs; none: of its keeper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Command>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) working_folder: PathBuf,
    pub(super) grace_ms: u64,
    /// As whom it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run_as: Option<RunAs>,
    /// With secrets: the private folder in memory, which has the environment instead, and what the
    /// service prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) private: Option<PathBuf>,
    /// Tells this life of the service from others: when it was begun, in nanoseconds.
    #[serde(default)]
    pub(super) life: u64,
    /// The life before.
    #[serde(default)]
    pub(super) life_before: u64,
}

/// How a service ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndedFile {
    pub(super) format: u32,
    pub(super) exit: Exit,
    /// Somebody wanted it to end.
    pub(super) asked: bool,
    pub(super) ended_ns: u64,
}

/// What a look at the folder says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// It runs, begun with this identity where that is known.
    Running { identity: Option<String>, ready: bool },
    /// It does not run, and is not meant to.
    Stopped,
    /// It ended by itself.
    Ended(String),
    /// Its keeper was killed; it is gone too.
    Killed,
    /// Its keeper was killed; something of it runs on.
    Unsupervised,
}

/// The folder of one service.
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

    /// Looks, and changes nothing.
    pub(super) fn look(&self) -> Look {
        if self.is_running() {
            return Look::Running { identity: self.recorded_identity(), ready: present(&self.file(READY)) };
        }
        match (self.read::<EndedFile>(ENDED), self.plan()) {
            (Some(ended), _) if ended.asked => Look::Stopped,
            (Some(ended), _) => Look::Ended(exit_in_words(&ended.exit)),
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

    /// Whether the service lives. The keeper lives a moment longer: it has to write how that ended.
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

    /// Takes the lock, to hand it to a keeper.
    pub(super) fn take_lock(&self) -> io::Result<File> {
        self.take_lock_until(Instant::now() + LOCK_PATIENCE)
    }

    /// The same, with more patience: for what a departure of its change object has begun.
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

    /// Clears what an earlier life left, and writes what the next one is to be. The lock is held.
    pub(super) fn prepare(&self, plan: Plan) -> io::Result<()> {
        let life_before = self.plan().map_or(0, |before| before.life);
        let plan = Plan { life: crate::run::now_ns().max(life_before + 1), life_before, ..plan };
        for name in [ENDED, READY, STOP, STOPPING, COMMANDS, MAIN] {
            remove(&self.file(name))?;
        }
        match fs::rename(self.file(OUTPUT), self.file(OLD_OUTPUT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.record(&plan)?;
        if plan.private.is_none() {
            // Who follows what it prints finds the file of this life, whatever the keeper is at.
            drop(OutputFile::open(&self.0, OUTPUT)?);
        }
        Ok(())
    }

    pub(super) fn record(&self, plan: &Plan) -> io::Result<()> {
        self.write(PLAN, plan)
    }

    /// Notes the process that is the service; not durable, for it does not survive either.
    pub(super) fn note_main(&self, pid: i32) -> io::Result<()> {
        fs::write(self.file(MAIN), pid.to_string())
    }

    /// The process that is the service, while it runs.
    pub(super) fn main_pid(&self) -> Option<i32> {
        fs::read_to_string(self.file(MAIN)).ok()?.parse().ok().filter(|_| self.is_running())
    }

    /// Notes how it is started again, once and for all.
    pub(super) fn note_that_it_ran(&self, plan: &Plan) -> io::Result<()> {
        if present(&self.file(RAN)) {
            return Ok(());
        }
        durable::write_file(&self.0, RAN, 0o600, &serde_json::to_vec(plan)?, Sync::Now)
    }

    /// How it is started again, where it ran before the first move.
    pub(super) fn ran(&self) -> Option<Plan> {
        self.read(RAN)
    }

    /// What was started from here is no longer known.
    pub(super) fn forget_plan(&self) -> io::Result<()> {
        remove(&self.file(PLAN))
    }

    pub(super) fn forget_that_it_ran(&self) -> io::Result<()> {
        remove(&self.file(RAN))
    }

    /// Its change object has left, with this word for that.
    pub(super) fn note_departure(&self, word: &str) -> io::Result<()> {
        durable::write_file(&self.0, DEPARTED, 0o600, word.as_bytes(), Sync::Later)
    }

    /// The word for the departure of its change object that goes on.
    pub(super) fn departure(&self) -> Option<String> {
        fs::read_to_string(self.file(DEPARTED)).ok()
    }

    /// Its change object is here, or nothing is left to be done for it.
    pub(super) fn forget_departure(&self) -> io::Result<()> {
        remove(&self.file(DEPARTED))
    }

    pub(super) fn mark_ready(&self) -> io::Result<()> {
        fs::write(self.file(READY), "")
    }

    pub(super) fn write_ended(&self, exit: Exit, asked: bool) -> io::Result<()> {
        self.write(ENDED, &EndedFile { format: FORMAT, exit, asked, ended_ns: crate::run::now_ns() })
    }

    /// How the service ended, in words; nothing when it has not.
    pub(super) fn end_in_words(&self) -> Option<String> {
        self.read::<EndedFile>(ENDED).map(|e| exit_in_words(&e.exit))
    }

    /// What the service prints into: while it runs with secrets in its environment, a file that is not kept.
    pub(super) fn output(&self) -> PathBuf {
        let private = self.plan().and_then(|plan| plan.private).map(|folder| folder.join(OUTPUT));
        private.filter(|path| present(path)).unwrap_or_else(|| self.file(OUTPUT))
    }

    /// Bounds what those print that commands have left in the background.
    pub(super) fn bound_commands(&self) {
        if present(&self.file(COMMANDS)) {
            // Without it, the next look does it.
            let _ = OutputFile::open(&self.0, COMMANDS).map(|mut output| output.bound());
        }
    }

    /// Ends what a killed keeper left behind.
    pub(super) fn end_unsupervised(&self, grace: Duration) {
        if let Some(trail) = self.trail() {
            trail.end(grace);
        }
    }

    /// Where the processes of the service are found; none: its keeper has not begun it.
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

/// Takes away what services that do not run any more have left in memory.
pub(in crate::kinds) fn clear_leftovers(state_dir: &Path, opener: &Opener) {
    opener.clear("services", |name| ServiceFolder::new(state_dir.join("services").join(name)).is_running());
}

/// The environment of a service with secrets, in its private folder until the service has begun.
pub(super) fn write_environment(folder: &Path, environment: &BTreeMap<String, String>) -> io::Result<()> {
    let bytes = Zeroizing::new(serde_json::to_vec(environment)?);
    durable::write_file(folder, ENVIRONMENT, 0o600, &bytes, Sync::Later)
}

/// The same, which is gone from there then.
pub(super) fn take_environment(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let path = folder.join(ENVIRONMENT);
    let bytes = Zeroizing::new(read_capped(&path, MAX_ENVIRONMENT)?);
    fs::remove_file(&path)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The machine's present start.
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
        Exit::Lost => "nobody knows how".to_owned(),
    }
}
