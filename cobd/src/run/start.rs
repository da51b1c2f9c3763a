//! The daemon's side: starts jobs, receives their results, and finds jobs after a restart.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cob_processes::Trail;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;
use tracing::{info, warn};

use super::job::{self, Exit, FORMAT, JobId, JobResult, Spec, SpecFile};
use super::output;
use super::process::{Process, Processes};
use super::program::Program;
use super::secrets::{self, Opener};
use crate::blocking::beside;
use crate::clock::wall_ns;
use crate::durable::{self, TEMP_SUFFIX};

/// The pause between two checks of the lock of an earlier daemon's job.
const LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// A process that does not take a job within this time is replaced.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// How often the daemon checks whether the runner of a running job was stopped.
const STOPPED: Duration = Duration::from_secs(60);
/// The longest process id in a lock.
const LONGEST_NUMBER: usize = 32;
/// The time for leftovers of a lost job to end if its spec can't be read.
const GRACE: Duration = Duration::from_secs(5);

/// Starts jobs in a folder of job folders, and finds existing jobs.
#[derive(Debug, Clone)]
pub struct Runner {
    processes: Arc<Processes>,
    root: PathBuf,
    opener: Option<Opener>,
    suspects: Suspects,
}

/// The labels of jobs that were lost at their last start. Such a job gets its own runner: perhaps it killed the shared
/// runner.
type Suspects = Arc<Mutex<BTreeSet<String>>>;

/// The reason why a job could not be started. No part of it runs.
#[derive(Debug, thiserror::Error)]
#[error("{}: {doing}: {source}", .path.display())]
pub struct JobStartError {
    /// The file or program.
    pub path: PathBuf,
    /// The operation that failed.
    pub doing: &'static str,
    /// The system's error.
    pub source: io::Error,
}

/// A job started by this daemon or an earlier one.
#[derive(Debug)]
pub struct Started {
    folder: PathBuf,
    label: Option<String>,
    suspects: Suspects,
    /// `None` for a job of an earlier daemon: its lock shows when it has ended.
    heard: Option<Heard>,
}

/// The source of news about a job that this daemon has started.
#[derive(Debug)]
struct Heard {
    /// See [`super::handover`].
    pipe: pipe::Receiver,
    from: Arc<Process>,
    of: Arc<Processes>,
}

/// Cancels a job.
#[derive(Debug, Clone)]
pub struct Canceller(PathBuf);

/// A job found in the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundJob {
    /// Its number.
    pub id: JobId,
    /// The caller's label; `None` if the daemon ended before it had written the spec.
    pub label: Option<String>,
    /// The state of the job.
    pub state: FoundState,
}

/// The state of a found job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundState {
    /// Its runner lives.
    Running,
    /// It has ended and left its result.
    Finished(Box<JobResult>),
    /// Its runner ended without a result. Adopt it: its leftovers must be ended.
    Lost,
}

impl Runner {
    /// Job folders are created in `root`.
    ///
    /// # Errors
    /// If the folder can't be created.
    pub fn new(program: Program, root: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        Ok(Self {
            processes: Arc::new(Processes::new(program, root)),
            root: root.to_owned(),
            opener: None,
            suspects: Suspects::default(),
        })
    }

    /// Allows jobs with secrets, too.
    #[must_use]
    pub fn with_opener(self, opener: Opener) -> Self {
        Self { opener: Some(opener), ..self }
    }

    /// Starts a job. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`JobStartError`]; no process runs then.
    pub fn start(&self, spec: &Spec) -> Result<Started, JobStartError> {
        self.start_in(spec, |_| Ok(())).map(|(started, ())| started)
    }

