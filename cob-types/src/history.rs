//! An entry of the history: time, event, change object, result.
//!
//! Programs read the [event](HistoryEntry::happened) and the [facts](Facts); the text of an entry is only for people.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::id::{CobId, GenerationNumber, HostName, StateName};

/// An event of the merged journal, as in `cobctl history --json`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryEntry {
    /// Nanoseconds since 1970-01-01 UTC, by the host's clock.
    pub ts_ns: u64,
    /// The host of the event.
    pub host: HostName,
    /// Position in the host's own journal.
    pub seq: u64,
    /// Lamport number: orders entries of different hosts that depend on each other.
    pub lamport: u64,
    /// The active generation.
    pub generation: GenerationNumber,
    /// The change object of the event, if any.
    pub cob: Option<CobId>,
    /// `check`, `start`, `end`, `request`, `grant`, `release`, `recall`, `activate`, `drift`, `lapsed`,
    /// `broken`, `stuck`, `chase`, `flap`, `order` …
    pub event: String,
    /// The state before, if the event has any.
    pub from: Option<StateName>,
    /// The entered, requested or granted state.
    pub to: Option<StateName>,
    /// The attempt of an action, from 1.
    pub attempt: Option<u32>,
    /// The result of an action or a check: true, false; absent if not known (an orphaned action that was found again
    /// and whose result is lost has `null`).
    #[serde(default)]
    #[serialize_always]
    pub ok: Option<bool>,
    /// Details, for people.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub detail: String,
    /// When the daemon learned of it, by the host's clock, if later: actions end by themselves.
    pub heard_ns: Option<u64>,
    /// The facts of the detail, for programs; absent if the detail has no facts.
    pub facts: Option<Facts>,
}

/// The facts in the detail of an entry.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The generation that the event is about; of a rollback its target.
    pub generation: Option<GenerationNumber>,
    /// The operator of an order.
    pub by: Option<String>,
    /// The other change object of a lock: the requested object, the grantor or the holder.
    pub other: Option<CobId>,
    /// A rollback by an order, which may come at any time; otherwise the switch policy or a cancel demands it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub ordered: bool,
    /// The switch is now for all hosts.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub everywhere: bool,
}

/// An event of a history, with the facts that programs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryEvent<'e> {
    /// The daemon has started.
    Daemon,
    /// A generation was prepared.
    Prepare(Option<GenerationNumber>),
    /// A prepared generation was discarded.
    Discard(GenerationNumber),
    /// The final goal of the next `go`; or a new policy for the present switch.
    Terms(Option<GenerationNumber>),
    /// A switch to this generation has started, perhaps as a step to the final goal.
    Go(Option<GenerationNumber>),
    /// The rollback to this generation has started.
    Return(Option<GenerationNumber>),
    /// A rollback from this generation was decided; `ordered`: by an order, not by policy or a cancel.
    Withdraw {
        /// The abandoned generation.
        from: Option<GenerationNumber>,
        /// See [`Facts::ordered`].
        ordered: bool,
    },
    /// The generation of the entry is active.
    Activate,
    /// The host has converged in this generation; without: the whole switch has ended.
    Settled(Option<GenerationNumber>),
    /// The order is only for some hosts, or is now for all.
    Only {
        /// It is for all hosts.
        everywhere: bool,
    },
    /// The switch to this generation was cancelled.
    Cancel(Option<GenerationNumber>),
    /// A cancelled switch has another target.
    Unhold,
    /// The host was paused.
    Pause,
    /// The host continues.
    Resume,
    /// The switch can neither continue nor roll back; with the reason.
    Stopped(&'e str),
    /// A transition has started.
    Start(&'e CobId),
    /// An attempt of a transition has ended.
    End(&'e CobId),
    /// No further attempt starts by itself.
    Failed(&'e CobId),
    /// A failed change object starts again.
    Retry(&'e CobId),
    /// A check has found a state.
    Check(&'e CobId),
    /// A check has found that others have changed the state.
    Drift(&'e CobId),
    /// The change object has departed.
    Gone(&'e CobId),
    /// The change object is in a deadlock.
    Stuck(&'e CobId),
    /// A message about a lock of the change object, with the other change object.
    Lock(LockEvent, &'e CobId, &'e str),
    /// Another event.
    Other,
}

/// A step of a state lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockEvent {
    /// The change object requests a grant of the other.
    Request,
    /// It has received the grant.
    Hold,
    /// It has released the grant, or withdrawn the request.
    Release,
    /// It has given a grant to the other.
    Grant,
    /// The other has returned the grant.
    Returned,
}

impl HistoryEntry {
    /// The event, with the facts that programs use.
    #[must_use]
    pub fn happened(&self) -> HistoryEvent<'_> {
        let facts = self.facts.as_ref();
        let generation = || facts?.generation;
        let other = facts.and_then(|facts| facts.other.as_ref()).map_or("", CobId::as_str);
        let lock = |event, cob| HistoryEvent::Lock(event, cob, other);
        match (self.event.as_str(), &self.cob) {
            ("daemon", None) => HistoryEvent::Daemon,
            ("prepare", None) => HistoryEvent::Prepare(generation()),
            ("call-off", None) => generation().map_or(HistoryEvent::Other, HistoryEvent::Discard),
            ("terms", None) => HistoryEvent::Terms(generation()),
            ("go", None) => HistoryEvent::Go(generation()),
            ("return", None) => HistoryEvent::Return(generation()),
            ("withdraw", None) => {
                HistoryEvent::Withdraw { from: generation(), ordered: facts.is_some_and(|facts| facts.ordered) }
            }
            ("activate", None) => HistoryEvent::Activate,
            ("settled", None) => HistoryEvent::Settled(generation()),
            ("only", None) => HistoryEvent::Only { everywhere: facts.is_some_and(|facts| facts.everywhere) },
            ("cancel", None) => HistoryEvent::Cancel(generation()),
            ("unhold", None) => HistoryEvent::Unhold,
            ("pause", None) => HistoryEvent::Pause,
            ("resume", None) => HistoryEvent::Resume,
            ("stopped", None) => HistoryEvent::Stopped(&self.detail),
            ("start", Some(cob)) => HistoryEvent::Start(cob),
            ("end", Some(cob)) => HistoryEvent::End(cob),
            ("failed", Some(cob)) => HistoryEvent::Failed(cob),
            ("retry", Some(cob)) => HistoryEvent::Retry(cob),
            ("check", Some(cob)) => HistoryEvent::Check(cob),
            ("drift", Some(cob)) => HistoryEvent::Drift(cob),
            ("gone", Some(cob)) => HistoryEvent::Gone(cob),
            ("stuck", Some(cob)) => HistoryEvent::Stuck(cob),
            ("request", Some(cob)) => lock(LockEvent::Request, cob),
            ("hold", Some(cob)) => lock(LockEvent::Hold, cob),
            ("release", Some(cob)) => lock(LockEvent::Release, cob),
            ("grant", Some(cob)) => lock(LockEvent::Grant, cob),
            ("returned", Some(cob)) => lock(LockEvent::Returned, cob),
            _ => HistoryEvent::Other,
        }
    }

    /// The operator of an order.
    #[must_use]
    pub fn author(&self) -> Option<&str> {
        self.facts.as_ref()?.by.as_deref()
    }
}
