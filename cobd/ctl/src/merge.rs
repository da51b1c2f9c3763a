//! Merges the histories of many hosts: an entry comes after the entries on which it may depend.
//!
//! Entries of a host keep the order of its journal. Between hosts the Lamport number decides: an entry that depends on
//! another host's entry has the greater number. Ties are broken by clock, name and position. Each history comes in
//! pages, so that the merge holds no more entries than it needs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cob_types::HostName;
use cob_types::history::HistoryEntry;

/// The merge of some histories.
#[derive(Debug)]
pub struct Merge {
    sources: Vec<Source>,
    /// The first unread entry of every history with loaded entries.
    heads: BinaryHeap<Reverse<(Key, usize)>>,
}

type Key = (u64, u64, HostName, u64);

#[derive(Debug, Default)]
struct Source {
    at_hand: VecDeque<HistoryEntry>,
    ended: bool,
    /// The greatest Lamport number so far: a journal whose numbers went back still keeps its order.
    floor: u64,
}

impl Merge {
    /// A merge of this many histories, without entries so far.
    #[must_use]
    pub fn new(sources: usize) -> Self {
        Self { sources: (0..sources).map(|_| Source::default()).collect(), heads: BinaryHeap::new() }
    }

    /// The histories whose next page is needed before the merge can continue.
    #[must_use]
    pub fn wanted(&self) -> Vec<usize> {
        let wanted = |(at, s): (usize, &Source)| (s.at_hand.is_empty() && !s.ended).then_some(at);
        self.sources.iter().enumerate().filter_map(wanted).collect()
    }

    /// Adds the next page of a history; `more`: another page may follow.
    pub fn feed(&mut self, source: usize, page: Vec<HistoryEntry>, more: bool) {
        let Some(fed) = self.sources.get_mut(source) else { return };
        let had = !fed.at_hand.is_empty();
        fed.at_hand.extend(page);
        fed.ended = !more;
        if !had {
            self.lift(source);
        }
    }

    /// The next entry; `None`: pages are missing, or all entries have been returned.
    pub fn next_entry(&mut self) -> Option<HistoryEntry> {
        if self.sources.iter().any(|s| s.at_hand.is_empty() && !s.ended) {
            return None;
        }
        let Reverse((_, at)) = self.heads.pop()?;
        let entry = self.sources.get_mut(at)?.at_hand.pop_front();
        self.lift(at);
        entry
    }

    /// Adds the first loaded entry of a history to the heads.
    fn lift(&mut self, at: usize) {
        if let Some(source) = self.sources.get_mut(at)
            && let Some(head) = source.at_hand.front()
        {
            source.floor = source.floor.max(head.lamport);
            self.heads.push(Reverse(((source.floor, head.ts_ns, head.host.clone(), head.seq), at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::entry;

    fn merged(pages: Vec<Vec<HistoryEntry>>) -> Vec<(String, u64)> {
        let mut merge = Merge::new(pages.len());
        for (at, page) in pages.into_iter().enumerate() {
            merge.feed(at, page, false);
        }
        std::iter::from_fn(|| merge.next_entry()).map(|e| (e.host.to_string(), e.seq)).collect()
    }

    fn told(all: &[(&str, u64)]) -> Vec<(String, u64)> {
        all.iter().map(|(host, seq)| ((*host).to_owned(), *seq)).collect()
    }

    #[test]
    fn lamport_numbers_come_before_clocks_and_names() {
        let n1 = vec![entry("n1", 1, 5, 900), entry("n1", 2, 7, 100)];
        let n2 = vec![entry("n2", 1, 6, 1), entry("n2", 2, 7, 50)];
        let n3 = vec![entry("n3", 1, 7, 50)];
        assert_eq!(merged(vec![n3, n2, n1]), told(&[("n1", 1), ("n2", 1), ("n2", 2), ("n3", 1), ("n1", 2)]));
    }

    #[test]
    fn a_merge_keeps_the_order_of_each_journal() {
        let n1 = vec![entry("n1", 1, 9, 900), entry("n1", 2, 3, 100), entry("n1", 3, 10, 0)];
        let n2 = vec![entry("n2", 1, 4, 500), entry("n2", 2, 9, 950)];
        assert_eq!(merged(vec![n1, n2]), told(&[("n2", 1), ("n1", 1), ("n1", 2), ("n2", 2), ("n1", 3)]));
    }

    #[test]
    fn a_merge_waits_while_an_earlier_entry_may_still_come() {
        let mut merge = Merge::new(2);
        assert_eq!(merge.wanted(), [0, 1]);
        merge.feed(0, vec![entry("n1", 1, 1, 1)], true);
        assert_eq!((merge.next_entry(), merge.wanted()), (None, vec![1]));
        merge.feed(1, vec![], false);
        assert_eq!(merge.next_entry().map(|e| e.seq), Some(1));
        assert_eq!((merge.next_entry(), merge.wanted()), (None, vec![0]));
        merge.feed(0, vec![], false);
        assert_eq!((merge.next_entry(), merge.wanted()), (None, vec![]));
    }
}
