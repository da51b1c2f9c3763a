//! The operator's limit on parallel transitions of a host, and which transition starts next under it.
//!
//! The limit applies only where an action starts: checks, requests and grants go on. The limit cannot cause a deadlock:
//! a running action has held all its locks since before it began, waits for no change object, and ends by itself or by
//! its timeout. So no deadlock cycle contains a slot, and every slot becomes free (`at_most` is at least 1). A change
//! object that waits for a slot keeps its locks until a recall, as if paused, so it delays no change object that could
//! start first.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::Rank;

use crate::names::CobRef;

/// The limit of a host, and the change objects that could start without it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limit {
    /// The most actions at a time; `None`: there is no limit.
    at_most: Option<u32>,
    /// The number of running actions.
    pub(crate) acting: usize,
    by_rank: BTreeSet<(Rank, CobRef)>,
    rank_of: BTreeMap<CobRef, Rank>,
}

impl Limit {
    /// Sets the limit. The caller lets all change objects decide again afterwards.
    pub(crate) fn set(&mut self, at_most: Option<u32>) {
        self.at_most = at_most.map(|k| k.max(1));
        self.by_rank.clear();
        self.rank_of.clear();
    }

    pub(crate) fn at_most(&self) -> Option<u32> {
        self.at_most
    }

    /// Queues a change object that could start, ordered by the rank of its goal and then by its `CobRef`.
    pub(crate) fn wait(&mut self, cob: CobRef, rank: Rank) {
        if let Some(old) = self.rank_of.insert(cob, rank) {
            self.by_rank.remove(&(old, cob));
        }
        self.by_rank.insert((rank, cob));
    }

    /// Removes and returns the first waiting change object if there is a free slot. The change object itself checks
    /// whether it can still start.
    pub(crate) fn next(&mut self) -> Option<CobRef> {
        if self.at_most.is_some_and(|k| self.acting >= k as usize) {
            return None;
        }
        let (_, cob) = self.by_rank.pop_first()?;
        self.rank_of.remove(&cob);
        Some(cob)
    }
}

#[cfg(test)]
#[path = "limit_test.rs"]
mod tests;
