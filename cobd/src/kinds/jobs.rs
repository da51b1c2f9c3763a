//! Checks and transitions as jobs: started here, reported through a channel.

mod asks;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cob_types::status::FileDrift;
use cob_types::{Cob, CobId, Kind, Packed};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tracing::warn;

use super::backend::{Backend, CheckOutcome, Context, Outcome, Process, Tools, TransitionAttempt, Work, make_folder};
use super::departure::{Attempt, Departure};
use super::saved::Saved;
use super::{container, kept, registry, service};
use crate::blocking::{beside, beside_or_here};
use crate::clock::wall_ns;
use crate::run::{Exit, FoundState, JobId, JobResult, JobStartError, Opener, Program, Runner, Spec};

/// The most processes that start at the same time: more would only wait for the same disk and processors.
const PARALLEL_STARTS: usize = 4;
/// The most drift hints that wait for the daemon's loop.
const DRIFTS: usize = 256;

/// All kinds of this daemon.
pub struct Kinds {
    backends: BTreeMap<&'static str, Arc<dyn Backend>>,
    hands: Hands,
    drifts: Option<mpsc::Receiver<CobId>>,
    departed: Arc<Notify>,
}

/// The parts that every job needs.
#[derive(Clone)]
struct Hands {
    tools: Arc<Tools>,
    runner: Runner,
    opener: Option<Opener>,
    starts: Arc<Semaphore>,
    ended: mpsc::Sender<JobEnded>,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnded {
    /// The job.
    pub job: JobId,
    /// The change object of the job.
    pub cob: CobId,
    /// The result.
    pub end: JobEnd,
    /// The last lines of its output, escaped for a terminal.
    pub last_lines: String,
    /// The start in nanoseconds since 1970; zero: not known.
    pub began_ns: u64,
    /// The end in nanoseconds since 1970.
    pub ended_ns: u64,
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// A check.
    Checked(CheckOutcome),
    /// A transition.
    Moved(Outcome),
}

/// A handle that can cancel a running job. Dropping it has no effect.
#[derive(Debug)]
pub struct JobHandle {
    cancel: watch::Sender<bool>,
    /// The job has a folder, which stays until [`Kinds::remove`].
    folder: bool,
}

/// The subject of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// The change object.
    pub cob: CobId,
    /// The transition. `None`: the job is a check.
    #[serde(rename = "hop")]
    pub attempt: Option<TransitionAttempt>,
}

/// A job that an earlier daemon began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundAction {
    /// The job.
    pub job: JobId,
    /// The subject. `None`: the daemon ended before it had written the label, so the job never started.
    pub label: Option<Label>,
    /// Its runner is alive.
    pub running: bool,
}

/// Why a change object can't be checked or moved at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    /// No back end has this name.
    #[error("kind {kind}: there is no back end {backend:?}; there are {known}")]
    NoBackend {
        /// The kind.
        kind: String,
        /// The missing back end.
        backend: String,
        /// The names of all back ends.
        known: String,
    },
    /// The back end can't work with this kind.
    #[error("kind {kind}: {what}")]
    Kind {
        /// The kind.
        kind: String,
        /// The fault.
        what: String,
    },
    /// The back end can't work with this content.
    #[error("change object {cob}: {what}")]
    Content {
        /// The change object.
        cob: CobId,
        /// The fault.
        what: String,
    },
}

impl Kinds {
    /// Creates all kinds, which keep their data below `state_dir` and report ends of jobs to `ended`.
    ///
    /// # Errors
    /// If folders can't be created there.
    pub fn new(state_dir: &Path, program: Program, ended: mpsc::Sender<JobEnded>) -> io::Result<Self> {
        Self::with_opener(state_dir, program, None, ended)
    }

