//! The orders of operators that keep the change objects of a host from moving: a pause, a cancelled switch, a limit on
//! parallel transitions, and the numbers of tokens.
//!
//! The limit applies only where an action starts: checks, requests and grants go on. The limit cannot cause a deadlock:
//! a running action has held all its locks since before it began, waits for no change object, and ends by itself or by
//! its timeout. So no deadlock cycle contains a slot, and every slot becomes free (`at_most` is at least 1). A change
//! object that waits for a slot keeps its locks until a recall, as if paused, so it delays no change object that could
//! start first.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::{GenerationNumber, Rank};

use crate::names::CobRef;

/// The limits of a host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    /// By an operator, independent of a cancelled switch.
    pub(crate) paused: bool,
    /// The switch to this generation was cancelled: no transition starts.
    pub(crate) cancelled: Option<GenerationNumber>,
    pub(crate) starts: StartLimit,
    pub(crate) tokens: TokenLimits,
}

impl Limits {
    /// No transition starts.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused || self.cancelled.is_some()
    }
}

/// The numbers of tokens of budgets of this host, as operators have set these.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokenLimits {
    /// The most tokens.
    limited: BTreeMap<CobRef, u32>,
    /// The number of tokens until the next generation.
    raised: BTreeMap<CobRef, u32>,
}

impl TokenLimits {
    pub(crate) fn limited(&self) -> &BTreeMap<CobRef, u32> {
        &self.limited
    }

    pub(crate) fn raised(&self) -> &BTreeMap<CobRef, u32> {
        &self.raised
    }

    pub(crate) fn limit(&mut self, budget: CobRef, tokens: Option<u32>) {
        set(&mut self.limited, budget, tokens);
    }

    pub(crate) fn raise(&mut self, budget: CobRef, tokens: Option<u32>) {
        set(&mut self.raised, budget, tokens);
    }

    /// A new generation is active.
    pub(crate) fn forget_raised(&mut self) {
        self.raised.clear();
    }

    /// The number of tokens of a budget to which the model gives `at_most`.
    pub(crate) fn of(&self, budget: CobRef, at_most: u32) -> u32 {
        let limit = self.limited.get(&budget).copied().unwrap_or(u32::MAX);
        self.raised.get(&budget).copied().unwrap_or(at_most).min(limit)
    }
}

fn set(all: &mut BTreeMap<CobRef, u32>, budget: CobRef, tokens: Option<u32>) {
    match tokens {
        Some(tokens) => all.insert(budget, tokens),
        None => all.remove(&budget),
    };
}

/// The limit of a host, and the change objects that could start without it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StartLimit {
    /// The most actions at a time; `None`: there is no limit.
    at_most: Option<u32>,
    by_rank: BTreeSet<(Rank, CobRef)>,
    rank_of: BTreeMap<CobRef, Rank>,
}

impl StartLimit {
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

    /// Removes and returns the first waiting change object if there is a free slot beside the running actions. The
    /// change object itself checks whether it can still start.
    pub(crate) fn next(&mut self, acting: usize) -> Option<CobRef> {
        if self.at_most.is_some_and(|k| acting >= k as usize) {
            return None;
        }
        let (_, cob) = self.by_rank.pop_first()?;
        self.rank_of.remove(&cob);
        Some(cob)
    }
}

#[cfg(test)]
#[path = "limits_test.rs"]
mod tests;
