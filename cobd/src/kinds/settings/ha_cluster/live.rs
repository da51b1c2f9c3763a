//! The cluster as its programs report it.

use std::collections::{BTreeMap, BTreeSet};

use cob_kinds::{HaCluster, HaNode};
use roxmltree::{Document, Node};

use super::AS_WANTED;

/// The attribute of a node that leaves the cluster for good.
pub(super) const LEAVES: &str = "cob-leaves";
/// The element that says which node may go out of the cluster now.
const TURN: &str = "cob-turn";

/// The votes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quorum {
    pub(super) is_quorate: bool,
    pub(super) expected: usize,
    pub(super) total: usize,
    pub(super) needed: usize,
    /// The numbers of the members.
    pub(super) members: BTreeSet<u32>,
}

/// The configuration that a running Corosync has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InUse(BTreeMap<String, String>);

/// Parts of the configuration of Pacemaker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cib {
    /// The nodes of Corosync, each with whether it leaves for good.
    pub(super) nodes: BTreeMap<String, bool>,
    /// The node that may go out of the cluster now.
    pub(super) turn: Option<String>,
    /// The resources, each with all that it contains.
    pub(super) resources: BTreeSet<String>,
}

/// Nodes and resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Nodes {
    /// The nodes that take part.
    pub(super) online: BTreeSet<String>,
    /// The nodes without resources by an order.
    pub(super) in_standby: BTreeSet<String>,
    /// The resources that run, without fence devices, each with its nodes.
    pub(super) running: BTreeMap<String, BTreeSet<String>>,
}

impl Quorum {
    /// Reads the output of `corosync-quorumtool -s`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            Some(line.trim().to_owned())
        };
        let number = |key: &str| value(key)?.split(' ').next()?.parse::<usize>().ok();
        let members = text.lines().skip_while(|line| !line.starts_with("Membership information")).filter_map(|line| {
            let mut words = line.split_whitespace();
            let id = words.next()?.parse().ok()?;
            words.next()?.parse::<u32>().ok().map(|_| id)
        });
        Some(Self {
            is_quorate: value("Quorate")? == "Yes",
            expected: number("Expected votes")?,
            total: number("Total votes")?,
            needed: number("Quorum")?,
            members: members.collect(),
        })
    }

    /// The votes as a part of a sentence.
    pub(super) fn words(&self) -> String {
        format!("{} of {} votes, and {} are needed", self.total, self.expected, self.needed)
    }
}

impl InUse {
    /// Reads the output of `corosync-cmapctl`: `nodelist.node.0.name (str) = h1`.
    pub(super) fn read(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| {
            let (key, value) = line.split_once(") = ")?;
            Some((key.split_once(" (")?.0, value))
        });
        let is_of_file = |key: &str| ["nodelist.node.", "totem.", "quorum."].iter().any(|start| key.starts_with(start));
        let pairs = pairs.filter(|(key, _)| is_of_file(key));
        Self(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// The name of the cluster.
    pub(super) fn name(&self) -> &str {
        self.get("totem.cluster_name")
    }

    /// Its nodes.
    pub(super) fn nodes(&self) -> BTreeMap<String, HaNode> {
        let mut nodes: BTreeMap<&str, (String, HaNode)> = BTreeMap::new();
        for (key, value) in &self.0 {
            let Some((at, part)) = key.strip_prefix("nodelist.node.").and_then(|rest| rest.split_once('.')) else {
                continue;
            };
            let empty = || (String::new(), HaNode { id: 0, addresses: Vec::new() });
            let (name, node) = nodes.entry(at).or_insert_with(empty);
            match part {
                "name" => name.clone_from(value),
                "nodeid" => node.id = value.parse().unwrap_or_default(),
                // The links are sorted.
                _ if part.ends_with("_addr") => node.addresses.push(value.clone()),
                _ => {}
            }
        }
        nodes.into_values().collect()
    }

    /// Whether it is a cluster with this node under its number.
    pub(super) fn has(&self, content: &HaCluster, node: &str) -> bool {
        let id = |nodes: &BTreeMap<String, HaNode>| nodes.get(node).map(|node| node.id);
        id(&self.nodes()).is_some_and(|own| id(&content.nodes) == Some(own))
    }

    /// Whether nodes with the content could not talk to nodes with this configuration.
    pub(super) fn speaks_otherwise(&self, content: &HaCluster) -> bool {
        let or_none = |key: &str| if self.get(key).is_empty() { "none" } else { self.get(key) }.to_owned();
        let transport = if self.get("totem.transport").is_empty() { "knet" } else { self.get("totem.transport") };
        let (cipher, hash) = content.crypto();
        transport != content.transport.word()
            || (or_none("totem.crypto_cipher"), or_none("totem.crypto_hash")) != (cipher.to_owned(), hash.to_owned())
            || self.nodes().iter().any(|(name, node)| content.nodes.get(name).is_some_and(|own| own.id != node.id))
    }

    /// Whether this node has to start again for the content.
    pub(super) fn needs_restart(&self, content: &HaCluster, node: &str) -> bool {
        let addresses = |nodes: &BTreeMap<String, HaNode>| nodes.get(node).map(|node| node.addresses.clone());
        self.get("totem.cluster_name") != content.name
            || addresses(&self.nodes()) != addresses(&content.nodes)
            || HaCluster::parameters().any(|(name, restarts)| restarts && !self.has_parameter(content, name))
    }

    fn has_parameter(&self, content: &HaCluster, name: &str) -> bool {
        self.get(&format!("totem.{name}")) == content.totem.get(name).map(ToString::to_string).unwrap_or_default()
    }

    /// The difference from a content.
    pub(super) fn difference(&self, content: &HaCluster, node: &str) -> String {
        if self.speaks_otherwise(content) {
            return "another transport, encryption or number of a node".to_owned();
        }
        if self.needs_restart(content, node) {
            return "another name of the cluster, own address or size of packets".to_owned();
        }
        if self.nodes() != content.nodes {
            let nodes: Vec<String> = self.nodes().into_keys().collect();
            return format!("the nodes {}", nodes.join(", "));
        }
        let parameters = HaCluster::parameters().map(|(name, _)| name);
        let others: Vec<&str> = parameters.filter(|name| !self.has_parameter(content, name)).collect();
        if !others.is_empty() {
            return format!("another {}", others.join(", "));
        }
        let rules = (self.get("quorum.two_node") == "1", self.get("quorum.wait_for_all") == "1");
        if rules != (content.has_rule_for_two(), content.waits_for_all()) {
            return "other rules about votes".to_owned();
        }
        AS_WANTED.to_owned()
    }

    /// The names of the members.
    pub(super) fn members(&self, quorum: &Quorum) -> BTreeSet<String> {
        let nodes = self.nodes().into_iter();
        nodes.filter(|(_, node)| quorum.members.contains(&node.id)).map(|(name, _)| name).collect()
    }
}

impl Cib {
    /// Reads the output of `cibadmin --query`.
    pub(super) fn read(xml: &str) -> Result<Self, String> {
        let document = document(xml, "cibadmin")?;
        let nodes = children(document.root_element(), "configuration").flat_map(|all| children(all, "nodes"));
        // Nodes without Corosync have another type.
        let own = nodes
            .flat_map(|all| children(all, "node"))
            .filter(|node| node.attribute("type").is_none_or(|kind| ["member", "normal"].contains(&kind)));
        let nodes = own.filter_map(|node| {
            let leaves = node.descendants().any(|one| one.attribute("name") == Some(LEAVES));
            node.attribute("uname").map(|name| (name.to_owned(), leaves))
        });
        let turn = document.descendants().find(|one| one.attribute("name") == Some(TURN));
        let turn = turn.and_then(|one| one.attribute("value")).map(str::to_owned);
        let resources = children(document.root_element(), "configuration").flat_map(|all| children(all, "resources"));
        let resources = resources.flat_map(|all| all.children()).filter_map(|one| one.attribute("id"));
        Ok(Self { nodes: nodes.collect(), turn, resources: resources.map(str::to_owned).collect() })
    }

