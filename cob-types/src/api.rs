//! The HTTP API between a daemon and its clients: orders, queries and answers, as JSON (`docs/api.md`).
//!
//! [`crate::status`] defines the status of hosts and change objects, [`crate::history`] the history. New versions only add
//! fields.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod answer;
mod files;
pub mod order;

pub use answer::{Change, Done, RefusalBody, RefusalCode, Version, Whoami};
pub use files::{FileConflict, FileVersion, FilesAnswer, LogsAnswer, LogsQuery};
pub use order::{Order, SwitchHow};

/// The version of the API: the first part of each path.
pub const API_VERSION: u32 = 1;

/// The header with the name of the host that a request is for; another host refuses the request.
pub const MEANT_FOR: &str = "cob-host";

/// The header with the epoch of a hub: a number that grows when another hub takes over. A host that knows a greater number
/// refuses the order.
pub const EPOCH: &str = "cob-epoch";

/// The change objects that a status lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StatusOf {
    /// All.
    #[default]
    All,
    /// Change objects with a report. The others are idle in their desired states, and are only counted.
    #[serde(rename = "restless")]
    Active,
}
