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
//!          engine.rs  routes: local change objects by direct call, others by engine/peers.rs
//!             |  object/  one change object: asking side, granting side, target, activity
//!             |  engine/  switching, departures, absent objects, recovery, reports
//!                                   |  effects
//!                                   v
//!               1 persist records      2 send items       3 run checks and actions
//! ```
//!
//! Read `event.rs` (all inputs) and `effect.rs` (all outputs) first, then `object/decide.rs`, which is the protocol.

mod absent;
mod bundle;
#[cfg(feature = "explored")]
#[path = "../tests/explored/form.rs"]
pub mod canonical;
mod departures;
pub mod effect;
pub mod engine;
pub mod event;
mod faults;
pub mod grants;
pub mod guard;
mod justification;
mod limits;
mod mail;
mod names;
pub mod no_exit_state;
mod object;
mod objects;
mod output;
mod peers;
pub mod record;
mod repeat;
pub mod route;
pub mod sim;
mod spec;
pub mod switch;
pub mod time;
mod timers;

#[cfg(test)]
mod departed_test;
#[cfg(test)]
mod departures_test;
#[cfg(test)]
mod fenced_test;
#[cfg(test)]
mod invalidated_test;
#[cfg(test)]
mod peers_test;
#[cfg(test)]
mod record_test;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod wakeup_test;

pub use effect::{Effects, Run};
pub use engine::{ActiveObjects, Engine, RestartInput, Stops, invariants};
pub use event::{Event, KnownAskers, Order};
pub use faults::Faults;
pub use justification::Unjustified;
pub use record::{Durable, Record};
pub use time::Time;
