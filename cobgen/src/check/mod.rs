//! The independent check of a finished generation.
//!
//! Reads what `generation` made, or what lies in a depot, and believes none of it: routes, goals,
//! orders are computed here a second time, by other means, from the bundles alone. Provenance is
//! used for the places in messages and for nothing else.
//!
//! What is checked: names and forms (`structure`), ranks and expected fingerprints (`order`), and
//! the four conditions under which every change object comes to its preferred state: P1 no traps
//! (`traps`), P2 no circle of goals (`goals`), P3 no move whose needs contradict themselves
//! (`holds`), P4 no change objects that undo each other (`rest`). Γ, in these, is all the goals that
//! follow from the preferred ones. `leaving` asks the first three of what leaves the model, `budgets` whether they can be kept.
//! Who is observed is checked as if it were moved, since a later generation takes it over; `observed` says who may wait
//! for it until then.
//!
//! A failed condition is an error where there are states, such as checks may find, from which no
//! order of moves leads on; a warning where a way always exists but only a simulation can tell
//! whether it is taken.

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

pub use finding::{Finding, Severity, Step};
pub use run::{Preconditions, check, preconditions};
