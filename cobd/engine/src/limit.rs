//! At most so many transitions at a time on a host: an operator's limit, and who starts next under it.
//!
//! The limit is applied where an action starts, and nowhere else: checks, requests and promises go on. It can't
//! bring anything to a stand: an action that runs holds all the locks that it needs since before it began, waits
//! for nobody, and ends by itself or by its timeout. So whoever waits for a place waits for actions alone, and
//! these for nothing: no circle of waiters passes through here, and with a limit of one or more every place is
//! free again some day. What waits for a place keeps its locks and gives them back when asked, as one that is
//! paused does, so that nobody waits for it who could go before it.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::Rank;

use crate::names::CobRef;

/// The limit of a host, and those who could start but for it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limit {
    /// None: there is no limit.
    at_most: Option<u32>,
    /// Actions that run.
    pub(crate) acting: usize,
    by_rank: BTreeSet<(Rank, CobRef)>,
    rank_of: BTreeMap<CobRef, Rank>,
}

impl Limit {
    /// At most so many from now on. Everybody is to decide anew afterwards.
    pub(crate) fn set(&mut self, at_most: Option<u32>) {
        self.at_most = at_most.map(|k| k.max(1));
        self.by_rank.clear();
        self.rank_of.clear();
    }

    pub(crate) fn at_most(&self) -> Option<u32> {
        self.at_most
    }

    /// Notes one that could start: by the rank of its goal, and one of a rank by its name.
    pub(crate) fn wait(&mut self, cob: CobRef, rank: Rank) {
        if let Some(old) = self.rank_of.insert(cob, rank) {
            self.by_rank.remove(&(old, cob));
        }
        self.by_rank.insert((rank, cob));
    }

    /// The first of those who wait, if there is a place. Whether it can still start it finds out itself.
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
