//! The lock protocol as a pure library: change objects order their own transitions by negotiating state locks with
//! their neighbours.
//!
//! The engine takes an [`Event`](event::Event) and the time, and returns [`Effects`](effect::Effects). It reads no
//! clock, socket, file, thread, environment variable or random number, and iterates over no hash map. The daemon, the
//! simulator in [`sim`], the exhaustive explorer and the planner's forecast all run this same code.
//!
//! ```text
//!   peers' batches, ends of checks and actions, ticks, operators' orders, generations
//!                                   |  event
//!                                   v
//!          engine.rs  routes: local change objects by direct call, others by peers.rs
//!             |  object/  one change object: asking side, granting side, target, activity
//!             |  adopt.rs a new generation against the present state;  recover.rs  records to state
//!                                   |  effects
//!                                   v
//!               1 persist records      2 send items       3 run checks and actions
//! ```
//!
//! Read `event.rs` (all inputs) and `effect.rs` (all outputs) first, then `object/decide.rs`, which is the protocol.

mod adopt;
mod bounds;
mod bundle;
pub mod canonical;
mod departed;
mod departures;
pub mod effect;
pub mod engine;
pub mod event;
mod fenced;
pub mod grants;
pub mod guard;
mod incarnations;
pub mod invariants;
mod justify;
mod limit;
mod mail;
mod names;
mod object;
mod peers;
pub mod record;
mod recover;
mod repeat;
mod report;
mod rest;
mod room;
pub mod route;
pub mod sim;
mod spec;
pub mod switch;
pub mod time;

#[cfg(test)]
mod departed_test;
#[cfg(test)]
mod departures_test;
#[cfg(test)]
mod fenced_test;
#[cfg(test)]
mod incarnations_test;
#[cfg(test)]
mod lapse_test;
#[cfg(test)]
mod peers_test;
#[cfg(test)]
mod record_test;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod wakeup_test;

pub use bundle::AnyBundle;
pub use effect::{Effects, Run};
pub use engine::{Engine, Faults};
pub use event::{Event, KnownAskers, Order};
pub use justify::Unjustified;
pub use record::{Durable, Record};
pub use recover::RestartInput;
pub use report::{ActiveObjects, Stops};
pub use time::Time;