    /// Like [`Kinds::new`], and opens contents with secrets.
    ///
    /// # Errors
    /// If folders can't be created there.
    pub fn with_opener(
        state_dir: &Path,
        program: Program,
        opener: Option<Opener>,
        ended: mpsc::Sender<JobEnded>,
    ) -> io::Result<Self> {
        let mut runner = Runner::new(program.clone(), &state_dir.join("jobs"))?;
        if let Some(opener) = &opener {
            runner = runner.with_opener(opener.clone());
            service::clear_leftovers(state_dir, opener);
            container::clear_leftovers(state_dir, opener);
        }
        runner.clear_leftovers();
        let (drift, drifts) = mpsc::channel(DRIFTS);
        let hands = Hands {
            tools: Arc::new(Tools::new(state_dir, program, opener.clone(), drift)),
            runner,
            opener,
            starts: Arc::new(Semaphore::new(PARALLEL_STARTS)),
            ended,
        };
        let backends = registry::all().into_iter().map(|b| (b.name(), b)).collect();
        Ok(Self { backends, hands, drifts: Some(drifts), departed: Arc::default() })
    }

    /// The channel of change objects that may have changed from outside: hints to check them. Only the first call
    /// returns it.
    pub fn take_drifts(&mut self) -> Option<mpsc::Receiver<CobId>> {
        self.drifts.take()
    }

    /// Validates a kind before a generation is adopted.
    ///
    /// # Errors
    /// [`KindError`] with the fault.
    pub fn accept(&self, kind: &Kind) -> Result<(), KindError> {
        let backend = self.backend(kind)?;
        backend.accept(kind).map_err(|what| KindError::Kind { kind: kind.name.to_string(), what })
    }

    /// Validates a change object before a generation is adopted.
    ///
    /// # Errors
    /// [`KindError`] with the fault.
    pub fn accept_cob(&self, kind: &Kind, cob: &Cob) -> Result<(), KindError> {
        let backend = self.backend(kind)?;
        backend
            .accept_content(&cob.content)
            .and_then(|()| backend.accept_here(cob))
            .map_err(|what| KindError::Content { cob: cob.id.clone(), what })
    }

    /// Tests whether this host can decrypt the new secrets of a bundle.
    ///
    /// # Errors
    /// The reason as text.
    pub fn accept_secrets(&self, bundle: &Packed, before: &Packed) -> Result<(), String> {
        let mut new =
            bundle.secrets().iter().filter(|(id, sealed)| before.secrets().get(*id) != Some(*sealed)).peekable();
        if new.peek().is_none() {
            return Ok(());
        }
        let opener = self.hands.opener.as_ref().ok_or("it has secrets, and this host has no key")?;
        opener.try_open(new.map(|(id, sealed)| (id, sealed.as_slice())))
    }

    /// Whether transitions of this kind outlive the daemon, so that their start must be durable first.
    pub fn durable(&self, kind: &Kind) -> Result<bool, KindError> {
        self.backend(kind).map(Backend::durable)
    }

    /// Whether parallel checks of this kind bring no gain.
    #[must_use]
    pub fn checks_in_turn(&self, kind: &Kind) -> bool {
        self.backend(kind).is_ok_and(Backend::checks_in_turn)
    }

    /// Whether a transition of this kind may be cancelled without leftovers.
    #[must_use]
    pub fn only_waits(&self, kind: &Kind, attempt: &TransitionAttempt) -> bool {
        self.backend(kind).is_ok_and(|backend| backend.only_waits(kind, attempt))
    }

    /// Starts a check. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`KindError::NoBackend`]; other failures are the check's result.
    pub fn check(&self, job: JobId, context: Context) -> Result<JobHandle, KindError> {
        let work = self.backend(&context.kind)?.check(&self.hands.tools, &context);
        Ok(self.hands.begin(job, About::check(&context), &context, work))
    }

    /// Starts a check of a change object whose generation is not active yet, if the check is a separate process. Checks
    /// inside the daemon are skipped: they are fast, and they remember their findings. Must be called within a tokio
    /// runtime.
    pub fn look_ahead(&self, job: JobId, context: Context) -> Result<Option<JobHandle>, KindError> {
        let work = self.backend(&context.kind)?.check(&self.hands.tools, &context);
        let is_process = matches!(work, Work::Process(_));
        Ok(is_process.then(|| self.hands.begin(job, About::check(&context), &context, work)))
    }

