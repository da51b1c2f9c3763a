//! From a data model to generations of change objects.
//!
//! One run, on any machine: [`model`] (load, with positions) -> [`expand`] (services to change objects, short
//! dependency words to the two forms) -> [`draft`] (the result, with the source of each part) -> [`generation`]
//! (fingerprints, ranks, bundles, differences) -> [`check`] (independent of the steps before) -> [`depot`] (bare git, a
//! commit per generation). [`make`] does the steps up to the check, [`publish()`] all steps. The same input gives the
//! same bytes. [`serve`] serves generations to hosts that share no folder with the depot, and enrols new hosts.

mod calendar;
mod catalog;
pub mod check;
pub mod cli;
pub mod diagnostic;
pub mod draft;
pub mod exchange;
pub mod expand;
mod format;
pub mod generation;
pub mod guard;
pub mod known;
mod lsp;
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
mod forecast_tests;
#[cfg(test)]
mod testing;
