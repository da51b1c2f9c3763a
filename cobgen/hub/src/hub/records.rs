//! What the hub keeps: clusters and credentials, under the keys of its store.

use std::collections::BTreeMap;

use cob_hub_api::{Cluster, ClusterState, Machine, Name, Operation};
use cob_jobs::{Lock, Outcome};
use cob_permissions::{Scope, UserId};
use serde::{Deserialize, Serialize};

use crate::job::machines::Table;
use crate::job::{Progress, Shape};

/// A tenant and a cluster.
pub(crate) type ClusterKey = (Name, Name);

/// A cluster, without its machines: these are in the cluster's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// The tenant.
    pub tenant: Name,
    /// The name.
    pub name: Name,
    /// The user who created it.
    pub owner: cob_permissions::Name,
    /// The shape.
    pub shape: Shape,
    /// The shape before the last change.
    pub former: Option<Shape>,
    /// The state.
    pub state: ClusterState,
    /// The generation.
    pub generation: Option<u64>,
    /// When it was created.
    pub created_ms: u64,
    /// When its lease ends.
    pub lease_ends_ms: Option<u64>,
    /// Whether machines stay after a failed creation.
    pub keep_failed: bool,
    /// The port of the server of its depot, if hosts and hub have keys.
    #[serde(default)]
    pub depot_port: Option<u16>,
}

/// The work of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Payload {
    /// The cluster.
    pub cluster: Name,
    /// The operation.
    pub operation: Operation,
}

/// The locks of the hub's jobs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HubLock {
    /// All clusters.
    Clusters,
    /// A cluster: `TENANT/NAME`.
    Cluster(String),
}

impl Lock for HubLock {
    fn groups(&self) -> Vec<Self> {
        match self {
            Self::Clusters => Vec::new(),
            Self::Cluster(_) => vec![Self::Clusters],
        }
    }
}

/// An API token. Its secret half is never stored: the key of the record is the hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// The user.
    pub user: UserId,
    /// A name for people.
    pub label: String,
    /// Narrows the rights of the user.
    #[serde(default)]
    pub scope: Option<Scope>,
    /// When it was made.
    pub made_ms: u64,
    /// When it ends.
    #[serde(default)]
    pub ends_ms: Option<u64>,
}

/// All clusters.
pub(crate) type Clusters = BTreeMap<ClusterKey, ClusterRecord>;

impl ClusterRecord {
    /// The cluster for a client.
    pub(crate) fn view(&self, job: Option<u64>, machines: Table) -> Cluster {
        Cluster {
            tenant: self.tenant.clone(),
            name: self.name.clone(),
            owner: self.owner.to_string(),
            wanted: self.shape.wanted.clone(),
            catalogue: self.shape.catalogue.clone(),
            state: self.state,
            generation: self.generation,
            created_ms: self.created_ms,
            lease_ends_ms: self.lease_ends_ms,
            job,
            machines: machines.into_iter().map(|(host, machine)| machine.view(host, Some(self.name.clone()))).collect(),
        }
    }

    /// The cluster after a job; `None` if it is gone.
    #[must_use]
    pub(crate) fn after(&self, operation: &Operation, outcome: Outcome, progress: &Progress) -> Option<Self> {
        let mut record = self.clone();
        record.generation = progress.generation.or(record.generation);
        let is_clean = progress.ended == Some(true) || progress.begun.is_empty();
        match (operation, outcome) {
            (Operation::Delete {}, Outcome::Succeeded) => return None,
            (_, Outcome::Succeeded) => {
                record.state = ClusterState::Active;
                if let Some(after) = progress.after.clone().filter(|after| *after != record.shape) {
                    record.former = Some(std::mem::replace(&mut record.shape, after));
                }
            }
            (Operation::Create {}, Outcome::Failed | Outcome::Canceled) => {
                record.state = if is_clean { ClusterState::Terminated } else { ClusterState::Incomplete };
            }
            (Operation::Delete {}, Outcome::Failed | Outcome::Canceled) if !is_clean => {
                record.state = ClusterState::Incomplete;
            }
            (_, Outcome::Failed | Outcome::Canceled) if !is_clean => record.state = ClusterState::Inconsistent,
            (_, Outcome::Failed | Outcome::Canceled) => {}
        }
        Some(record)
    }
}

impl crate::job::machines::MachineRecord {
    /// The machine for a client.
    pub(crate) fn view(self, host: String, cluster: Option<Name>) -> Machine {
        Machine {
            host,
            cluster,
            provider: self.provider,
            id: self.id,
            address: self.address,
            state: self.state,
            token: self.token,
        }
    }
}
