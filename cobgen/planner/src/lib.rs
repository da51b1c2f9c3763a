//! The planner: what an operation on a cluster comes to, node by node, and in which order.
//!
//! A view for people, after Loom's planner: `cobgen plan` shows it, and nothing is carried out by it. The
//! change objects of a generation find their order by themselves, without stages.
//!
//! [`plan()`] takes a cluster before and after, its services with their actions and dependencies, and an
//! [`Operation`]; it gives the [`Plan`]: jobs (one action on one node), which ones each comes after, and
//! Loom's stages of it. [`Plan::times`] compares the stages with the order without barriers, for given
//! durations. Pure: no clock, no files, and the same input gives the same plan, in whatever order it comes.

mod action;
mod cluster;
mod order;
mod plan;
mod stages;
mod time;

pub use action::{Action, Operation};
pub use cluster::{Cluster, Node, Origin, Service};
pub use plan::{Job, Plan, PlanError, Step, plan};
pub use time::{Durations, Times};

#[cfg(test)]
mod tests;
