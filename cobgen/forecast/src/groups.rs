//! The order in which hosts activate a generation, and which of these hosts activate it together.

use std::collections::{BTreeMap, BTreeSet};

use cob_engine::sim::forecast::Course;
use cob_types::{CobId, HostName, SwitchOrder};
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::plan::Group;
use crate::sides::Sides;

/// The changed hosts, in groups of hosts that wait for each other, in the order of activation.
pub(crate) fn groups(sides: &Sides<'_>, order: &SwitchOrder, course: &Course) -> Vec<Group> {
    let differ = |host: &&HostName| {
        let of = |side: &crate::sides::Side| side.manifest.hosts.get(*host).map(|entry| entry.bundle);
        of(&sides.from) != of(&sides.to)
    };
    let looked_at: BTreeSet<&HostName> = sides.from.bundles.keys().chain(sides.to.bundles.keys()).collect();
    let hosts: Vec<&HostName> = looked_at.into_iter().filter(differ).collect();
    let mut graph: DiGraph<&HostName, ()> = DiGraph::new();
    let ix: BTreeMap<&str, NodeIndex> = hosts.iter().map(|host| (host.as_str(), graph.add_node(host))).collect();
    let mut waits: BTreeMap<&HostName, BTreeSet<CobId>> = BTreeMap::new();
    for host in &hosts {
        let own = sides.from.bundles.get(*host).into_iter().flat_map(|bundle| bundle.cobs.keys());
        let own = own.filter(|id| sides.to.find(id).is_none() || order.taken_back.contains(*id)).cloned();
        let mut all: BTreeSet<CobId> = own.collect();
        for id in order.waits.get(*host).into_iter().flatten() {
            if let (Some(here), Some(there)) = (ix.get(host.as_str()), ix.get(id.host_str())) {
                graph.update_edge(*here, *there, ());
            }
            all.insert(id.clone());
        }
        waits.insert(host, all);
    }
    let activated: BTreeMap<&HostName, u64> = course.activations.iter().map(|a| (&a.host, a.at.0 / 1000)).collect();
    // The graph's order puts the targets of a node first: a group comes after the groups that it waits for.
    let mut member: BTreeMap<NodeIndex, usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for nodes in tarjan_scc(&graph) {
        let mut hosts: Vec<HostName> = nodes.iter().map(|node| graph[*node].clone()).collect();
        hosts.sort_unstable();
        let number = groups.len();
        let after = nodes.iter().flat_map(|node| graph.neighbors(*node)).filter_map(|node| member.get(&node).copied());
        let after: BTreeSet<usize> = after.collect();
        member.extend(nodes.iter().map(|node| (*node, number)));
        let waits_for = hosts.iter().flat_map(|host| waits.get(host).cloned().unwrap_or_default()).collect();
        let activated_us = hosts.iter().filter_map(|host| activated.get(host).copied()).max().unwrap_or_default();
        groups.push(Group { to: None, hosts, after: after.into_iter().collect(), waits_for, activated_us });
    }
    groups
}
