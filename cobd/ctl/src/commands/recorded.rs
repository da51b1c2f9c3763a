//! Statistics from histories: durations of recent runs.

use std::collections::{BTreeMap, VecDeque};

use cob_types::history::HistoryEntry;
use serde_json::Value;

/// A statistic over histories.
pub(super) trait Record: Default {
    /// Takes the next entry of a history.
    fn take(&mut self, entry: HistoryEntry);

    /// Ends a history. Further entries belong to another history: of the same hosts at another time, or of other hosts
    /// with the same names. Entries that both histories contain count once.
    fn end(&mut self);

    /// How many durations were left out because a clock was corrected during them.
    fn left_out(&self) -> usize;

    /// The lines that `cobgen plan --durations` reads.
    fn lines(&self) -> BTreeMap<String, Value>;
}

/// The nanoseconds between two moments; `None`: the clock was corrected meanwhile, back or by more than a year.
pub(super) fn took(began_ns: u64, ended_ns: u64) -> Option<u64> {
    const LONGEST: u64 = 365 * 24 * 3600 * 1_000_000_000;
    ended_ns.checked_sub(began_ns).filter(|ns| *ns <= LONGEST)
}

/// The latest of some values, each with a key; a repeated key replaces the earlier value.
#[derive(Debug)]
pub(super) struct Latest<K, T>(VecDeque<(K, T)>);

impl<K, T> Default for Latest<K, T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Eq, T> Latest<K, T> {
    /// Adds a value, and keeps at most `most` values.
    pub(super) fn add(&mut self, under: K, value: T, most: usize) {
        if let Some((_, noted)) = self.0.iter_mut().find(|(noted, _)| *noted == under) {
            *noted = value;
            return;
        }
        self.0.push_back((under, value));
        if self.0.len() > most {
            self.0.pop_front();
        }
    }

    /// The entries, the latest last.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, T)> {
        self.0.iter()
    }

    /// The values, the latest last.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }
}
