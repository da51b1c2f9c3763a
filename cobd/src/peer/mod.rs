//! Links to other hosts: a link between each two daemons carries the engine's batches.
//!
//! The daemon's loop gives batches to the [`Links`] and reads [`LinkEvent`]s; it never waits for a peer. This module
//! does not know the content of a batch.
//!
//! ```text
//! daemon --- send --> session (numbers, window, outbox)
//!    ^                   | link: frames, acknowledgements, heartbeats
//!    |                   v
//!  events            wire: DEALER <-- Unix socket --> relay + guard <-- TCP --> the other host
//! ```
//!
//! `session` and `guard` are free of input and output and hold all rules about numbers and bytes; `link` runs a link,
//! `keeper` maintains the link of a peer, `door` is the listening port.
//!
//! In a model with identities the connection is TLS 1.3, in which each side proves a key that the signed manifest
//! names: the key identifies the host. In a model without identities, the daemon uses loopback addresses only.
//!
//! Rules: every queue is bounded; a connection without a proved key costs little (`cob_trust::pending`); a host's bytes
//! can close only its own link and have no effect on other links; a closed link is built again, and unacknowledged
//! batches are sent again; a link whose key is revoked is closed at once.

mod config;
mod event;
mod roster;

mod admission;
mod dial;
mod gate;
mod link;
mod link_supervisor;
mod links;
mod listener;
mod listeners;
mod peer_state;
mod session;

mod guard;
mod relay;
mod socket_dir;
mod wire;

mod quiet;
mod refusals;
mod task;

pub use cob_trust::pending::{PendingLimits, Rate};
pub use config::{Limits, LinkConfig, LinkError};
pub use event::{Counters, HttpStream, LinkEvent};
pub use links::Links;
pub(crate) use quiet::{Quiet, Topic};
pub(crate) use refusals::{Reason, Refusals};
pub use roster::{Protection, Roster, RosterHost};

#[cfg(test)]
mod hostile_test;
#[cfg(test)]
mod links_test;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tls_test;