    /// The same for an attached job, with the files of its standard output and its standard error.
    ///
    /// # Errors
    /// [`JobStartError`]; nothing runs then.
    pub(crate) fn start_attached(&self, spec: &Spec) -> Result<(Started, [File; 2]), JobStartError> {
        let open = |folder: &Path, name: &str| {
            let path = folder.join(name);
            let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path);
            file.map_err(failed(&path, "making the file of its output"))
        };
        // The runner replaces these files after the end of the command.
        self.start_in(spec, |folder| Ok([open(folder, job::STDOUT)?, open(folder, job::OUTPUT)?]))
    }

    fn start_in<T>(
        &self,
        spec: &Spec,
        prepare: impl FnOnce(&Path) -> Result<T, JobStartError>,
    ) -> Result<(Started, T), JobStartError> {
        let folder = spec.id.folder(&self.root);
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(failed(&folder, "making the job's folder"))?;
        let begun = self.begin(&folder, spec, prepare);
        if begun.is_err() {
            // A remaining folder would be considered a lost job.
            let _ = self.remove(spec.id);
        }
        begun.map(|(heard, prepared)| (self.started(folder, Some(spec.label.clone()), Some(heard)), prepared))
    }

    fn begin<T>(
        &self,
        folder: &Path,
        spec: &Spec,
        prepare: impl FnOnce(&Path) -> Result<T, JobStartError>,
    ) -> Result<(Heard, T), JobStartError> {
        let lock = make_lock(folder)?;
        let secrets = self.open_secrets(folder, spec)?;
        let prepared = prepare(secrets.as_deref().unwrap_or(folder))?;
        let alone = secrets.is_some() || locked(&self.suspects).contains(&spec.label);
        write_files(folder, spec, secrets)?;
        let of = self.processes.clone();
        let begun = if alone { of.run_alone(folder, &lock) } else { of.run(folder, &lock) };
        let (pipe, from) = begun.map_err(failed(folder, "starting the runner"))?;
        Ok((Heard { pipe, from, of }, prepared))
    }

    /// Writes the values of a job's secrets into a private folder, if it has any.
    fn open_secrets(&self, folder: &Path, spec: &Spec) -> Result<Option<PathBuf>, JobStartError> {
        if spec.secrets.is_empty() {
            return Ok(None);
        }
        let refused = |what: String| failed(folder, "opening its secrets")(io::Error::other(what));
        let opener = self.opener.as_ref().ok_or_else(|| refused("this host has no key".to_owned()))?;
        let opened = opener.open(spec.secrets.iter().map(|(id, bytes)| (id, bytes.as_slice()))).map_err(refused)?;
        let private = opener.job_folder(&folder_name(folder));
        let written = opener.make(&private).and_then(|()| opened.write(&private));
        written.map(|()| Some(private.clone())).map_err(failed(&private, "putting its secrets into memory"))
    }

    /// Deletes private folders of jobs that do not exist any more, and jobs whose deletion was interrupted.
    pub fn clear_leftovers(&self) {
        durable::sweep(&self.root);
        if let Some(opener) = &self.opener {
            opener.clear("jobs", |name| self.root.join(name).is_dir());
        }
    }

    /// Adopts a job of an earlier daemon, in any state.
    #[must_use]
    pub fn adopt(&self, id: JobId) -> Started {
        let folder = id.folder(&self.root);
        let label = SpecFile::read(&folder).ok().map(|spec| spec.label);
        self.started(folder, label, None)
    }

    fn started(&self, folder: PathBuf, label: Option<String>, heard: Option<Heard>) -> Started {
        Started { folder, label, suspects: self.suspects.clone(), heard }
    }

    /// The folder of a job, which is there until it is [removed](Self::remove).
    pub(crate) fn folder(&self, id: JobId) -> PathBuf {
        id.folder(&self.root)
    }

    /// All jobs with a folder, in the order of their numbers.
    ///
    /// # Errors
    /// If the folder of jobs can't be listed.
    pub fn scan(&self) -> io::Result<Vec<FoundJob>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(JobId::from_folder) else { continue };
            let folder = entry.path();
            let label = SpecFile::read(&folder).ok().map(|s| s.label);
            // The lock first: the result is in place before the lock is released. An unreadable result: still running.
            let read = if is_locked(&folder) { None } else { JobResult::read(&folder).ok() };
            let state = match read {
                None => FoundState::Running,
                Some(Some(result)) => FoundState::Finished(Box::new(result)),
                Some(None) => FoundState::Lost,
            };
            found.push(FoundJob { id, label, state });
        }
        found.sort_by_key(|job| job.id);
        Ok(found)
    }

    /// The last lines that a job has printed so far.
    #[must_use]
    pub fn last_lines(&self, id: JobId) -> String {
        let folder = id.folder(&self.root);
        // As long as the private folder exists, the output is in it, not yet cleaned of values.
        let private = self.opener.as_ref().map(|opener| opener.job_folder(&folder_name(&folder)));
        match private.filter(|private| job::present(private)) {
            Some(private) => output::private_last_lines(&private),
            None => output::last_lines(&folder),
        }
    }

    /// Deletes a job that has ended; call it once its result is in the journal.
    ///
    /// # Errors
    /// If a part of it can't be deleted. A missing job is no error.
    pub fn remove(&self, id: JobId) -> io::Result<()> {
        let folder = id.folder(&self.root);
        // The secrets first: they are found as long as the job's folder exists.
        if let Some(opener) = &self.opener {
            secrets::remove(&opener.job_folder(&folder_name(&folder)))?;
        }
        // Rename first: half a folder would be considered a job whose runner was killed.
        let going = PathBuf::from(format!("{}{TEMP_SUFFIX}", folder.display()));
        match fs::rename(&folder, &going) {
            Err(error) if !job::is_absent(&error) => Err(error),
            Ok(()) | Err(_) => secrets::remove(&going),
        }
    }
}

