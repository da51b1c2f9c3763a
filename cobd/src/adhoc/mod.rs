//! Commands that an operator runs on this host at once (`cobctl run`), beside the engine and its change objects.
//!
//! ```text
//!   web/run ──order──> [Adhoc] ──note──> the daemon's loop (history)
//!      ^                  └──job──> run/ (runner) ──> the command
//!      └── events ── [Running] <── its output files
//! ```
//!
//! A command is a job like an action, with a runner, a job folder and bounded output. It differs in two points. When
//! the daemon is gone, the runner ends the command with every process that it has started. When the operator's
//! connection ends, the command ends, too: the connection holds its [`Running`]. In each case the end is recorded, and
//! the output kept.

mod follow;
mod kept;
mod order;
mod running;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cob_types::HostName;
use cob_types::command_run::{RunEnd, RunExit, RunId, RunOrder, RunRecord, StoredRun};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tracing::{info, warn};

use crate::blocking::{beside, beside_or_here};
use crate::config::Config;
use crate::durable;
use crate::run::{Exit, JobId, JobResult, Opener, Program, Redactor, Runner, Sealed, Spec, Started, base_environment};
use crate::web::{Refusal, RefusalKind};

use kept::RunFolder;
use order::Checked;
pub use running::Running;

/// The most commands that run on a host at a time.
pub const AT_ONCE: usize = 8;
/// Between asking a command to end and killing it.
const GRACE: Duration = Duration::from_secs(5);
/// Marks the job of a command: jobs of change objects have smaller numbers.
const JOB: u64 = 1 << 63;
/// The hint for a host that forbids commands.
const FORBIDDEN: &str = "set `run = true` in its cobd.toml and restart cobd there, if commands are to be allowed";

/// A record of a command for the history.
#[derive(Debug)]
pub struct Note {
    /// The start or the end of a command.
    pub record: RunRecord,
    /// The author of the order; absent at the end of a command.
    pub who: Option<String>,
    /// Told when the record is durable.
    pub durable: oneshot::Sender<()>,
}

/// Runs commands. Clones are the same.
#[derive(Debug, Clone)]
pub struct Adhoc(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    host: HostName,
    allowed: bool,
    runner: Runner,
    opener: Opener,
    kept: RunFolder,
    places: Arc<Semaphore>,
    running: Mutex<BTreeSet<RunId>>,
    notes: mpsc::Sender<Note>,
}

/// The description of a job's command, for the next life of the daemon.
#[derive(Debug, Serialize, Deserialize)]
struct Label {
    line: String,
    who: String,
}

/// A running command, which takes a place of this host.
#[derive(Debug)]
struct Place {
    run: RunId,
    of: Adhoc,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.running().remove(&self.run);
    }
}

impl Adhoc {
    /// Job folders and kept outputs are below the state folder; records for the history go to `notes`.
    ///
    /// # Errors
    /// If a folder can't be made there.
    pub(crate) fn new(
        config: &Config,
        state_dir: &Path,
        program: Program,
        opener: Opener,
        notes: mpsc::Sender<Note>,
    ) -> io::Result<Self> {
        let folder = state_dir.join("runs");
        let jobs = folder.join("jobs");
        let runner = Runner::new(program, &jobs)?.with_opener(opener.clone());
        durable::sweep(&jobs);
        let kept = RunFolder::new(folder.join("kept"))?;
        let (places, running) = (Arc::new(Semaphore::new(AT_ONCE)), Mutex::default());
        let host = config.host.clone();
        Ok(Self(Arc::new(Inner { host, allowed: config.run, runner, opener, kept, places, running, notes })))
    }

    /// Ends commands of an earlier life of the daemon, and records their ends. Must be called in a tokio runtime.
    pub(crate) fn returned(&self) {
        let found = self.0.runner.scan().unwrap_or_else(|error| {
            warn!(%error, "the commands of an earlier daemon can't be found");
            Vec::new()
        });
        for job in found {
            let label = job.label.as_deref().and_then(|text| serde_json::from_str::<Label>(text).ok());
            let adhoc = self.clone();
            tokio::spawn(async move {
                let adopted = adhoc.0.runner.adopt(job.id);
                // If it can't be asked to end, its runner has seen the end of the daemon.
                let _ = adopted.canceller().cancel();
                let result = adopted.ended().await;
                let run = RunId::of(job.id.0);
                match label {
                    Some(label) => {
                        let end = adhoc.end(run, &label, result, true).await;
                        info!(%run, "a command of an earlier daemon: {end}");
                    }
                    // The command had not started.
                    None => adhoc.remove(run).await,
                }
            });
        }
    }

