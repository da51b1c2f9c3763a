//! A job and its status.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cob_job_locks::{Mode, Priority};
use serde::{Deserialize, Serialize};

use crate::rules::because;

/// The best priority.
pub(crate) const MOST_IMPORTANT: Priority = Priority(-20);
/// The worst priority.
pub(crate) const LEAST_IMPORTANT: Priority = Priority(19);

/// A job's number: 1 is the first job of a hub. Later jobs have greater numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A time: milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The time that is so many milliseconds later.
    pub fn after(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

/// One of the processes of a job. Events name it, so that late news about a former process have no effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The job.
    pub job: JobId,
    /// 1 is the first process of the job.
    pub attempt: u32,
}

/// What a person submits: all about a job that does not change, except the priority.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spec<P, L> {
    /// The work itself. The queue does not read it.
    pub payload: P,
    /// The kind of the work, for rules: `create`, `expand`.
    pub kind: String,
    /// The cluster that the job changes. Jobs of one cluster run one after the other.
    pub cluster: Option<String>,
    /// The person or token that has submitted the job.
    pub user: String,
    /// The tenant whose quota counts.
    pub tenant: String,
    /// The provider of the cluster's machines, for rules.
    #[serde(default)]
    pub provider: Option<String>,
    /// -20 (the most important) to 19; it can be changed until the start.
    pub priority: Priority,
    /// Why the job exists, a step of the story each. `rate-limit:n:name` limits the parallel jobs of this bucket.
    pub reason: Vec<String>,
    /// All locks that the job needs, in the order of locks. The hub takes them before the start.
    pub locks: Vec<(L, Mode)>,
    /// How many processes may run the job, one after the other, if they die at work. More than 1: the job is resumable.
    pub max_attempts: u32,
}

/// A job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Job<P, L> {
    /// Its number.
    pub id: JobId,
    /// What was submitted.
    pub spec: Spec<P, L>,
    /// Earlier jobs, and the outcomes with which this job may start.
    pub dependencies: BTreeMap<JobId, BTreeSet<Outcome>>,
    /// Where it is.
    pub status: Status,
    /// Why it failed or was canceled.
    pub cause: Option<Cause>,
    /// When it was submitted.
    pub submitted: Millis,
    /// When its priority was changed: it ages from then.
    #[serde(default)]
    pub ranked: Option<Millis>,
    /// When its first process began to work.
    pub started: Option<Millis>,
    /// When it became final.
    pub ended: Option<Millis>,
    /// How many processes were started for it.
    pub attempts: u32,
    /// How many processes died before they began to work.
    pub false_starts: u32,
    /// While it is *canceling*: when its process is killed.
    pub kill_at: Option<Millis>,
    /// While it is *canceling*: whether the order to kill its process was given.
    pub killed: bool,
    /// How many later jobs with conflicting locks have started while it waited for its locks.
    pub overtaken: u32,
}

impl<P, L> Job<P, L> {
    /// Its present process.
    pub fn run(&self) -> Run {
        Run { job: self.id, attempt: self.attempts }
    }

    /// The priority of the job after it has waited until `now`: one step better after each `aging` milliseconds.
    pub(crate) fn aged(&self, aging: u64, now: Millis) -> Priority {
        let Priority(own) = self.spec.priority;
        let waited = now.0.saturating_sub(self.ranked.unwrap_or(self.submitted).0);
        let steps = i8::try_from(waited.checked_div(aging).unwrap_or_default()).unwrap_or(i8::MAX);
        Priority(own.saturating_sub(steps).max(MOST_IMPORTANT.0))
    }

    /// Changes the status if this transition exists. Says whether it does.
    pub(crate) fn enter(&mut self, next: Status) -> bool {
        let legal = self.status.may_become(next);
        if legal {
            self.status = next;
        }
        legal
    }
}

/// Where a job is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It has an [obstacle](crate::Obstacle), or no place is free.
    Queued,
    /// Only locks hold it back.
    Waiting,
    /// It has its locks. Its process does not work yet.
    Starting,
    /// Its process works.
    Running,
    /// Its process is asked to end.
    Canceling,
    /// Final: it has done its work.
    Succeeded,
    /// Final: it has not done all its work.
    Failed,
    /// Final: it was canceled before its start, or ended because of the cancelation.
    Canceled,
}

impl Status {
    /// Whether a job with this status has a process, or will have one at once. Such a job holds its locks.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Canceling)
    }

    /// Whether the job is before its start.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::Waiting)
    }

    /// The outcome, if the status is final: the job never changes again.
    pub fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Queued | Self::Waiting | Self::Starting | Self::Running | Self::Canceling => None,
            Self::Succeeded => Some(Outcome::Succeeded),
            Self::Failed => Some(Outcome::Failed),
            Self::Canceled => Some(Outcome::Canceled),
        }
    }

    /// All transitions. *Running* to *starting* is the next process of a resumable job.
    pub(crate) fn may_become(self, next: Self) -> bool {
        use Status::{Canceled, Canceling, Failed, Queued, Running, Starting, Succeeded, Waiting};
        match self {
            Queued => matches!(next, Waiting | Starting | Failed | Canceled),
            Waiting => matches!(next, Queued | Starting | Failed | Canceled),
            Starting => matches!(next, Starting | Running | Canceling | Failed),
            Running => matches!(next, Starting | Canceling | Succeeded | Failed | Canceled),
            Canceling => matches!(next, Succeeded | Failed | Canceled),
            Succeeded | Failed | Canceled => false,
        }
    }
}

/// How a job has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It has done its work.
    Succeeded,
    /// It has not done all its work.
    Failed,
    /// It was canceled.
    Canceled,
}

impl Outcome {
    /// The final status.
    pub fn status(self) -> Status {
        match self {
            Self::Succeeded => Status::Succeeded,
            Self::Failed => Status::Failed,
            Self::Canceled => Status::Canceled,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "was canceled",
        })
    }
}

/// The last words of a job's process, from the record in its folder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Report {
    /// It has done its work.
    Succeeded,
    /// It has not; with a message for people.
    Failed(String),
    /// It ended early because it was asked to.
    Canceled,
}

/// Why a job failed or was canceled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Its process has reported a failure.
    Reported(String),
    /// Its process has died without a report.
    Died,
    /// Its processes died before they began to work.
    NotStarted,
    /// A person canceled it.
    Requested,
    /// A rule rejects it.
    Rule {
        /// The rule's id.
        rule: String,
        /// The reason of the rule.
        reason: String,
    },
    /// A job that it depends on ended otherwise than permitted.
    Dependency(JobId, Outcome),
    /// It depends on a job that the hub does not know: never submitted, or archived.
    UnknownDependency(JobId),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported(message) => f.write_str(message),
            Self::Died => write!(f, "died: its process ended without a report"),
            Self::NotStarted => write!(f, "its process ended repeatedly before it began to work"),
            Self::Requested => write!(f, "canceled on request"),
            Self::Rule { rule, reason } => write!(f, "the rule {rule} rejects it{}", because(reason)),
            Self::Dependency(job, outcome) => write!(f, "it depends on job {job}, which {outcome}"),
            Self::UnknownDependency(job) => write!(f, "it depends on job {job}, which does not exist"),
        }
    }
}
