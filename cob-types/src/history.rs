//! One line of the history: what happened, when, to what, how it ended.

use serde::{Deserialize, Serialize};

use crate::id::{CobId, GenerationNumber, HostName, StateName};

/// One event of the merged journal, as `cobctl history --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Nanoseconds since 1970-01-01 UTC, by the host's clock.
    pub ts_ns: u64,
    /// The host that it happened on.
    pub host: HostName,
    /// Position in the host's own journal.
    pub seq: u64,
    /// Lamport number: orders entries of different hosts that depend on each other.
    pub lamport: u64,
    /// The generation under which it happened.
    pub generation: GenerationNumber,
    /// The change object concerned, if one is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cob: Option<CobId>,
    /// `check`, `start`, `end`, `request`, `grant`, `release`, `recall`, `activate`, `drift`, `lapsed`,
    /// `broken`, `stuck`, `chase`, `flap`, `order` …
    pub event: String,
    /// The state left, where the event has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<StateName>,
    /// The state entered, asked for or granted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<StateName>,
    /// The attempt of an action, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub attempt: Option<u32>,
    /// How an action or a check ended: true, false; absent where nothing is known (an action orphaned and
    /// found again, whose result is lost, has `null`).
    #[serde(default)]
    pub ok: Option<bool>,
    /// More, for people.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub detail: String,
    /// When the daemon heard of it, by the host's clock, where that was later: actions end by themselves.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub heard_ns: Option<u64>,
}
