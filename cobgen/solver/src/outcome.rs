//! The answer to a request: a layout, or the reason why there is no layout.

use std::fmt;

use crate::ratio::Ratio;
use crate::request::{Counted, NodeLayout, RuleId};

/// The limit of the search. Steps are the same on every machine; time would not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Elementary operations of the search.
    pub steps: u64,
}

impl Default for Budget {
    /// A few seconds on a present-day machine; no request of a sensible size comes near this limit.
    fn default() -> Self {
        Self { steps: 200_000_000 }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The most preferred layout.
    Layout(Layout),
    /// Certainly no layout exists.
    None(Explanation),
    /// The steps did not suffice to find a layout or to prove that no layout exists.
    Undecided,
}

/// A cluster's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The number of nodes of each node layout, the most preferred layout first.
    pub counts: Vec<Counted>,
    /// Existing nodes and hosts of an inventory, in order of their names (numbers in names count as
    /// numbers), each with an index into `counts`.
    pub named: Vec<(String, usize)>,
    /// New nodes without a name: an index into `counts` and the number of nodes.
    pub new: Vec<(usize, u64)>,
    /// Existing nodes that are removed, in order of their names.
    pub leaving: Vec<String>,
}

/// A node of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRef<'a> {
    /// An existing node, or a host of an inventory.
    Named(&'a str),
    /// A new node; new nodes are numbered from 0.
    New(u64),
}

impl Layout {
    /// Every node with its layout: the named nodes in order, then the new nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeRef<'_>, &NodeLayout)> {
        let named = self.named.iter().map(|(name, at)| (NodeRef::Named(name), &self.counts[*at].layout));
        let new = self.new.iter().flat_map(move |(at, count)| (0..*count).map(move |_| &self.counts[*at].layout));
        named.chain((0..).map(NodeRef::New).zip(new))
    }
}

/// The reason why there is no layout, and possible remedies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Rules that contradict each other, given the number of nodes and the services in the request. If any of these
    /// rules is removed, there is a layout.
    ///
    /// Empty if the request itself is at fault: no nodes, or no services that could be on them.
    pub core: Vec<Rule>,
    /// Whether `core` was shown to be minimal; if not, the steps did not suffice, and `core` has more rules than
    /// necessary.
    pub minimal: bool,
    /// Changes that make the request solvable, each alone, the cheapest first.
    pub relaxations: Vec<Relaxation>,
}

/// A rule that takes part in a contradiction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The demand of the rule.
    pub kind: RuleKind,
    /// Where it was written; `None` if it follows from the request itself.
    pub id: Option<RuleId>,
}

/// The demand of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleKind {
    /// The size of the cluster has a lower limit.
    SizeMin(u64),
    /// The size of the cluster has an upper limit.
    SizeMax(u64),
    /// A service must be on at least this many nodes.
    Min(String, u64),
    /// A service must be on at most this many nodes.
    Max(String, u64),
    /// A service must be on at least this share of the nodes.
    RatioMin(String, Ratio),
    /// A service must be on at most this share of the nodes.
    RatioMax(String, Ratio),
    /// A service must be on an odd number of nodes.
    Odd(String),
    /// A service needs this many nodes with another service.
    Requires(String, String, u64),
    /// A service needs one of these hardware types.
    Hardware(String, Vec<String>),
    /// A service needs one of these image types.
    Image(String, Vec<String>),
    /// Services of the cluster must be together.
    MustCoexist(Vec<String>),
    /// Services must not be together.
    CantCoexist(Vec<String>),
    /// A service without rules goes on every node.
    Everywhere(String),
    /// Existing nodes, all alike, keep their hardware, image and services.
    Existing(Vec<String>),
    /// A layout is unwanted: its index in the request.
    Excluded(usize),
}

/// Changes that together make the request solvable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relaxation {
    /// The changes; in most cases a single change.
    pub changes: Vec<Change>,
}

/// A change to a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Another number of nodes.
    Nodes {
        /// The number in the request.
        from: u64,
        /// The number that works.
        to: u64,
    },
    /// Another number in a rule: in a minimum, a maximum, a requirement or a size.
    Number {
        /// The present rule.
        rule: Rule,
        /// The nearest number that works.
        to: u64,
    },
    /// Another share in a rule.
    Share {
        /// The present rule.
        rule: Rule,
        /// The nearest share of this number of nodes that works.
        to: Ratio,
    },
    /// Without this rule.
    Drop {
        /// The present rule.
        rule: Rule,
    },
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SizeMin(n) => write!(f, "at least {n} nodes"),
            Self::SizeMax(n) => write!(f, "at most {n} nodes"),
            Self::Min(service, n) => write!(f, "min of {service} {n}"),
            Self::Max(service, n) => write!(f, "max of {service} {n}"),
            Self::RatioMin(service, ratio) => write!(f, "ratio min of {service} {ratio}"),
            Self::RatioMax(service, ratio) => write!(f, "ratio max of {service} {ratio}"),
            Self::Odd(service) => write!(f, "an odd number of {service}"),
            Self::Requires(service, other, n) => write!(f, "{service} requires {n} of {other}"),
            Self::Hardware(service, types) => write!(f, "{service} on hardware {}", types.join(", ")),
            Self::Image(service, types) => write!(f, "{service} on image {}", types.join(", ")),
            Self::MustCoexist(services) => write!(f, "{} must coexist", services.join(", ")),
            Self::CantCoexist(services) => write!(f, "{} can't coexist", services.join(", ")),
            Self::Everywhere(service) => write!(f, "{service}, which no rule names, on every node"),
            Self::Existing(nodes) => match nodes.as_slice() {
                [node] => write!(f, "{node} keeps its hardware, image and services"),
                [first @ .., last] if first.len() < 4 => {
                    write!(f, "{} and {last} keep their hardware, image and services", first.join(", "))
                }
                _ => {
                    let (first, more) = nodes.split_at(nodes.len().min(3));
                    let (first, more) = (first.join(", "), more.len());
                    write!(f, "{first} and {more} similar nodes keep their hardware, image and services")
                }
            },
            Self::Excluded(at) => write!(f, "excluded layout {}", at + 1),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes { from, to } => {
                let (by, word) = if to > from { (to - from, "more") } else { (from - to, "fewer") };
                write!(f, "{by} {word} {}", if by == 1 { "node" } else { "nodes" })
            }
            Self::Number { rule, to } => write!(f, "{} -> {to}", rule.kind),
            Self::Share { rule, to } => write!(f, "{} -> {to}", rule.kind),
            Self::Drop { rule } => write!(f, "without the rule: {}", rule.kind),
        }
    }
}
