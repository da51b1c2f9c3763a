//! The queue of simulated events: by time, then by insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Time;

#[derive(Clone)]
pub(super) struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    /// The number of insertions.
    order: u64,
}

#[derive(Clone)]
struct Entry<T> {
    at: Time,
    order: u64,
    what: T,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), order: 0 }
    }

    pub(super) fn push(&mut self, at: Time, what: T) {
        self.order += 1;
        self.heap.push(Reverse(Entry { at, order: self.order, what }));
    }

    pub(super) fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }

    /// The number of insertions so far.
    pub(super) fn order(&self) -> u64 {
        self.order
    }

    /// Changes the events that were inserted since then.
    pub(super) fn change_since(&mut self, order: u64, mut change: impl FnMut(&mut T)) {
        let mut all = std::mem::take(&mut self.heap).into_vec();
        all.iter_mut().filter(|entry| entry.0.order > order).for_each(|entry| change(&mut entry.0.what));
        self.heap = all.into();
    }

    pub(super) fn peek(&self) -> Option<(Time, &T)> {
        self.heap.peek().map(|Reverse(entry)| (entry.at, &entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl<T> Eq for Entry<T> {}
impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
