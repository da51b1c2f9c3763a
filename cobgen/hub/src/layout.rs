//! Layouts: the answers of `cobgen solve --json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The layout of a cluster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Layout {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Nodes of the latest generation that the cluster no longer has.
    #[serde(default)]
    pub leaving: Vec<String>,
    /// The provider of the machines; absent: the machines come from the hub's default provider.
    #[serde(default)]
    pub provider: Option<Offer>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The host name.
    pub name: String,
    /// The services.
    pub services: Vec<String>,
    /// The type of hardware.
    pub hardwaretype: Option<String>,
    /// The type of image.
    pub imagetype: Option<String>,
}

/// A provider with its words for the types of the nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The name.
    pub name: String,
    /// The type: the program that creates machines.
    #[serde(rename = "type")]
    pub sort: Option<String>,
    /// The settings of the provider.
    #[serde(default)]
    pub settings: Map<String, Value>,
    /// The provider's values for types of hardware.
    #[serde(default)]
    pub hardwaretypes: BTreeMap<String, Value>,
    /// The provider's values for types of images.
    #[serde(default)]
    pub imagetypes: BTreeMap<String, Value>,
}

/// The answer of `cobgen solve`.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    pub(crate) clusters: Vec<Solved>,
}

/// A cluster of the answer.
#[derive(Debug, Deserialize)]
pub(crate) struct Solved {
    pub(crate) solvable: Option<bool>,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(flatten)]
    pub(crate) layout: Layout,
}
