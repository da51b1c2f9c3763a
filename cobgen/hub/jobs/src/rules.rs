//! Rules that hold back or reject jobs.

use serde::{Deserialize, Serialize};

use crate::job::{JobId, Spec};

/// A rule of administrators. The first rule that matches a job and is not *continue* applies to it: rules are ordered
/// by priority, then watermark, then id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// Its name: unique.
    pub id: String,
    /// The smaller number comes first.
    pub priority: u32,
    /// The last job that was submitted before the rule was made.
    pub watermark: JobId,
    /// The jobs that it concerns: those for which all predicates hold.
    pub predicates: Vec<Predicate>,
    /// What happens to these jobs.
    pub action: Action,
}

/// A condition on a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Predicate {
    /// The job's number is one of these.
    Jobs(Vec<JobId>),
    /// The job was submitted before the rule was made.
    UpToWatermark,
    /// The job was submitted after the rule was made.
    AfterWatermark,
    /// The kind of the work.
    Kind(String),
    /// The tenant.
    Tenant(String),
    /// A step of the reason contains this text.
    Reason(String),
    /// The predicate does not hold.
    Not(Box<Predicate>),
    /// One of the predicates holds.
    Any(Vec<Predicate>),
}

impl Predicate {
    fn holds<P, L>(&self, watermark: JobId, id: JobId, spec: &Spec<P, L>) -> bool {
        match self {
            Self::Jobs(jobs) => jobs.contains(&id),
            Self::UpToWatermark => id <= watermark,
            Self::AfterWatermark => id > watermark,
            Self::Kind(kind) => spec.kind == *kind,
            Self::Tenant(tenant) => spec.tenant == *tenant,
            Self::Reason(text) => spec.reason.iter().any(|reason| reason.contains(text.as_str())),
            Self::Not(other) => !other.holds(watermark, id, spec),
            Self::Any(others) => others.iter().any(|other| other.holds(watermark, id, spec)),
        }
    }
}

/// What a rule does. Jobs that have a process go on in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The job may start; later rules do not matter.
    Accept,
    /// The job stays in the queue.
    Pause,
    /// A new job is refused; a job in the queue is canceled.
    Reject,
    /// The rule is switched off: the next rules decide.
    Continue,
    /// At most so many jobs to which this rule applies run at a time.
    RateLimit(usize),
}

/// Brings rules in their order.
pub(crate) fn sort(rules: &mut [Rule]) {
    rules.sort_by(|a, b| (a.priority, a.watermark, &a.id).cmp(&(b.priority, b.watermark, &b.id)));
}

/// The rule that applies to a job.
pub(crate) fn applying<'a, P, L>(rules: &'a [Rule], id: JobId, spec: &Spec<P, L>) -> Option<&'a Rule> {
    let matches = |rule: &&Rule| rule.predicates.iter().all(|one| one.holds(rule.watermark, id, spec));
    rules.iter().filter(|rule| rule.action != Action::Continue).find(matches)
}
