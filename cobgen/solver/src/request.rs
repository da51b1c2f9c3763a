//! What is asked: services, their rules, and the nodes that there are to be.
//!
//! Every rule carries a [`RuleId`], which means nothing here: the caller maps it to file and line.
//! The order in which anything is listed has no influence on the answer.

use crate::ratio::Ratio;

/// Where a rule was written. The solver hands it back in explanations and never looks into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A value that a rule sets, and the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruled<T> {
    /// What the rule says.
    pub value: T,
    /// Which rule it is.
    pub rule: RuleId,
}

impl<T> Ruled<T> {
    /// A value with its rule.
    pub const fn new(value: T, rule: RuleId) -> Self {
        Self { value, rule }
    }
}

/// One cluster that is to be laid out.
///
/// A *node layout* is a service set, a hardware type and an image type that break no rule. The answer
/// says how many nodes there are of each: the lexicographically greatest vector of counts over the node
/// layouts, the most preferred first, that satisfies everything.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The services of the cluster. Each goes on at least one node; one that no rule names goes on
    /// every node.
    pub services: Vec<ServiceRule>,
    /// Where one service of such a rule is on a node, all of them that the cluster has are on it. One that the cluster lacks is ignored.
    pub must_coexist: Vec<Ruled<Vec<String>>>,
    /// The whole set is never on one node; a part of it may be. A rule that names a service that the
    /// cluster lacks forbids nothing.
    pub cant_coexist: Vec<Ruled<Vec<String>>>,
    /// The hardware types that new nodes may have. Hosts and existing nodes have their own, listed here or not.
    pub hardware: Vec<TypeOption>,
    /// The image types that new nodes may have.
    pub images: Vec<TypeOption>,
    /// How many nodes a cluster of this sort may have.
    pub size: Size,
    /// How many nodes, or which hosts.
    pub nodes: Nodes,
    /// The cluster as it is. Its nodes keep their hardware and image, and services that are not in
    /// `changed` stay where they are and come to none of these nodes. A service that is not among `services`
    /// is taken off.
    pub existing: Vec<ExistingNode>,
    /// Services that may come to existing nodes and leave them: those that are being added. A service that is
    /// taken out need not be named.
    pub changed: Vec<String>,
    /// Layouts that are not wanted, as [`crate::Layout::counts`] gives them.
    pub excluded: Vec<Vec<Counted>>,
    /// Which node layouts are preferred.
    pub preference: Preference,
}

/// One service of the cluster and what is asked of it alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRule {
    /// Its name.
    pub name: String,
    /// The hardware types that it can be on; `None`: any.
    pub hardware: Option<Ruled<Vec<String>>>,
    /// The image types that it can be on; `None`: any.
    pub images: Option<Ruled<Vec<String>>>,
    /// On how many nodes.
    pub quantities: Quantities,
}

/// On how many nodes a service may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quantities {
    /// At least so many.
    pub min: Option<Ruled<u64>>,
    /// At most so many.
    pub max: Option<Ruled<u64>>,
    /// At least this share of all nodes.
    pub ratio_min: Option<Ruled<Ratio>>,
    /// At most this share of all nodes.
    pub ratio_max: Option<Ruled<Ratio>>,
    /// An odd number of nodes.
    pub odd: Option<RuleId>,
    /// Only with at least so many nodes of another service.
    pub requires: Vec<Ruled<(String, u64)>>,
}

/// A hardware or image type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeOption {
    /// Its name.
    pub name: String,
    /// What a node of it costs, in a unit of the caller's choice.
    pub cost: u64,
}

/// How many nodes a cluster of a template may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Size {
    /// At least so many.
    pub min: Option<Ruled<u64>>,
    /// At most so many.
    pub max: Option<Ruled<u64>>,
}

/// The nodes that the cluster is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// So many. Where more exist, the difference goes; where fewer, new ones come. Never both.
    Count(u64),
    /// Just these hosts. An existing node that is not among them goes.
    Inventory(Vec<InventoryHost>),
}

impl Default for Nodes {
    fn default() -> Self {
        Self::Count(0)
    }
}

/// A machine that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryHost {
    /// Its name.
    pub name: String,
    /// Its hardware type.
    pub hardware: String,
    /// Its image type.
    pub image: String,
}

/// A node of the cluster as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingNode {
    /// Its name.
    pub name: String,
    /// The services on it, in any order.
    pub services: Vec<String>,
    /// Its hardware type.
    pub hardware: String,
    /// Its image type.
    pub image: String,
}

/// What one node is like. Equal ones are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeLayout {
    /// The services on it, sorted by name.
    pub services: Vec<String>,
    /// Its hardware type.
    pub hardware: String,
    /// Its image type.
    pub image: String,
}

/// A node layout and how many nodes have it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    /// What these nodes are like.
    pub layout: NodeLayout,
    /// How many they are.
    pub count: u64,
}

/// Which node layouts are preferred: of several for one service set the first in this order is used, and
/// of the whole layout there are as many nodes as possible of the first, then of the second, and so on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Preference {
    /// More services first, then hardware, image and service names in order.
    #[default]
    Default,
    /// Cheaper hardware first, then as by default.
    CheapestHardware,
    /// As by default, with the fewest image types in the whole cluster that allow a layout; of several
    /// such sets of image types the first by name.
    FewestImages,
    /// Fewer services on a node first, then cheaper hardware, then as by default.
    Spread,
    /// More services first, then cheaper hardware, then as by default.
    Pack,
    /// A greater sum first, then as by default.
    Weighted(Weights),
}

/// What counts how much in [`Preference::Weighted`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weights {
    /// For each service on the node.
    pub services: i64,
    /// For each unit of the hardware's cost (negative: cheap is good).
    pub hardware_cost: i64,
    /// For each unit of the image's cost.
    pub image_cost: i64,
}