    /// Starts a transition. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`KindError::NoBackend`]; other failures are the transition's result.
    pub fn transition(&self, job: JobId, context: Context, attempt: TransitionAttempt) -> Result<JobHandle, KindError> {
        let backend = self.backend(&context.kind)?;
        let work = backend.transition(&self.hands.tools, &context, &attempt);
        Ok(self.hands.begin(job, About::attempt(&context, attempt, backend.saves()), &context, work))
    }

    /// The jobs that an earlier daemon started.
    ///
    /// # Errors
    /// If the folder of jobs can't be listed.
    pub fn scan(&self) -> io::Result<Vec<FoundAction>> {
        let found = self.hands.runner.scan()?.into_iter();
        Ok(found
            .map(|found| FoundAction {
                job: found.id,
                label: found.label.and_then(|text| serde_json::from_str(&text).ok()),
                running: found.state == FoundState::Running,
            })
            .collect())
    }

    /// Takes over a transition that an earlier daemon started, and reports its end. The result is [`Outcome::Lost`] if
    /// the runner was killed or the transition ran inside the earlier daemon.
    pub fn adopt(&self, job: JobId, context: Context, attempt: TransitionAttempt) -> Result<JobHandle, KindError> {
        let backend = self.backend(&context.kind)?;
        let work = backend.adopted(&self.hands.tools, &context, &attempt);
        Ok(self.hands.adopt(job, About::attempt(&context, attempt, backend.saves()), work))
    }

    /// Cancels a job whose result is not needed (a check of an earlier daemon), and deletes it.
    pub fn discard(&self, job: JobId) {
        let runner = self.hands.runner.clone();
        tokio::spawn(async move {
            let adopted = runner.adopt(job);
            // If the cancellation fails, the job ends by its timeout.
            let _ = adopted.canceller().cancel();
            adopted.ended().await;
            remove(runner, job).await;
        });
    }

    /// Deletes the folder of a transition. Call it after the end is in the journal.
    pub fn remove(&self, job: JobId) {
        tokio::spawn(remove(self.hands.runner.clone(), job));
    }

    /// The last output lines of a running job.
    #[must_use]
    pub fn last_lines(&self, job: JobId) -> String {
        self.hands.runner.last_lines(job)
    }

    /// The last output lines of a change object's running job, or the condition that a kind inside the daemon waits
    /// for.
    #[must_use]
    pub fn said(&self, job: JobId, cob: &CobId) -> String {
        let lines = self.last_lines(job);
        if lines.is_empty() { self.backends.values().find_map(|b| b.said(cob)).unwrap_or_default() } else { lines }
    }

    /// Forgets a departed change object and starts to restore its original state. The switch ends after the returned
    /// departures.
    #[must_use]
    pub fn forget(&self, cob: &CobId) -> Vec<Departure> {
        self.forget_all_of(cob);
        let attempts = self.backends.values().filter_map(|b| b.left(&self.hands.tools, cob));
        attempts.map(|attempt| self.departure(cob.clone(), attempt)).collect()
    }

    fn departure(&self, cob: CobId, attempt: Attempt) -> Departure {
        Departure::begin(cob, attempt, Arc::clone(&self.departed))
    }

    /// Notified of every step of a departure.
    pub fn departed(&self) -> Arc<Notify> {
        Arc::clone(&self.departed)
    }

    /// Announces that a change object is in the model. Work left from an earlier departure stops.
    pub fn is_here(&self, cob: &CobId, kind: &Kind) {
        if let Ok(backend) = self.backend(kind) {
            backend.is_here(&self.hands.tools, cob);
        }
    }

    /// Forgets a departed change object whose effects stay on the host.
    pub fn forget_kept(&self, cob: &CobId) {
        self.forget_all_of(cob);
        self.backends.values().for_each(|b| b.kept(&self.hands.tools, cob));
    }

