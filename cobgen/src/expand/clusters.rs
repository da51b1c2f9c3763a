//! Clusters: which service is on which hosts.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::HostName;
use minijinja::value::Value as Jinja;

use super::Report;
use super::hosts::Hosts;
use super::template::to_jinja;
use crate::diagnostic::Diagnostic;
use crate::model::{ClusterEntry, Mark, Marked, Named, NodeSet, Nodes, ServiceEntry};

/// A cluster with its services placed.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) name: String,
    /// Where each service was placed.
    pub(super) services: BTreeMap<String, Placement>,
    /// `cluster` in templates.
    pub(super) value: Jinja,
}

/// A service's nodes in a cluster.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) mark: Mark,
    /// In the order written, those of a label by name.
    pub(super) nodes: Vec<HostName>,
    /// Some of what was written names no host: that is told.
    pub(super) incomplete: bool,
}

/// All clusters in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Clusters(pub(super) Vec<Cluster>);

impl Clusters {
    /// Places every cluster's services.
    pub(super) fn read(
        entries: &Named<ClusterEntry>,
        services: &Named<ServiceEntry>,
        hosts: &Hosts,
        report: &mut Report<'_>,
    ) -> Self {
        let mut clusters = BTreeMap::new();
        let known: BTreeMap<&str, &ServiceEntry> = services.iter().map(|(n, s)| (n.value.as_str(), s)).collect();
        for (name, entry) in entries.iter() {
            if !report.segment("cluster", name) {
                continue;
            }
            if entry.template.is_some() {
                // What is wrong with it was told by the catalog.
                continue;
            }
            let set = entry.nodes.as_ref().and_then(|nodes| match &nodes.value {
                NodeSet::Hosts(set) => Some(set),
                NodeSet::Count(_) => None,
            });
            let nodes = set.map(|set| hosts.of_set(set, report));
            let members: Option<BTreeSet<HostName>> = nodes.as_ref().map(|n| n.iter().cloned().collect());
            let mut placed: BTreeMap<String, Placement> = BTreeMap::new();
            let mut place = |service: &Marked<String>, nodes: Vec<HostName>, whole: bool, report: &mut Report<'_>| {
                if !known.contains_key(service.value.as_str()) {
                    report.unknown("service", service, known.keys().copied());
                }
                let placement = Placement { mark: service.mark, nodes, incomplete: !whole };
                if let Some(first) = placed.insert(service.value.clone(), placement) {
                    let fault = Diagnostic::error(
                        "duplicate-name",
                        format!("the service `{}` stands here twice", service.value),
                    );
                    report.push(service.mark, fault.note(Some(report.place(first.mark)), "first here"));
                }
            };
            match &entry.services {
                Some(Nodes::Everywhere(list)) => {
                    if entry.nodes.is_none() {
                        let fault =
                            Diagnostic::error("missing-key", format!("the cluster `{}` lacks `nodes`", name.value));
                        let help = "name the hosts that its services are on: `nodes: [n1, {label: role=app}]`";
                        report.push(name.mark, fault.help(help));
                    }
                    let whole = set.is_some_and(|set| hosts.has_all_of(set));
                    for service in list {
                        place(service, nodes.clone().unwrap_or_default(), whole, report);
                    }
                }
                Some(Nodes::ByHand(map)) => {
                    for (service, set) in map.iter() {
                        let on = hosts.of_set(set, report);
                        let stray = members.as_ref().and_then(|n| Some((n, on.iter().find(|h| !n.contains(*h))?)));
                        if let Some((nodes, stray)) = stray {
                            let what = format!(
                                "`{}` is placed on {stray}, which is no node of the cluster `{}`",
                                service.value, name.value
                            );
                            let help = format!(
                                "its nodes are {}",
                                nodes.iter().map(HostName::as_str).collect::<Vec<_>>().join(", ")
                            );
                            report.push(service.mark, Diagnostic::error("not-a-node", what).help(help));
                        }
                        place(service, on, hosts.has_all_of(set), report);
                    }
                }
                None => {}
            }
            conflicts(&name.value, &placed, &known, report);
            let config = entry.config.as_ref().map_or_else(|| Jinja::from(BTreeMap::<String, Jinja>::new()), to_jinja);
            let value = Jinja::from_pairs([("name", Jinja::from(name.value.as_str())), ("config", config)]);
            clusters.insert(name.value.clone(), Cluster { name: name.value.clone(), services: placed, value });
        }
        Self(clusters.into_values().collect())
    }

    /// The clusters that have a service, as positions in the list.
    pub(super) fn with<'a>(&'a self, service: &'a str) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(move |(_, c)| c.services.contains_key(service)).map(|(i, _)| i)
    }
}

/// Services that are never in one cluster.
fn conflicts(
    cluster: &str,
    placed: &BTreeMap<String, Placement>,
    services: &BTreeMap<&str, &ServiceEntry>,
    report: &mut Report<'_>,
) {
    for (name, placement) in placed {
        let Some(entry) = services.get(name.as_str()) else { continue };
        for other in &entry.conflicts {
            if let Some(there) = placed.get(&other.value) {
                let what = format!("`{name}` conflicts with `{}`, but the cluster `{cluster}` has both", other.value);
                let fault = Diagnostic::error("conflict", what)
                    .note(Some(report.place(placement.mark)), format!("`{name}` is placed here"))
                    .note(Some(report.place(there.mark)), format!("`{}` is placed here", other.value))
                    .help("put them into two clusters");
                report.push(other.mark, fault);
            }
        }
    }
}
