//! Units of systemd, spoken to over D-Bus.
//!
//! ```text
//!   daemon ── check: bus + files ──> look ──> state
//!     |  └── PropertiesChanged ──> "look at that one"
//!     └── runner ── mover ── bus: unmask, reload, enable, start / stop, wait for the job
//!   SERVICE/ before   what was found before the first change, durable; gone when it is back
//!            started  with which configuration it was started from here
//! ```
//!
//! Rules: what was found is durable before anything is changed. A job of systemd goes on without us, so that a
//! mover that is begun again looks at the unit first. Nothing here ever asks for a password: calls say that no
//! one is there to answer. A check speaks with systemd and reads files, and changes neither.

mod before;
mod bus;
mod content;
mod ended;
mod files;
mod handover;
mod journal;
mod links;
mod look;
mod mover;
#[cfg(test)]
mod mover_test;
mod own;
mod served;
#[cfg(test)]
pub(super) mod testing;

pub(super) use before::Before;
pub(in crate::kinds) use bus::Systemd;
pub(super) use bus::{Bus, Change};
pub(super) use content::{OnChange, UnitContent, unit_of};
pub(super) use handover::hand_over;
pub(super) use journal::logs;
pub(super) use look::{Judgement, Question, check};
pub(super) use mover::{end_former, make_move, restore};
