//! Job locks: which job may use which entity (a cluster, a machine, a template) at a time, shared or exclusively.
//!
//! Job locks are not the state locks between change objects: those are granted by hosts, without a centre. Job locks
//! belong to the jobs of a hub and live in the hub's store.
//!
//! The semantics are those of Ganeti's lock daemon (WConfD):
//!
//! - All locks have a linear order, and an owner takes them in this order ([`Lock`]). Groups imply their members.
//! - An update is granted whole or refused whole; a refusal names exactly the owners that block it ([`Refused`]).
//! - A request that is blocked may wait, with a priority; waiting gives an owner nothing and takes nothing from it.
//! - A repeated call has no further effect, so a client that lost an answer sends its call again.
//!
//! Two defects of the original are absent:
//!
//! - **Starvation**: a waiting request that others have overtaken [`Patience`] times is reserved. From then on nobody
//!   takes a lock that conflicts with it, except owners for which the request itself waits.
//! - **Upgrade deadlocks**: a request that would wait for itself through other waiting requests is refused with the
//!   circle of owners ([`Refused::Deadlock`]).
//!
//! The crate is pure: an operation changes a value and returns the owners to notify. The caller makes the state durable
//! ([`Locks::state`]) before it answers or notifies, and calls [`Locks::release_all`] for an owner that has died.
//!
//! ```text
//! lib ── locks (operations) ── requests (waiting, order of waking) ── table (held locks, conflicts) ── lock (names)
//! ```

mod lock;
mod locks;
mod requests;
mod table;

#[cfg(test)]
mod brute;
#[cfg(test)]
mod sequences_test;

pub use lock::{Blockers, Lock, Mode, Refused, Target};
pub use locks::{Locks, Outcome};
pub use requests::{Patience, Pending, Priority};
pub use table::{Corrupt, State, Table};
