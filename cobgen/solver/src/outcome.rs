//! What is answered: a layout, or why there is none.

use std::fmt;

use crate::ratio::Ratio;
use crate::request::{Counted, NodeLayout, RuleId};

/// How far the search may go. Steps are the same on every machine; time would not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Elementary operations of the search.
    pub steps: u64,
}

impl Default for Budget {
    /// A few seconds of a machine of today, which no request of a sensible size comes near.
    fn default() -> Self {
        Self { steps: 200_000_000 }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The most preferred layout.
    Layout(Layout),
    /// There is none, for certain.
    None(Explanation),
    /// The steps did not suffice to find a layout or to prove that there is none.
    Undecided,
}

/// A cluster's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// How many nodes there are of each node layout, the most preferred first.
    pub counts: Vec<Counted>,
    /// Existing nodes and hosts of an inventory, in order of their names (numbers in names count as
    /// numbers), each with an index into `counts`.
    pub named: Vec<(String, usize)>,
    /// New nodes that have no name yet: an index into `counts` and how many.
    pub new: Vec<(usize, u64)>,
    /// Existing nodes that go, in order of their names.
    pub leaving: Vec<String>,
}

/// A node of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRef<'a> {
    /// One that exists, or a host of an inventory.
    Named(&'a str),
    /// A new one; they are numbered from 0.
    New(u64),
}

impl Layout {
    /// Every node with its layout: those with names in order, then the new ones.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeRef<'_>, &NodeLayout)> {
        let named = self.named.iter().map(|(name, at)| (NodeRef::Named(name), &self.counts[*at].layout));
        let new = self.new.iter().flat_map(move |(at, count)| (0..*count).map(move |_| &self.counts[*at].layout));
        named.chain((0..).map(NodeRef::New).zip(new))
    }
}

/// Why there is no layout, and what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Rules that contradict each other, given the number of nodes and the services asked for. Without any
    /// one of them there is a layout.
    ///
    /// Empty where nothing but the request itself is at fault: no nodes, or nothing that could be on them.
    pub core: Vec<Rule>,
    /// Whether `core` was shown to be minimal; if not, the steps did not suffice, and `core` holds more
    /// than necessary.
    pub minimal: bool,
    /// Changes that make it solvable, each by itself, the cheapest first.
    pub relaxations: Vec<Relaxation>,
}

/// A rule that takes part in a contradiction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// What it demands.
    pub kind: RuleKind,
    /// Where it was written; `None` for what follows from the request itself.
    pub id: Option<RuleId>,
}

/// What a rule demands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleKind {
    /// The size of the cluster has a lower limit.
    SizeMin(u64),
    /// The size of the cluster has an upper limit.
    SizeMax(u64),
    /// A service must be on at least so many nodes.
    Min(String, u64),
    /// A service must be on at most so many nodes.
    Max(String, u64),
    /// A service must be on at least this share of the nodes.
    RatioMin(String, Ratio),
    /// A service must be on at most this share of the nodes.
    RatioMax(String, Ratio),
    /// A service must be on an odd number of nodes.
    Odd(String),
    /// A service needs so many nodes with another one.
    Requires(String, String, u64),
    /// A service needs one of these hardware types.
    Hardware(String, Vec<String>),
    /// A service needs one of these image types.
    Image(String, Vec<String>),
    /// Services must be together (those that the cluster has).
    MustCoexist(Vec<String>),
    /// Services must not be together.
    CantCoexist(Vec<String>),
    /// A service that no rule names goes on every node.
    Everywhere(String),
    /// Existing nodes, all alike, keep their hardware, image and services.
    Existing(Vec<String>),
    /// A layout is not wanted: its index in the request.
    Excluded(usize),
}

/// Changes that, made together, make the request solvable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relaxation {
    /// What to change; in most cases one thing.
    pub changes: Vec<Change>,
}

/// One change to a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Another number of nodes.
    Nodes {
        /// As asked.
        from: u64,
        /// As it would do.
        to: u64,
    },
    /// Another number in a rule: in a minimum, a maximum, a requirement or a size.
    Number {
        /// The rule as it is.
        rule: Rule,
        /// The nearest number that would do.
        to: u64,
    },
    /// Another share in a rule.
    Share {
        /// The rule as it is.
        rule: Rule,
        /// The nearest share of this number of nodes that would do.
        to: Ratio,
    },
    /// Without this rule.
    Drop {
        /// The rule as it is.
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
                    write!(f, "{first} and {more} more like them keep their hardware, image and services")
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
