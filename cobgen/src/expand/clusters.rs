//! Clusters: the hosts of each service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use cob_types::HostName;
use cob_types::groups::Services;
use minijinja::value::Value as Jinja;

use super::Report;
use super::hosts::Hosts;
use super::macros::is_macro;
use super::template::{is_template, to_jinja};
use crate::diagnostic::Diagnostic;
use crate::model::{ClusterEntry, Map, Mark, Marked, Maybe, Named, Node, NodeSet, Nodes, ServiceEntry, Value};
use crate::solve::{LayoutNode, natural};

/// A cluster with its services placed.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) owner: Option<String>,
    /// The placement of each service.
    pub(super) services: BTreeMap<String, Placement>,
    /// `cluster` in templates.
    pub(super) value: Jinja,
    /// Its nodes with their types of hardware and image, where it has a layout.
    pub(super) nodes: BTreeMap<HostName, (Option<String>, Option<String>)>,
    positions: Positions,
    pub(super) config: Node,
    /// The configuration, if it contains templates or macros and so differs between nodes.
    pub(super) varying: Option<Node>,
}

/// A service's nodes in a cluster.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) mark: Mark,
    /// In the order of the model; hosts of a label are sorted by name.
    pub(super) nodes: Vec<HostName>,
    positions: Positions,
    /// Some name or label matches no host, which is already reported.
    pub(super) incomplete: bool,
}

/// The position of each node in a list, computed on first use.
#[derive(Debug, Default)]
struct Positions(OnceLock<BTreeMap<HostName, usize>>);

impl Positions {
    fn get<'n>(&self, node: &HostName, list: impl Iterator<Item = &'n HostName>) -> Option<usize> {
        self.0.get_or_init(|| list.cloned().zip(0..).collect()).get(node).copied()
    }
}

impl Cluster {
    /// The position of a node among all nodes of the cluster, by name.
    pub(super) fn position(&self, node: &HostName) -> Option<usize> {
        self.positions.get(node, self.nodes.keys())
    }
}

impl Placement {
    fn new(mark: Mark, nodes: Vec<HostName>, incomplete: bool) -> Self {
        Self { mark, nodes, positions: Positions::default(), incomplete }
    }

    /// The position of a node among the nodes of the service.
    pub(super) fn position(&self, node: &HostName) -> Option<usize> {
        self.positions.get(node, self.nodes.iter())
    }
}

/// A cluster of a template with its layout.
#[derive(Debug)]
pub(super) struct LaidOut {
    pub(super) services: Vec<Marked<String>>,
    pub(super) nodes: Vec<LayoutNode>,
    pub(super) config: Map,
}

/// All clusters, sorted by name.
#[derive(Debug, Default)]
pub(super) struct Clusters(pub(super) Vec<Cluster>);

