//! An entry of the history: time, event, change object, result.

use serde::{Deserialize, Serialize};

use crate::id::{CobId, GenerationNumber, HostName, StateName};

/// An event of the merged journal, as in `cobctl history --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cob: Option<CobId>,
    /// `check`, `start`, `end`, `request`, `grant`, `release`, `recall`, `activate`, `drift`, `lapsed`,
    /// `broken`, `stuck`, `chase`, `flap`, `order` …
    pub event: String,
    /// The state before, if the event has any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<StateName>,
    /// The entered, requested or granted state.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<StateName>,
    /// The attempt of an action, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub attempt: Option<u32>,
    /// The result of an action or a check: true, false; absent if not known (an orphaned action that was found again
    /// and whose result is lost has `null`).
    #[serde(default)]
    pub ok: Option<bool>,
    /// Details, for people.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub detail: String,
    /// When the daemon learned of it, by the host's clock, if later: actions end by themselves.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub heard_ns: Option<u64>,
}
