//! The cluster to plan for: nodes with their services, and the dependencies between services.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::Action;

/// A cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Its nodes in order, before the operation; a node that stays has the same name in `after`.
    pub before: Vec<Node>,
    /// Its nodes after the operation.
    pub after: Vec<Node>,
    /// Every service of the nodes, by name.
    pub services: BTreeMap<String, Service>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its services by name.
    pub services: BTreeSet<String>,
    /// The source of the node.
    pub origin: Origin,
}

/// The source of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A provider makes it and takes it back.
    Provider,
    /// An existing host, which stays.
    Inventory,
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// The actions of the service.
    pub actions: BTreeSet<Action>,
    /// Names under which other services may depend on it; may include its own name.
    pub provides: BTreeSet<String>,
    /// The services that are installed before it: names of services, not names that they provide.
    pub install: BTreeSet<String>,
    /// The services that are started before it is initialized and started, and stopped after it.
    pub runtime: BTreeSet<String>,
}

impl Service {
    /// Whether it replaces another service: both provide a common name.
    #[must_use]
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        self.provides.intersection(&other.provides).next().is_some()
    }
}