impl Clusters {
    /// Places every cluster's services.
    pub(super) fn read(
        entries: &Named<ClusterEntry>,
        services: &Named<ServiceEntry>,
        hosts: &Hosts,
        laid_out: &BTreeMap<String, LaidOut>,
        report: &mut Report<'_>,
    ) -> Self {
        let mut clusters = BTreeMap::new();
        let known: BTreeMap<&str, &ServiceEntry> = services.iter().map(|(n, s)| (n.value.as_str(), s)).collect();
        for (name, entry) in entries.iter() {
            if !report.segment("cluster", name) {
                continue;
            }
            let owner = entry.owner.as_ref().map(|owner| owner.value.clone());
            if entry.template.is_some() {
                // A cluster without a layout is already reported.
                if let Some(found) = laid_out.get(&name.value) {
                    clusters.insert(name.value.clone(), found.cluster(name, owner));
                }
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
                let placement = Placement::new(service.mark, nodes, !whole);
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
                    if entry.nodes == Maybe::Absent {
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
                                "`{}` is placed on {stray}, which is not a node of the cluster `{}`",
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
            let nodes = placed.values().flat_map(|p| &p.nodes).map(|host| (host.clone(), types_of(host, hosts)));
            let (nodes, empty) = (nodes.collect(), || Node { mark: name.mark, value: Value::Map(Map::default()) });
            let config = entry.config.clone().unwrap_or_else(empty);
            clusters.insert(name.value.clone(), Cluster::new(name.value.clone(), owner, placed, nodes, config));
        }
        Self(clusters.into_values().collect())
    }

    /// The services of each cluster with their hosts.
    pub(super) fn services(&self) -> BTreeMap<String, Services> {
        let hosts =
            |(name, placement): (&String, &Placement)| (name.clone(), placement.nodes.iter().cloned().collect());
        self.0.iter().map(|cluster| (cluster.name.clone(), cluster.services.iter().map(hosts).collect())).collect()
    }

    /// The clusters that have a service, as positions in the list.
    pub(super) fn with<'a>(&'a self, service: &'a str) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(move |(_, c)| c.services.contains_key(service)).map(|(i, _)| i)
    }
}

impl Cluster {
    fn new(
        name: String,
        owner: Option<String>,
        services: BTreeMap<String, Placement>,
        nodes: BTreeMap<HostName, (Option<String>, Option<String>)>,
        config: Node,
    ) -> Self {
        let positions = Positions::default();
        let mut cluster =
            Self { name, owner, services, value: Jinja::from(()), nodes, positions, varying: None, config };
        if varies(&cluster.config) {
            cluster.varying = Some(std::mem::take(&mut cluster.config));
            // Templates within a configuration cannot use the configuration itself.
            cluster.value = Jinja::from_pairs(cluster.own_values());
        } else {
            cluster.value = cluster.value_with(&cluster.config);
        }
        cluster
    }

    /// The services and types of each node.
    pub(super) fn layout(&self) -> Vec<LayoutNode> {
        let mut on: BTreeMap<&HostName, Vec<String>> = BTreeMap::new();
        for (service, placement) in &self.services {
            placement.nodes.iter().for_each(|host| on.entry(host).or_default().push(service.clone()));
        }
        let node = |(host, (hardwaretype, imagetype)): (&HostName, &(Option<String>, Option<String>))| LayoutNode {
            name: host.as_str().to_owned(),
            services: on.get(host).cloned().unwrap_or_default(),
            hardwaretype: hardwaretype.clone(),
            imagetype: imagetype.clone(),
        };
        let mut nodes: Vec<LayoutNode> = self.nodes.iter().map(node).collect();
        nodes.sort_by_cached_key(|node| natural(&node.name));
        nodes
    }

    /// `cluster` in templates, with a configuration.
    pub(super) fn value_with(&self, config: &Node) -> Jinja {
        Jinja::from_pairs(self.own_values().chain([("config", to_jinja(config))]))
    }

    fn own_values(&self) -> impl Iterator<Item = (&'static str, Jinja)> {
        let owner = self.owner.as_deref().map(|owner| ("owner", Jinja::from(owner)));
        [("name", Jinja::from(self.name.as_str()))].into_iter().chain(owner)
    }
}

impl LaidOut {
    fn cluster(&self, name: &Marked<String>, owner: Option<String>) -> Cluster {
        let mut services: BTreeMap<String, Placement> = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        for service in &self.services {
            let placement = Placement::new(service.mark, Vec::new(), false);
            services.insert(service.value.clone(), placement);
        }
        for node in &self.nodes {
            let Ok(host) = HostName::new(&node.name) else { continue };
            for service in &node.services {
                if let Some(placement) = services.get_mut(service) {
                    placement.nodes.push(host.clone());
                }
            }
            nodes.insert(host, (node.hardwaretype.clone(), node.imagetype.clone()));
        }
        let config = Node { mark: name.mark, value: Value::Map(self.config.clone()) };
        Cluster::new(name.value.clone(), owner, services, nodes, config)
    }
}

/// Whether some text of a configuration is a template or contains macros.
fn varies(node: &Node) -> bool {
    match &node.value {
        Value::Text(text) => is_template(text) || is_macro(text),
        Value::List(items) => items.iter().any(varies),
        Value::Map(map) => map.entries.iter().any(|(key, value)| is_template(&key.text) || varies(value)),
        Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Invalid => false,
    }
}

fn types_of(host: &HostName, hosts: &Hosts) -> (Option<String>, Option<String>) {
    hosts.0.get(host).map(|h| (h.hardwaretype.clone(), h.imagetype.clone())).unwrap_or_default()
}
