//! The data types of COB, shared by all its programs.
//!
//! Plain values with checked constructors, and their forms on disk and on the wire. No I/O, no async, no decisions: the
//! protocol is in `cob-engine`, solving and assembling in `cobgen`, execution in `cobd`.
//!
//! Start with [`id`], [`kind`] and [`cob`]; then [`generation`] (published data) and [`message`] (messages between two
//! daemons) with [`link`] (their transport); [`status`] is for people.

pub mod api;
pub mod askers;
pub mod calendar;
pub mod canonical;
pub mod check_round;
pub mod cob;
pub mod codec;
pub mod command_run;
pub mod crontab;
pub mod facts;
pub mod generation;
pub mod groups;
pub mod history;
pub mod id;
pub mod kind;
pub mod link;
pub mod log;
pub mod maintenance;
pub mod manager_status;
pub mod message;
pub mod outcome;
mod outline;
pub mod packed;
pub mod past;
pub mod pipe;
pub mod remote;
pub mod schedule;
pub mod secret;
pub mod status;
pub mod suggest;
pub mod switch;
#[cfg(test)]
mod testing;
pub mod trust;
pub mod words;

pub use askers::Askers;
pub use cob::{Cob, LockNeeds, Need, TransitionNeeds};
pub use generation::{Bundle, Generation, Manifest};
pub use id::{BlobHash, CobId, GenerationId, GenerationNumber, HostName, IdError, KindName, StateName};
pub use kind::{Command, Kind, Transition};
pub use message::{Batch, Incarnation, Item, Number, Rank};
pub use packed::Packed;
pub use switch::SwitchOrder;
pub use trust::{PublicKey, Signature};
