//! The queue of jobs: its drain and its rules.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{JobId, Name};

/// The queue of jobs, as far as the caller may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queue {
    /// Why the hub refuses new orders; absent: it accepts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// The number of jobs that run, of those that the caller may see.
    pub running: usize,
    /// The number of jobs that wait, of those that the caller may see.
    pub waiting: usize,
    /// The rules, in their order. A super administrator sees all, others those of their tenant.
    pub rules: Vec<Rule>,
}

/// The hub refuses new orders. Jobs in the queue go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// Why; may be empty.
    pub reason: String,
    /// The administrator of the drain.
    pub by: String,
    /// Since when, in milliseconds since 1970-01-01 UTC.
    pub since_ms: u64,
}

/// The request to refuse new orders.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Why, for users whose orders are refused.
    #[serde(default)]
    pub reason: String,
}

/// A rule of administrators about jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// The name: unique among the rules of the hub, or of a tenant.
    pub name: Name,
    /// The tenant that keeps the rule, which concerns jobs of this tenant only; absent: a rule of the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Name>,
    /// The content.
    pub content: RuleContent,
}

/// The content of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleContent {
    /// What happens to the jobs.
    pub action: RuleAction,
    /// The smaller number comes first: the first rule that concerns a job applies to it.
    #[serde(default = "RuleContent::priority")]
    pub priority: u32,
    /// Why the rule exists, for users whose jobs it concerns.
    #[serde(default)]
    pub reason: String,
    /// The jobs that it concerns.
    #[serde(default)]
    pub jobs: JobSelection,
}

impl RuleContent {
    /// The priority of a rule that names none: other rules can come before it.
    pub const PRIORITY: u32 = 100;

    fn priority() -> u32 {
        Self::PRIORITY
    }
}

/// What a rule does. Jobs that have started go on in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RuleAction {
    /// The job may start; later rules do not matter.
    Accept,
    /// The job waits.
    Pause,
    /// A new order is refused; a job that waits is canceled.
    Reject,
    /// The rule is switched off.
    Continue,
    /// At most so many jobs to which the rule applies run at a time.
    RateLimit(#[schemars(range(min = 1))] u32),
}

/// Some jobs: a job has to match each list. An empty list matches each job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobSelection {
    /// Numbers of jobs.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub ids: BTreeSet<JobId>,
    /// Tenants; only in rules of the hub.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tenants: BTreeSet<Name>,
    /// The users of the orders: `TENANT/USER`, or the name of a super administrator. In rules of a tenant: `USER`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub users: BTreeSet<String>,
    /// Clusters: `TENANT/CLUSTER`. In rules of a tenant: `CLUSTER`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub clusters: BTreeSet<String>,
    /// Names of operations: `create`, `resize`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub operations: BTreeSet<String>,
    /// Providers of the machines.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub providers: BTreeSet<Name>,
    /// Only jobs that are ordered after the rule was written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub new_only: bool,
}

impl JobSelection {
    /// Whether it selects all jobs.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }
}