    /// The element that gives the turn to a node.
    pub(super) fn turn_of(node: &str) -> String {
        format!(
            "<cluster_property_set id=\"{TURN}\"><nvpair id=\"{TURN}-node\" name=\"{TURN}\" value=\"{node}\"/>\
             </cluster_property_set>"
        )
    }

    /// The XPath of the turn of a node.
    pub(super) fn path_of_turn(node: &str) -> String {
        format!("//cluster_property_set[@id='{TURN}'][nvpair[@value='{node}']]")
    }

    /// The nodes that are neither in the content nor members.
    pub(super) fn left<'a>(
        &'a self,
        content: &'a HaCluster,
        members: &'a BTreeSet<String>,
    ) -> impl Iterator<Item = &'a String> {
        let turn = self.turn.as_ref().filter(|node| !self.nodes.contains_key(*node));
        let all = self.nodes.keys().chain(turn);
        all.filter(|node| !content.nodes.contains_key(*node) && !members.contains(*node))
    }

    /// The members that do not leave for good.
    pub(super) fn staying(&self, members: &BTreeSet<String>) -> BTreeSet<String> {
        members.iter().filter(|node| !self.nodes.get(*node).is_some_and(|leaves| *leaves)).cloned().collect()
    }
}

impl Nodes {
    /// Reads the output of `crm_mon --output-as=xml`.
    pub(super) fn read(xml: &str) -> Result<Self, String> {
        let document = document(xml, "crm_mon")?;
        let mut all = Self::default();
        let nodes = children(document.root_element(), "nodes").flat_map(|nodes| children(nodes, "node"));
        for node in nodes {
            let is = |name: &str| node.attribute(name) == Some("true");
            let name = node.attribute("name").unwrap_or_default();
            if is("online") && !is("pending") {
                all.online.insert(name.to_owned());
            }
            if is("standby") {
                all.in_standby.insert(name.to_owned());
            }
        }
        for resource in document.descendants().filter(|one| one.has_tag_name("resource")) {
            let is_fence = resource.attribute("resource_agent").is_some_and(|agent| agent.starts_with("stonith:"));
            let on: BTreeSet<String> =
                children(resource, "node").filter_map(|node| node.attribute("name").map(str::to_owned)).collect();
            if let Some(id) = resource.attribute("id").filter(|_| !is_fence && !on.is_empty()) {
                all.running.entry(id.to_owned()).or_default().extend(on);
            }
        }
        Ok(all)
    }

    /// The resources on a node.
    pub(super) fn on(&self, node: &str) -> Vec<&str> {
        self.running.iter().filter(|(_, on)| on.contains(node)).map(|(id, _)| id.as_str()).collect()
    }

    /// All resources that run, as words.
    pub(super) fn words(&self) -> String {
        self.running.keys().cloned().collect::<Vec<_>>().join(", ")
    }
}

fn document<'a>(xml: &'a str, program: &str) -> Result<Document<'a>, String> {
    Document::parse(xml).map_err(|error| format!("{program}: its answer can't be read: {error}"))
}

fn children<'a, 'b>(node: Node<'a, 'b>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'b>> {
    node.children().filter(move |child| child.has_tag_name(tag))
}
