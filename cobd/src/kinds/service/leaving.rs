//! Restores the original state of services after the departure of their change object, as far as the last transition
//! did not restore it.
//!
//! A separate process restores it: a unit that ran before starts only after all departing change objects have departed.
//! The switch waits for the end. If the daemon ends first, the next daemon finds the work in the service's folder and
//! starts it again.
//!
//! Each departure has an id, which is in the folder until the change object comes back. The process holds the lock of
//! the folder and stops if the id has gone. Transitions hold the lock, too, so no state is restored after the change
//! object came back.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use cob_types::CobId;
use tracing::warn;

use super::commands::Commands;
use super::folder::ServiceFolder;
use super::unit::{self, Before};
use crate::clock::wall_ns;
use crate::kinds::backend::{Tools, of_folder_name};
use crate::kinds::departure::Attempt;
use crate::run::{Program, RESTORE_SERVICE};

/// The time limit of a command that restarts a service.
const START: Duration = Duration::from_secs(60);

/// The attempt that restores the original state of this folder's service, if there is a note of it. `about` returns the
/// change object that now manages a unit.
pub(super) fn put_back(
    tools: &Tools,
    folder: PathBuf,
    cob: &CobId,
    about: &dyn Fn(&str) -> Option<CobId>,
) -> Option<Attempt> {
    let service = ServiceFolder::new(folder.clone());
    // From now on the service is started by others, even if the change object comes back.
    if let Err(error) = service.forget_plan() {
        warn!(folder = %folder.display(), %error, "the note of the started service is still there");
    }
    if !has_something(&folder) {
        return None;
    }
    let word = wall_ns().to_string();
    // Without the id the attempts fail with an error.
    if let Err(error) = service.note_departure(&word) {
        warn!(folder = %folder.display(), %error, "a departure can't be noted");
    }
    let unit = Before::read(&folder).ok().flatten().map(|before| before.unit().to_owned());
    let successor = unit.and_then(|unit| about(&unit)).filter(|other| other != cob);
    let successor = successor.map(|other| tools.service_folder(&other));
    let program = tools.program().clone();
    Some(Box::new(move || {
        let (program, folder, word, successor) = (program.clone(), folder.clone(), word.clone(), successor.clone());
        Box::pin(async move { attempt_to(&program, &folder, &word, successor.as_deref()).await })
    }))
}

/// Ends a departure: the change object is back in the model.
pub(super) fn is_here(folder: &Path) {
    if let Err(error) = ServiceFolder::new(folder.to_owned()).forget_departure() {
        warn!(folder = %folder.display(), %error, "the original state may be restored although the service is back");
    }
}

/// Deletes the notes of the original state, which will not be restored.
pub(super) fn keep(folder: &Path) {
    if !has_something(folder) {
        return;
    }
    let forgotten = Before::remove(folder)
        .and_then(|()| ServiceFolder::new(folder.to_owned()).forget_that_it_ran().map_err(|e| e.to_string()));
    if let Err(error) = forgotten {
        warn!(folder = %folder.display(), error, "the service would not stay after a restart of the daemon");
    }
}

/// Like [`put_back`], for all departures that an earlier daemon left; `here` says which folders are in use.
pub(super) fn put_back_all(tools: &Tools, here: &dyn Fn(&Path) -> bool) -> Vec<(CobId, Attempt)> {
    // Without the folder there never was a service.
    let Ok(entries) = std::fs::read_dir(tools.services()) else { return Vec::new() };
    let gone = entries.flatten().map(|entry| entry.path()).filter(|folder| !here(folder));
    let named = gone.filter_map(|folder| Some((of_folder_name(folder.file_name()?.to_str()?)?, folder)));
    // The managed units are not known yet. A transition of the unit's change object takes over the notes.
    named.filter_map(|(cob, folder)| Some((cob.clone(), put_back(tools, folder, &cob, &|_| None)?))).collect()
}

/// Whether a change object manages a unit by this folder, or has left it behind.
pub(in crate::kinds) fn is_noted(folder: &Path) -> bool {
    Before::read(folder).map_or(true, |before| before.is_some())
}

