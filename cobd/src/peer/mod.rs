//! Links to other hosts: one between two daemons, carrying the engine's batches.
//!
//! The daemon's loop gives batches to a [`Transport`] and reads [`LinkEvent`]s; it never waits for a
//! peer. What is in a batch is not known here.
//!
//! ```text
//! daemon --- send --> session (numbers, window, outbox)
//!    ^                   | link: frames, acknowledgements, heartbeats
//!    |                   v
//!  events            wire: DEALER <-- Unix socket --> relay + guard <-- TCP --> the other host
//! ```
//!
//! `session` and `guard` are free of input and output and hold all rules about numbers and bytes;
//! `link` runs one link, `keeper` sees to it that a peer has one, `door` is the listening port.
//!
//! In a model with identities the connection is TLS 1.3, in which each side proves a key that the
//! signed manifest names: the key says which host it is. In one without, only loopback addresses are
//! spoken to.
//!
//! Rules: every queue is bounded; a connection without a proved key costs little
//! (`cob_trust::pending`); what a host sends can cut
//! its own link and touch nothing else; a link that is cut is built again, and what was not
//! acknowledged is sent again; a link whose key is revoked is cut at once.

mod config;
mod event;
mod roster;
mod transport;

mod admission;
mod dial;
mod door;
mod doors;
mod gate;
mod keeper;
mod link;
mod links;
mod peer_state;
mod session;

mod guard;
mod relay;
mod socket_dir;
mod wire;

mod quiet;
mod refusals;
mod task;

pub mod memory;

pub use cob_trust::pending::{PendingLimits, Rate};
pub use config::{Limits, LinkConfig, LinkError};
pub use event::{Counters, HttpStream, LinkEvent};
pub use links::Links;
pub(crate) use quiet::{Quiet, Topic};
pub(crate) use refusals::{Reason, Refusals};
pub use roster::{Protection, Roster, RosterHost};
pub use transport::Transport;

#[cfg(test)]
mod hostile_test;
#[cfg(test)]
mod links_test;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tls_test;
