//! What a switch from one generation to another comes to, before any host is touched.
//!
//! [`forecast`] looks at what differs (`sides`), finds the change objects that are concerned (`scope`), lets the engine
//! itself switch them on virtual time ([`cob_engine::sim::forecast`]) with the durations that were recorded
//! ([`durations`]), and reads off the course what people ask: what comes before what and has how much time to spare
//! (`order`), why each moves, what is interrupted, what can't be taken back (`reasons`), which hosts go together
//! (`groups`). Where hosts go by generations in between, each leg is looked at so (`legs`). The result is data ([`plan`]), shown by [`show`]; [`progress`] holds it against what really happened.

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
