//! The jobs of change objects: the running ones, the last transition of each, and the output.

use std::collections::BTreeMap;

use cob_engine::Time;
use cob_types::{CobId, Number};

use super::checks::Checks;
use super::outputs::Outputs;
use crate::kinds::{JobEnded, JobHandle, Kinds};
use crate::run::JobId;

/// The jobs of change objects.
pub(super) struct JobTable {
    running: BTreeMap<CobId, (JobId, JobHandle)>,
    checks: Checks,
    outputs: Outputs,
    /// When the last transition ended in this incarnation of the daemon.
    moved_at: BTreeMap<CobId, Time>,
    /// Ends of jobs that could not start.
    ends: Vec<JobEnded>,
}

impl JobTable {
    pub(super) fn new(outputs: Outputs) -> Self {
        let (running, moved_at) = (BTreeMap::new(), BTreeMap::new());
        Self { running, checks: Checks::default(), outputs, moved_at, ends: Vec::new() }
    }

    /// Notes that a job runs. It may replace a check whose content has changed since its start: the engine does not
    /// await that check any more.
    pub(super) fn begin(&mut self, cob: CobId, job: JobId, handle: JobHandle) {
        if let Some((_, before)) = self.running.insert(cob, (job, handle)) {
            before.cancel();
        }
    }

    /// Notes the end of a job. Returns whether it leaves a folder.
    pub(super) fn end(&mut self, cob: &CobId, job: JobId) -> bool {
        self.checks.ended(job);
        if self.running.get(cob).is_none_or(|(running, _)| *running != job) {
            return true;
        }
        self.running.remove(cob).is_none_or(|(_, handle)| handle.leaves_a_folder())
    }

    /// Notes the end of a transition, with the last lines of its output.
    pub(super) fn moved(&mut self, cob: &CobId, at: Time, last_lines: String, failed: bool) {
        self.moved_at.insert(cob.clone(), at);
        self.outputs.ended(cob, last_lines, failed);
    }

    /// When the last transition ended in this incarnation of the daemon.
    pub(super) fn moved_at(&self, cob: &CobId) -> Option<Time> {
        self.moved_at.get(cob).copied()
    }

    /// Asks the job of a change object to end.
    pub(super) fn cancel(&self, cob: &CobId) {
        if let Some((_, handle)) = self.running.get(cob) {
            handle.cancel();
        }
    }

    /// The running job of a change object.
    pub(super) fn job_of(&self, cob: &CobId) -> Option<JobId> {
        self.running.get(cob).map(|(job, _)| *job)
    }

    /// Forgets the output of the last action.
    pub(super) fn forget_output(&mut self, cob: &CobId) {
        self.outputs.forget(cob);
    }

    /// Forgets the last transitions of other change objects.
    pub(super) fn keep_only(&mut self, is_here: impl Fn(&CobId) -> bool) {
        self.moved_at.retain(|cob, _| is_here(cob));
    }

    /// The output of the running action, or of the last action.
    pub(super) fn output(&self, kinds: &Kinds, cob: &CobId) -> Option<String> {
        match self.running.get(cob) {
            Some((job, _)) => Some(kinds.said(*job, cob)),
            None => self.outputs.of(cob).map(ToOwned::to_owned),
        }
    }

    /// Whether a check may start now; otherwise it waits for the end of others.
    pub(super) fn may_check(&mut self, cob: &CobId, number: Number) -> bool {
        self.checks.take(cob, number)
    }

    /// The next waiting check that may start.
    pub(super) fn next_check(&mut self) -> Option<(CobId, Number)> {
        self.checks.next()
    }

    /// Reports a job as ended in a later tick.
    pub(super) fn ends_later(&mut self, ended: JobEnded) {
        self.ends.push(ended);
    }

    /// The jobs that [`Self::ends_later`] noted.
    pub(super) fn take_ends(&mut self) -> Vec<JobEnded> {
        std::mem::take(&mut self.ends)
    }
}
