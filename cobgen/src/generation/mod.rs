//! Makes generations from drafts.
//!
//! [`assemble`] merges the arrows of a [`Draft`](crate::draft::Draft) into transition and lock dependencies, computes
//! fingerprints and ranks, and makes a bundle per host. No code here reads a file, a clock or a random number: two drafts
//! with the same content give the same bytes. `check` verifies whether the result can work; it shares no code with this
//! module.

mod assemble;
mod fault;
mod fingerprint;
mod merge;
mod ranks;

pub use assemble::{Assembled, assemble};
pub use fault::{Fault, Refusal, RestartStep};
