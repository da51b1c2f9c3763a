//! Makes generations from drafts, and compares generations.
//!
//! [`assemble`] merges the arrows of a [`Draft`](crate::draft::Draft) into transition and lock dependencies, computes
//! fingerprints and ranks, and makes a bundle per host; [`diff`] compares two generations for people and scripts;
//! [`switch_order`] determines which change objects depart before which others in a switch. No code here reads a file,
//! a clock or a random number: two drafts with the same content give the same bytes. `check` verifies whether the
//! result can work; it shares no code with this module.

mod assemble;
mod diff;
mod fault;
mod fingerprint;
mod merge;
mod naming;
mod ranks;
mod requested_states;
mod routes;
mod switch_order;

pub use assemble::{Assembled, assemble};
pub use diff::{CobChange, Compared, ContentChange, Difference, KindChange, Swap, diff};
pub use fault::{Fault, Refusal, RestartStep};
pub use switch_order::{NoOrder, Side, switch_order};
