//! The daemon's side: begins jobs, learns how they end, finds them again.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;
use tracing::warn;

use super::job::{self, FORMAT, JOB_VARIABLE, JobId, JobResult, Spec, SpecFile};
use super::leftovers;
use super::output;
use super::program::Program;
use super::runner::now_ns;
use super::secrets::{self, Opener};
use super::zygote::Zygote;
use crate::durable::{self, Sync};

/// Between two looks at the lock of a job that an earlier daemon began.
const LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// A job that nobody has begun in this time is taken from whoever should have.
const BEGUN_WITHIN: Duration = Duration::from_secs(10);
/// What is left of a lost job gets this long to end when its spec can't be read.
const GRACE: Duration = Duration::from_secs(5);

/// Begins jobs in a folder of job folders, and finds those that are there.
#[derive(Debug, Clone)]
pub struct Runner {
    zygote: Arc<Zygote>,
    root: PathBuf,
    opener: Option<Opener>,
}

/// Why a job could not be begun. Nothing of it runs.
#[derive(Debug, thiserror::Error)]
#[error("{}: {doing}: {source}", .path.display())]
pub struct StartError {
    /// The file or program.
    pub path: PathBuf,
    /// What was tried.
    pub doing: &'static str,
    /// What the system said.
    pub source: io::Error,
}

/// A job that was begun, by this daemon or an earlier one.
#[derive(Debug)]
pub struct Started {
    folder: PathBuf,
    /// At its end when the runner is, and who forks it. None for a job that an earlier daemon began: its lock tells when
    /// it has ended.
    ended: Option<(pipe::Receiver, Arc<Zygote>)>,
}

/// Ends a job before its time.
#[derive(Debug, Clone)]
pub struct Canceller(PathBuf);

/// A job that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundJob {
    /// Its number.
    pub id: JobId,
    /// The caller's words about it; none when the daemon ended before it had written them.
    pub label: Option<String>,
    /// What became of it.
    pub state: FoundState,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundState {
    /// Its runner lives.
    Running,
    /// It has ended and left its result.
    Finished(Box<JobResult>),
    /// Its runner is gone and left no result. Adopt it: what is left of it must be ended.
    Lost,
}

impl Runner {
    /// Job folders are made in `root`.
    ///
    /// # Errors
    /// When the folder can't be made.
    pub fn new(program: Program, root: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        Ok(Self { zygote: Arc::new(Zygote::new(program, root)), root: root.to_owned(), opener: None })
    }

    /// The same, for jobs with secrets too.
    #[must_use]
    pub fn with_opener(self, opener: Opener) -> Self {
        Self { opener: Some(opener), ..self }
    }

    /// Begins a job. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub fn start(&self, spec: &Spec) -> Result<Started, StartError> {
        let folder = spec.id.folder(&self.root);
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(failed(&folder, "making the job's folder"))?;
        let begun = self.begin(&folder, spec);
        if begun.is_err() {
            // Nothing of it is worth keeping, and a folder left here would be taken for a lost job.
            let _ = self.remove(spec.id);
        }
        begun.map(|ended| Started { folder, ended: Some((ended, self.zygote.clone())) })
    }

    fn begin(&self, folder: &Path, spec: &Spec) -> Result<pipe::Receiver, StartError> {
        let lock = make_lock(folder)?;
        write_files(folder, spec, self.open_secrets(folder, spec)?)?;
        self.zygote.run(folder, &lock).map_err(failed(folder, "starting the runner"))
    }

    /// Puts the values of a job's secrets into a private folder, if it has any.
    fn open_secrets(&self, folder: &Path, spec: &Spec) -> Result<Option<PathBuf>, StartError> {
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

    /// Takes away what jobs that are not there any more have left in memory.
    pub fn clear_leftovers(&self) {
        if let Some(opener) = &self.opener {
            opener.clear("jobs", |name| self.root.join(name).is_dir());
        }
    }

    /// A job that an earlier daemon began, in whatever state it is.
    #[must_use]
    pub fn adopt(&self, id: JobId) -> Started {
        Started { folder: id.folder(&self.root), ended: None }
    }

    /// All jobs whose folders are there, in the order of their numbers.
    ///
    /// # Errors
    /// When the folder of jobs can't be listed.
    pub fn scan(&self) -> io::Result<Vec<FoundJob>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(JobId::from_folder) else { continue };
            let folder = entry.path();
            let label = SpecFile::read(&folder).ok().map(|s| s.label);
            let state = if is_locked(&folder) {
                FoundState::Running
            } else {
                JobResult::read(&folder).map_or(FoundState::Lost, |r| FoundState::Finished(Box::new(r)))
            };
            found.push(FoundJob { id, label, state });
        }
        found.sort_by_key(|job| job.id);
        Ok(found)
    }

    /// The last lines that a job has printed so far.
    #[must_use]
    pub fn last_lines(&self, id: JobId) -> String {
        output::last_lines(&id.folder(&self.root))
    }

    /// Deletes a job that has ended; call it once its result is in the journal.
    ///
    /// # Errors
    /// When something of it can't be deleted. No error when there is nothing.
    pub fn remove(&self, id: JobId) -> io::Result<()> {
        let folder = id.folder(&self.root);
        // The secrets first: as long as the job's folder is there, somebody looks for them.
        if let Some(opener) = &self.opener {
            secrets::remove(&opener.job_folder(&folder_name(&folder)))?;
        }
        secrets::remove(&folder)
    }
}

