//! The operator's program: what hosts and change objects do, why, and orders to them.
//!
//! ```text
//! [args], [settings] --> [targets]: whom to ask --> [client], [gather], [live]: their answers
//!                                            |
//!              [verdict]: is it so?   [explain]: why not?   [merge]: what happened
//!                                            |
//!                         [commands] --> [screen]: the answer, in [words] or JSON
//! ```
//!
//! It speaks with daemons only through their HTTP API (`docs/api.md`) and changes nothing but by an
//! order. A yes is said by [`verdict`] alone. Where there is no daemon yet, or another is to take its place (`bootstrap`,
//! `upgrade`), it goes by the program [`ssh`] and the scripts of [`install`].

pub mod args;
mod backoff;
pub mod client;
mod clocks;
mod commands;
pub mod coupling;
pub mod demo;

pub mod explain;
pub mod failure;
pub mod gather;
pub mod identity;
pub mod install;
pub mod live;
pub mod merge;
pub mod past;
pub mod screen;
pub mod settings;
mod signals;
pub mod ssh;
pub mod targets;
#[cfg(test)]
mod testing;
pub mod trusted;
pub mod verdict;
pub mod webshop;
pub mod words;

pub use commands::run;
