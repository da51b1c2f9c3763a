//! Kinds: the code that checks change objects and carries out their transitions.
//!
//! The engine orders a check or a transition from one state to another. [`Kinds`] finds the back end that the kind
//! names, starts the work that the back end describes, and reports the end through a channel. State locks and retries
//! are decided elsewhere.
//!
//! ```text
//!   Kinds ── check/transition ──> Backend ──> Work::Process  a command, run by `run`, outlives the daemon
//!     |                                  └──> Work::Inside   a future, dies with the daemon
//!     └──────── JobEnded ──> the daemon's loop
//! ```
//!
//! Rules: a check never changes the host. A transition is idempotent: executed twice, it ends as if executed once. The
//! contents of kinds are defined in [`cob_kinds`].

mod backend;
mod budget;
mod command;
pub(crate) mod container;
pub mod contract;
mod departure;
mod exec;
mod exec_departure;
mod file_tree;
mod gate;
mod ha_set;
mod http_check;
mod jobs;
mod kept;
mod known;
pub(crate) mod native;
mod noop;
mod package;
pub(crate) mod plugin;
mod pool;
mod queries;
mod registry;
mod saved;
pub(crate) mod service;
mod settings;
mod systemd;
mod tcp_check;
#[cfg(test)]
mod testing;
mod wait;

pub use backend::{Backend, CheckOutcome, Context, Import, Outcome, Process, Tools, TransitionAttempt, Work};
pub(crate) use backend::{file_name, make_folder};
pub use departure::{ATTEMPTS as DEPARTURE_ATTEMPTS, Departure, Progress};
pub(crate) use file_tree::missing_store;
pub use jobs::{FoundAction, JobEnd, JobEnded, JobHandle, KindError, Kinds, Label};
pub use queries::FilesQuery;
pub(crate) use service::{RunAs, words_as};
pub(crate) use settings::configures_interfaces;
