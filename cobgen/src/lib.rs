//! From a data model to generations of change objects.
//!
//! One run, anywhere: [`model`] (load, with positions) -> [`expand`] (services to change objects,
//! short dependency words to the two forms) -> [`draft`] (what came out, with where it came from) ->
//! [`generation`] (fingerprints, ranks, bundles, differences) -> [`check`] (independent of what made
//! it) -> [`depot`] (bare git, one commit a generation). [`make`] goes this way up to the check,
//! [`publish()`] to its end. The same input gives the same bytes. [`serve`] gives generations out to hosts
//! that share no folder with the depot, and lets new hosts in.

mod calendar;
mod catalog;
pub mod check;
pub mod cli;
pub mod diagnostic;
pub mod draft;
pub mod expand;
pub mod forecast;
pub mod generation;
pub mod guard;
pub mod import;
mod input;
pub mod known;
pub mod make;
pub mod model;
pub mod provenance;
pub mod publish;
pub mod secrets;
pub mod serve;
pub mod solve;
pub mod switches;

pub mod verify;

pub use cob_depot as depot;
pub use publish::publish;

#[cfg(test)]
mod testing;
