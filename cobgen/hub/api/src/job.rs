//! Jobs: operations that the hub executes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Name, Operation};

/// The number of a job, in order of submission.
pub type JobId = u64;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// The number.
    pub id: JobId,
    /// The tenant.
    pub tenant: Name,
    /// The cluster.
    pub cluster: Name,
    /// The operation.
    pub operation: Operation,
    /// The user who gave the order.
    pub user: String,
    /// The priority: -20 (the most important) to 19.
    #[serde(default)]
    #[schemars(range(min = -20, max = 19))]
    pub priority: i8,
    /// The state.
    pub state: JobState,
    /// Why it waits; why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What to do after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The step that runs, or ran last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The number of steps that are done.
    pub steps_done: usize,
    /// The number of steps.
    pub steps: usize,
    /// When it was submitted, in milliseconds since 1970-01-01 UTC.
    pub submitted_ms: u64,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// The states of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It waits for its turn, another job or a limit.
    Queued,
    /// It waits for a lock.
    Waiting,
    /// Its process starts.
    Starting,
    /// Its process works.
    Running,
    /// Its process has been told to stop.
    Canceling,
    /// It is done.
    Succeeded,
    /// It failed.
    Failed,
    /// It was canceled.
    Canceled,
}

impl JobState {
    /// Whether the state never changes again.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

/// Which jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JobQuery {
    /// Only jobs that have not ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Only jobs in this state.
    pub state: Option<JobState>,
    /// Only jobs of this cluster.
    pub cluster: Option<Name>,
    /// Only jobs of this user: `TENANT/USER`, or `USER` for a super administrator.
    pub user: Option<String>,
    /// Only jobs with this operation: `create`, `resize`.
    pub operation: Option<String>,
    /// Only jobs that were ordered at this time or later, in milliseconds since 1970-01-01 UTC.
    #[schemars(range(max = u64::MAX))]
    pub since_ms: Option<u64>,
    /// Only jobs before this number: the last one of the page before.
    #[schemars(range(max = u64::MAX))]
    pub before: Option<JobId>,
    /// The most jobs of the answer; by default, and at most, [`JobQuery::MOST`].
    pub limit: Option<usize>,
}

impl JobQuery {
    /// The most jobs of an answer.
    pub const MOST: usize = 1000;

    /// The most jobs of the answer to this query.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(Self::MOST).min(Self::MOST)
    }
}

/// A new priority of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Priority {
    /// -20 (the most important) to 19.
    #[schemars(range(min = -20, max = 19))]
    pub priority: i8,
}

/// The answer to an order: the job that executes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// The job.
    pub job: JobId,
}

/// A part of the log of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogPart {
    /// The text.
    pub text: String,
    /// Where the next part begins.
    pub next: u64,
    /// Whether the job has ended, and this is the end of the log.
    pub complete: bool,
}
