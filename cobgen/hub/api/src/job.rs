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
