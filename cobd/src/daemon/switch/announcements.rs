//! Announcements of other hosts (`Word`) that this host has not followed yet.
//!
//! Only the last announcement of each host is kept: a lying host hides no other announcement. A single one is followed
//! at a time: that reads the depot. A failed fetch is retried at growing intervals, also after a new announcement.

use std::collections::BTreeMap;

use cob_engine::Time;
use cob_engine::switch::Terms;
use cob_engine::time::Span;
use cob_types::{GenerationNumber, HostName};

use super::AGAIN;
use crate::generations::Wanted;

/// A fetch that takes longer does not block other fetches any more.
const LONGEST: Span = Span::secs(600);

/// The last announcement of each host.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    words: BTreeMap<HostName, Word>,
    /// The number of announcements so far.
    heard: u64,
    /// A fetch is running, and blocks other fetches until this time.
    fetching: Option<Time>,
}

#[derive(Debug, Clone)]
struct Word {
    /// By number and, if announced, by content: each of two contents under one number is tried separately.
    wanted: Wanted,
    terms: Terms,
    /// The serial number of the announcement, over all hosts.
    number: u64,
    /// When it is followed.
    at: Time,
    pause: Span,
    /// The fetch for this announcement has failed; `host_failed`: also for an earlier one of the host.
    failed: bool,
    host_failed: bool,
}

/// An announcement that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) by: HostName,
    pub(super) wanted: Wanted,
    pub(super) round: u32,
    /// No fetch for it, or for another announcement of its host, has failed before.
    pub(super) is_news: bool,
}

impl Announcements {
    /// Handles a host's announcement of a switch with its terms.
    pub(super) fn hear(&mut self, host: &HostName, wanted: Wanted, terms: Terms, now: Time) {
        let last = self.words.get(host);
        if last.is_some_and(|last| (last.wanted, last.terms.round) == (wanted, terms.round)) {
            return;
        }
        self.heard += 1;
        // Neither a further announcer nor a further announcement of the host causes a retry sooner.
        let same = self.words.values().find(|word| word.wanted == wanted && word.failed);
        let host_failed = last.is_some_and(|last| last.host_failed);
        let (at, pause) = match (same, last.filter(|_| host_failed)) {
            (Some(same), _) => (same.at, same.pause),
            (None, Some(last)) => (last.at.min(now + AGAIN[0]), AGAIN[0]),
            (None, None) => (now, AGAIN[0]),
        };
        let failed = same.is_some();
        let word = Word { wanted, terms, number: self.heard, at, pause, failed, host_failed };
        self.words.insert(host.clone(), word);
    }

    /// When the next announcement is due.
    pub(super) fn due(&self) -> Time {
        let first = self.words.values().map(|word| word.at).min();
        first.map_or(Time::NEVER, |first| first.max(self.fetching.unwrap_or_default()))
    }

    /// The announcement to follow now, if any is due: new announcements before failed ones, the newest generation
    /// first.
    pub(super) fn next(&self, now: Time) -> Option<Next> {
        if now < self.due() {
            return None;
        }
        let due = self.words.iter().filter(|(_, word)| word.at <= now);
        let (_, word) = due.min_by_key(|(_, word)| (word.failed, std::cmp::Reverse(word.wanted.generation)))?;
        let (by, Word { wanted, terms, host_failed, failed, .. }) = self.word_of(word.wanted)?;
        let is_news = !(*failed || *host_failed);
        Some(Next { by: by.clone(), wanted: *wanted, round: terms.round, is_news })
    }

    /// The fetch for the [next](Self::next) announcement has started.
    pub(super) fn fetches(&mut self, now: Time) {
        self.fetching = Some(now + LONGEST);
    }

    /// The fetch has ended.
    pub(super) fn fetched(&mut self) {
        self.fetching = None;
    }

    /// The fetch or the start of the switch has failed. Returns the first announcer after the first failure.
    pub(super) fn failed(&mut self, wanted: Wanted, now: Time) -> Option<HostName> {
        let first = self.word_of(wanted).filter(|(_, word)| !word.failed).map(|(by, _)| by.clone());
        for word in self.words.values_mut().filter(|word| word.wanted == wanted) {
            (word.failed, word.host_failed) = (true, true);
            word.at = now + word.pause;
            word.pause = word.pause.doubled(1, AGAIN[1]);
        }
        first
    }

    /// The host whose announcement this host follows to a generation, and the terms: the first announcer of the last
    /// attempt. An announcement by number alone may mean any content.
    pub(super) fn of(&self, wanted: Wanted) -> Option<(&HostName, Terms)> {
        let may_mean = |word: &Word| {
            let contents = (word.wanted.manifest, wanted.manifest);
            word.wanted.generation == wanted.generation && !matches!(contents, (Some(a), Some(b)) if a != b)
        };
        self.first(may_mean).map(|(host, word)| (host, word.terms))
    }

    fn word_of(&self, wanted: Wanted) -> Option<(&HostName, &Word)> {
        self.first(|word| word.wanted == wanted)
    }

