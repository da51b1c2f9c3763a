//! The change object under test: checked, moved and killed through the daemon's own kinds.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cob_types::{GenerationNumber, Kind, StateName};
use tokio::sync::mpsc;

use super::Case;
use super::world::World;
use crate::kinds::backend::{CheckOutcome, Context, Outcome, TransitionAttempt};
use crate::kinds::jobs::{JobEnd, JobEnded, Kinds};
use crate::run::{JobId, Program, kill_action, payload};

/// The pause between two looks whether an action has started.
const LOOK: Duration = Duration::from_millis(1);

pub(super) struct Subject {
    pub(super) kind: Arc<Kind>,
    kinds: Kinds,
    ended: mpsc::Receiver<JobEnded>,
    folder: PathBuf,
    own: Context,
    other: Option<Context>,
    watched: Vec<PathBuf>,
    probe: Option<super::Probe>,
    /// The change object departs.
    leaving: bool,
    next: u64,
}

/// The content to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum As {
    /// The content under test.
    Own,
    /// The other content.
    Other,
}

/// How a transition that should be killed ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kill {
    /// Killed.
    Killed,
    /// Ended before the kill.
    TooLate(Outcome),
}

impl Subject {
    pub(super) fn new(case: &Case, program: &Program, scratch: &Path) -> io::Result<Self> {
        let folder = scratch.canonicalize()?.join("state");
        let (sender, ended) = mpsc::channel(16);
        let mut kinds = Kinds::new(&folder, program.clone(), sender)?;
        kinds.tools_mut().act_apart();
        #[cfg(test)]
        let kinds = match &case.backend {
            Some(backend) => kinds.with_backend(backend.clone()),
            None => kinds,
        };
        let kind = Arc::new(case.kind.clone());
        let mut files = case.kind.files.clone();
        files.extend(case.cob.files.clone());
        let work = payload::materialise(&folder.join("payload"), &files, &case.blobs).map_err(io::Error::other)?;
        let context = |cob| Context {
            cob: Arc::new(cob),
            kind: kind.clone(),
            generation: GenerationNumber(1),
            folder: work.clone(),
            imports: BTreeMap::new(),
            secrets: BTreeMap::new(),
            leaving: false,
            rested_for: None,
        };
        let (own, other) = (context(case.cob.clone()), case.with_other().map(context));
        let mut watched = vec![kinds.own_folder(&own.cob.id), work.clone()];
        watched.extend(case.watched.iter().cloned());
        let probe = case.probe.clone();
        Ok(Self { kind, kinds, ended, folder, own, other, watched, probe, leaving: false, next: 0 })
    }

    /// Whether a daemon would accept it.
    pub(super) fn accepted(&self) -> Result<(), String> {
        self.kinds.accept(&self.kind).map_err(|e| e.to_string())?;
        let cobs = [Some(&self.own), self.other.as_ref()].into_iter().flatten();
        cobs.into_iter().try_for_each(|c| self.kinds.accept_cob(&self.kind, &c.cob).map_err(|e| e.to_string()))
    }

    pub(super) fn has_other(&self) -> bool {
        self.other.is_some()
    }

    /// From now on the change object departs.
    pub(super) fn begin_to_leave(&mut self) {
        self.leaving = true;
    }

    /// Ends the departure. If the change object has `gone`, the kind forgets it and restores the original state.
    pub(super) async fn end_leaving(&mut self, gone: bool) {
        self.leaving = false;
        if gone {
            for mut departure in self.kinds.forget(&self.own.cob.id) {
                // After a failure the original state is missing, which the comparison shows.
                let _ = departure.settled().await;
            }
            self.kinds.is_here(&self.own.cob.id, &self.kind);
        }
    }

    pub(super) fn world(&self) -> io::Result<World> {
        World::look(&self.watched, self.probe.as_ref().map(|p| p()).unwrap_or_default())
    }

    pub(super) async fn check(&mut self, whose: As) -> Result<CheckOutcome, String> {
        let job = self.job();
        let _handle = self.kinds.check(job, self.context(whose)).map_err(|e| e.to_string())?;
        match self.end_of(job).await.end {
            JobEnd::Checked(outcome) => Ok(outcome),
            JobEnd::Moved(_) => unreachable!("a check ends as a check"),
        }
    }

    pub(super) async fn make(&mut self, whose: As, from: &StateName, to: &StateName) -> Result<Outcome, String> {
        let job = self.job();
        let _handle = self.kinds.transition(job, self.context(whose), attempt(from, to)).map_err(|e| e.to_string())?;
        let ended = self.end_of(job).await;
        self.kinds.remove(job);
        let lines = ended.last_lines.clone();
        let outcome = moved(ended);
        Ok(match outcome {
            Outcome::Failed { reason } if !lines.is_empty() => {
                Outcome::Failed { reason: format!("{reason}; it printed: {lines}") }
            }
            Outcome::Failed { .. }
            | Outcome::Conflict { .. }
            | Outcome::Done { .. }
            | Outcome::Cancelled
            | Outcome::Lost => outcome,
        })
    }

    /// Starts a transition and kills it after the given time.
    pub(super) async fn kill(&mut self, from: &StateName, to: &StateName, after: Duration) -> Result<Kill, String> {
        let job = self.job();
        let durable = self.kinds.durable(&self.kind).map_err(|e| e.to_string())?;
        let begun = Instant::now();
        let handle = self.kinds.transition(job, self.context(As::Own), attempt(from, to)).map_err(|e| e.to_string())?;
        tokio::select! {
            ended = self.ended.recv() => {
                self.kinds.remove(job);
                return Ok(Kill::TooLate(moved(ended.expect("kinds hold the other end"))));
            }
            () = tokio::time::sleep(after.saturating_sub(begun.elapsed())) => {}
        }
        if durable {
            while !self.kill_job(job) && self.ended.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        } else {
            // The work runs inside this process and ends as it would with the daemon.
            handle.cancel();
        }
        let ended = self.end_of(job).await;
        self.kill_job(job);
        self.kinds.remove(job);
        if !durable {
            // Work inside this process was only asked to end; the check waits for the end.
            self.check(As::Own).await?;
        }
        Ok(match moved(ended) {
            Outcome::Failed { .. } | Outcome::Conflict { .. } | Outcome::Cancelled | Outcome::Lost => Kill::Killed,
            done @ Outcome::Done { .. } => Kill::TooLate(done),
        })
    }

    /// Kills all processes of an action. Returns whether there were any.
    fn kill_job(&self, job: JobId) -> bool {
        let folder = self.folder.join("jobs").join(format!("{:016x}", job.0));
        kill_action(&folder)
    }

    fn context(&self, whose: As) -> Context {
        let context = match whose {
            As::Own => self.own.clone(),
            As::Other => self.other.clone().unwrap_or_else(|| self.own.clone()),
        };
        Context { leaving: self.leaving, ..context }
    }

    fn job(&mut self) -> JobId {
        self.next += 1;
        JobId(self.next)
    }

    async fn end_of(&mut self, job: JobId) -> JobEnded {
        loop {
            let ended = self.ended.recv().await.expect("kinds hold the other end");
            if ended.job == job {
                return ended;
            }
        }
    }
}

fn attempt(from: &StateName, to: &StateName) -> TransitionAttempt {
    TransitionAttempt { from: from.clone(), to: to.clone(), attempt: 1 }
}

fn moved(ended: JobEnded) -> Outcome {
    match ended.end {
        JobEnd::Moved(outcome) => outcome,
        JobEnd::Checked(_) => unreachable!("a move ends as a move"),
    }
}
