//! Why a store refuses or fails.

use std::time::Duration;

use cob_journal::JournalError;

use crate::bounds::{MAX_KEY, MAX_LEASES, MAX_OPS, MAX_RANGE, MAX_STORE, MAX_TTL, MAX_TXN, MAX_VALUE};
use crate::entry::{Key, LeaseId, Revision};

/// Why a call did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The request is outside the bounds or contradicts itself.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store no longer knows this revision.
    #[error("revision {asked} is gone, and each before {oldest}: read again, and watch from there")]
    Compacted {
        /// The revision of the request.
        asked: Revision,
        /// No revision before this revision can be watched.
        oldest: Revision,
    },
    /// The store has not reached this revision.
    #[error("revision {asked} does not exist yet, the newest revision is {newest}")]
    Future {
        /// The revision of the request.
        asked: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The lease has lapsed, was revoked, or never existed.
    #[error("there is no lease {0}: it has lapsed or was revoked")]
    NoLease(LeaseId),
    /// No room for the write; it has not happened.
    #[error("the store is full ({because}): delete entries")]
    Full {
        /// The bound.
        because: String,
    },
    /// The store can't answer; a write has not happened.
    #[error("the store did not do it: {because}")]
    Unavailable {
        /// The cause.
        because: String,
    },
    /// A write may have happened: read again before the next step.
    #[error("the store may or may not have done it: {because}")]
    Unknown {
        /// The cause.
        because: String,
    },
}

impl StoreError {
    pub(crate) fn unavailable(because: impl ToString) -> Self {
        Self::Unavailable { because: because.to_string() }
    }

    pub(crate) fn unknown(because: impl ToString) -> Self {
        Self::Unknown { because: because.to_string() }
    }
}

/// Why a request is refused before anything is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A key is empty or too long.
    #[error("a key of {len} bytes; it has 1 to {MAX_KEY}")]
    Key {
        /// Its length.
        len: usize,
    },
    /// A value is too long.
    #[error("a value of {len} bytes for {key}; at most {MAX_VALUE} are stored")]
    Value {
        /// Its key.
        key: Key,
        /// Its length.
        len: usize,
    },
    /// A transaction has too many parts.
    #[error("a list of {len} in a transaction; at most {MAX_OPS} compares, and as many operations in a branch")]
    Ops {
        /// The length of its longest list.
        len: usize,
    },
    /// A transaction has too many bytes.
    #[error("a transaction of {len} bytes; at most {MAX_TXN} are done together")]
    Txn {
        /// The bytes of all its keys and values.
        len: usize,
    },
    /// A branch of a transaction writes a key twice.
    #[error("a transaction writes {0} twice")]
    Twice(Key),
    /// A range asks for no entry or for too many.
    #[error("a range of {0} entries; it has 1 to {MAX_RANGE}")]
    Limit(usize),
    /// A lease is too short or too long.
    #[error("a lease of {0:?}; it has 1 second to {MAX_TTL:?}")]
    Ttl(Duration),
    /// There are too many leases.
    #[error("there are {MAX_LEASES} leases already")]
    Leases,
    /// The address of a member of etcd.
    #[error("{0:?} is no address of etcd: give each as http://HOST:PORT, and at least one")]
    Member(String),
    /// A watch has no first revision.
    #[error("a watch begins at revision 1 or later")]
    Zero,
}

/// Why an embedded store does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The journal. A damaged journal names the place and the remedy.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record of the journal has a meaning that this program does not know.
    #[error(
        "the store's journal record {seq} is not understood ({what}): start the program that wrote it, or restore the \
         folder from a copy"
    )]
    Record {
        /// Its number.
        seq: u64,
        /// The fault.
        what: String,
    },
    /// The system has no thread, or the caller has no tokio runtime.
    #[error("the store's thread can't start: {0}")]
    Thread(String),
}

const _: () = assert!(MAX_STORE < cob_journal::MAX_PAYLOAD as u64, "a snapshot fits into a record of the journal");
