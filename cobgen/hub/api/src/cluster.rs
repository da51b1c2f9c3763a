//! Clusters and the operations on them.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{JobId, Machine, Name};

/// The most nodes of a cluster.
pub const MOST_NODES: u32 = 10_000;

/// The request for a new cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterRequest {
    /// The name of the cluster, unique in its tenant.
    pub name: Name,
    /// What it shall be.
    pub wanted: Wanted,
    /// How long the cluster shall live, in seconds; by default as the hub says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_s: Option<u64>,
    /// Whether machines stay after a failed creation, for a look at them.
    #[serde(default)]
    pub keep_failed: bool,
}

/// What a cluster shall be: a template, a size, and values in place of the template's defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The template.
    pub template: String,
    /// The number of nodes.
    #[schemars(range(min = 1, max = MOST_NODES))]
    pub nodes: u32,
    /// The services, in place of the default ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<BTreeSet<String>>,
    /// The provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The type of hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardwaretype: Option<String>,
    /// The type of image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imagetype: Option<String>,
    /// The configuration; its keys take the place of the template's.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
}

/// A new end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// Seconds from now.
    pub lease_s: u64,
}

/// An operation on a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "operation", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Makes the machines and starts the services.
    Create {},
    /// Changes the number of nodes.
    Resize {
        /// The number of nodes.
        #[schemars(range(min = 1, max = MOST_NODES))]
        nodes: u32,
    },
    /// Adds and removes services.
    Services {
        /// New services.
        #[serde(default)]
        add: BTreeSet<String>,
        /// Services to remove.
        #[serde(default)]
        remove: BTreeSet<String>,
    },
    /// Replaces the configuration. Services whose configuration differs restart.
    Configure {
        /// The configuration.
        config: Map<String, Value>,
    },
    /// Starts stopped services.
    Start {
        /// The services; none: all.
        #[serde(default)]
        services: BTreeSet<String>,
    },
    /// Stops services and the services that need these.
    Stop {
        /// The services; none: all.
        #[serde(default)]
        services: BTreeSet<String>,
    },
    /// Restarts services.
    Restart {
        /// The services; none: all.
        #[serde(default)]
        services: BTreeSet<String>,
    },
    /// Takes the newest version of the template and of all that it refers to.
    Sync {},
    /// Goes back to the state before the last operation that changed the cluster.
    Rollback {},
    /// Replaces the machine of a node by a new machine.
    Replace {
        /// The node.
        node: String,
    },
    /// Stops the services and deletes the machines.
    Delete {},
}

impl Operation {
    /// The names of all operations.
    pub const NAMES: [&'static str; 11] = [
        "create",
        "resize",
        "services",
        "configure",
        "start",
        "stop",
        "restart",
        "sync",
        "rollback",
        "replace",
        "delete",
    ];

    /// The name of the operation.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create {} => "create",
            Self::Resize { .. } => "resize",
            Self::Services { .. } => "services",
            Self::Configure { .. } => "configure",
            Self::Start { .. } => "start",
            Self::Stop { .. } => "stop",
            Self::Restart { .. } => "restart",
            Self::Sync {} => "sync",
            Self::Rollback {} => "rollback",
            Self::Replace { .. } => "replace",
            Self::Delete {} => "delete",
        }
    }
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cluster {
    /// The tenant.
    pub tenant: Name,
    /// The name.
    pub name: Name,
    /// The user who created it.
    pub owner: String,
    /// What it is: after a failed operation, what it was before.
    pub wanted: Wanted,
    /// The version of the catalogue that it uses.
    pub catalogue: String,
    /// The state.
    pub state: ClusterState,
    /// Its generation, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// When it was created, in milliseconds since 1970-01-01 UTC.
    pub created_ms: u64,
    /// When its lease ends, in milliseconds since 1970-01-01 UTC; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ends_ms: Option<u64>,
    /// The job that works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Its machines.
    #[serde(default)]
    pub machines: Vec<Machine>,
}

/// The states of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterState {
    /// It is being created.
    Pending,
    /// It is as wanted.
    Active,
    /// A creation or deletion has failed, and machines may be left.
    Incomplete,
    /// Another operation has failed, and the state before was not reached again.
    Inconsistent,
    /// A creation has failed, and nothing is left of it.
    Terminated,
}

/// Which clusters of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClusterQuery {
    /// Only clusters with this text in their name, template or owner.
    pub search: Option<String>,
    /// Only clusters in this state.
    pub state: Option<ClusterState>,
    /// Only clusters after this name: the last one of the page before.
    pub after: Option<Name>,
    /// The most clusters of the answer; by default, and at most, [`ClusterQuery::MOST`].
    pub limit: Option<usize>,
}

impl ClusterQuery {
    /// The most clusters of an answer.
    pub const MOST: usize = 1000;

    /// The most clusters of the answer to this query.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(Self::MOST).min(Self::MOST)
    }
}

/// What an operation would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preview {
    /// The nodes afterwards.
    pub nodes: Vec<PreviewNode>,
    /// Nodes whose machines would be created.
    pub create: Vec<String>,
    /// Nodes whose machines would be deleted.
    pub delete: Vec<String>,
    /// The tasks, with the tasks before them.
    pub tasks: Vec<Task>,
    /// The groups of tasks that can run at the same time, in order.
    pub stages: Vec<Vec<u32>>,
    /// Names the state of the cluster that the plan is for. An order with this name is refused if the cluster has
    /// changed since. Absent: the plan is for a creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

/// A node of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreviewNode {
    /// The name.
    pub name: String,
    /// Its services.
    pub services: Vec<String>,
    /// Its type of hardware.
    pub hardwaretype: Option<String>,
    /// Its type of image.
    pub imagetype: Option<String>,
}

/// A task of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// The number.
    pub id: u32,
    /// The node.
    pub node: String,
    /// The action.
    pub action: String,
    /// The service; absent for a task of the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Tasks and gates before it.
    #[serde(default)]
    pub after: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_operations_are_complete() {
        let unknown = serde_json::from_str::<Operation>(r#"{"operation": "fly"}"#).expect_err("no operation");
        let known = Operation::NAMES.map(|name| format!("`{name}`")).join(", ");
        assert!(unknown.to_string().contains(&format!("expected one of {known}")), "{unknown}");
        assert_eq!(Operation::Delete {}.name(), Operation::NAMES[10]);
    }
}
