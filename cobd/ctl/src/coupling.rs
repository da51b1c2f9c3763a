//! Which hosts can't switch without which others, and why: what a canary set and waves of hosts are closed under.
//!
//! A host that has activated the new generation while another has not gets on as long as nothing that changes lies
//! between the two. Three things tie a host to another one:
//!
//! * it waits, before it activates, for change objects there to leave ([`SwitchOrder::waits`], and what these come
//!   after): they leave only when that host, too, is told to go;
//! * one of its change objects needs, in the new generation, one there that is new or has another content: promises
//!   of the old content are worth nothing to it, so it does not converge before that host goes;
//! * one of its change objects needs, as it is now, one there that changes or leaves: once that host goes, it stands
//!   still until its own host goes too. Nothing waits for it, but a service would be down for the time of the gate.
//!
//! Needs that count are those of transitions that are made in this switch, and of states that are kept to
//! ([`moves`]): who is where it should be, does not differ, and is asked by nobody to go elsewhere does without what
//! its transitions would need.

mod moves;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cob_types::switch::SwitchOrder;
use cob_types::{CobId, Generation, HostName};
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use self::moves::Moves;

/// Why a host goes together with another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The other one waits for this change object, which is here, to leave.
    WaitedFor(CobId),
    /// This one of the other host needs that one of here, which is new or changes.
    Needed(CobId, CobId),
    /// This one of here needs that one of the other host, which changes or leaves.
    Disturbed(CobId, CobId),
}

/// A host that is in a set on account of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// It.
    pub host: HostName,
    /// The one that was in before.
    pub of: HostName,
    /// Why.
    pub why: Why,
}

/// For each host those that have to go with it, and the first reason for each.
#[derive(Debug, Clone, Default)]
pub struct Coupling {
    with: BTreeMap<HostName, BTreeMap<HostName, Why>>,
}

impl Coupling {
    /// Between a generation that is active and the new one; none is active: only what the new one says counts.
    /// `at_rest` says who is where it should be under the active one: the others are on their way already.
    #[must_use]
    pub fn between(old: Option<&Generation>, new: &Generation, at_rest: &dyn Fn(&CobId) -> bool) -> Self {
        let mut coupling = Self::default();
        let order = old.and_then(|o| new.manifest.switch_order(o.manifest.generation, new.manifest.generation));
        if let Some(order) = order {
            coupling.add_waits(order);
        }
        let moves = Moves::between(old, new, order, at_rest);
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

    /// With what another one knows: hosts that come from different generations are coupled by either.
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
        // What a host has to see leave itself may come after what leaves elsewhere.
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

    /// The hosts that must be in a set besides those that were named, the nearest first.
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

    /// The hosts in groups that go together, in an order: each group needs none but those before it. Groups that need
    /// none are in the order of names.
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
        // What a component leads to comes before it.
        tarjan_scc(&graph).into_iter().map(named).collect()
    }

    /// The same, with these hosts, and what they need, before all others.
    #[must_use]
    pub fn groups_from(&self, hosts: &BTreeSet<HostName>, first: &BTreeSet<HostName>) -> Vec<BTreeSet<HostName>> {
        let needed = self.closure(first).into_iter().map(|added| added.host);
        let early: BTreeSet<HostName> = needed.chain(first.iter().cloned()).collect();
        let mut groups = self.groups(hosts);
        // A stable sort: each group is still behind those that it needs, as these are early with it.
        groups.sort_by_key(|group| early.is_disjoint(group));
        groups
    }

    /// Why the hosts of a group go together: of each one reason.
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
    /// Why, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { host, of, why } = self;
        match why {
            Why::WaitedFor(cob) => format!("{host} goes too: {of} waits for {cob} to leave before it can switch"),
            Why::Needed(asker, cob) => {
                format!("{host} goes too: {asker} needs {cob}, which changes, and would not converge without it")
            }
            Why::Disturbed(asker, cob) => {
                format!(
                    "{host} goes too: {asker} needs {cob}, which changes or leaves, and would stand still meanwhile"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
