//! The status of a change object: its state, its desired state, and the change objects that it waits for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::is_false;
use crate::id::{CobId, StateName};

/// The activity of a change object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// A check runs, or is about to.
    Checking,
    /// A transition runs.
    Moving,
    /// It has to change its state and waits: for locks, for the release of grants, for a retry or for a delay.
    Waiting,
    /// It is in its desired state.
    Settled,
}

/// A change object.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CobStatus {
    /// `HOST/NAME`.
    pub id: CobId,
    /// Its kind.
    #[serde(default)]
    pub kind: String,
    /// Its state; absent: unknown.
    #[serialize_always]
    pub state: Option<StateName>,
    /// Its desired state; absent while its state is unknown.
    #[serialize_always]
    pub target: Option<StateName>,
    /// Its preferred state.
    pub preferred: StateName,
    /// Its activity.
    pub phase: Phase,
    /// When it last changed its state or phase.
    pub since_ns: u64,
    /// It has used up its retries.
    pub failed: bool,
    /// It departs in the switch under way.
    #[serde(default, skip_serializing_if = "is_false")]
    pub retiring: bool,
    /// Its reasons to wait.
    pub waits_for: Vec<Wait>,
    /// The running action, or the action that failed last.
    pub action: Option<ActionStatus>,
    /// Detected problems: stuck (deadlock), chase (livelock), flap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<Trouble>,
    /// The holders of its grants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<Holder>,
    /// It is checked and never changed: `mode: observe`. The target is the state that the model wants.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observed: bool,
    /// Files that others changed and that differ from the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<FileDrift>,
    /// An operator has stopped it. Its preferred state is then its stopped state.
    pub stopped: Option<Stopped>,
}

/// An operator's order to stop a change object. It holds until the change object is started, or the next generation is
/// activated.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopped {
    /// The operator.
    pub who: String,
    /// It starts again automatically once it is stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restart: bool,
    /// It was stopped because it needs this change object, which the same order stopped.
    pub with: Option<CobId>,
    /// It starts again automatically after a reboot of its host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub until_boot: bool,
}

/// The text about a file tree [in conflict](CobStatus::is_in_conflict), after its name.
pub const IN_CONFLICT: &str = "is in conflict: a user on the host and the model changed the same content";

impl CobStatus {
    /// Whether it is a file tree with a conflict that a person has to decide (docs/kinds/file-tree.md).
    #[must_use]
    pub fn is_in_conflict(&self) -> bool {
        self.kind == "file-tree" && self.state.as_ref().is_some_and(|state| *state == "conflict")
    }

    /// Whether it is a service or container, in any form: its output is kept, and `cobctl logs` shows it.
    #[must_use]
    pub fn is_service(&self) -> bool {
        let is_form = |form: &str| form.is_empty() || form.starts_with('.');
        ["service", "container"].iter().any(|kind| self.kind.strip_prefix(kind).is_some_and(is_form))
    }

    /// Whether it waits for a condition outside the model, which it can't bring about.
    #[must_use]
    pub fn is_gate(&self) -> bool {
        matches!(self.kind.as_str(), "tcp-check" | "http-check")
    }

    /// Whether it only waits for others and will continue when they do; the status has no further report.
    #[must_use]
    pub fn only_waits(&self) -> bool {
        let is_answered = |wait: &Wait| !matches!(wait, Wait::Lock { refused: Some(_), .. });
        let mut waits = self.waits_for.iter();
        self.phase == Phase::Waiting
            && !self.failed
            && self.action.is_none()
            && self.trouble.is_empty()
            && !self.waits_for.is_empty()
            && waits.all(|wait| wait.on().is_some() && is_answered(wait))
    }

    /// Whether its first check has not ended; the status has no further report.
    #[must_use]
    pub fn is_looked_at(&self) -> bool {
        let is_moved = self.action.is_some() || self.retiring;
        self.phase == Phase::Checking
            && !self.failed
            && !is_moved
            && self.trouble.is_empty()
            && self.waits_for.is_empty()
    }
}

impl Stopped {
    /// The order in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let (what, who) = (if self.restart { "restarting" } else { "stopped" }, &self.who);
        match &self.with {
            Some(with) => format!("{what} with {with} by order of {who}"),
            None if self.until_boot => format!("{what} until the next boot of its host, by order of {who}"),
            None => format!("{what} by order of {who}"),
        }
    }
}

/// A file that others changed, with the traces of its author.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileDrift {
    /// Its path.
    pub path: String,
    /// The time of the last change, in seconds since 1970.
    pub changed_s: Option<u64>,
    /// Its owner; absent: the file is gone.
    pub owner: Option<String>,
    /// Users that were logged in at that time, and still are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logged_in: Vec<String>,
}

