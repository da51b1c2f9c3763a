//! What a daemon tells of a change object: where it is, where it goes, and whom it waits for.

use serde::{Deserialize, Serialize};

use super::is_false;
use crate::id::{CobId, StateName};

/// What the engine is doing with a change object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// A check runs, or is about to.
    Checking,
    /// A transition runs.
    Moving,
    /// It is on its way and waits: for locks, for grants to come back, for a retry, for a rest.
    Waiting,
    /// It is where it should be.
    Settled,
}

/// One change object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CobStatus {
    /// `HOST/NAME`.
    pub id: CobId,
    /// Its kind.
    #[serde(default)]
    pub kind: String,
    /// Its state; absent: unknown.
    pub state: Option<StateName>,
    /// Where it is to go now; absent while its state is unknown.
    pub target: Option<StateName>,
    /// Where it goes by itself.
    pub preferred: StateName,
    /// What is being done with it.
    pub phase: Phase,
    /// When it last changed its state or phase.
    pub since_ns: u64,
    /// It has used up its retries.
    pub failed: bool,
    /// It leaves with the switch under way.
    #[serde(default, skip_serializing_if = "is_false")]
    pub retiring: bool,
    /// What it waits for.
    pub waits_for: Vec<Wait>,
    /// The action that runs, or the one that failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionStatus>,
    /// Named trouble: stuck, chase, flap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<Trouble>,
    /// Who holds a promise of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<Holder>,
    /// It is checked and never moved: `mode: observe`. Where it would go is its target.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observed: bool,
    /// What others have changed of it, and is not as the model says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<FileDrift>,
    /// An operator has stopped it. Its preferred state is the one in which it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
}

/// An operator's order to stop a change object. It holds until the change object is started, or until the next generation
/// is activated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Who ordered it.
    pub who: String,
    /// It starts again by itself as soon as it has been stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restart: bool,
    /// It is stopped because it needs this change object, which the same order has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<CobId>,
    /// It starts again by itself when its host has been rebooted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub until_boot: bool,
}

/// What is said of a file tree [in conflict](CobStatus::is_in_conflict), after its name.
pub const IN_CONFLICT: &str = "is in conflict: somebody has changed on the host what the model changes too";

impl CobStatus {
    /// Whether it is a file tree that waits for somebody to say which of two changes counts (docs/kinds/file-tree.md).
    #[must_use]
    pub fn is_in_conflict(&self) -> bool {
        self.kind == "file-tree" && self.state.as_ref().is_some_and(|state| *state == "conflict")
    }

    /// Whether it is a service, in whatever form: what that prints is kept, and `cobctl logs` shows it.
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.kind.strip_prefix("service").is_some_and(|form| form.is_empty() || form.starts_with('.'))
    }

    /// Whether it waits for something outside the model, which it can't bring about.
    #[must_use]
    pub fn is_gate(&self) -> bool {
        matches!(self.kind.as_str(), "tcp-check" | "http-check")
    }

    /// Whether it does nothing but wait for others: it gets on when they do, and there is nothing else to be told of it.
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

    /// Whether its first check has not ended, and there is nothing else to be told of it.
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
    /// As people read it.
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

/// A file that others have changed, and what is known of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDrift {
    /// Where.
    pub path: String,
    /// When it was last changed, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_s: Option<u64>,
    /// Whose it is; absent: it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who was logged in then, and is still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logged_in: Vec<String>,
}

/// A promise that is out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Who holds it.
    pub cob: CobId,
    /// The state promised.
    pub state: StateName,
    /// It was asked back.
    pub recalled: bool,
    /// Since when it has been out, or asked back. Daemons of the version before do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// It has failed, and the budget whose token it holds gives no more tokens for that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stops: bool,
}

/// One reason why a change object does not move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Wait {
    /// It needs a lock that it does not hold.
    Lock {
        /// Of whom.
        cob: CobId,
        /// In one of these states.
        states: Vec<StateName>,
        /// Since when it has asked.
        since_ns: u64,
        /// It holds it, but was asked to give it back.
        #[serde(default, skip_serializing_if = "is_false")]
        recalled: bool,
        /// The asked one's refusal, if it refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// Its budget has no token left.
    Token {
        /// The budget's change object.
        cob: CobId,
        /// Since when it has asked.
        since_ns: u64,
    },
    /// Promises that it gave must come back first.
    Grant {
        /// From whom.
        cob: CobId,
        /// For which state it holds one.
        state: StateName,
        /// Since when it has been asked back.
        since_ns: u64,
    },
    /// A failed action is tried again later.
    Retry {
        /// When.
        at_ns: u64,
        /// The attempt that comes, from 1.
        attempt: u32,
        /// The attempts that there are in all.
        of: u32,
    },
    /// It has used up its retries.
    Failed,
    /// An operator has paused it.
    Paused,
    /// It was braked: it asks or moves again and again.
    Rest {
        /// Until when.
        until_ns: u64,
    },
    /// No route leads from its state to where it should be.
    NoRoute {
        /// Where it should be.
        to: StateName,
    },
    /// It serves only those who help others to leave, until it is gone.
    Leaving,
    /// It is observed: it stays where others leave it, and would go elsewhere.
    Observed {
        /// Where it would go.
        to: StateName,
    },
    /// It is where it leaves, and may be asked for until another one that leaves has left for good.
    After {
        /// Which.
        cob: CobId,
        /// Since when its host goes to the next generation.
        since_ns: u64,
    },
    /// It could go, and an operator's limit lets no more go at a time on its host.
    Limit {
        /// So many may.
        at_most: u32,
    },
    /// It could go, and its check, which it was told to make from time to time, has not ended.
    Check,
    /// A reason that a newer daemon knows, and this program does not.
    #[serde(other)]
    Other,
}

impl Wait {
    /// Who is waited for; none: nobody else.
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

/// A running action or check, or the last one that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionStatus {
    /// The state left; absent for a check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StateName>,
    /// The state to be entered; absent for a check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<StateName>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The attempts that there are in all.
    pub of: u32,
    /// It runs now.
    pub running: bool,
    /// When it began.
    pub since_ns: u64,
    /// Why it failed, if it did; else nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The last line that it printed, filled in by the daemon.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_line: String,
    /// It runs with the content of a generation before the active one, which has another: that follows when it has ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub earlier_content: bool,
}

/// What is said of an action that runs with [earlier content](ActionStatus::earlier_content).
pub const EARLIER_CONTENT: &str =
    "it runs with the content of an earlier generation; the new content follows when it has ended";

/// Named trouble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "trouble", rename_all = "kebab-case")]
pub enum Trouble {
    /// A circle of waiters that no rule can dissolve.
    Stuck {
        /// The circle, beginning with this change object.
        circle: Vec<CobId>,
        /// The circle is longer than shown.
        #[serde(default, skip_serializing_if = "is_false")]
        more: bool,
    },
    /// It asks the same of the same again and again and withdraws it.
    Chase {
        /// Of whom.
        cob: CobId,
        /// How often.
        times: u32,
    },
    /// It leaves the same state again and again.
    Flap {
        /// The state.
        state: StateName,
        /// How often.
        times: u32,
        /// Whose request made it leave last; absent: its own preferred state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because_of: Option<CobId>,
    },
    /// Trouble that a newer daemon knows, and this program does not.
    #[serde(other)]
    Other,
}
