//! The input of the solver: services, their rules, and the desired nodes.
//!
//! Every rule carries a [`RuleId`], which the solver does not interpret: the caller maps it to file and line. The order
//! of the lists has no influence on the answer.

use crate::ratio::Ratio;

/// The source of a rule. The solver returns it in explanations and never interprets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A value and the rule that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruled<T> {
    /// The value.
    pub value: T,
    /// The rule.
    pub rule: RuleId,
}

impl<T> Ruled<T> {
    /// A value with its rule.
    pub const fn new(value: T, rule: RuleId) -> Self {
        Self { value, rule }
    }
}

/// A request to lay out a cluster.
///
/// A *node layout* is a service set, a hardware type and an image type that break no rule. The answer gives the number
/// of nodes of each node layout: the lexicographically greatest vector of counts, ordered by preference, that satisfies
/// all rules.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The services of the cluster. Each goes on at least one node; a service without rules goes on every node.
    pub services: Vec<ServiceRule>,
    /// If a node has a service of this rule, it has all services of the rule that the cluster has. Services that the
    /// cluster lacks are ignored.
    pub must_coexist: Vec<Ruled<Vec<String>>>,
    /// The whole set is never on the same node; a part of it may be. A rule that names a service that the cluster lacks
    /// has no effect.
    pub cant_coexist: Vec<Ruled<Vec<String>>>,
    /// The hardware types of new nodes. Hosts and existing nodes have their own types, whether listed here or not.
    pub hardware: Vec<TypeOption>,
    /// The image types of new nodes.
    pub images: Vec<TypeOption>,
    /// The allowed number of nodes of a cluster of this template.
    pub size: Size,
    /// The number of nodes, or the hosts.
    pub nodes: Nodes,
    /// The present cluster. Its nodes keep their hardware and image, and services outside `changed` stay where they are
    /// and are added to none of these nodes. A service outside `services` is removed.
    pub existing: Vec<ExistingNode>,
    /// Services that may be added to existing nodes or removed from them: the new services. A removed service need not
    /// be named.
    pub changed: Vec<String>,
    /// Unwanted layouts, as [`crate::Layout::counts`] gives them.
    pub excluded: Vec<Vec<Counted>>,
    /// The order of preference of node layouts.
    pub preference: Preference,
}

/// A service of the cluster and the rules about it alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRule {
    /// Its name.
    pub name: String,
    /// The hardware types that it can use; `None`: any.
    pub hardware: Option<Ruled<Vec<String>>>,
    /// The image types that it can use; `None`: any.
    pub images: Option<Ruled<Vec<String>>>,
    /// The allowed numbers of nodes.
    pub quantities: Quantities,
}

/// The allowed numbers of nodes of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quantities {
    /// At least this many.
    pub min: Option<Ruled<u64>>,
    /// At most this many.
    pub max: Option<Ruled<u64>>,
    /// At least this share of all nodes.
    pub ratio_min: Option<Ruled<Ratio>>,
    /// At most this share of all nodes.
    pub ratio_max: Option<Ruled<Ratio>>,
    /// An odd number of nodes.
    pub odd: Option<RuleId>,
    /// Only with at least this many nodes of another service.
    pub requires: Vec<Ruled<(String, u64)>>,
}

/// A hardware or image type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeOption {
    /// Its name.
    pub name: String,
    /// The cost of a node of this type, in a unit of the caller's choice.
    pub cost: u64,
}

/// The allowed number of nodes of a template's cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Size {
    /// At least this many.
    pub min: Option<Ruled<u64>>,
    /// At most this many.
    pub max: Option<Ruled<u64>>,
}

/// The desired nodes of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nodes {
    /// This many. If more nodes exist, the surplus is removed; if fewer exist, new nodes are added. Never both.
    Count(u64),
    /// Exactly these hosts. An existing node that is not among them is removed.
    Inventory(Vec<InventoryHost>),
}

impl Default for Nodes {
    fn default() -> Self {
        Self::Count(0)
    }
}

/// An existing machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryHost {
    /// Its name.
    pub name: String,
    /// Its hardware type.
    pub hardware: String,
    /// Its image type.
    pub image: String,
}

/// A node of the present cluster.
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

/// The layout of a node. Nodes with equal layouts are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeLayout {
    /// The services on it, sorted by name.
    pub services: Vec<String>,
    /// Its hardware type.
    pub hardware: String,
    /// Its image type.
    pub image: String,
}

/// A node layout and its number of nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    /// The layout of these nodes.
    pub layout: NodeLayout,
    /// The number of nodes.
    pub count: u64,
}

/// The order of preference of node layouts. Of several layouts with the same service set the solver uses the first in
/// this order. The whole layout has as many nodes as possible of the first node layout, then of the second, and so on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Preference {
    /// More services first, then hardware, image and service names in order.
    #[default]
    Default,
    /// Cheaper hardware first, then as by default.
    CheapestHardware,
    /// Like the default, with the fewest image types in the whole cluster that allow a layout; of several sets of image
    /// types the first by name.
    FewestImages,
    /// Fewer services on a node first, then cheaper hardware, then as by default.
    Spread,
    /// More services first, then cheaper hardware, then as by default.
    Pack,
    /// A greater sum first, then as by default.
    Weighted(Weights),
}

/// The weights of [`Preference::Weighted`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weights {
    /// For each service on the node.
    pub services: i64,
    /// For each unit of the hardware's cost (negative: cheap is good).
    pub hardware_cost: i64,
    /// For each unit of the image's cost.
    pub image_cost: i64,
}
