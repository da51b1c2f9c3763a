//! The operator's program: it shows the state of hosts and change objects and its reasons, and sends orders.
//!
//! ```text
//! [args], [settings] --> [targets]: the daemons to ask --> [client], [gather], [live]: their answers
//!                                            |
//!              [verdict]: converged?   [explain]: why not?   [merge]: the common history
//!                                            |
//!                         [commands] --> [screen]: the answer, in [words] or JSON
//! ```
//!
//! It talks to daemons only through their HTTP API (`docs/api.md`) and changes state only by an order. Only [`verdict`]
//! may say "converged". Where no daemon exists yet, or a new version replaces it (`bootstrap`, `upgrade`), it uses the
//! program [`ssh`] and the scripts of [`install`]. Commands that need a daemon or a generator in the same program, as the
//! demo does, are in the package `cobctl-program`.

pub mod args;
mod backoff;
mod board;
pub mod client;
mod clocks;
mod commands;
pub mod coupling;
pub mod explain;
pub mod failure;
pub mod gather;
pub mod identity;
pub mod install;
pub mod live;
pub mod merge;
pub mod needs;
pub mod notify;
mod page;
pub mod past;
pub mod screen;
pub mod settings;
pub mod signals;
pub mod ssh;
pub mod targets;
#[cfg(test)]
mod testing;
pub mod trusted;
pub mod verdict;
mod waves;
pub mod words;

pub use commands::{Develop, Extension, RunAdded, run, run_with};
