//! `cobctl durations --transitions`: the durations of every transition, and of messages between hosts, each with its
//! spread, in the form that `cobgen plan --from --durations` reads.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use cob_types::history::{HistoryEntry, HistoryEvent, LockEvent};
use cob_types::past::{RecordedTransition, Running};
use cob_types::{CobId, HostName, StateName};
use serde_json::{Value, json};

use super::recorded::{Latest, Record, took};

/// How many recent runs of each transition of a change object count.
const LAST: usize = 50;
/// A first check that comes later than this after an activation has another cause.
const CHECK_NS: u64 = 60_000_000_000;

/// The durations of transitions in the histories, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    /// By change object and transition; each duration is identified by the time of its end.
    times: BTreeMap<(CobId, String), Latest<u64, u64>>,
    /// From the first host to the second.
    messages: BTreeMap<(HostName, HostName), Latest<Taken, u64>>,
    history: Reading,
    left_out: usize,
}

/// The state of reading a history.
#[derive(Debug, Default)]
struct Reading {
    running: Running,
    activated: BTreeMap<HostName, Activated>,
    /// The change objects with a recorded check.
    known: BTreeSet<CobId>,
    messages: Messages,
}

/// The last activation of a host.
#[derive(Debug, Default)]
struct Activated {
    /// `None`: the history does not contain it.
    at: Option<u64>,
    /// The change objects with a check, transition or drift since: a later check has another cause.
    looked: BTreeSet<CobId>,
}

impl Record for Transitions {
    fn take(&mut self, entry: HistoryEntry) {
        let history = &mut self.history;
        history.messages.take(&entry);
        let ts_ns = entry.ts_ns;
        if let Some(RecordedTransition { cob, from, to, began_ns }) = history.running.take(&entry) {
            // The next step starts when the daemon learns of the end.
            match took(began_ns, entry.heard_ns.unwrap_or(ts_ns)) {
                Some(ns) => {
                    let times = self.times.entry((cob, format!("{from}>{to}"))).or_default();
                    times.add(ts_ns, ns / 1000, LAST);
                }
                None => self.left_out += 1,
            }
        }
        let host = entry.host.clone();
        match (entry.happened(), &entry.to) {
            (HistoryEvent::Activate, _) => {
                _ = history.activated.insert(host, Activated { at: Some(ts_ns), ..Activated::default() })
            }
            (HistoryEvent::Start(cob) | HistoryEvent::Drift(cob), _) => {
                history.activated.entry(host).or_default().looked.insert(cob.clone());
            }
            (HistoryEvent::Check(cob), Some(found)) => {
                // An activation checks only new change objects, and those with changed content.
                let due = *found == StateName::OUTDATED || !history.known.contains(cob);
                let activated = history.activated.entry(host).or_default();
                let since = activated.at.and_then(|at| took(at, ts_ns));
                let first = activated.looked.insert(cob.clone());
                history.known.insert(cob.clone());
                if let Some(since) = since.filter(|since| due && first && *since <= CHECK_NS) {
                    self.times.entry((cob.clone(), "check".to_owned())).or_default().add(ts_ns, since / 1000, LAST);
                }
            }
            _ => {}
        }
    }

    fn end(&mut self) {
        // Only a complete history shows the differences between the clocks of its hosts.
        for (way, times) in mem::take(&mut self.history).messages.times() {
            let latest = self.messages.entry(way).or_default();
            times.into_iter().for_each(|(taken, us)| latest.add(taken, us, LAST));
        }
    }

    fn left_out(&self) -> usize {
        self.left_out
    }

    /// `HOST/NAME FROM>TO`, for names on several hosts `*/NAME FROM>TO`, and `message`.
    fn lines(&self) -> BTreeMap<String, Value> {
        let mut alike: BTreeMap<(&str, &str), (usize, Vec<u64>)> = BTreeMap::new();
        let mut lines = BTreeMap::new();
        for ((cob, what), times) in &self.times {
            let (hosts, all) = alike.entry((cob.name(), what)).or_default();
            *hosts += 1;
            all.extend(times.values());
            lines.insert(format!("{cob} {what}"), summed(times.values().copied().collect()));
        }
        let alike = alike.into_iter().filter(|(_, (hosts, _))| *hosts > 1);
        lines.extend(alike.map(|((name, what), (_, all))| (format!("*/{name} {what}"), summed(all))));
        let messages: Vec<u64> = self.messages.values().flat_map(Latest::values).copied().collect();
        if !messages.is_empty() {
            lines.insert("message".to_owned(), summed(messages));
        }
        lines
    }
}