    fn forget_all_of(&self, cob: &CobId) {
        self.backends.values().for_each(|b| b.forget(cob));
        if let Err(error) = self.hands.tools.saved().forget(cob) {
            warn!(%cob, %error, "the data that its transitions have saved can't be deleted");
        }
    }

    /// The changes from outside that the last check of this change object found.
    #[must_use]
    pub fn drift(&self, cob: &CobId) -> Vec<FileDrift> {
        self.backends.values().flat_map(|b| b.drift(cob)).collect()
    }

    /// The persistent folder of a change object.
    pub(super) fn own_folder(&self, cob: &CobId) -> PathBuf {
        self.hands.tools.own_folder(cob)
    }

    /// Starts to open slow resources, at the daemon's start.
    pub fn wake(&self) {
        self.backends.values().for_each(|b| b.wake(&self.hands.tools));
    }

    /// Handles departures that the daemon missed while it was down. `cobs` are the change objects of the model.
    #[must_use]
    pub fn return_to(&self, cobs: &BTreeSet<CobId>) -> Vec<Departure> {
        let folders: BTreeSet<_> = cobs.iter().map(|cob| self.hands.tools.service_folder(cob)).collect();
        let left = |b: &Arc<dyn Backend>| b.return_to(&self.hands.tools, &|folder| folders.contains(folder));
        self.backends.values().flat_map(left).map(|(cob, attempt)| self.departure(cob, attempt)).collect()
    }

    /// Watches the change objects of this bundle for changes from outside. Change objects of an earlier call that are
    /// not in the bundle have departed. Only `concerned` back ends have changed objects.
    pub fn watch(&self, bundle: &Packed, concerned: &BTreeSet<String>) {
        self.hands.tools.known().know(bundle);
        for (name, backend) in self.backends.iter().filter(|(name, _)| concerned.contains(**name)) {
            backend.watch(&self.hands.tools, &mut bundle.iter_of(|kind| kind.backend == *name));
        }
        if kept::BACKENDS.iter().any(|name| concerned.contains(*name)) {
            let all = bundle.iter_of(|kind| kept::BACKENDS.contains(&kind.backend.as_str()));
            if let Err(error) = kept::note(&self.hands.tools.cobs(), all) {
                warn!(%error, "folders that are to stay on this host are not known to packages that leave");
            }
        }
    }

    /// Replaces the back end of the same name.
    #[cfg(test)]
    pub(super) fn with_backend(mut self, backend: Arc<dyn Backend>) -> Self {
        self.backends.insert(backend.name(), backend);
        self
    }

    pub(super) fn tools_mut(&mut self) -> &mut Tools {
        Arc::get_mut(&mut self.hands.tools).expect("no job has begun")
    }

    /// Uses systemd at another address.
    #[cfg(test)]
    pub(super) fn use_systemd_at(&mut self, address: &str) {
        self.tools_mut().set_systemd(super::systemd::Systemd {
            address: Some(address.to_owned()),
            ..super::systemd::Systemd::default()
        });
    }

    fn backend(&self, kind: &Kind) -> Result<&dyn Backend, KindError> {
        self.backends.get(kind.backend.as_str()).map(AsRef::as_ref).ok_or_else(|| KindError::NoBackend {
            kind: kind.name.to_string(),
            backend: kind.backend.clone(),
            known: self.backends.keys().copied().collect::<Vec<_>>().join(", "),
        })
    }
}

impl JobHandle {
    /// Asks the job to end, with its whole process group. Its end is reported as usual.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// A handle without a job; the receiver sees the request to end.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> (Self, watch::Receiver<bool>) {
        let (cancel, cancelled) = watch::channel(false);
        (Self { cancel, folder: true }, cancelled)
    }

    /// Whether the job has a folder to [remove](Kinds::remove). Jobs inside the daemon have none.
    #[must_use]
    pub fn leaves_a_folder(&self) -> bool {
        self.folder
    }
}

/// The subject of a job.
#[derive(Debug, Clone)]
struct About {
    label: Label,
    /// Its `COB_RESULT_OUT` is for the revert.
    saves: bool,
}

