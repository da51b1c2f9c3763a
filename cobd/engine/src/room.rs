//! How much memory another host may occupy on this host.
//!
//! Names are never forgotten, and each change object that asks for a lock leaves an entry. Both are counted by host.
//! Items beyond a bound are dropped as if lost, and the sender may repeat the item. The bounds are far above the needs
//! of the largest supported host, with 100,000 change objects.

use crate::time::{Span, Time};

/// The most bytes of new names that a host may mention in a generation: six times 100,000 names of 40 letters.
#[cfg(not(test))]
pub(crate) const NAMES: usize = 64 << 20;
#[cfg(test)]
pub(crate) const NAMES: usize = 64 << 10;
/// The most pairs of an asking change object of a host and a local change object: 100,000 that ask ten each.
#[cfg(not(test))]
pub(crate) const PAIRS: usize = 1_000_000;
#[cfg(test)]
pub(crate) const PAIRS: usize = 1000;
/// The most stored requests of a host for change objects which this host does not have yet.
#[cfg(not(test))]
pub(crate) const EARLY: usize = 100_000;
#[cfg(test)]
pub(crate) const EARLY: usize = 100;
/// When all slots are taken, the shortest time between two recounts.
pub(crate) const COUNT: Span = Span::secs(10);

/// The memory that another host occupies here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    /// The size of the names in bytes.
    pub(crate) names: usize,
    /// Pairs of an asking change object of the host and a local change object.
    pub(crate) pairs: Places,
    /// Requests for change objects which this host does not have yet.
    pub(crate) early: Places,
}

/// An upper bound of the taken slots: some may be free again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Places {
    taken: usize,
    counted: Time,
}

impl Places {
    /// Whether a recount of the taken slots is due.
    pub(crate) fn is_doubtful(self, most: usize, now: Time) -> bool {
        self.taken >= most && self.counted + COUNT <= now
    }

    /// The number of slots that are taken now.
    pub(crate) fn recount(&mut self, taken: usize, now: Time) {
        *self = Self { taken, counted: now };
    }

    /// Takes a slot, if any is free.
    pub(crate) fn take(&mut self, most: usize) -> bool {
        let free = self.taken < most;
        self.taken += usize::from(free);
        free
    }
}
