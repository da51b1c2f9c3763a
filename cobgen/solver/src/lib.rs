//! The solver: from services, rules and a number of nodes to a cluster's layout, exactly.
//!
//! `cobgen` makes a [`Request`] of a model's template and cluster; [`solve`] answers it. A layout is found
//! whenever there is one, "none" means that there is none, and which one it is follows from the request
//! alone: no clock, no thread, no floating point, no order of hash maps, no order of the input. How the search works and why it is
//! exact stands in `docs/solver.md`.

mod compile;
mod conflict;
mod explain;
mod feasible;
mod greedy;
mod lexico;
mod outcome;
mod outside;
mod pricing;
mod problem;
mod ratio;
mod relax;
mod relaxation;
mod request;
mod set;
mod simplex;
mod solve;
mod spec;
mod steps;
mod tier;

pub use outcome::{Budget, Change, Explanation, Layout, NodeRef, Outcome, Relaxation, Rule, RuleKind};
pub use ratio::Ratio;
pub use request::{
    Counted, ExistingNode, InventoryHost, NodeLayout, Nodes, Preference, Quantities, Request, RuleId, Ruled,
    ServiceRule, Size, TypeOption, Weights,
};
pub use solve::solve;

/// A request that says nothing definite: a fault of whoever made it, not of its rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Two services of one name.
    #[error("service {0} is asked for twice: name it once")]
    ServiceTwice(String),
    /// Two existing nodes, or two hosts, of one name.
    #[error("node {0} is there twice: every node needs a name of its own")]
    NodeTwice(String),
    /// Two types of one name.
    #[error("type {0} is there twice: name it once")]
    TypeTwice(String),
    /// More than can be counted with.
    #[error("{what}: {given} are more than the solver takes ({most}): ask for less")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// So many.
        given: u64,
        /// The limit.
        most: u64,
    },
}
