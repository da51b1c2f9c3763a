//! A cluster by script: which links are blocked, which actions fail, which daemons die, instead of random choices.
//! Tests write scripts (the feature `scripted`); faults of a switch are small scripts, too.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::{Batch, HostName, StateName};

use crate::time::{Span, Time};

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
    /// A transition whose next attempts fail.
    pub(super) fails: Option<FailingTransition>,
    /// A link that loses messages of a kind.
    pub(super) losing: Option<LosingLink>,
}

/// A transition whose next attempts fail.
#[derive(Debug, Clone)]
pub(super) struct FailingTransition {
    pub(super) thing: usize,
    pub(super) from: StateName,
    pub(super) to: StateName,
    /// How many attempts still fail.
    pub(super) times: u32,
    /// The state after a failure, if the kind names it.
    pub(super) becomes: Option<StateName>,
}

/// A link that loses messages of a kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct LosingLink {
    pub(super) from: usize,
    pub(super) to: usize,
    /// [`cob_types::Item::name`].
    pub(super) item: &'static str,
    pub(super) until: Time,
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

    /// Whether this attempt fails, and the state after it, if the kind names it.
    pub(super) fn fails(&mut self, thing: usize, from: &StateName, to: &StateName) -> Option<Option<StateName>> {
        let failing = self.fails.as_mut().filter(|f| (f.thing, &f.from, &f.to) == (thing, from, to) && f.times > 0)?;
        failing.times -= 1;
        Some(failing.becomes.clone())
    }

    /// Removes the messages that a link loses.
    pub(super) fn lose(&self, from: usize, to: usize, now: Time, batch: &mut Batch) {
        if let Some(losing) = &self.losing
            && (losing.from, losing.to) == (from, to)
            && now < losing.until
        {
            batch.items.retain(|item| item.name() != losing.item);
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