impl Started {
    /// A handle that can cancel the job while it runs.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.folder.clone())
    }

    /// Waits for the job's end. If its runner was killed, ends its leftovers first.
    pub async fn ended(mut self) -> JobResult {
        match self.heard.as_mut().map(Heard::end) {
            Some(end) => {
                if let Err(error) = end.await {
                    warn!(job = %self.folder.display(), %error, "a runner can't be waited for; looking at its lock");
                    wait_for_lock(&self.folder).await;
                }
            }
            None => wait_for_lock(&self.folder).await,
        }
        drop(self.heard);
        let result = result_of(self.folder).await;
        if let Some(label) = self.label {
            let mut suspects = locked(&self.suspects);
            if result.exit == Exit::Lost {
                suspects.insert(label)
            } else {
                suspects.remove(&label)
            };
        }
        result
    }
}

impl Canceller {
    /// Asks the runner to end the action with its whole process group. The result arrives as usual.
    ///
    /// # Errors
    /// If the job's folder can't be written to.
    pub fn cancel(&self) -> io::Result<()> {
        match OpenOptions::new().write(true).create_new(true).open(self.0.join(job::CANCEL)) {
            // It was cancelled before; or it has ended, was recorded and is deleted.
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

fn make_lock(folder: &Path) -> Result<File, JobStartError> {
    let path = folder.join(job::LOCK);
    let lock = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let lock = lock.map_err(failed(&path, "making the lock"))?;
    lock.try_lock().map_err(|e| failed(&path, "locking")(e.into()))?;
    Ok(lock)
}

fn folder_name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn write_files(folder: &Path, spec: &Spec, secrets: Option<PathBuf>) -> Result<(), JobStartError> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let file = SpecFile {
        format: FORMAT,
        label: spec.label.clone(),
        command: spec.command.clone(),
        environment: spec.environment.clone(),
        folder: spec.folder.clone(),
        timeout_ms: millis(spec.timeout),
        grace_ms: millis(spec.grace),
        stdout_apart: spec.stdout_apart,
        durable: spec.durable,
        secrets,
        attached: spec.attached,
    };
    let bytes = serde_json::to_vec(&file).map_err(|e| failed(folder, "describing the job")(e.into()))?;
    for (name, bytes) in
        [(job::CONTENT, spec.content.as_bytes()), (job::IMPORTS, spec.imports.as_bytes()), (job::SPEC, &bytes)]
    {
        // These files are only read after the job is handed over. After a power failure no part of the job runs, so
        // they need not survive it.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(name));
        file.and_then(|mut file| file.write_all(bytes)).map_err(failed(folder, "writing the job's files"))?;
    }
    Ok(())
}

/// Whether a runner holds the job's lock, or the state is unknown.
fn is_locked(folder: &Path) -> bool {
    match job::open_regular(&folder.join(job::LOCK)) {
        Ok(lock) => matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(error) => !job::is_absent(&error),
    }
}

/// Reads the result of a job that no runner has any more. If its runner was killed, ends its leftovers first.
async fn result_of(folder: PathBuf) -> JobResult {
    let mut told = false;
    loop {
        let its = folder.clone();
        let read = beside(move || match JobResult::read(&its)? {
            Some(result) => Ok(result),
            None => end_lost(&its),
        });
        match read.await.unwrap_or_else(|lost| Err(io::Error::other(lost))) {
            Ok(result) => return result,
            // If it were considered lost, it would run again.
            Err(error) if !std::mem::replace(&mut told, true) => {
                warn!(job = %folder.display(), %error, "how it ended can't be read; trying again until it can");
            }
            Err(_) => {}
        }
        tokio::time::sleep(LOOK.1).await;
    }
}

impl Heard {
    /// Waits until the job is done or its runner is gone. The result shows which.
    async fn end(&mut self) -> io::Result<()> {
        // The runner reports when it takes the job and when the job is done.
        let (mut heard, mut silent) = (0, 0);
        while heard < 2 {
            let patience = if heard == 0 { TAKEN_WITHIN } else { STOPPED };
            match timeout(patience, self.pipe.read(&mut [0; 2])).await {
                Ok(Ok(0)) => return Ok(()),
                Ok(read) => heard += read?,
                Err(_) if heard == 0 && silent > 0 => self.of.replace(&self.from),
                Err(_) => {
                    silent += 1;
                    self.from.let_go_on();
                }
            }
        }
        Ok(())
    }
}

/// Whether no runner has written its process id yet.
fn has_not_begun(folder: &Path) -> bool {
    fs::metadata(folder.join(job::LOCK)).is_ok_and(|lock| lock.len() == 0)
}

async fn wait_for_lock(folder: &Path) {
    let (mut pause, begun) = (LOOK.0, Instant::now());
    let mut said = false;
    while is_locked(folder) {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK.1);
        if !said && begun.elapsed() > TAKEN_WITHIN && has_not_begun(folder) {
            said = true;
            let job = folder.display();
            warn!(%job, "no process starts it: is there a stopped process `cobd __run-actions`? Kill it");
        }
    }
}

/// The content that a runner has written into the lock of a job; `None` if the lock is missing.
fn signed(folder: &Path) -> io::Result<Option<String>> {
    let lock = job::read_if_there(&folder.join(job::LOCK), LONGEST_NUMBER)?;
    Ok(lock.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
}

/// The marks by which the processes of an action are found.
fn trail(folder: &Path, spec: Option<&SpecFile>, signed: Option<&str>) -> Trail {
    let place = spec.and_then(|spec| spec.secrets.as_deref()).unwrap_or(folder);
    let attached = spec.is_some_and(|spec| spec.attached);
    Trail::new(signed, cob_processes::mark(folder))
        .in_any_session(attached)
        .with_outputs([job::OUTPUT, job::STDOUT].map(|name| place.join(name)))
}

/// Kills all processes of an action except its runner, for tests of kinds; returns whether there were any.
pub(crate) fn kill_action(folder: &Path) -> bool {
    let signed = signed(folder).ok().flatten().filter(|text| !text.is_empty());
    let spec = SpecFile::read(folder).ok();
    signed.is_some_and(|signed| trail(folder, spec.as_ref(), Some(&signed)).kill() > 0)
}

/// Ends the leftovers of a job whose runner was killed.
fn end_lost(folder: &Path) -> io::Result<JobResult> {
    let text = signed(folder)?;
    let job = folder.display();
    // No number: the runner had started no process yet.
    if text.as_ref().is_some_and(String::is_empty) {
        warn!(%job, "its runner was killed before the start, or could open no more files; the action had not started");
    } else {
        let spec = SpecFile::read(folder).ok();
        let grace = spec.as_ref().map_or(GRACE, |spec| Duration::from_millis(spec.grace_ms));
        let processes = trail(folder, spec.as_ref(), text.as_deref()).end(grace);
        if text.is_none() && processes == 0 {
            info!(%job, "its daemon ended before the start");
        } else {
            warn!(%job, processes, "its runner was killed; the rest of its action was ended");
        }
    }
    Ok(JobResult::lost(folder, wall_ns()))
}

fn locked(suspects: &Suspects) -> MutexGuard<'_, BTreeSet<String>> {
    suspects.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> JobStartError {
    let path = path.to_owned();
    move |source| JobStartError { path, doing, source }
}

#[cfg(test)]
#[path = "start_test.rs"]
mod tests;