/// The time to record a lock message and deliver it to another host.
///
/// Both hosts record the time of sending or receiving, each by its own clock. Between two hosts some messages go in one
/// direction (grants), some in the other (releases). A clock difference makes the messages of one direction seem longer
/// and of the other shorter: half the difference of their medians is subtracted again.
#[derive(Debug, Default)]
struct Messages {
    /// The time when the last message of this type, from the first change object to the second, was sent.
    sent: BTreeMap<(Word, CobId, CobId), u64>,
    /// By sender and receiver.
    took: BTreeMap<(HostName, HostName), Latest<Taken, i64>>,
}

/// The time of receipt, the sender and the receiver of a message.
type Taken = (u64, CobId, CobId);

/// A message that both hosts record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Grant,
    Release,
}

impl Messages {
    fn take(&mut self, entry: &HistoryEntry) {
        let HistoryEvent::Lock(event, cob, other) = entry.happened() else { return };
        let Some(other) = CobId::new(other).ok().filter(|other| other.host_str() != cob.host_str()) else { return };
        match event {
            LockEvent::Grant => self.sent(Word::Grant, cob, other, entry.ts_ns),
            LockEvent::Hold => self.taken(Word::Grant, cob, other, entry.ts_ns),
            LockEvent::Release => self.sent(Word::Release, cob, other, entry.ts_ns),
            LockEvent::Returned => self.taken(Word::Release, cob, other, entry.ts_ns),
            LockEvent::Request => {}
        }
    }

    fn sent(&mut self, word: Word, by: &CobId, to: CobId, at: u64) {
        self.sent.insert((word, by.clone(), to), at);
    }

    fn taken(&mut self, word: Word, by: &CobId, of: CobId, at: u64) {
        let way = (of.host(), by.host());
        if let Some(sent) = self.sent.remove(&(word, of.clone(), by.clone())) {
            let Ok(ns) = i64::try_from(i128::from(at) - i128::from(sent)) else { return };
            let us = ns / 1000;
            self.took.entry(way).or_default().add((at, of, by.clone()), us, LAST);
        }
    }

    /// The messages, and their durations in microseconds: of all pairs of hosts with messages in both directions.
    fn times(&self) -> BTreeMap<(HostName, HostName), Vec<(Taken, u64)>> {
        let median = |times: &Latest<Taken, i64>| {
            let mut times: Vec<i64> = times.values().copied().collect();
            times.sort_unstable();
            let (low, high) = middle(&times);
            low.midpoint(high)
        };
        let mut all = BTreeMap::new();
        for (way, there) in &self.took {
            let Some(back) = self.took.get(&(way.1.clone(), way.0.clone())) else { continue };
            let ahead = (median(there) - median(back)) / 2;
            let times = there.iter().filter_map(|(taken, us)| Some((taken.clone(), u64::try_from(us - ahead).ok()?)));
            all.insert(way.clone(), times.collect());
        }
        all
    }
}

/// The two middle values, whose mean is the median; of an odd number they are the same.
fn middle<T: Copy + Default>(sorted: &[T]) -> (T, T) {
    let at = |n: usize| sorted.get(n).copied().unwrap_or_default();
    (at(sorted.len().saturating_sub(1) / 2), at(sorted.len() / 2))
}

/// The minimum, the median and the 90th percentile.
fn summed(mut times: Vec<u64>) -> Value {
    times.sort_unstable();
    let at = |n: usize| times.get(n).copied().unwrap_or(0);
    let (low, high) = middle(&times);
    let median = low.midpoint(high);
    let p90 = at((times.len() * 9).div_ceil(10) - 1);
    let us = |us: u64| format!("{us}us");
    json!({"min": us(at(0)), "median": us(median), "p90": us(p90), "runs": times.len()})
}

