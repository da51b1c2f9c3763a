//! Units of systemd, over D-Bus.
//!
//! ```text
//!   daemon ── check: bus + files ──> look ──> state
//!     |  └── PropertiesChanged ──> a hint to check
//!     └── runner ── mover ── bus: unmask, reload, enable, start / stop, wait for the job
//!   SERVICE/ before   the original state before the first change, durable; deleted after its restoration
//!            started  the configuration of the last start from here
//! ```
//!
//! Rules: the original state is durable before any change. A job of systemd continues without us, so a restarted mover
//! first looks at the unit. Calls never ask for a password: they tell systemd that no user is there to answer. A check
//! reads from systemd and files, and changes neither.

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
mod originals;
mod own;
mod served;
#[cfg(test)]
pub(super) mod testing;

pub(super) use before::Before;
pub(super) use bus::{Bus, Change};
pub(super) use content::unit_of;
pub(super) use handover::hand_over;
pub(super) use journal::logs;
pub(super) use look::{Judgement, Question, check};
pub(super) use mover::{end_former, make_move, restore};
pub(in crate::kinds) use own::own_unit;