    fn first(&self, which: impl Fn(&Word) -> bool) -> Option<(&HostName, &Word)> {
        let all = self.words.iter().filter(|(_, word)| which(word));
        all.min_by_key(|(_, word)| (std::cmp::Reverse(word.terms.round), word.number))
    }

    /// Forgets announcements. Returns whether there were any.
    pub(super) fn forget(&mut self, which: impl Fn(GenerationNumber) -> bool) -> bool {
        let all = self.words.len();
        self.words.retain(|_, word| !which(word.wanted.generation));
        self.words.len() < all
    }
}

#[cfg(test)]
mod tests {
    use cob_types::BlobHash;

    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a name")
    }

    fn hear(tellers: &mut Announcements, name: &str, generation: u64, now: u64) {
        tellers.hear(&host(name), number(generation), Terms::default(), at(now));
    }

    fn number(generation: u64) -> Wanted {
        GenerationNumber(generation).into()
    }

    fn at(seconds: u64) -> Time {
        Time(0) + Span::secs(seconds)
    }

    /// Follows the due announcement without success: returns its host and generation.
    fn tries(tellers: &mut Announcements, now: u64) -> Option<(String, u64)> {
        let next = tellers.next(at(now))?;
        tellers.fetches(at(now));
        assert_eq!((tellers.next(at(now)), tellers.due()), (None, at(now) + LONGEST), "a host at a time");
        tellers.fetched();
        tellers.failed(next.wanted, at(now));
        Some((next.by.to_string(), next.wanted.generation.0))
    }

    #[test]
    fn an_announcement_that_fails_hides_no_other() {
        let mut tellers = Announcements::default();
        hear(&mut tellers, "a0", u64::MAX, 0);
        assert_eq!(tries(&mut tellers, 0), Some(("a0".to_owned(), u64::MAX)));
        hear(&mut tellers, "n1", 2, 1);
        assert_eq!(tellers.next(at(1)).map(|next| (next.wanted.generation.0, next.is_news)), Some((2, true)));
        assert_eq!(tellers.of(number(2)), Some((&host("n1"), Terms::default())));
    }

    #[test]
    fn two_contents_of_the_same_number_are_tried_separately() {
        let mut tellers = Announcements::default();
        let one = |content: u8| Wanted { manifest: Some(BlobHash([content; 32])), ..number(5) };
        tellers.hear(&host("a0"), one(1), Terms::default(), at(0));
        assert_eq!(tries(&mut tellers, 0), Some(("a0".to_owned(), 5)));
        // The failure of the first content does not delay the other content.
        tellers.hear(&host("n1"), one(2), Terms { round: 1, ..Terms::default() }, at(0));
        assert_eq!(tellers.next(at(0)).map(|next| (next.by, next.wanted)), Some((host("n1"), one(2))));
        assert_eq!(tellers.of(one(1)), Some((&host("a0"), Terms::default())));
        assert_eq!(tellers.of(one(3)), None);
        tellers.hear(&host("n2"), number(5), Terms::default(), at(0));
        assert_eq!(tellers.of(one(3)), Some((&host("n2"), Terms::default())), "an older daemon says the number alone");
    }

    #[test]
    fn a_host_that_announces_unavailable_generations_is_tried_at_intervals() {
        let mut tellers = Announcements::default();
        let mut tried = 0;
        for second in 0..100 {
            for word in 0..1000 {
                hear(&mut tellers, "a0", 1_000_000 + second * 1000 + word, second);
            }
            tried += usize::from(tries(&mut tellers, second).is_some());
        }
        assert_eq!((tried, tellers.words.len()), (50, 1));
    }

    #[test]
    fn an_announcement_of_many_hosts_is_tried_with_growing_pauses() {
        let mut tellers = Announcements::default();
        for number in 0..1000 {
            hear(&mut tellers, &format!("n{number}"), 5, 0);
        }
        let mut tried = Vec::new();
        for second in 0..100 {
            hear(&mut tellers, &format!("m{second}"), 5, second);
            while tries(&mut tellers, second).is_some() {
                tried.push(second);
            }
        }
        assert_eq!(tried, [0, 2, 6, 14, 30, 60, 90]);
        assert_eq!(tellers.of(number(5)).map(|(by, _)| by.as_str()), Some("n0"), "the host that announced it first");
        assert!(tellers.forget(|g| g.0 <= 5) && !tellers.forget(|_| true) && tellers.due() == Time::NEVER);
    }

    #[test]
    fn the_newest_generation_comes_first_and_the_later_round_counts() {
        let mut tellers = Announcements::default();
        hear(&mut tellers, "n1", 5, 0);
        hear(&mut tellers, "n2", 6, 0);
        assert_eq!(tellers.next(at(0)).map(|next| next.wanted.generation.0), Some(6));
        let again = Terms { round: 1, ..Terms::default() };
        tellers.hear(&host("n3"), number(6), again, at(0));
        assert_eq!(tellers.of(number(6)), Some((&host("n3"), again)));
    }
}
