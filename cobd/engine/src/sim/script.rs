//! A cluster by script: which links are blocked, which actions fail, which daemons die, instead of random choices.
//! Only tests write scripts (the feature `scripted`).

use std::collections::{BTreeMap, BTreeSet};

use cob_types::{Batch, HostName};

use crate::time::Span;

/// The deviations of a script from random choices.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    /// Blocked links, and the batches kept back on them.
    pub(super) held: BTreeMap<(usize, usize), Vec<Batch>>,
    /// The number of the next actions that fail, by thing.
    pub(super) failing: BTreeMap<usize, u32>,
    /// The duration of actions, by thing.
    pub(super) lasting: BTreeMap<usize, Span>,
    /// Hosts that restart only by script.
    pub(super) down: BTreeSet<usize>,
    /// Hosts among these that have lost power.
    pub(super) without_power: BTreeSet<usize>,
    /// A host whose daemon lies.
    pub(super) liar: Option<HostName>,
}

impl Script {
    pub(super) fn must_fail(&mut self, thing: usize) -> bool {
        match self.failing.get_mut(&thing) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn lasts(&self, thing: usize) -> Option<Span> {
        self.lasting.get(&thing).copied()
    }

    pub(super) fn liar(&self) -> Option<&HostName> {
        self.liar.as_ref()
    }

    pub(super) fn stays_down(&self, host: usize) -> bool {
        self.down.contains(&host)
    }

    pub(super) fn loses_power(&self, host: usize) -> bool {
        self.without_power.contains(&host)
    }

    /// Returns the batch, unless its link is blocked.
    pub(super) fn keep_back(&mut self, from: usize, to: usize, batch: Batch) -> Option<Batch> {
        match self.held.get_mut(&(from, to)) {
            Some(kept) => {
                kept.push(batch);
                None
            }
            None => Some(batch),
        }
    }
}
