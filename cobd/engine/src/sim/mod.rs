//! A cluster in one process, on virtual time: many engines, a network that delays, loses, doubles
//! and overtakes, hosts that crash and return, actions that fail.
//!
//! Everything random comes from one seed, so a run replays exactly. After every event each touched
//! engine is checked ([`crate::invariants`]), and the *world itself* is watched: what is really the
//! state of every change object and what really runs, independent of what engines believe. The
//! safety invariant is stated on the world.

mod config;
pub mod explore;
pub mod forecast;
mod queue;
mod random;
mod reality;
mod scene;
mod script;
mod switching;
mod trace;
mod world;

pub use config::{Config, Initial, Outcome, TALK};
pub use random::Random;
pub use scene::Scene;
pub use world::World;