    /// Runs a command, in tasks of its own. Values of `secrets` are removed from the output.
    pub(crate) fn begin(
        &self,
        order: RunOrder,
        who: String,
        secrets: Sealed,
        reply: oneshot::Sender<Result<Running, Refusal>>,
    ) {
        let adhoc = self.clone();
        tokio::spawn(async move {
            // Without a receiver the operator is gone: the drop ends the command.
            let _ = reply.send(adhoc.started(order, who, secrets).await);
        });
    }

    /// Looks up the kept output of a run, in a task of its own.
    pub(crate) fn kept(&self, run: RunId, reply: oneshot::Sender<Option<StoredRun>>) {
        let adhoc = self.clone();
        tokio::spawn(async move {
            let found = beside(move || adhoc.0.kept.read(run)).await.ok().flatten();
            let _ = reply.send(found);
        });
    }

    async fn started(&self, order: RunOrder, who: String, secrets: Sealed) -> Result<Running, Refusal> {
        let Inner { host, .. } = &*self.0;
        if !self.0.allowed {
            let what = format!("{host} accepts no commands of operators: `run = false` in its cobd.toml");
            return Err(Refusal::new(RefusalKind::Forbidden, what, FORBIDDEN));
        }
        order::check(&order)?;
        let run = order.run.unwrap_or_else(drawn);
        let place = self.place(run)?;
        let opener = self.0.opener.clone();
        let prepared = beside(move || {
            let checked = Checked::of(order)?;
            let opened = opener.open(secrets.iter().map(|(id, bytes)| (id, bytes.as_slice()))).map_err(|why| {
                let hint = "the log of cobd on that host and `cobctl status` name the fault of its key";
                Refusal::new(
                    RefusalKind::Unavailable,
                    format!("the command was not run, because its output could not be cleaned of secrets: {why}"),
                    hint,
                )
            })?;
            let redactor = opened.redactor();
            let line = redactor.text(&checked.line);
            Ok((checked, secrets, redactor, line))
        });
        let prepared = prepared.await.map_err(|why| unavailable(&why.to_string()))?;
        let (checked, secrets, redactor, line) = prepared?;
        let label = Label { line, who };
        info!(%run, who = label.who, "ordered: run {}", label.line);
        let begun = RunRecord::Begun { run, line: label.line.clone(), user: checked.user.clone() };
        // The command starts only after its record is durable.
        self.note(begun, Some(label.who.clone())).await.map_err(|()| unavailable("the daemon is stopping"))?;
        let spec = spec(run, checked, secrets, &label);
        let runner = self.0.runner.clone();
        let started = beside_or_here(move || runner.start_attached(&spec)).await;
        match started {
            Ok((job, outputs)) => Ok(self.watched(place, label, job, outputs, redactor)),
            Err(error) => {
                let end = RunEnd { exit: RunExit::NotStarted(error.to_string()), took_ms: None, cut: None };
                // If the daemon stops meanwhile, its operator gets the same refusal.
                let _ = self.note(RunRecord::Ended { run, end }, None).await;
                Err(unavailable(&error.to_string()))
            }
        }
    }

    /// Supervises a command up to its end, even without its operator.
    fn watched(
        &self,
        place: Place,
        label: Label,
        job: Started,
        outputs: [std::fs::File; 2],
        redactor: Redactor,
    ) -> Running {
        let (tell, ended) = watch::channel(None);
        let (run, canceller) = (place.run, job.canceller());
        let adhoc = self.clone();
        tokio::spawn(async move {
            let end = adhoc.end(run, &label, job.ended().await, false).await;
            drop(place);
            tell.send_replace(Some(end));
        });
        Running::new(self.0.host.clone(), run, outputs, redactor, ended, canceller)
    }