/// A grant of the change object.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// The holder.
    pub cob: CobId,
    /// The granted state.
    pub state: StateName,
    /// It was recalled.
    pub recalled: bool,
    /// Since when it has been granted, or recalled. Daemons of the previous version do not report it.
    pub since_ns: Option<u64>,
    /// The holder has failed, so the budget of its token gives no more tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stops: bool,
}

/// A reason why a change object waits.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Wait {
    /// It needs a lock that it does not hold.
    Lock {
        /// The change object whose lock it needs.
        cob: CobId,
        /// The acceptable states.
        states: Vec<StateName>,
        /// The time of the request.
        since_ns: u64,
        /// It holds the lock, but the lock was recalled.
        #[serde(default, skip_serializing_if = "is_false")]
        recalled: bool,
        /// The reason of a refusal, if it was refused.
        refused: Option<String>,
        /// The state of the requested change object from which no route led to an acceptable state.
        refused_in: Option<StateName>,
    },
    /// Its budget has no free token.
    Token {
        /// The budget's change object.
        cob: CobId,
        /// The time of the request.
        since_ns: u64,
    },
    /// Grants must be released first.
    Grant {
        /// The holder.
        cob: CobId,
        /// The granted state.
        state: StateName,
        /// The time of the recall.
        since_ns: u64,
    },
    /// A failed action is retried later.
    Retry {
        /// The time.
        at_ns: u64,
        /// The number of the next attempt, from 1.
        attempt: u32,
        /// The number of all attempts.
        of: u32,
    },
    /// It has used up its retries.
    Failed,
    /// An operator has paused it.
    Paused,
    /// The livelock guard delays it: it sends requests or changes its state again and again.
    Rest {
        /// The end of the delay.
        until_ns: u64,
    },
    /// No sequence of transitions leads from its state to the desired state.
    NoRoute {
        /// The desired state.
        to: StateName,
    },
    /// It is departing: until it has departed, it serves only requests of departing change objects.
    Leaving,
    /// It is observed: it stays in its state, although another state is wanted.
    Observed {
        /// The wanted state.
        to: StateName,
    },
    /// It is in its exit state, but may get requests until another departing change object has departed.
    After {
        /// The other change object.
        cob: CobId,
        /// Since when its host has been switching to the next generation.
        since_ns: u64,
    },
    /// It could start, but an operator has limited the concurrent transitions of its host.
    Limit {
        /// The limit.
        at_most: u32,
    },
    /// It could start, but its periodic check has not ended.
    Check,
    /// A reason that only a newer version knows.
    #[serde(other)]
    Other,
}

impl Wait {
    /// The change object that is waited for, if any.
    #[must_use]
    pub fn on(&self) -> Option<&CobId> {
        match self {
            Wait::Lock { cob, .. } | Wait::Token { cob, .. } | Wait::Grant { cob, .. } | Wait::After { cob, .. } => {
                Some(cob)
            }
            Wait::Retry { .. }
            | Wait::Failed
            | Wait::Paused
            | Wait::Rest { .. }
            | Wait::NoRoute { .. }
            | Wait::Leaving
            | Wait::Observed { .. }
            | Wait::Limit { .. }
            | Wait::Check
            | Wait::Other => None,
        }
    }
}

/// A running action or check, or the last failed action.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActionStatus {
    /// The state before; absent for a check.
    pub from: Option<StateName>,
    /// The state after; absent for a check.
    pub to: Option<StateName>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The number of all attempts.
    pub of: u32,
    /// It runs now.
    pub running: bool,
    /// When it started.
    pub since_ns: u64,
    /// The error, if it failed; otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The last line of its output, filled in by the daemon.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_line: String,
    /// It runs with the content of an earlier generation; the active generation's content follows when it has ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub earlier_content: bool,
    /// It failed because of a conflict that a person has to decide, filled in by the daemon.
    #[serde(default, skip_serializing_if = "is_false")]
    pub conflict: bool,
}

/// The text about an action with [earlier content](ActionStatus::earlier_content).
pub const EARLIER_CONTENT: &str =
    "it runs with the content of an earlier generation; the new content follows when it ends";

/// A detected problem.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "trouble", rename_all = "kebab-case")]
pub enum Trouble {
    /// A deadlock: a cycle of waiting change objects that no rule can break.
    Stuck {
        /// The cycle, starting with this change object.
        circle: Vec<CobId>,
        /// The cycle is longer than shown.
        #[serde(default, skip_serializing_if = "is_false")]
        more: bool,
    },
    /// A livelock: it sends the same request to the same change object and releases it again and again.
    Chase {
        /// The requested change object.
        cob: CobId,
        /// How often.
        times: u32,
    },
    /// Flapping: it leaves the same state again and again.
    Flap {
        /// The state.
        state: StateName,
        /// How often.
        times: u32,
        /// The change object whose request made it leave last; absent: its own preferred state.
        because_of: Option<CobId>,
    },
    /// A problem that only a newer version knows.
    #[serde(other)]
    Other,
}
