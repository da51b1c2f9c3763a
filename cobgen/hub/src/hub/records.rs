//! What the hub keeps: clusters and credentials, under the keys of its store.

use std::collections::BTreeMap;

use cob_hub_api::{Cluster, ClusterQuery, ClusterState, Machine, Name, Operation};
use cob_jobs::{Lock, Outcome};
use cob_permissions::{Scope, UserId};
use serde::{Deserialize, Serialize};

use super::book::queue_name;
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
    /// The deletions after the end of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapse: Option<Lapse>,
    /// When its owner was warned that the lease ends soon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warned_ms: Option<u64>,
}

/// Deletions of a cluster whose lease has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lapse {
    /// How many were submitted.
    pub attempts: u32,
    /// When the next is submitted, if the cluster is still there.
    pub next_ms: u64,
}

impl Lapse {
    /// The first pause; doubled after each attempt.
    const PAUSE_MS: u64 = 60_000;
    /// The longest pause.
    const LONGEST_MS: u64 = 3_600_000;

    /// After a further attempt.
    fn again(before: Option<Self>, now: u64) -> Self {
        let attempts = before.map_or(0, |lapse| lapse.attempts).saturating_add(1);
        let doubled = Self::PAUSE_MS.saturating_mul(1 << (attempts - 1).min(10));
        Self { attempts, next_ms: now.saturating_add(doubled.min(Self::LONGEST_MS)) }
    }
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
    /// Whether a password began it: the token of a session.
    #[serde(default)]
    pub session: bool,
}

/// A password of a user. Only its hash is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Password {
    /// The user.
    pub(crate) user: UserId,
    /// The hash with its salt and parameters (the PHC string format).
    pub(crate) hash: String,
}

/// All clusters.
pub(crate) type Clusters = BTreeMap<ClusterKey, ClusterRecord>;

impl Credential {
    /// Whether its time is over.
    pub(crate) fn has_ended(&self, now: u64) -> bool {
        self.ends_ms.is_some_and(|ends| ends <= now)
    }
}

impl ClusterRecord {
    /// Whether a query means this cluster, apart from its limit.
    pub(crate) fn is_asked_for(&self, query: &ClusterQuery) -> bool {
        let texts = [self.name.as_str(), self.shape.wanted.template.as_str(), self.owner.as_str()];
        let found = |search: &String| texts.iter().any(|text| text.contains(search.as_str()));
        query.after.as_ref().is_none_or(|after| self.name > *after)
            && query.state.is_none_or(|state| self.state == state)
            && query.search.as_ref().is_none_or(found)
    }

    /// Whether a creation has succeeded: of other clusters only a deletion makes sense.
    pub(crate) fn is_created(&self) -> bool {
        !matches!(self.state, ClusterState::Terminated | ClusterState::Incomplete)
    }

    /// The key of the cluster in the queue.
    pub(crate) fn queue_name(&self) -> String {
        queue_name(&self.tenant, &self.name)
    }

    /// When the hub deletes the cluster; a terminated cluster has nothing to delete.
    pub(crate) fn deletion_due_ms(&self) -> Option<u64> {
        let ends = self.lease_ends_ms.filter(|_| self.state != ClusterState::Terminated)?;
        Some(self.lapse.map_or(ends, |lapse| lapse.next_ms.max(ends)))
    }

    /// The cluster after the hub has submitted its deletion.
    pub(crate) fn lapsed(&self, now: u64) -> Self {
        Self { lapse: Some(Lapse::again(self.lapse, now)), ..self.clone() }
    }

    /// The most nodes that the cluster has or may get by these operations.
    pub(crate) fn most_nodes<'a>(&self, pending: impl Iterator<Item = &'a Operation>) -> u32 {
        let after = pending.filter_map(|operation| {
            if let Operation::Resize { nodes } = operation {
                return Some(*nodes);
            }
            self.former.as_ref().filter(|_| *operation == Operation::Rollback {}).map(|shape| shape.wanted.nodes)
        });
        after.fold(self.shape.wanted.nodes, u32::max)
    }

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
            machines: machines
                .into_iter()
                .map(|(host, machine)| machine.view(host, &self.tenant, &self.name))
                .collect(),
        }
    }

    /// The cluster after a job that left nothing half done, or did; `None` if the cluster is gone.
    #[must_use]
    pub(crate) fn after(
        &self,
        operation: &Operation,
        outcome: Outcome,
        progress: &Progress,
        is_clean: bool,
    ) -> Option<Self> {
        let mut record = self.clone();
        record.generation = progress.generation.or(record.generation);
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
    pub(crate) fn view(self, host: String, tenant: &Name, cluster: &Name) -> Machine {
        Machine {
            host,
            tenant: Some(tenant.clone()),
            cluster: Some(cluster.clone()),
            provider: self.provider,
            id: self.id,
            address: self.address,
            state: self.state,
            token: self.token,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use cob_hub_api::Wanted;

    use super::*;

    pub(in crate::hub) fn record(name: &str, state: ClusterState) -> ClusterRecord {
        let wanted = Wanted {
            template: "shop".to_owned(),
            nodes: 1,
            services: None,
            provider: None,
            hardwaretype: None,
            imagetype: None,
            config: Default::default(),
        };
        ClusterRecord {
            tenant: Name::new("web").expect("a name"),
            name: Name::new(name).expect("a name"),
            owner: cob_permissions::Name::new("ann").expect("a name"),
            shape: Shape { wanted, catalogue: "c".to_owned() },
            former: None,
            state,
            generation: None,
            created_ms: 0,
            lease_ends_ms: None,
            keep_failed: false,
            depot_port: None,
            lapse: None,
            warned_ms: None,
        }
    }

    #[test]
    fn a_query_selects_by_text_state_and_place() {
        let all = [
            record("a1", ClusterState::Active),
            record("a2", ClusterState::Pending),
            record("b", ClusterState::Active),
        ];
        let found = |query: ClusterQuery| {
            let asked = all.iter().filter(|record| record.is_asked_for(&query));
            asked.map(|record| record.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        let search = |text: &str| ClusterQuery { search: Some(text.to_owned()), ..ClusterQuery::default() };
        assert_eq!(found(ClusterQuery::default()), "a1 a2 b");
        assert_eq!(found(search("a")), "a1 a2 b", "the owner is ann");
        assert_eq!(found(search("2")), "a2");
        assert_eq!(found(search("shop")), "a1 a2 b");
        assert_eq!(found(search("x")), "");
        assert_eq!(found(ClusterQuery { state: Some(ClusterState::Active), ..search("1") }), "a1");
        assert_eq!(found(ClusterQuery { after: Name::new("a1").ok(), ..ClusterQuery::default() }), "a2 b");
        assert_eq!(ClusterQuery { limit: Some(usize::MAX), ..ClusterQuery::default() }.limit(), ClusterQuery::MOST);
    }
}