    /// Keeps the output of a command, and records its end.
    async fn end(&self, run: RunId, label: &Label, result: JobResult, by_daemon: bool) -> RunEnd {
        let (adhoc, host) = (self.clone(), self.0.host.clone());
        let (line, who) = (label.line.clone(), label.who.clone());
        let kept = beside_or_here(move || {
            let folder = adhoc.0.runner.folder(job_of(run));
            let (stdout, stderr, cut) = kept::outputs(&folder, &result.exit);
            let end =
                RunEnd { exit: exit(result.exit, by_daemon), took_ms: took(result.began_ns, result.ended_ns), cut };
            let kept = StoredRun { run, host, line, who, end, stdout, stderr };
            if let Err(error) = adhoc.0.kept.write(&kept) {
                warn!(%run, %error, "the output of a command could not be kept");
            }
            kept.end
        });
        let end = kept.await;
        // Without its record the job stays, and the next life of the daemon finds it.
        if self.note(RunRecord::Ended { run, end: end.clone() }, None).await.is_ok() {
            self.remove(run).await;
        }
        end
    }

    async fn remove(&self, run: RunId) {
        let runner = self.0.runner.clone();
        let removed = beside(move || runner.remove(job_of(run))).await;
        if let Ok(Err(error)) = removed {
            warn!(%run, %error, "the job folder of a command could not be deleted");
        }
    }

    /// Sends a record to the loop, and waits until it is durable.
    async fn note(&self, record: RunRecord, who: Option<String>) -> Result<(), ()> {
        let (durable, written) = oneshot::channel();
        self.0.notes.send(Note { record, who, durable }).await.map_err(drop)?;
        written.await.map_err(drop)
    }

    fn place(&self, run: RunId) -> Result<Place, Refusal> {
        let Ok(permit) = self.0.places.clone().try_acquire_owned() else {
            let what = format!("{} has {AT_ONCE} running commands already; more are not allowed", self.0.host);
            return Err(Refusal::new(RefusalKind::Unavailable, what, "wait until a command has ended"));
        };
        let is_kept = self.0.kept.has(run) || self.0.runner.folder(job_of(run)).exists();
        if is_kept || !self.running().insert(run) {
            let what = format!("the number {run} is that of another command");
            return Err(Refusal::new(RefusalKind::Conflict, what, "leave `run` out, or draw another number"));
        }
        Ok(Place { run, of: self.clone(), _permit: permit })
    }

    fn running(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(why: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Unavailable,
        format!("the command was not run: {why}"),
        "look at the log of cobd on that host",
    )
}

fn drawn() -> RunId {
    use std::hash::{BuildHasher as _, RandomState};
    RunId::of(RandomState::new().hash_one(std::time::SystemTime::now()))
}

fn job_of(run: RunId) -> JobId {
    JobId(run.number() | JOB)
}

fn spec(run: RunId, checked: Checked, secrets: Sealed, label: &Label) -> Spec {
    let mut environment = base_environment();
    environment.extend(checked.environment);
    Spec {
        id: job_of(run),
        label: serde_json::to_string(label).expect("it is text"),
        command: checked.command,
        environment,
        folder: checked.folder,
        timeout: checked.timeout,
        grace: GRACE,
        content: "null".to_owned(),
        imports: "{}".to_owned(),
        stdout_apart: true,
        durable: true,
        secrets,
        attached: true,
    }
}

fn exit(exit: Exit, by_daemon: bool) -> RunExit {
    match exit {
        Exit::Exited(status) => RunExit::Exited(status),
        Exit::Signal(signal) => RunExit::Signal(signal),
        Exit::TimedOut => RunExit::TimedOut,
        Exit::Cancelled if by_daemon => RunExit::DaemonEnded,
        Exit::Cancelled => RunExit::Cancelled,
        Exit::SpawnFailed(why) => RunExit::NotStarted(why),
        Exit::Lost => RunExit::Lost,
    }
}

fn took(began_ns: u64, ended_ns: u64) -> Option<u64> {
    (began_ns > 0).then(|| ended_ns.saturating_sub(began_ns) / 1_000_000)
}

#[cfg(test)]
mod tests;