impl About {
    fn check(context: &Context) -> Self {
        Self { label: Label { cob: context.cob.id.clone(), attempt: None }, saves: false }
    }

    fn attempt(context: &Context, attempt: TransitionAttempt, saves: bool) -> Self {
        Self { label: Label { cob: context.cob.id.clone(), attempt: Some(attempt) }, saves }
    }
}

/// The results that checks and transitions share for jobs that did not end by themselves.
trait End: Send + 'static {
    /// The result of a job that ended by itself. Saves the data of a transition first.
    fn kept(self, _saved: &Saved, _about: &About, _raw: Option<&str>) -> Self
    where
        Self: Sized,
    {
        self
    }

    fn cancelled() -> Self;
    fn timed_out(timeout: Duration) -> Self;
    fn not_ours() -> Self;
    fn wrap(self) -> JobEnd;
}

impl End for CheckOutcome {
    fn cancelled() -> Self {
        Self::unknown("check: cancelled")
    }

    fn timed_out(timeout: Duration) -> Self {
        Self::unknown(format!("check: not done after {timeout:?}"))
    }

    fn not_ours() -> Self {
        Self::unknown("check: an earlier daemon has started it")
    }

    fn wrap(self) -> JobEnd {
        JobEnd::Checked(self)
    }
}

impl End for Outcome {
    fn kept(self, saved: &Saved, about: &About, raw: Option<&str>) -> Self {
        match &about.label.attempt {
            Some(attempt) => saved.ended(&about.label.cob, attempt, raw.filter(|_| about.saves), self),
            None => self,
        }
    }

    fn cancelled() -> Self {
        Self::Cancelled
    }

    fn timed_out(timeout: Duration) -> Self {
        Self::failed(format!("not done after {timeout:?}"))
    }

    fn not_ours() -> Self {
        Self::Lost
    }

    fn wrap(self) -> JobEnd {
        JobEnd::Moved(self)
    }
}

impl Hands {
    fn begin<T: End>(&self, job: JobId, about: About, context: &Context, work: Work<T>) -> JobHandle {
        let (cancel, cancelled) = watch::channel(false);
        let hands = self.clone();
        let folder = matches!(work, Work::Process(_));
        match work {
            Work::Process(process) => {
                let (spec, read) = self.spec(job, &about.label, context, process);
                tokio::spawn(async move {
                    let result = hands.run(spec, &about.label, cancelled).await;
                    if about.label.attempt.is_none() {
                        // The result of a finished check is never asked for again: the next check is newer.
                        remove(hands.runner.clone(), job).await;
                    }
                    hands.report_result(job, about, read, result).await;
                });
            }
            Work::Inside { future, timeout } => {
                tokio::spawn(async move {
                    let began_ns = wall_ns();
                    let end = within(timeout, future, cancelled).await;
                    hands.report(job, about.label.cob, end, String::new(), (began_ns, wall_ns())).await;
                });
            }
        }
        JobHandle { cancel, folder }
    }

    fn adopt<T: End>(&self, job: JobId, about: About, work: Work<T>) -> JobHandle {
        let (cancel, mut cancelled) = watch::channel(false);
        let hands = self.clone();
        tokio::spawn(async move {
            match work {
                Work::Process(process) => {
                    let result = until_ended(hands.runner.adopt(job), &mut cancelled).await;
                    hands.report_result(job, about, process.read, result).await;
                }
                Work::Inside { .. } => {
                    hands.report(job, about.label.cob, T::not_ours(), String::new(), (0, wall_ns())).await;
                }
            }
        });
        // The job was found by its folder, whatever its kind is now.
        JobHandle { cancel, folder: true }
    }

