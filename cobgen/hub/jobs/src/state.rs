//! The durable state and its checks.

use std::collections::BTreeSet;

use cob_job_locks::{Lock, Target};
use serde::{Deserialize, Serialize};

use crate::job::{Job, JobId, Status};
use crate::limits::Limits;
use crate::queue::{Queue, is_permitted};
use crate::rules::{Drain, Rule, sort};

/// All that has to be durable. A store may keep each job under a key of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct State<P, L> {
    /// The number of the next job.
    pub next: JobId,
    /// Why new jobs are refused, if they are.
    pub drain: Option<Drain>,
    /// The rules.
    pub rules: Vec<Rule>,
    /// The jobs, in the order of their numbers.
    pub jobs: Vec<Job<P, L>>,
}

/// Why a stored state was refused: no sequence of events leads to it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Corrupt {
    /// A job is there twice.
    #[error("job {0} is in the stored jobs twice")]
    Twice(JobId),
    /// A job has a number that was not given yet.
    #[error("job {job} is stored, but the next job is {next}")]
    Number {
        /// The job.
        job: JobId,
        /// The stored number of the next job.
        next: JobId,
    },
    /// A rule is there twice.
    #[error("the rule {0:?} is in the stored rules twice")]
    RuleTwice(String),
    /// The fields of a job contradict its status.
    #[error("job {job} is stored as {status:?}, but its {field} contradicts this")]
    Field {
        /// The job.
        job: JobId,
        /// Its stored status.
        status: Status,
        /// The name of the field.
        field: &'static str,
    },
    /// Two active jobs want conflicting locks.
    #[error("job {job} is stored as started, but its locks conflict with those of {others:?}")]
    Locks {
        /// The job.
        job: JobId,
        /// Earlier active jobs.
        others: BTreeSet<JobId>,
    },
    /// Two jobs of a cluster have started.
    #[error("the jobs {first} and {second} of one cluster are both stored as started")]
    Cluster {
        /// A job.
        first: JobId,
        /// Another job.
        second: JobId,
    },
}

impl<P: Clone, L: Lock> Queue<P, L> {
    /// What has to be durable before effects are performed.
    pub fn state(&self) -> State<P, L> {
        let jobs = self.jobs.values().cloned().collect();
        State { next: self.next, drain: self.drain.clone(), rules: self.rules.clone(), jobs }
    }

    /// The queue of a stored state. [`Queue::resume`] says what has to be done about started jobs.
    ///
    /// # Errors
    ///
    /// No sequence of events leads to this state.
    pub fn load(state: State<P, L>, limits: Limits) -> Result<Self, Corrupt> {
        let mut queue = Self::new(limits);
        (queue.next, queue.drain) = (state.next, state.drain);
        let mut ids = BTreeSet::new();
        if let Some(rule) = state.rules.iter().find(|rule| !ids.insert(&rule.id)) {
            return Err(Corrupt::RuleTwice(rule.id.clone()));
        }
        queue.rules = state.rules;
        sort(&mut queue.rules);
        let mut active = std::collections::BTreeMap::new();
        for job in state.jobs {
            let (id, status) = (job.id, job.status);
            if id.0 == 0 || id >= state.next {
                return Err(Corrupt::Number { job: id, next: state.next });
            }
            if queue.jobs.contains_key(&id) {
                return Err(Corrupt::Twice(id));
            }
            if let Some(field) = contradiction(&job) {
                return Err(Corrupt::Field { job: id, status, field });
            }
            if status.is_active() {
                if let Some(first) = job.spec.cluster.clone().and_then(|cluster| active.insert(cluster, id)) {
                    return Err(Corrupt::Cluster { first, second: id });
                }
                queue.hold(&job)?;
            }
            if status.outcome().is_none() {
                queue.open.insert(id);
            }
            queue.jobs.insert(id, job);
        }
        Ok(queue)
    }

    /// Takes the locks of an active job.
    fn hold(&mut self, job: &Job<P, L>) -> Result<(), Corrupt> {
        let locks: Vec<(L, Target)> =
            job.spec.locks.iter().map(|(lock, mode)| (lock.clone(), (*mode).into())).collect();
        let done = self.locks.update(&job.id, &locks);
        done.map(|_| ()).map_err(|_| {
            let table = self.locks.table();
            let wanted = job.spec.locks.iter();
            let others = wanted.flat_map(|(lock, mode)| table.conflicting(&job.id, lock, *mode).copied()).collect();
            Corrupt::Locks { job: job.id, others }
        })
    }
}

/// A field that contradicts the status of its job.
fn contradiction<P, L: Lock>(job: &Job<P, L>) -> Option<&'static str> {
    let status = job.status;
    let is_final = status.outcome().is_some();
    let has_worked = matches!(status, Status::Running | Status::Succeeded);
    let rules = [
        ("priority", is_permitted(job.spec.priority)),
        ("locks", job.spec.locks.windows(2).all(|pair| pair[0].0 < pair[1].0)),
        ("ended", job.ended.is_some() == is_final),
        ("cause", job.cause.is_some() == matches!(status, Status::Failed | Status::Canceled)),
        ("kill_at", job.kill_at.is_some() == (status == Status::Canceling)),
        ("killed", !job.killed || status == Status::Canceling),
        ("started", if has_worked { job.started.is_some() } else { job.started.is_none() || !status.is_pending() }),
        ("attempts", if status.is_pending() { job.attempts == 0 } else { !status.is_active() || job.attempts > 0 }),
        ("false_starts", job.false_starts <= job.attempts),
        ("dependencies", !status.is_active() || job.dependencies.keys().all(|id| *id < job.id)),
    ];
    rules.into_iter().find(|(_, holds)| !holds).map(|(field, _)| field)
}
