//! The independent check of a finished generation.
//!
//! The check reads the output of `generation` or the content of a depot and trusts no part of it: it computes routes,
//! goals and orders a second time, by other means, from the bundles alone. Provenance is used only for the places in
//! messages.
//!
//! It checks names and forms (`structure`), ranks and expected fingerprints (`order`), and the four conditions under
//! which every change object comes to its preferred state: P1 no traps (`traps`), P2 no circle of goals (`goals`), P3
//! no transition whose needs contradict themselves (`holds`), P4 no change objects that undo each other (`rest`).
//! There, Γ is the set of all goals that follow from the preferred goals. `leaving` checks the first three conditions
//! for departing change objects, `budgets` whether the daemons can keep the budgets. An observed change object is
//! checked as if COB moved it, since a later generation takes it over; `observed` reports which change objects may wait
//! for it until then.
//!
//! A failed condition is an error if a check may find states from which no order of transitions leads on. It is a
//! warning if a way always exists but only a simulation can tell whether it is taken.

mod budgets;
mod circles;
mod demand;
mod finding;
mod gates;
mod goals;
mod holds;
mod leaving;
mod lints;
mod observed;
mod order;
mod rest;
mod run;
mod structure;
mod system;
mod traps;
mod ways;
mod words;

#[cfg(test)]
mod tests;

pub use finding::{Finding, Step};
pub use run::{Preconditions, check, preconditions};
