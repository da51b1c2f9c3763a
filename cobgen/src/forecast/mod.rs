//! The forecast of a switch between two generations, before any host is changed.
//!
//! [`forecast`] compares the generations (`sides`), finds the concerned change objects (`scope`), and lets the engine
//! switch these on virtual time ([`cob_engine::sim::forecast`]) with the recorded durations ([`durations`]). The course
//! gives the order and slack of transitions (`order`), their reasons, interruptions and irreversible steps (`reasons`),
//! and the hosts that activate together (`groups`). Legs over intermediate generations are planned separately (`legs`).
//! The result is data ([`plan`]), shown by [`show`]; [`progress`] compares it with a real switch.

mod course;
pub mod durations;
mod groups;
mod legs;
mod order;
pub mod plan;
pub mod progress;
mod reasons;
mod scope;
pub mod show;
mod sides;
mod split;
mod unused;

#[cfg(test)]
mod tests;

pub use course::{Asked, Forecasted, forecast};
pub use durations::Durations;
pub use plan::SwitchPlan;
pub use sides::{Sides, Source};
pub use unused::Unused;
