//! Generations: what a draft becomes before it is published, and what differs between two of them.
//!
//! [`assemble`] merges the arrows of a [`Draft`](crate::draft::Draft) into transition and lock
//! dependencies, computes fingerprints and ranks, and cuts the whole into one bundle a host;
//! [`diff`] compares two generations for people and scripts; [`switch_order`] says who leaves before whom on the way from
//! one to the other. Nothing here reads a file, a clock or
//! a random number: two drafts with the same content give the same bytes. Whether the outcome can
//! work is asked by `check`, which shares no code with this module.

mod assemble;
mod diff;
mod fault;
mod fingerprint;
mod merge;
mod naming;
mod ranks;
mod routes;
mod switch_order;
mod wishes;

pub use assemble::{Assembled, assemble};
pub use diff::{CobChange, Compared, ContentChange, Difference, KindChange, Swap, diff};
pub use fault::{Fault, Refusal, RestartStep};
pub use switch_order::{NoOrder, Side, switch_order};
