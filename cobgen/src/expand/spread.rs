//! Change objects spread over the nodes of a service.

use std::collections::BTreeMap;

use cob_types::{CobId, HostName};

/// Change objects and the nodes that they are on, in the order of the service's nodes.
#[derive(Debug, Default)]
pub(super) struct Spread {
    all: Vec<(HostName, CobId)>,
    /// The places in `all` by node.
    at: BTreeMap<HostName, Vec<usize>>,
}

impl Spread {
    pub(super) fn push(&mut self, node: HostName, cob: CobId) {
        self.at.entry(node.clone()).or_default().push(self.all.len());
        self.all.push((node, cob));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(HostName, CobId)> {
        self.all.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those on one node.
    pub(super) fn on(&self, node: &str) -> impl Iterator<Item = &CobId> {
        self.at.get(node).into_iter().flatten().map(|place| &self.all[*place].1)
    }

    /// Those on the first node.
    pub(super) fn on_first(&self) -> impl Iterator<Item = &CobId> {
        self.all.first().into_iter().flat_map(|(node, _)| self.on(node.as_str()))
    }

    /// Those on these nodes, in their order here.
    pub(super) fn on_some<'n>(&self, nodes: impl Iterator<Item = &'n HostName>) -> impl Iterator<Item = &CobId> {
        let mut places: Vec<usize> = nodes.filter_map(|node| self.at.get(node)).flatten().copied().collect();
        places.sort_unstable();
        places.into_iter().map(|place| &self.all[place].1)
    }

    /// Those on other nodes.
    pub(super) fn elsewhere(&self, node: &str) -> impl Iterator<Item = &CobId> {
        self.all.iter().filter(move |(other, _)| *other != node).map(|(_, cob)| cob)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &HostName> {
        self.at.keys()
    }
}