#[cfg(test)]
mod tests {
    use cob_forecast::Durations;

    use super::*;
    use crate::testing::{entry, id, state, with_facts};

    /// The lines from a single history.
    fn lines(t: &mut Transitions) -> BTreeMap<String, Value> {
        t.end();
        t.lines()
    }

    const SECOND: u64 = 1_000_000_000;

    fn told(t: &mut Transitions, cob: &str, event: &str, transition: (&str, &str), at: u64, ok: Option<bool>) {
        let base = entry(id(cob).host_str(), 1, 1, at);
        let from = (!transition.0.is_empty()).then(|| state(transition.0));
        t.take(HistoryEntry {
            cob: Some(id(cob)),
            event: event.to_owned(),
            from,
            to: Some(state(transition.1)),
            ok,
            ..base
        });
    }

    #[test]
    fn the_summary_of_successful_transitions_can_be_read_back() {
        let mut t = Transitions::default();
        for (n, ms) in [300, 100, 200, 900].into_iter().enumerate() {
            let at = n as u64 * 10 * SECOND;
            told(&mut t, "n1/db", "start", ("down", "up"), at, None);
            told(&mut t, "n1/db", "end", ("down", "up"), at + ms * 1_000_000, Some(true));
        }
        told(&mut t, "n2/db", "start", ("down", "up"), 0, None);
        told(&mut t, "n2/db", "end", ("down", "up"), SECOND, Some(false));
        told(&mut t, "n2/db", "start", ("down", "up"), 0, None);
        told(&mut t, "n2/db", "end", ("down", "up"), 2 * SECOND, Some(true));
        let text = serde_json::to_string(&lines(&mut t)).expect("JSON");
        let expected = "{\"*/db down>up\":{\"median\":\"300000us\",\"min\":\"100000us\",\"p90\":\"2000000us\",\"runs\":5},\
            \"n1/db down>up\":{\"median\":\"250000us\",\"min\":\"100000us\",\"p90\":\"900000us\",\"runs\":4},\
            \"n2/db down>up\":{\"median\":\"2000000us\",\"min\":\"2000000us\",\"p90\":\"2000000us\",\"runs\":1}}";
        assert_eq!(text, expected);
        Durations::of_text(&text).expect("`cobgen plan` reads it");
    }

    #[test]
    fn a_transition_lasts_until_the_daemon_learns_of_its_end() {
        let mut t = Transitions::default();
        told(&mut t, "n1/db", "start", ("down", "up"), SECOND, None);
        let end = HistoryEntry { heard_ns: Some(3 * SECOND), ..entry("n1", 1, 1, 2 * SECOND) };
        let transition = (Some(state("down")), Some(state("up")));
        t.take(HistoryEntry {
            cob: Some(id("n1/db")),
            event: "end".to_owned(),
            from: transition.0,
            to: transition.1,
            ok: Some(true),
            ..end
        });
        assert_eq!(lines(&mut t)["n1/db down>up"]["median"], "2000000us");
    }

    #[test]
    fn the_time_of_a_message_is_known_although_clocks_differ() {
        // The clock of n2 is an hour ahead.
        let ahead = 3600 * SECOND;
        let mut t = Transitions::default();
        let word = |t: &mut Transitions, cob: &str, event: &str, detail: &str, us: u64| {
            let base = entry(id(cob).host_str(), 1, 1, SECOND + us * 1000);
            let (event, detail) = (event.to_owned(), detail.to_owned());
            t.take(with_facts(HistoryEntry { cob: Some(id(cob)), event, detail, ..base }));
        };
        for (round, took) in [(0, 900), (10_000, 1000), (20_000, 1400)] {
            word(&mut t, "n1/db", "grant", "to n2/app (1.6)", round);
            word(&mut t, "n2/app", "hold", "n1/db", round + took + ahead / 1000);
            word(&mut t, "n2/app", "release", "n1/db", round + 5000 + ahead / 1000);
            word(&mut t, "n1/db", "returned", "by n2/app (1.6)", round + 5000 + took);
        }
        // On the same host, or never received: no message.
        word(&mut t, "n1/db", "grant", "to n1/app (1.7)", 0);
        word(&mut t, "n1/app", "hold", "n1/db", 70_000);
        word(&mut t, "n1/db", "grant", "to n3/app (1.8)", 0);
        let text = serde_json::to_string(&lines(&mut t)).expect("JSON");
        assert_eq!(text, "{\"message\":{\"median\":\"1000us\",\"min\":\"900us\",\"p90\":\"1400us\",\"runs\":6}}");
        Durations::of_text(&text).expect("`cobgen plan` reads it");
    }

