//! What is planned for: nodes with their services, and what services need of each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::Action;

/// A cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Its nodes in their order, before and after the operation; a node that is the same has one name.
    pub before: Vec<Node>,
    /// After it.
    pub after: Vec<Node>,
    /// Every service that a node has, by name.
    pub services: BTreeMap<String, Service>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its services by name.
    pub services: BTreeSet<String>,
    /// Where it is from.
    pub origin: Origin,
}

/// Where a node is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A provider makes it and takes it back.
    Provider,
    /// It is a host that exists, and stays.
    Inventory,
}

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// What is done with it.
    pub actions: BTreeSet<Action>,
    /// Names under which others may depend on it, its own among them or not.
    pub provides: BTreeSet<String>,
    /// The services that are installed before it: names of services, not of what they provide.
    pub install: BTreeSet<String>,
    /// The services that are started before it is initialized and started, and stopped after it.
    pub runtime: BTreeSet<String>,
}

impl Service {
    /// Whether it takes the place of another one: both provide a name.
    #[must_use]
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        self.provides.intersection(&other.provides).next().is_some()
    }
}
