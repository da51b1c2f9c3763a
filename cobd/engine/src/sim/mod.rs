//! A cluster in a single process, on virtual time: many engines, a network that delays, loses, doubles and reorders
//! batches, hosts that crash and restart, actions that fail.
//!
//! All random choices come from a seed, so a run replays exactly. After every event each touched engine is checked
//! ([`crate::engine::invariants`]), and so is the *world itself*: the real state of every change object and the running
//! actions, independent of the engines' beliefs. The safety invariant is stated on the world.

mod config;
mod daemon;
mod fault;
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
pub use daemon::{Restart, batches, known_askers};
pub use fault::{FaultKind, NoFault, SwitchFault, Victim};
pub use random::Random;
pub use reality::{Begin, Crowded, Reality, Running, Thing};
pub use scene::Scene;
pub use switching::{Bundles, Command, Orders};
pub use trace::describe;
pub use world::{Happened, RunEnd, SupervisedSwitch, World};
