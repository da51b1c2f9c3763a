//! The answers of the API.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::status::{HostStatus, WindowWait};
use crate::trust::Role;
use crate::{CobId, GenerationNumber, HostName};

/// The identity of the server, at `/v1/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// The name of the program, `cobd`.
    pub program: String,
    /// The version of the program.
    pub version: String,
    /// The version of the API.
    pub api: u32,
}

/// The identity of the caller, at `/v1/whoami`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Whoami {
    /// An operator's name, `root`, `uid 1000`, or an address.
    pub name: String,
    /// The role of the caller.
    pub role: Role,
    /// The proof of identity: `unix socket`, `key`, `token` or `no key`.
    pub proof: String,
}

/// The data of an event.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The number of changes of the status.
    #[serde(default)]
    pub change: u64,
    /// The status, on request.
    pub status: Option<HostStatus>,
}

/// The answer to an accepted and durable order.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Whether the order has changed anything: a repetition has not.
    pub changed: bool,
    /// The effect of the order, for people.
    #[serde(default)]
    pub detail: String,
    /// For `prepare` and `rollback`: the prepared generation or the rollback target.
    pub generation: Option<GenerationNumber>,
    /// For `prepare`: hosts of the generation without a link, and the reason if it is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unlinked: BTreeMap<HostName, String>,
    /// For `prepare`: file trees in which the generation conflicts with changes of users, and the files. A long list is
    /// cut.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conflicts: BTreeMap<CobId, String>,
    /// For `prepare`: why possible conflicts are missing in the list; empty: all relevant change objects were checked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unseen: String,
    /// To `switch`: the maintenance windows that it waits for.
    pub window_wait: Option<WindowWait>,
}

impl Done {
    /// The answer to an order without links and conflicts.
    #[must_use]
    pub fn new(changed: bool, detail: String) -> Self {
        let (unlinked, conflicts) = (BTreeMap::new(), BTreeMap::new());
        Self { changed, detail, generation: None, unlinked, conflicts, unseen: String::new(), window_wait: None }
    }
}

/// The JSON of a refusal.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusalBody {
    /// The refused request and the reason.
    pub error: String,
    /// The remedy; empty: no remedy is known.
    #[serde(default)]
    pub hint: String,
    /// The reason, for programs; absent from daemons of earlier versions.
    pub code: Option<RefusalCode>,
}

/// A reason of a refusal, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCode {
    /// The request names another host, which does not run here.
    OtherHost,
    /// The body does not fit the order: the daemon may have another version.
    Misfit,
    /// A reason of a newer version.
    #[serde(other)]
    Unknown,
}