fn has_something(folder: &Path) -> bool {
    // The attempt reports an unreadable note.
    is_noted(folder) || ServiceFolder::new(folder.to_owned()).ran().is_some()
}

async fn attempt_to(program: &Program, folder: &Path, word: &str, successor: Option<&Path>) -> Result<(), String> {
    let mut command = program.command(RESTORE_SERVICE, folder);
    command.arg(word).args(successor);
    let mut command = tokio::process::Command::from(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output().await.map_err(|e| e.to_string())?;
    if output.status.success() { Ok(()) } else { Err(reason(&output)) }
}

/// The error: the answer of the process, and not the output of a service.
fn reason(output: &Output) -> String {
    let mut said =
        [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).trim().to_owned()).into_iter();
    let said = said.find(|said| !said.is_empty());
    said.unwrap_or_else(|| format!("the process that restores it ended with {}", output.status))
}

/// A departure, in the process that restores the original state.
pub(super) struct Going<'a> {
    folder: &'a ServiceFolder,
    word: Option<&'a str>,
}

impl<'a> Going<'a> {
    pub(super) fn of(folder: &'a ServiceFolder, word: Option<&'a str>) -> Self {
        Self { folder, word }
    }

    /// Whether the change object is still away. Called before each step.
    pub(super) fn goes_on(&self) -> bool {
        self.word.is_some() && self.folder.departure().as_deref() == self.word
    }
}

/// Restores the original state of this folder's service. `main_if_runner` calls it in a separate process.
pub(crate) fn restore(folder: &Path, more: &[OsString]) -> ExitCode {
    // systemd must be able to read the files.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let folder = ServiceFolder::new(folder.to_owned());
    let word = more.first().and_then(|word| word.to_str());
    match restore_under_locks(&folder, &Going::of(&folder, word), more.get(1).map(Path::new)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            let _ = writeln!(std::io::stdout(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn restore_under_locks(folder: &ServiceFolder, going: &Going<'_>, successor: Option<&Path>) -> Result<(), String> {
    let busy = |e| format!("taking its lock: {e}");
    // The locks are taken in the order that a transition of the successor uses.
    let successor = match successor {
        Some(path) => {
            crate::kinds::backend::make_folder(path).map_err(|e| format!("{}: {e}", path.display()))?;
            let service = ServiceFolder::new(path.to_owned());
            let lock = service.take_lock().map_err(busy)?;
            Some((service, lock))
        }
        None => None,
    };
    let _lock = folder.take_lock().map_err(busy)?;
    if let Some((successor, _)) = successor.as_ref().filter(|_| going.goes_on())
        && let Some(before) = Before::read(folder.path())?
    {
        unit::hand_over(folder.path(), successor.path(), before.unit())?;
    }
    unit::restore(folder.path(), going)?;
    if going.goes_on() {
        start_again(folder)?;
    }
    // The lock prevents a deletion of a later departure's note.
    if going.goes_on() { folder.forget_departure().map_err(|e| e.to_string()) } else { Ok(()) }
}

/// Restarts a service of commands that ran before its change object came.
fn start_again(folder: &ServiceFolder) -> Result<(), String> {
    let Some(plan) = folder.ran() else { return Ok(()) };
    let commands = Commands {
        place: folder.path().to_owned(),
        working_folder: plan.working_folder.clone(),
        environment: plan.environment.clone(),
        redactor: None,
        grace: Duration::from_millis(plan.grace_ms),
        run_as: plan.run_as.clone(),
    };
    let started = commands.run_until(&plan.start, Instant::now() + START, &[]);
    started.map_err(|why| format!("starting it again, which ran before: {why}"))?;
    folder.forget_that_it_ran().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn the_reason_is_the_answer_and_not_the_progress_output() {
        let told = |stdout: &str, stderr: &str| {
            let status = std::process::ExitStatus::from_raw(1 << 8);
            reason(&Output { status, stdout: stdout.into(), stderr: stderr.into() })
        };
        assert_eq!(told("x.service: it can't start\n", "Starting x.service...\n"), "x.service: it can't start");
        assert_eq!(told("", "thread 'main' panicked\n"), "thread 'main' panicked");
        assert_eq!(told("", ""), "the process that restores it ended with exit status: 1");
    }
}
