//! Machines of clusters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

/// A machine of a cluster, or a machine of a provider that no cluster knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The host name.
    pub host: String,
    /// The tenant of the cluster; absent for an orphan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Name>,
    /// The cluster; absent for an orphan.
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

/// Which machines.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MachineQuery {
    /// Only machines that no cluster has, all of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub orphans: bool,
    /// Only machines of clusters after this cluster: the last cluster of the page before.
    pub after: Option<Name>,
    /// The tenant of this cluster, for a caller who sees several tenants.
    pub after_tenant: Option<Name>,
    /// The answer ends with the cluster with which it has so many machines; by default, and at most,
    /// [`MachineQuery::MOST`].
    pub limit: Option<usize>,
}

impl MachineQuery {
    /// An answer with fewer machines is the last page.
    pub const MOST: usize = 1000;

    /// The number of machines that ends the answer to this query.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(Self::MOST).min(Self::MOST)
    }
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
