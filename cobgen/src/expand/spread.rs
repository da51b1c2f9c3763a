//! Change objects spread over the nodes of a service.

use std::collections::BTreeMap;

use cob_types::{CobId, HostName};

/// Change objects with their nodes, in the order of the service's nodes.
#[derive(Debug, Default)]
pub(super) struct Spread {
    all: Vec<(HostName, CobId)>,
    /// The indexes in `all` by node.
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

    /// The change objects on a node.
    pub(super) fn on(&self, node: &str) -> impl Iterator<Item = &CobId> {
        self.at.get(node).into_iter().flatten().map(|place| &self.all[*place].1)
    }

    /// The change objects on the first node.
    pub(super) fn on_first(&self) -> impl Iterator<Item = &CobId> {
        self.all.first().into_iter().flat_map(|(node, _)| self.on(node.as_str()))
    }

    /// The change objects on the node that serves `host`: the same node if possible, else a chosen node, so that load
    /// is spread. A choice stays as long as its node exists, when other nodes come and go (rendezvous hashing: D.
    /// Thaler, C. Ravishankar, "Using name-based mappings to increase hit rates", 1998).
    pub(super) fn on_chosen(&self, host: &str) -> impl Iterator<Item = &CobId> + use<'_> {
        let heaviest = || self.at.iter().max_by_key(|(node, _)| weight(host, node.as_str())).map(|(_, places)| places);
        let places = self.at.get(host).or_else(heaviest);
        places.into_iter().flatten().map(|place| &self.all[*place].1)
    }

    /// The change objects on these nodes, in the order of this list.
    pub(super) fn on_some<'n>(&self, nodes: impl Iterator<Item = &'n HostName>) -> impl Iterator<Item = &CobId> {
        let mut places: Vec<usize> = nodes.filter_map(|node| self.at.get(node)).flatten().copied().collect();
        places.sort_unstable();
        places.into_iter().map(|place| &self.all[place].1)
    }

    /// The change objects on other nodes.
    pub(super) fn elsewhere(&self, node: &str) -> impl Iterator<Item = &CobId> {
        self.all.iter().filter(move |(other, _)| *other != node).map(|(_, cob)| cob)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &HostName> {
        self.at.keys()
    }
}

/// A number that depends only on the two names: FNV-1a with its bits mixed once more.
fn weight(one: &str, other: &str) -> u64 {
    let bytes = one.bytes().chain([0]).chain(other.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(nodes: std::ops::Range<usize>) -> Spread {
        let mut spread = Spread::default();
        for node in nodes.map(|n| HostName::new(&format!("db-{n}")).expect("a name")) {
            let cob = CobId::on(&node, "db/server").expect("an id");
            spread.push(node, cob);
        }
        spread
    }

    fn choice<'s>(spread: &'s Spread, host: &str) -> Vec<&'s str> {
        spread.on_chosen(host).map(CobId::host_str).collect()
    }

    #[test]
    fn askers_are_spread_and_stay_where_they_are() {
        let (five, six) = (spread(1..6), spread(1..7));
        let hosts: Vec<String> = (0..1000).map(|n| format!("app-{n}")).collect();
        let mut counts = BTreeMap::new();
        for host in &hosts {
            let (before, after) = (choice(&five, host), choice(&six, host));
            assert_eq!(before.len(), 1);
            assert!(before == after || after == ["db-6"], "{host}: {before:?} {after:?}");
            *counts.entry(before[0].to_owned()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 5);
        assert!(counts.values().all(|count| (150..250).contains(count)), "{counts:?}");
        assert_eq!(choice(&five, "db-3"), ["db-3"], "who is on a node keeps to it");
        assert!(choice(&Spread::default(), "app-1").is_empty());
    }
}
