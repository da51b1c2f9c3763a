//! The latest changes: for watches, and for reads of earlier revisions.

use std::collections::{BTreeMap, VecDeque};

use crate::bounds::{ENTRY_COST, MAX_HISTORY, MAX_HISTORY_BYTES};
use crate::entry::{Change, Entry, Event, Key, Revision};
use crate::error::StoreError;
use crate::state::State;
use crate::txn::Query;

/// A change, and how to undo it.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    pub(crate) change: Change,
    /// The entries before the events.
    before: Vec<Option<Entry>>,
}

/// All changes since a revision.
#[derive(Debug)]
pub(crate) struct History {
    changes: VecDeque<Past>,
    bytes: u64,
    /// The oldest revision whose change is known.
    oldest: Revision,
}

impl Past {
    /// A change without events.
    pub(crate) fn new(revision: Revision) -> Self {
        Self { change: Change { revision, events: Vec::new() }, before: Vec::new() }
    }

    pub(crate) fn push(&mut self, event: Event, before: Option<Entry>) {
        self.change.events.push(event);
        self.before.push(before);
    }

    fn bytes(&self) -> u64 {
        let entry = |entry: &Entry| ENTRY_COST + (entry.key.as_bytes().len() + entry.value.len()) as u64;
        let event = |event: &Event| match event {
            Event::Put(put) => entry(put),
            Event::Deleted(key) => ENTRY_COST + key.as_bytes().len() as u64,
        };
        let before = self.before.iter().flatten().map(entry);
        before.chain(self.change.events.iter().map(event)).sum::<u64>() + ENTRY_COST
    }
}

impl History {
    /// No changes: those up to this revision are gone.
    pub(crate) fn after(revision: Revision) -> Self {
        Self { changes: VecDeque::new(), bytes: 0, oldest: revision.next() }
    }

    /// Adds the newest change.
    pub(crate) fn push(&mut self, past: Past) {
        if past.change.events.is_empty() {
            return;
        }
        self.bytes += past.bytes();
        self.changes.push_back(past);
        // The newest change stays, whatever its size: watches wait for it.
        while (self.changes.len() > MAX_HISTORY || self.bytes > MAX_HISTORY_BYTES) && self.changes.len() > 1 {
            if let Some(gone) = self.changes.pop_front() {
                self.bytes -= gone.bytes();
                self.oldest = gone.change.revision.next();
            }
        }
    }

    /// The changes from a revision on.
    ///
    /// # Errors
    /// [`StoreError::Compacted`].
    pub(crate) fn since(&self, from: Revision) -> Result<impl Iterator<Item = &Change>, StoreError> {
        if from < self.oldest {
            return Err(StoreError::Compacted { asked: from, oldest: self.oldest });
        }
        let first = self.changes.partition_point(|past| past.change.revision < from);
        Ok(self.changes.range(first..).map(|past| &past.change))
    }

    /// The entries at an earlier revision than that of the state.
    ///
    /// # Errors
    /// [`StoreError::Compacted`].
    pub(crate) fn read(&self, state: &State, query: &Query, at: Revision) -> Result<(Vec<Entry>, bool), StoreError> {
        if at.next() < self.oldest {
            return Err(StoreError::Compacted { asked: at, oldest: self.oldest });
        }
        let wanted = |key: &Key| query.prefix.matches(key) && query.after.as_ref().is_none_or(|after| key > after);
        let now = state.under(&query.prefix, query.after.as_ref());
        let mut then: BTreeMap<&Key, &Entry> = now.map(|entry| (&entry.key, entry)).collect();
        for past in self.changes.iter().rev().take_while(|past| past.change.revision > at) {
            for (event, before) in past.change.events.iter().zip(&past.before).rev() {
                match before {
                    _ if !wanted(event.key()) => None,
                    Some(before) => then.insert(event.key(), before),
                    None => then.remove(event.key()),
                };
            }
        }
        let entries: Vec<_> = then.values().take(query.limit).map(|entry| (*entry).clone()).collect();
        let more = then.len() > entries.len();
        Ok((entries, more))
    }
}
