//! The forecast of a switch between two generations, before any host is changed.
//!
//! [`forecast`] compares the generations (`sides`), finds the concerned change objects (`scope`), and lets the engine
//! switch these on virtual time ([`cob_engine::sim::forecast`]) with the recorded durations ([`durations`]). The course
//! gives the order and slack of transitions (`order`), their reasons, interruptions and irreversible steps (`reasons`),
//! and the hosts that activate together (`groups`). Legs over intermediate generations are planned separately (`legs`).
//! The result is data ([`plan`]), shown by [`show`]; [`progress`] compares it with a real switch.
//!
//! [`faults`] tries every fault of a switch.
//!
//! [`diff()`] compares two generations for people and scripts; [`switch_order()`] determines which change objects depart
//! before which others in a switch.

mod course;
mod diff;
pub mod durations;
pub mod faults;
mod groups;
pub mod legs;
mod naming;
mod order;
pub mod plan;
pub mod progress;
mod reasons;
mod requested_states;
mod routes;
mod scope;
pub mod show;
mod sides;
mod split;
mod switch_order;
mod unused;

pub use course::{Asked, Forecasted, forecast};
pub use diff::{CobChange, Compared, ContentChange, Difference, KindChange, Swap, diff};
pub use durations::Durations;
pub use plan::SwitchPlan;
pub use routes::Routes;
pub use sides::{Sides, Source};
pub use switch_order::{NoOrder, Side, switch_order};
pub use unused::Unused;
