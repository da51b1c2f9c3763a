//! The solver: computes a cluster's layout from services, rules and a number of nodes, exactly.
//!
//! `cobgen` makes a [`Request`] of a model's template and cluster; [`solve`] answers it. If a layout exists, the solver
//! finds it, and "none" means that no layout exists. The layout follows from the request alone, not from the order of
//! the input: the solver uses no clock, no threads, no floating point and no hash order. `docs/solver.md` explains the
//! search and why it is exact.

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

/// A malformed request: the fault lies with its author, not with its rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Two services with the same name.
    #[error("service {0} is requested twice: name it once")]
    ServiceTwice(String),
    /// Two existing nodes, or two hosts, with the same name.
    #[error("two nodes have the name {0}: every node needs its own name")]
    NodeTwice(String),
    /// Two types with the same name.
    #[error("two types have the name {0}: rename or remove either")]
    TypeTwice(String),
    /// A number beyond the limits of the solver.
    #[error("{what}: {given}, but the solver takes at most {most}: request less")]
    TooMany {
        /// The counted items.
        what: &'static str,
        /// The given number.
        given: u64,
        /// The limit.
        most: u64,
    },
}
