//! The store of a hub: small values under ordered keys, in etcd's terms.
//!
//! A store has a [`Revision`] that grows by one with each change. A [`Txn`] compares entries, then reads and writes
//! others, all at one revision. A [`Watch`] tells all changes from a revision on, in order. A lease deletes its keys
//! when its owner stops to keep it alive.
//!
//! Two stores implement [`Store`]; one suite of tests (`tests/`) holds for both:
//!
//! - [`Embedded`]: for a single hub. One process owns a folder; the journal in it (`cob-journal`) is the truth, a map
//!   in memory answers. Concurrent writes share one `fdatasync`.
//! - [`Etcd`]: for several hubs, through etcd's JSON gateway.
//!
//! Rules, for each store:
//!
//! - **A change is durable before it is visible**: before its answer, before a read, before a watch.
//! - **Calls are linearizable**: a call that begins after another call has ended sees the effects of that call.
//! - **A failed write says which**: [`StoreError::Unknown`] may have happened, every other error has not.
//! - **All sizes have bounds**, which are the same for all stores ([`bounds`]).
//!
//! Keep small values only: contents, plans and logs belong elsewhere.
//!
//! ```text
//! lib (Store, Watch) ── txn, entry, error, bounds           the terms
//! embedded ── writer (group commit) ── state, history (pure) ── record (bytes in the journal)
//! etcd ── messages (JSON), http (members), watch (streams)
//! ```

pub mod bounds;
mod embedded;
mod entry;
mod error;
mod etcd;
mod history;
mod record;
mod state;
#[cfg(test)]
mod state_test;
mod txn;
mod writer;

use std::future::Future;
use std::time::Duration;

pub use embedded::{Embedded, EmbeddedWatch, Options};
pub use entry::{Change, Entry, Event, Key, LeaseId, Prefix, Revision};
pub use error::{OpenError, Refusal, StoreError};
pub use etcd::{Etcd, EtcdWatch};
pub use txn::{Compare, Op, Query, Range, Relation, Response, Test, Txn, TxnAnswer};

/// A lease as granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// The time that each [`Store::keep_alive`] gives it; a store may give more than was asked for.
    pub ttl: Duration,
}

/// A store. Clones share it.
pub trait Store: Clone + Send + Sync + 'static {
    /// A watch of this store.
    type Watch: Watch;

    /// The entry under a key.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn get(&self, key: &Key) -> impl Future<Output = Result<Option<Entry>, StoreError>> + Send;

    /// The entries under a prefix, in the order of their keys.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] and [`StoreError::Future`] for a revision that is not known.
    fn range(&self, query: &Query) -> impl Future<Output = Result<Range, StoreError>> + Send;

    /// Compares, then does one of two lists of operations, all at one revision.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] if the transaction may have happened; with every other error it has not happened.
    fn txn(&self, txn: Txn) -> impl Future<Output = Result<TxnAnswer, StoreError>> + Send;

    /// Watches a prefix: all changes of this revision and of later revisions, in order, each once.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] if changes since that revision are gone; the same error may come later, from
    /// [`Watch::next`].
    fn watch(&self, prefix: &Prefix, from: Revision) -> impl Future<Output = Result<Self::Watch, StoreError>> + Send;

    /// Grants a lease of at least this time, in whole seconds.
    ///
    /// # Errors
    /// As for [`Store::txn`].
    fn lease(&self, ttl: Duration) -> impl Future<Output = Result<Lease, StoreError>> + Send;

    /// Gives a lease its whole time again, from now on. Returns this time.
    ///
    /// # Errors
    /// [`StoreError::NoLease`] if the lease has lapsed or is revoked; its keys are then gone.
    fn keep_alive(&self, lease: LeaseId) -> impl Future<Output = Result<Duration, StoreError>> + Send;

    /// Ends a lease, and deletes its keys at one revision.
    ///
    /// # Errors
    /// [`StoreError::NoLease`] if it has ended before, otherwise as for [`Store::txn`].
    fn revoke(&self, lease: LeaseId) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The changes under a prefix.
pub trait Watch: Send + 'static {
    /// Waits for the next change; it has at least one event. A dropped call loses no change.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] if the reader is too far behind: read the range again, and watch from there.
    /// [`StoreError::Unavailable`] if the store is gone.
    fn next(&mut self) -> impl Future<Output = Result<Change, StoreError>> + Send;
}