impl Started {
    /// What ends the job before its time; works as long as the job runs.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(self.folder.clone())
    }

    /// Waits for the job's end. When its runner was killed, ends what is left of it first.
    pub async fn ended(mut self) -> JobResult {
        match &mut self.ended {
            Some((ended, zygote)) => {
                if let Err(error) = wait_for_end(&self.folder, ended, zygote).await {
                    warn!(job = %self.folder.display(), %error, "a runner can't be waited for; looking at its lock");
                    wait_for_lock(&self.folder).await;
                }
            }
            None => wait_for_lock(&self.folder).await,
        }
        let folder = self.folder;
        let read = tokio::task::spawn_blocking(move || match JobResult::read(&folder) {
            Some(result) => result,
            None => end_lost(&folder),
        });
        read.await.expect("reading a result does not panic")
    }
}

impl Canceller {
    /// Asks the runner to end the action with its whole process group. The result comes as always.
    ///
    /// # Errors
    /// When the job's folder can't be written to.
    pub fn cancel(&self) -> io::Result<()> {
        match OpenOptions::new().write(true).create(true).truncate(false).open(self.0.join(job::CANCEL)) {
            // It has ended, was recorded and is deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

fn make_lock(folder: &Path) -> Result<File, StartError> {
    let path = folder.join(job::LOCK);
    let lock = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let lock = lock.map_err(failed(&path, "making the lock"))?;
    lock.try_lock().map_err(|e| failed(&path, "locking")(e.into()))?;
    Ok(lock)
}

fn folder_name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn write_files(folder: &Path, spec: &Spec, secrets: Option<PathBuf>) -> Result<(), StartError> {
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
    };
    let bytes = serde_json::to_vec(&file).map_err(|e| failed(folder, "describing the job")(e.into()))?;
    for (name, bytes) in [
        (job::CONTENT, spec.content.as_bytes()),
        (job::IMPORTS, spec.imports.as_bytes()),
        // After a power failure nothing of the job runs: none of these has to survive one.
        (job::SPEC, &bytes),
    ] {
        durable::write_file(folder, name, 0o600, bytes, Sync::Later)
            .map_err(failed(folder, "writing the job's files"))?;
    }
    Ok(())
}

/// Whether a runner holds the job's lock.
fn is_locked(folder: &Path) -> bool {
    File::open(folder.join(job::LOCK)).is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// How the runner ended does not matter: the result tells.
async fn wait_for_end(folder: &Path, ended: &mut pipe::Receiver, zygote: &Zygote) -> io::Result<()> {
    // Nobody ever writes into it.
    let mut gone = std::pin::pin!(ended.read_u8());
    let gone = match timeout(BEGUN_WITHIN, &mut gone).await {
        Ok(gone) => gone,
        Err(_) => {
            if has_not_begun(folder) {
                zygote.replace();
            }
            gone.await
        }
    };
    gone.map(drop).or_else(|error| if error.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(error) })
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
        if !said && begun.elapsed() > BEGUN_WITHIN && has_not_begun(folder) {
            said = true;
            let job = folder.display();
            warn!(%job, "nobody begins it: is there a process `cobd __run-actions` that was stopped? Kill it");
        }
    }
}

/// Ends what is left of a job whose runner was killed.
fn end_lost(folder: &Path) -> JobResult {
    let text = fs::read_to_string(folder.join(job::LOCK)).unwrap_or_default();
    // No number: the runner had not got as far as beginning anything.
    if text.trim().is_empty() {
        warn!(job = %folder.display(), "who should have begun it was killed; nothing of it had begun");
    } else if let Ok(session) = text.trim().parse::<i32>() {
        let grace = SpecFile::read(folder).map_or(GRACE, |s| Duration::from_millis(s.grace_ms));
        let variable = format!("{JOB_VARIABLE}={}", folder.display());
        let count = leftovers::end_leftovers(session, &variable, grace);
        warn!(job = %folder.display(), processes = count, "a runner was killed; what was left of its action was ended");
    }
    JobResult::lost(folder, now_ns())
}

fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> StartError {
    let path = path.to_owned();
    move |source| StartError { path, doing, source }
}

#[cfg(test)]
#[path = "start_test.rs"]
mod tests;
