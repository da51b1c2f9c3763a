//! Machines of clusters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

/// A machine of a cluster, or a machine of a provider that no cluster knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The host name.
    pub host: String,
    /// The cluster with its tenant; absent for an orphan whose label names no cluster.
    pub cluster: Option<Name>,
    /// The provider.
    pub provider: Name,
    /// The provider's name for the machine, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The address of its daemon, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its state.
    pub state: MachineState,
    /// The token that the machine carries as a label at the provider.
    pub token: String,
}

/// The states of a machine: `requested`, `created`, `confirmed`, and back over `deleting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MachineState {
    /// The token is on disk; the provider may or may not have made the machine.
    Requested,
    /// The provider has answered with the machine's name.
    Created,
    /// The machine's daemon answers.
    Confirmed,
    /// It is being deleted; the provider may still have it.
    Deleting,
    /// The provider has it, and no cluster knows it.
    Orphan,
}
