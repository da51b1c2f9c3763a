//! What is summed up from histories: how long this or that took, the last times that it was done.

use std::collections::{BTreeMap, VecDeque};

use cob_types::history::HistoryEntry;
use serde_json::Value;

/// What is summed up from histories.
pub(super) trait Record: Default {
    /// Takes the next entry of a history.
    fn take(&mut self, entry: HistoryEntry);

    /// That history has ended. What comes is of another one: of the same hosts at another time, or of others that have
    /// the same names. What both have counts once.
    fn end(&mut self);

    /// How many times were left out because a clock was put right in them.
    fn left_out(&self) -> usize;

    /// What `cobgen plan --durations` reads.
    fn lines(&self) -> BTreeMap<String, Value>;
}

/// From one moment to another, in nanoseconds; none: the clock was put right between them, back or by more than a year.
pub(super) fn took(began_ns: u64, ended_ns: u64) -> Option<u64> {
    const LONGEST: u64 = 365 * 24 * 3600 * 1_000_000_000;
    ended_ns.checked_sub(began_ns).filter(|ns| *ns <= LONGEST)
}

/// The latest of some values, each with what it was noted under: what is noted twice is one, as it was noted last.
#[derive(Debug)]
pub(super) struct Latest<K, T>(VecDeque<(K, T)>);

impl<K, T> Default for Latest<K, T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Eq, T> Latest<K, T> {
    /// Keeps so many.
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

    /// The latest last.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, T)> {
        self.0.iter()
    }

    /// The latest last.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }
}
