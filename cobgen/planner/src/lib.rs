//! The planner: the steps of an operation on a cluster, node by node, and their order.
//!
//! The plan is a view for people, after Loom's planner: `cobgen plan` shows it and never executes it. The change
//! objects of a generation find their order by themselves, without stages.
//!
//! [`plan()`] takes a cluster before and after, its services with their actions and dependencies, and an [`Operation`].
//! It returns the [`Plan`]: jobs (an action on a node), their dependencies, and Loom's stages. [`Plan::times`] compares
//! the stages with the order without barriers, for given durations. The function is pure: no clock, no files, and the
//! same input in any order gives the same plan.

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