    fn spec<T>(
        &self,
        job: JobId,
        label: &Label,
        context: &Context,
        process: Process<T>,
    ) -> (Spec, Box<dyn FnOnce(JobResult) -> T + Send>) {
        let mut environment = context.environment(&self.tools, label.attempt.as_ref());
        environment.extend(process.environment);
        let spec = Spec {
            id: job,
            label: serde_json::to_string(label).expect("names are text"),
            command: process.command,
            environment,
            folder: context.folder.clone(),
            timeout: process.timeout,
            grace: process.grace,
            content: context.cob.content.clone(),
            imports: context.imports_json(),
            stdout_apart: process.stdout_apart,
            durable: label.attempt.is_some(),
            secrets: context.secrets.clone(),
            attached: false,
        };
        (spec, process.read)
    }

    async fn run(&self, mut spec: Spec, label: &Label, mut cancelled: watch::Receiver<bool>) -> JobResult {
        let permit = self.starts.acquire().await;
        if *cancelled.borrow() {
            return JobResult::not_run(Exit::Cancelled);
        }
        // The creation of files and the execution take a third of a millisecond, or longer on a busy disk.
        let (runner, tools, label) = (self.runner.clone(), self.tools.clone(), label.clone());
        let started = beside(move || {
            let folder = tools.own_folder(&label.cob);
            if let Some(attempt) = &label.attempt {
                tools.saved().give(&label.cob, attempt, &mut spec.environment);
            }
            make_folder(&folder).map_err(|source| JobStartError {
                path: folder,
                doing: "making its folder",
                source,
            })?;
            runner.start(&spec)
        });
        let started = started.await;
        drop(permit);
        match started {
            Ok(Ok(started)) => until_ended(started, &mut cancelled).await,
            Ok(Err(error)) => JobResult::not_run(Exit::SpawnFailed(error.to_string())),
            Err(lost) => JobResult::not_run(Exit::SpawnFailed(lost.to_string())),
        }
    }

    async fn report_result<T: End>(
        &self,
        job: JobId,
        about: About,
        read: Box<dyn FnOnce(JobResult) -> T + Send>,
        result: JobResult,
    ) {
        let (last_lines, times) = (result.last_lines.clone(), (result.began_ns, result.ended_ns));
        let (tools, cob) = (self.tools.clone(), about.label.cob.clone());
        // Waits for the disk if a transition has saved data.
        let kept = beside_or_here(move || {
            let raw = result.saved.clone().ok().flatten();
            read(result).kept(tools.saved(), &about, raw.as_deref())
        });
        self.report(job, cob, kept.await, last_lines, times).await;
    }

    async fn report<T: End>(
        &self,
        job: JobId,
        cob: CobId,
        end: T,
        last_lines: String,
        (began_ns, ended_ns): (u64, u64),
    ) {
        // Without a receiver the daemon is ending; the next daemon finds the job.
        let _ = self.ended.send(JobEnded { job, cob, end: end.wrap(), last_lines, began_ns, ended_ns }).await;
    }
}

async fn until_ended(started: crate::run::Started, cancelled: &mut watch::Receiver<bool>) -> JobResult {
    let canceller = started.canceller();
    let mut ended = std::pin::pin!(started.ended());
    tokio::select! {
        result = &mut ended => return result,
        () = asked(cancelled) => {}
    }
    if let Err(error) = canceller.cancel() {
        warn!(%error, "a job can't be asked to end; it continues until its timeout");
    }
    ended.await
}

async fn within<T: End>(
    timeout: Option<Duration>,
    future: impl Future<Output = T>,
    mut cancelled: watch::Receiver<bool>,
) -> T {
    let limit = tokio::time::sleep(timeout.unwrap_or(Duration::MAX));
    tokio::select! {
        end = future => end,
        () = asked(&mut cancelled) => T::cancelled(),
        () = limit => T::timed_out(timeout.unwrap_or_default()),
    }
}

/// Waits for a request to end. Without a sender it waits forever.
async fn asked(cancelled: &mut watch::Receiver<bool>) {
    if cancelled.wait_for(|asked| *asked).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn remove(runner: Runner, job: JobId) {
    let removed = beside(move || runner.remove(job)).await;
    if let Ok(Err(error)) = removed {
        warn!(%job, %error, "a job's folder could not be deleted");
    }
}

#[cfg(test)]
#[path = "jobs_test.rs"]
mod tests;
