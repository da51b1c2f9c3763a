//! What is put back when a change object has left: what it has found, and what its last move did not bring
//! back already.
//!
//! By a process of its own, which the daemon begins and does not wait for: a unit that ran before is started
//! only when everything that had to leave has left. What is not done when the daemon ends is begun again by
//! the next one, which finds it in the service's folder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::commands::Commands;
use super::folder::ServiceFolder;
use super::unit::{self, Before};
use crate::kinds::backend::Tools;
use crate::run::{Program, RESTORE_SERVICE};

const ATTEMPTS: u32 = 5;
/// Before the second attempt; doubles with each further one.
const PAUSE: Duration = Duration::from_secs(2);
/// The time that a command may take to start what ran before.
const START: Duration = Duration::from_secs(60);

/// Begins to put back what the service of this folder has found, if there is anything.
pub(super) fn put_back(tools: &Tools, folder: PathBuf) -> Option<JoinHandle<()>> {
    // Whoever starts it from here on does so without us, also if the change object comes back.
    if let Err(error) = ServiceFolder::new(folder.clone()).forget_plan() {
        warn!(folder = %folder.display(), %error, "what was started from here is still noted");
    }
    if !has_something(&folder) {
        return None;
    }
    let program = tools.program().clone();
    Some(tokio::spawn(async move {
        let mut pause = PAUSE;
        for attempt in 1..=ATTEMPTS {
            match attempt_to(&program, &folder).await {
                Ok(()) => {
                    info!(folder = %folder.display(), "what was there before the service is back");
                    return;
                }
                Err(error) if attempt == ATTEMPTS => {
                    warn!(
                        folder = %folder.display(), error,
                        "what was there before the service is not back; the next start of the daemon tries again"
                    );
                }
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
    }))
}

/// What the service of this folder has found is not put back.
pub(super) fn keep(folder: &Path) {
    if !has_something(folder) {
        return;
    }
    let forgotten = Before::remove(folder)
        .and_then(|()| ServiceFolder::new(folder.to_owned()).forget_that_it_ran().map_err(|e| e.to_string()));
    if let Err(error) = forgotten {
        warn!(folder = %folder.display(), error, "what is to stay would not, after a restart of the daemon");
    }
}

/// The same for everything that an earlier daemon has left; `here` tells which folders are in use.
pub(super) fn put_back_all(tools: &Tools, here: &dyn Fn(&Path) -> bool) {
    // Without the folder there never was a service.
    let Ok(entries) = std::fs::read_dir(tools.services()) else { return };
    for folder in entries.flatten().map(|e| e.path()).filter(|folder| !here(folder)) {
        drop(put_back(tools, folder));
    }
}

fn has_something(folder: &Path) -> bool {
    // What can't be read is told by the attempt.
    Before::read(folder).map_or(true, |before| before.is_some())
        || ServiceFolder::new(folder.to_owned()).ran().is_some()
}

async fn attempt_to(program: &Program, folder: &Path) -> Result<(), String> {
    let mut command = tokio::process::Command::from(program.command(RESTORE_SERVICE, folder));
    command.stderr(std::process::Stdio::piped());
    let output = command.output().await.map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Puts back what the service of this folder has found. Called by `main_if_runner`, in a process of its own.
pub(crate) fn restore(folder: &Path) -> ExitCode {
    // What systemd has to read is not for its owner alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let folder = ServiceFolder::new(folder.to_owned());
    let lock = folder.take_lock().map_err(|e| format!("taking its lock: {e}"));
    let restored = lock.and_then(|_lock| unit::restore(folder.path()).and_then(|()| start_again(&folder)));
    match restored {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a service of commands that ran before its change object came.
fn start_again(folder: &ServiceFolder) -> Result<(), String> {
    let Some(plan) = folder.ran() else { return Ok(()) };
    let commands = Commands {
        place: folder.path().to_owned(),
        working_folder: plan.working_folder.clone(),
        environment: plan.environment.clone(),
        redactor: None,
        grace: Duration::from_millis(plan.grace_ms),
    };
    let started = commands.run_until(&plan.start, Instant::now() + START, &[]);
    started.map_err(|why| format!("starting it again, which ran before: {why}"))?;
    folder.forget_that_it_ran().map_err(|e| e.to_string())
}
