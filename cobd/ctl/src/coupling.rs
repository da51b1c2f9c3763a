//! Computes which hosts must switch together, and why: canary sets and waves must contain these hosts completely.
//!
//! A host that activates the new generation before another host progresses as long as no changed change object connects
//! the two. Three relations couple a host to another:
//!
//! * Before it activates, it waits for change objects of the other host to depart ([`SwitchOrder::waits`], and the
//!   objects that precede these): they depart only when that host starts the switch too;
//! * in the new generation, a change object of the host needs a new or changed change object of the other host: it does
//!   not accept grants for the old content, so it does not converge before that host switches;
//! * in its present form, a change object of the host needs a change object of the other host that changes or departs:
//!   it pauses from that host's switch until its own host's switch. A service would be down for the time of the gate.
//!
//! Only two sorts of needs count ([`moves`]): needs of transitions that this switch makes, and needs of states that
//! change objects stay in. A change object that is idle in its preferred state, unchanged and without requests does not
//! use the needs of its transitions.

mod moves;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cob_types::switch::SwitchOrder;
use cob_types::{CobId, Generation, HostName};
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use self::moves::MovingObjects;

/// Why a host switches together with another host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The other host waits for this change object of the host to depart.
    WaitedFor(CobId),
    /// A change object of the other host (first) needs a change object of the host (second), which is new or changes.
    Needed(CobId, CobId),
    /// A change object of the host (first) needs a change object of the other host (second), which changes or departs.
    Disturbed(CobId, CobId),
}

/// A host that is in a set because of another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The added host.
    pub host: HostName,
    /// The host that was in the set before.
    pub of: HostName,
    /// The reason.
    pub why: Why,
}

/// For each host, the hosts that have to switch with it, each with the first reason.
#[derive(Debug, Clone, Default)]
pub struct Coupling {
    with: BTreeMap<HostName, BTreeMap<HostName, Why>>,
}

impl Coupling {
    /// The coupling between the active generation, if there is one, and the new generation. `is_idle` returns whether a
    /// change object is idle in its preferred state under the active generation; others already move.
    #[must_use]
    pub fn between(old: Option<&Generation>, new: &Generation, is_idle: &dyn Fn(&CobId) -> bool) -> Self {
        let mut coupling = Self::default();
        let order = old.and_then(|o| new.manifest.switch_order(o.manifest.generation, new.manifest.generation));
        if let Some(order) = order {
            coupling.add_waits(order);
        }
        let moves = MovingObjects::between(old, new, order, is_idle);
        for id in moves.new.keys() {
            for need in
                moves.needs_of_new(id).filter(|n| moves.new.contains_key(&n.cob) && moves.matters(&moves.new, id, n))
            {
                coupling.add(&id.host(), &need.cob.host(), Why::Needed((*id).clone(), need.cob.clone()));
            }
        }
        for id in moves.old.keys() {
            for need in
                moves.needs_of_old(id).filter(|n| moves.old.contains_key(&n.cob) && moves.matters(&moves.old, id, n))
            {
                coupling.add(&need.cob.host(), &id.host(), Why::Disturbed((*id).clone(), need.cob.clone()));
            }
        }
        coupling
    }

    /// Adds the relations of another coupling: hosts that come from different generations are coupled by either.
    pub fn extend(&mut self, other: Self) {
        for (host, with) in other.with {
            for (other, why) in with {
                self.add(&host, &other, why);
            }
        }
    }

    fn add_waits(&mut self, order: &SwitchOrder) {
        for (host, waits) in &order.waits {
            let mut all: BTreeSet<&CobId> = BTreeSet::new();
            let mut next: Vec<&CobId> = waits.iter().collect();
            while let Some(cob) = next.pop() {
                if all.insert(cob) {
                    next.extend(order.before(cob));
                }
            }
            for cob in all {
                self.add(host, &cob.host(), Why::WaitedFor(cob.clone()));
            }
        }
        // A change object that must depart before a host activates may itself wait for a departure on another host.
        for (cob, before) in &order.after {
            for other in before {
                self.add(&cob.host(), &other.host(), Why::WaitedFor(other.clone()));
            }
        }
    }

    fn add(&mut self, host: &HostName, other: &HostName, why: Why) {
        if host != other {
            self.with.entry(host.clone()).or_default().entry(other.clone()).or_insert(why);
        }
    }

    /// The hosts that must join a set of named hosts, the nearest first.
    #[must_use]
    pub fn closure(&self, named: &BTreeSet<HostName>) -> Vec<Added> {
        let mut set = named.clone();
        let mut next: VecDeque<&HostName> = named.iter().collect();
        let mut added = Vec::new();
        while let Some(host) = next.pop_front() {
            for (other, why) in self.with.get(host).into_iter().flatten() {
                if set.insert(other.clone()) {
                    added.push(Added { host: other.clone(), of: host.clone(), why: why.clone() });
                    next.push_back(other);
                }
            }
        }
        added
    }

    /// The hosts in groups that switch together, in order: each group needs only earlier groups. Independent groups are
    /// in the order of names.
    ///
    /// These are the strongly connected components of the hosts, in topological order.
    #[must_use]
    pub fn groups(&self, hosts: &BTreeSet<HostName>) -> Vec<BTreeSet<HostName>> {
        let mut graph: DiGraph<&HostName, ()> = DiGraph::new();
        let nodes: BTreeMap<&HostName, NodeIndex> = hosts.iter().map(|host| (host, graph.add_node(host))).collect();
        for (host, with) in &self.with {
            for other in with.keys() {
                if let (Some(from), Some(to)) = (nodes.get(host), nodes.get(other)) {
                    graph.add_edge(*from, *to, ());
                }
            }
        }
        let named = |group: Vec<NodeIndex>| group.into_iter().map(|node| graph[node].clone()).collect();
        // A component comes after the components that it needs.
        tarjan_scc(&graph).into_iter().map(named).collect()
    }

    /// The same, with these hosts and the hosts that they need before all others.
    #[must_use]
    pub fn groups_from(&self, hosts: &BTreeSet<HostName>, first: &BTreeSet<HostName>) -> Vec<BTreeSet<HostName>> {
        let needed = self.closure(first).into_iter().map(|added| added.host);
        let early: BTreeSet<HostName> = needed.chain(first.iter().cloned()).collect();
        let mut groups = self.groups(hosts);
        // The sort is stable: each group still follows the groups that it needs, because these are early too.
        groups.sort_by_key(|group| early.is_disjoint(group));
        groups
    }

    /// Why the hosts of a group switch together: a reason for each host.
    #[must_use]
    pub fn inside(&self, group: &BTreeSet<HostName>) -> Vec<Added> {
        let reason = |of: &HostName| {
            let with = self.with.get(of)?.iter().find(|(other, _)| group.contains(*other))?;
            Some(Added { host: with.0.clone(), of: of.clone(), why: with.1.clone() })
        };
        group.iter().filter_map(reason).collect()
    }
}

impl Added {
    /// The reason as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { host, of, why } = self;
        match why {
            Why::WaitedFor(cob) => format!("{host} switches too: {of} waits for {cob} to depart before it can switch"),
            Why::Needed(asker, cob) => {
                format!("{host} switches too: {asker} needs {cob}, which changes, and would not converge without it")
            }
            Why::Disturbed(asker, cob) => {
                format!("{host} switches too: {asker} needs {cob}, which changes or departs, and would wait meanwhile")
            }
        }
    }
}

#[cfg(test)]
mod tests;
