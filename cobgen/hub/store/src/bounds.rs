//! The bounds of all stores. They are those of etcd with its default settings, or less.

use std::time::Duration;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 1 << 10;
/// The longest value, in bytes.
pub const MAX_VALUE: usize = 1 << 20;
/// The most compares, and the most operations in each branch, of a transaction.
pub const MAX_OPS: usize = 128;
/// The most bytes of all keys and values of a transaction: below etcd's limit of 1.5 MiB for a request.
pub const MAX_TXN: usize = 1400 << 10;
/// The most entries that one range returns.
pub const MAX_RANGE: usize = 100_000;
/// The longest time of a lease.
pub const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 3600);
/// The most leases of an embedded store.
pub const MAX_LEASES: usize = 100_000;
/// The most bytes in an embedded store: keys and values, and [`ENTRY_COST`] for each entry.
pub const MAX_STORE: u64 = 200 << 20;
/// The bytes that each entry counts besides its key and value.
pub const ENTRY_COST: u64 = 96;
/// The most changes that an embedded store keeps for watches and for reads of earlier revisions.
pub const MAX_HISTORY: usize = 10_000;
/// The most bytes of these changes.
pub const MAX_HISTORY_BYTES: u64 = 32 << 20;