    #[test]
    fn times_with_a_clock_correction_are_left_out() {
        let mut t = Transitions::default();
        // A host that starts in 1970 and then corrects its clock; and a host whose clock goes back.
        for (began, ended) in [(0, 1_795_226_464 * SECOND), (90 * SECOND, 80 * SECOND), (100 * SECOND, 102 * SECOND)] {
            told(&mut t, "n1/db", "start", ("down", "up"), began, None);
            told(&mut t, "n1/db", "end", ("down", "up"), ended, Some(true));
        }
        let text = serde_json::to_string(&lines(&mut t)).expect("JSON");
        let expected =
            "{\"n1/db down>up\":{\"median\":\"2000000us\",\"min\":\"2000000us\",\"p90\":\"2000000us\",\"runs\":1}}";
        assert_eq!((text.as_str(), t.left_out()), (expected, 2));
        Durations::of_text(&text).expect("`cobgen plan` reads it");
    }

    #[test]
    fn transitions_in_several_histories_count_once() {
        let mut t = Transitions::default();
        let play = |t: &mut Transitions, at: u64, ms: u64| {
            t.take(entry("n1", 1, 1, at));
            told(t, "n1/db", "check", ("", "down"), at + 5_000_000, Some(true));
            told(t, "n1/db", "start", ("down", "up"), at + SECOND, None);
            told(t, "n1/db", "end", ("down", "up"), at + SECOND + ms * 1_000_000, Some(true));
        };
        // A transition at the end of a history does not continue in the next: it never ended.
        play(&mut t, 0, 100);
        told(&mut t, "n1/db", "start", ("up", "down"), 5 * SECOND, None);
        t.end();
        told(&mut t, "n1/db", "end", ("up", "down"), 9 * SECOND, Some(true));
        // A later history, and then the first once more, with entries after it.
        play(&mut t, 100 * SECOND, 300);
        t.end();
        play(&mut t, 0, 100);
        t.end();
        let text = serde_json::to_string(&t.lines()).expect("JSON");
        let expected = "{\"n1/db check\":{\"median\":\"5000us\",\"min\":\"5000us\",\"p90\":\"5000us\",\"runs\":2},\
            \"n1/db down>up\":{\"median\":\"200000us\",\"min\":\"100000us\",\"p90\":\"300000us\",\"runs\":2}}";
        assert_eq!(text, expected);
    }

    #[test]
    fn only_checks_after_an_activation_count() {
        let mut t = Transitions::default();
        t.take(entry("n1", 1, 1, SECOND));
        told(&mut t, "n1/db", "check", ("", "down"), SECOND + 5_000_000, Some(true));
        told(&mut t, "n1/db", "check", ("", "up"), 2 * SECOND, Some(true));
        t.take(entry("n1", 1, 1, 10 * SECOND));
        told(&mut t, "n1/db", "check", ("", "outdated"), 10 * SECOND + 9_000_000, Some(true));
        // After a failed transition, and after drift.
        told(&mut t, "n1/db", "start", ("outdated", "up"), 10 * SECOND + 9_100_000, None);
        told(&mut t, "n1/db", "end", ("outdated", "up"), 20 * SECOND, Some(false));
        told(&mut t, "n1/db", "check", ("", "outdated"), 21 * SECOND, Some(true));
        t.take(entry("n1", 1, 1, 30 * SECOND));
        told(&mut t, "n1/db", "drift", ("", "outdated"), 60 * SECOND, Some(true));
        told(&mut t, "n1/db", "check", ("", "outdated"), 61 * SECOND, Some(true));
        assert_eq!(lines(&mut t)["n1/db check"]["runs"], 2);
        assert_eq!(lines(&mut t)["n1/db check"]["p90"], "9000us");
    }
}
