//! What the hub and its clients say to each other: requests, answers and refusals, as JSON.
//!
//! New versions only add fields. A request with an unknown field is refused, so that a misspelt key is never ignored;
//! answers may have fields that a client does not know.
//!
//! ```text
//! lib ── cluster (clusters, operations) ── job ── queue ── machine ── entity (catalogue) ── audit ── token ── session ── usage ── name
//! ```

mod audit;
mod cluster;
mod entity;
mod job;
mod machine;
mod name;
mod queue;
mod session;
mod token;
mod usage;

pub use audit::{AuditLine, AuditNote, AuditQuery};
pub use cluster::{
    Cluster, ClusterQuery, ClusterRequest, ClusterState, Lease, MOST_NODES, Operation, Preview, PreviewNode, Task,
    Wanted,
};
pub use entity::{
    Definitions, Entity, EntityKind, EntityWritten, ExchangeForm, ExportedEntities, Fault, ImportedEntities,
};
pub use job::{Job, JobId, JobQuery, JobState, LogPart, Priority, Started};
pub use machine::{Machine, MachineQuery, MachineState};
pub use name::{BadName, Name};
pub use queue::{Drain, DrainRequest, JobSelection, Queue, Rule, RuleAction, RuleContent};
pub use session::{LogIn, LogInEnd, LogInStart, LogInStarted, PasswordRequest, Session, SessionRequest};
pub use token::{Token, TokenInfo, TokenRequest};
pub use usage::{UsageOf, Usages};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The first part of each path.
pub const VERSION: &str = "v1";

/// A refusal: the body of every answer with a status of 400 and more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// What was refused, and why.
    pub error: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The faults of a refused model, with their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// The identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Whoami {
    /// The name of the user.
    pub user: String,
    /// The tenant of the user; absent for a super administrator.
    pub tenant: Option<Name>,
    /// `super-administrator`, `administrator` or `user`.
    pub standing: String,
}
