//! The command that an `exec` runs after its departure, when all that departs with it has departed.
//!
//! The last transition notes the command. The daemon runs it after the switch has activated the generation, and deletes the
//! note after success. If the daemon ends meanwhile, the next daemon finds the note. The command holds a file lock, so that
//! it never runs twice at a time, and not while the change object that came back runs its own command.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cob_types::{CobId, Command};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use super::departure::Attempt;
use super::exec::ending;
use super::service::{RunAs, last_line, words_as};
use crate::blocking::beside;
use crate::durable::{self, Sync};
use crate::run::base_environment;

/// The note, in the change object's own folder.
pub(super) const AFTER: &str = "after-departure.json";
/// The output of the last attempt.
const OUTPUT: &str = "after-departure.log";
/// The file lock.
const LOCK: &str = "after-departure.lock";
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// The most of an output that is read for a reason.
const MAX_OUTPUT: usize = 64 << 10;

/// The command, with all that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct After {
    pub(super) command: Command,
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    pub(super) dir: Option<PathBuf>,
    /// Variables beside those of every action.
    pub(super) variables: BTreeMap<String, String>,
    pub(super) timeout_ms: u64,
}

impl After {
    /// Notes the command, durably.
    pub(super) fn write(&self, own: &Path) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        let written = durable::write_file(own, AFTER, 0o600, &bytes, Sync::Now);
        written.map_err(|error| format!("{}: {error}", own.join(AFTER).display()))
    }

    fn read(own: &Path) -> Result<Option<Self>, String> {
        let path = own.join(AFTER);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{}: {error}", path.display())),
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display())),
        }
    }

    fn run(&self, own: &Path, cob: &CobId, lock: File) -> Result<(), String> {
        let output = own.join(OUTPUT);
        let failed = |error: io::Error| format!("`after_departure`: {error}");
        let run_as = self.user.as_ref().map(|user| RunAs::find(user, self.group.as_deref())).transpose()?;
        let mut variables = base_environment();
        if let Some(run_as) = &run_as {
            run_as.add_to(&mut variables);
        }
        variables.extend(self.variables.clone());
        variables.insert("COB_ID".to_owned(), cob.to_string());
        variables.insert("COB_HOST".to_owned(), cob.host_str().to_owned());
        variables.insert("COB_STATE_DIR".to_owned(), own.display().to_string());
        let words = words_as(run_as.as_ref(), &self.command);
        let file = File::create(&output).map_err(failed)?;
        let copy = file.try_clone().map_err(failed)?;
        let mut process = Process::new(&words[0]);
        process.args(&words[1..]).env_clear().envs(variables).process_group(0);
        process.current_dir(self.dir.as_deref().unwrap_or(Path::new("/")));
        // The command itself holds the lock, also after the end of the daemon. The file is empty, like no input.
        process.stdin(Stdio::from(lock)).stdout(Stdio::from(file)).stderr(Stdio::from(copy));
        let mut child = process.spawn().map_err(failed)?;
        let limit = Instant::now() + Duration::from_millis(self.timeout_ms);
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break Some(status),
                None if Instant::now() < limit => std::thread::sleep(LOOK),
                None => {
                    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
                    let _ = child.wait();
                    break None;
                }
            }
        };
        let why = match status {
            Some(status) if ExitStatus::success(&status) => return Ok(()),
            Some(status) => ending(status),
            None => format!("it was not done within {:?}", Duration::from_millis(self.timeout_ms)),
        };
        let said = crate::run::read_capped(&output, MAX_OUTPUT).unwrap_or_default();
        Err(format!("`after_departure` has failed: {why}{}", last_line(&String::from_utf8_lossy(&said))))
    }
}

/// The attempt that runs the noted command. `None`: there is none.
pub(super) fn attempt(own: PathBuf, cob: &CobId) -> Option<Attempt> {
    if !own.join(AFTER).exists() {
        return None;
    }
    let cob = cob.clone();
    Some(Box::new(move || {
        let (own, cob) = (own.clone(), cob.clone());
        Box::pin(async move { beside(move || run(&own, &cob)).await.unwrap_or_else(|lost| Err(lost.to_string())) })
    }))
}

fn run(own: &Path, cob: &CobId) -> Result<(), String> {
    let Some(after) = After::read(own)? else { return Ok(()) };
    let lock = lock(own, Duration::from_millis(after.timeout_ms))?;
    // The change object may be back, or an earlier run may have been waited for.
    if After::read(own)?.as_ref() != Some(&after) {
        return Ok(());
    }
    after.run(own, cob, lock)?;
    forget(own)
}

/// The change object is back: waits for the end of the command, if it runs, and lets it run no more.
pub(super) fn end(own: &Path, longest: Duration) -> Result<(), String> {
    forget(own)?;
    if !own.join(LOCK).exists() {
        return Ok(());
    }
    let _lock = lock(own, longest)?;
    for name in [OUTPUT, LOCK] {
        match fs::remove_file(own.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(format!("{name}: {error}")),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The change object is back, or its effects stay: the command does not run any more.
pub(super) fn forget(own: &Path) -> Result<(), String> {
    let removed = match fs::remove_file(own.join(AFTER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        removed => removed.and_then(|()| durable::sync_folder(own)),
    };
    removed.map_err(|error| format!("{}: {error}", own.join(AFTER).display()))
}

/// Waits until no command of a departure runs.
fn lock(own: &Path, longest: Duration) -> Result<File, String> {
    let path = own.join(LOCK);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    let limit = Instant::now() + longest;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < limit => std::thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => return Err("its command `after_departure` still runs".to_owned()),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}
