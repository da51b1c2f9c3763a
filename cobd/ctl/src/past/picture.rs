//! The state of the cluster at a moment, computed from histories.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::history::{HistoryEntry, HistoryEvent, LockEvent};
use cob_types::past::HostPast;
use cob_types::{CobId, GenerationNumber, HostName, StateName};
use serde::Serialize;
use serde_with::skip_serializing_none;

/// All hosts at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Picture {
    /// The moment, in nanoseconds since 1970, by each host's clock.
    pub at_ns: u64,
    /// The hosts, by name.
    pub hosts: Vec<PastHost>,
}

/// A past state of a host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PastHost {
    /// Its name.
    pub name: HostName,
    /// Whether it answers now, so that its history could be read.
    pub reachable: bool,
    /// Why a part of its state is not known; `None`: the whole state is known.
    pub missing: Option<String>,
    /// The active generation; `None`: not known, or no generation was active.
    #[serialize_always]
    pub generation: Option<GenerationNumber>,
    /// The generation of its pending switch.
    pub switching_to: Option<GenerationNumber>,
    /// Whether an operator had paused it, or a cancelled switch had paused it.
    pub paused: bool,
    /// The generation whose switch was cancelled.
    pub held: Option<GenerationNumber>,
    /// Why its switch could neither continue nor roll back.
    pub stopped: Option<String>,
    /// Its change objects, by id.
    pub cobs: Vec<PastCob>,
}

/// A past state of a change object.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PastCob {
    /// `HOST/NAME`.
    pub id: CobId,
    /// Its state; absent: the host did not know it either, or `known` is false.
    #[serialize_always]
    pub state: Option<StateName>,
    /// Whether the history contains its state.
    pub known: bool,
    /// The target state of a running transition.
    pub moving_to: Option<StateName>,
    /// The attempt of that transition, or of the last failed transition.
    pub attempt: Option<u32>,
    /// The start of this condition.
    pub since_ns: Option<u64>,
    /// Whether it had failed.
    pub failed: bool,
    /// The locks that it had requested and not received, as `COB@STATE|STATE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

/// Collects entries and computes the picture from them.
#[derive(Debug)]
pub struct Folding {
    at: u64,
    hosts: BTreeMap<HostName, Host>,
}

#[derive(Debug, Default)]
struct Host {
    /// Number and time of the oldest entry in its history.
    first: Option<(u64, u64)>,
    past: HostPast,
    cobs: BTreeMap<CobId, Cob>,
}

#[derive(Debug, Default)]
struct Cob {
    state: Option<StateName>,
    /// Whether an entry after the moment mentions it.
    later: bool,
    gone: bool,
    moving_to: Option<StateName>,
    attempt: Option<u32>,
    since: Option<u64>,
    failed: bool,
    /// Its pending requests, by the requested change object.
    waits: BTreeMap<String, Asked>,
}

/// A pending request for a lock.
#[derive(Debug)]
struct Asked {
    /// As `COB@STATE|STATE`.
    what: String,
    /// The host has activated or settled since. The history does not record the withdrawal of a pending request, so the
    /// request may be over: only a later lock without a new request shows that it was still pending.
    doubtful: bool,
}

impl Folding {
    /// A picture of this moment, with at least these hosts.
    pub fn new<'h>(at: u64, hosts: impl IntoIterator<Item = &'h HostName>) -> Self {
        Self { at, hosts: hosts.into_iter().map(|name| (name.clone(), Host::default())).collect() }
    }

    /// Adds this host to the picture.
    pub fn expect(&mut self, host: &HostName) {
        self.hosts.entry(host.clone()).or_default();
    }

    /// The present, previous and next generations of the hosts: their change objects were there, or departing.
    pub fn generations(&self) -> impl Iterator<Item = GenerationNumber> + '_ {
        let of =
            |HostPast { generation, came_from, switching_to, .. }: &HostPast| [*generation, *came_from, *switching_to];
        self.hosts.values().flat_map(move |host| of(&host.past)).flatten()
    }

    /// Takes the next entry. Entries after the moment count too: they show the state before them.
    pub fn take(&mut self, entry: &HistoryEntry) {
        let host = self.hosts.entry(entry.host.clone()).or_default();
        host.first.get_or_insert((entry.seq, entry.ts_ns));
        if entry.ts_ns > self.at {
            host.after(entry);
        } else {
            host.before(entry);
        }
    }

    /// Computes the picture; `lost` are the hosts whose histories could not be read completely.
    #[must_use]
    pub fn picture(self, lost: &BTreeSet<HostName>) -> Picture {
        let at = self.at;
        let hosts = self.hosts.into_iter().map(|(name, host)| {
            let reachable = !lost.contains(&name);
            host.picture(name, at, reachable)
        });
        Picture { at_ns: at, hosts: hosts.collect() }
    }
}

impl Host {
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events do not matter here")]
    fn before(&mut self, entry: &HistoryEntry) {
        self.past.take(entry);
        match entry.happened() {
            HistoryEvent::Activate | HistoryEvent::Settled(_) => self.doubt(),
            // A restarted daemon has lost its pending requests.
            HistoryEvent::Daemon => self.cobs.values_mut().for_each(|cob| cob.waits.clear()),
            _ => {}
        }
        if let Some(id) = &entry.cob {
            self.cobs.entry(id.clone()).or_default().before(entry);
        }
    }

    /// Marks the pending requests of the host's change objects as doubtful: they may be over.
    fn doubt(&mut self) {
        self.cobs.values_mut().flat_map(|cob| cob.waits.values_mut()).for_each(|asked| asked.doubtful = true);
    }

    fn after(&mut self, entry: &HistoryEntry) {
        let Some(id) = &entry.cob else { return };
        // In a complete history an earlier entry is missing only if the object's generation was never activated.
        let whole = self.first.is_some_and(|(seq, _)| seq <= 1);
        if matches!(entry.happened(), HistoryEvent::Gone(_)) && whole && !self.cobs.contains_key(id) {
            return;
        }
        // A change object of a later generation did not exist yet.
        if !self.cobs.contains_key(id) && self.past.generation != Some(entry.generation) {
            return;
        }
        self.cobs.entry(id.clone()).or_default().after(entry);
    }

    fn picture(self, name: HostName, at: u64, reachable: bool) -> PastHost {
        let missing = match self.first {
            _ if !reachable => Some("its history could not be read to its end".to_owned()),
            // A history that begins with the first record is complete: the host did not exist before.
            Some((seq, ns)) if seq <= 1 && ns > at => None,
            Some((_, ns)) if ns > at => Some(format!("its history begins later, at {}", crate::words::utc(ns))),
            Some(_) => None,
            None => Some("it has no history".to_owned()),
        };
        let whole = reachable && self.first.is_some_and(|(seq, _)| seq <= 1);
        let there = self.cobs.into_iter().filter(|(_, cob)| !cob.gone);
        let cobs = there.map(|(id, cob)| cob.picture(id, whole)).collect();
        let paused = self.past.stands_still();
        let HostPast { generation, switching_to, cancelled: held, stopped, .. } = self.past;
        PastHost { name, reachable, missing, generation, switching_to, paused, held, stopped, cobs }
    }
}

impl Cob {
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events do not matter here")]
    fn before(&mut self, entry: &HistoryEntry) {
        match entry.happened() {
            HistoryEvent::Start(_) => {
                self.gone = false;
                self.failed = false;
                self.state.clone_from(&entry.from);
                self.moving_to.clone_from(&entry.to);
                self.attempt = entry.attempt;
                self.since = Some(entry.ts_ns);
                // A change object in a transition has all its locks.
                self.waits.clear();
            }
            HistoryEvent::End(_) => {
                self.waits.clear();
                self.moving_to = None;
                let done = entry.ok == Some(true);
                self.state = entry.to.clone().filter(|_| done);
                self.attempt = entry.attempt.filter(|_| !done);
                self.since = Some(entry.ts_ns);
            }
            HistoryEvent::Check(_) | HistoryEvent::Drift(_) => {
                self.gone = false;
                if self.state != entry.to {
                    self.since = Some(entry.ts_ns);
                }
                self.state.clone_from(&entry.to);
            }
            HistoryEvent::Failed(_) => self.failed = true,
            HistoryEvent::Retry(_) => self.failed = false,
            HistoryEvent::Gone(_) => *self = Self { gone: true, ..Self::default() },
            HistoryEvent::Lock(LockEvent::Request, _, of) => {
                self.waits.insert(of.to_owned(), Asked { what: entry.detail.clone(), doubtful: false });
            }
            HistoryEvent::Lock(LockEvent::Hold | LockEvent::Release, _, of) => _ = self.waits.remove(of),
            _ => {}
        }
    }

    /// Learns from a later entry: the first one may show the state before it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events do not matter here")]
    fn after(&mut self, entry: &HistoryEntry) {
        match entry.happened() {
            HistoryEvent::Lock(LockEvent::Hold, _, of) => {
                if let Some(asked) = self.waits.get_mut(of) {
                    asked.doubtful = false;
                }
            }
            HistoryEvent::Lock(LockEvent::Request, _, of) => {
                _ = self.waits.extract_if(.., |asked_of, asked| asked.doubtful && asked_of == of).count();
            }
            HistoryEvent::Start(_) => {
                self.waits.retain(|_, asked| !asked.doubtful);
                if !self.later && self.state.is_none() && self.moving_to.is_none() {
                    self.state.clone_from(&entry.from);
                }
                self.later = true;
            }
            HistoryEvent::End(_) | HistoryEvent::Check(_) | HistoryEvent::Drift(_) | HistoryEvent::Gone(_) => {
                self.later = true;
            }
            _ => {}
        }
    }

    fn picture(self, id: CobId, whole: bool) -> PastCob {
        PastCob {
            id,
            known: whole || self.state.is_some() || self.since.is_some(),
            state: self.state,
            moving_to: self.moving_to,
            attempt: self.attempt,
            since_ns: self.since,
            failed: self.failed,
            waits_for: self.waits.into_values().filter(|asked| !asked.doubtful).map(|asked| asked.what).collect(),
        }
    }
}

/// A difference between two pictures.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The host, or the host of the change object.
    pub host: HostName,
    /// The change object; `None`: the host itself.
    pub cob: Option<CobId>,
    /// The state at the first moment, in words.
    pub before: String,
    /// The state at the second moment, in words.
    pub after: String,
}

/// All differences between two pictures.
#[must_use]
pub fn changes(first: &Picture, second: &Picture) -> Vec<Change> {
    let by_name = |p: &Picture| p.hosts.iter().map(|h| (h.name.clone(), h.clone())).collect::<BTreeMap<_, _>>();
    let (first, second) = (by_name(first), by_name(second));
    let mut all = Vec::new();
    for name in first.keys().chain(second.keys()).collect::<BTreeSet<_>>() {
        let (one, other) = (first.get(name), second.get(name));
        let words = |host: Option<&PastHost>| host.map_or_else(|| "not there".to_owned(), PastHost::words);
        note(&mut all, name, None, words(one), words(other));
        let cobs = |host: Option<&PastHost>| -> BTreeMap<CobId, String> {
            host.iter().flat_map(|h| &h.cobs).map(|c| (c.id.clone(), c.words())).collect()
        };
        let (one, other) = (cobs(one), cobs(other));
        for id in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
            let words = |of: &BTreeMap<CobId, String>| of.get(id).cloned().unwrap_or_else(|| "not there".to_owned());
            note(&mut all, name, Some(id), words(&one), words(&other));
        }
    }
    all
}

fn note(all: &mut Vec<Change>, host: &HostName, cob: Option<&CobId>, before: String, after: String) {
    if before != after {
        all.push(Change { host: host.clone(), cob: cob.cloned(), before, after });
    }
}

impl PastHost {
    /// The state of the host itself, in a few words.
    #[must_use]
    pub fn words(&self) -> String {
        let mut text = match self.generation {
            Some(generation) => format!("generation {generation}"),
            None if self.missing.is_some() => "not known".to_owned(),
            None => "no generation yet".to_owned(),
        };
        if let Some(to) = self.switching_to {
            text.push_str(&format!(", switching to {to}"));
        }
        match self.held {
            Some(held) => text.push_str(&format!(", held: the switch to generation {held} was cancelled")),
            None if self.paused => text.push_str(", paused"),
            None => {}
        }
        if let Some(why) = &self.stopped {
            text.push_str(&format!(", stopped: {}", crate::words::clean(why)));
        }
        text
    }

    /// Whether the whole state is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.missing.is_none() && self.cobs.iter().all(|cob| cob.known)
    }
}

impl PastCob {
    /// Its state in a few words.
    #[must_use]
    pub fn words(&self) -> String {
        let state = match &self.state {
            Some(state) => state.to_string(),
            None if self.known => "unknown".to_owned(),
            None => "not known".to_owned(),
        };
        let mut text = match &self.moving_to {
            Some(to) => format!("{state} → {to}"),
            None => state,
        };
        if let Some(attempt) = self.attempt.filter(|n| *n > 1) {
            text.push_str(&format!(", attempt {attempt}"));
        }
        if self.failed {
            text.push_str(", failed");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entry, id, state, with_facts};

    fn told(seq: u64, at: u64, event: &str, cob: &str) -> HistoryEntry {
        let cob = (!cob.is_empty()).then(|| id(cob));
        HistoryEntry { cob, event: event.to_owned(), ..entry("n1", seq, seq, at) }
    }

    fn moved(seq: u64, at: u64, event: &str, from: &str, to: &str, ok: Option<bool>) -> HistoryEntry {
        HistoryEntry {
            from: Some(state(from)),
            to: Some(state(to)),
            attempt: Some(1),
            ok,
            ..told(seq, at, event, "n1/db")
        }
    }

    fn life() -> Vec<HistoryEntry> {
        let detail = |entry: HistoryEntry, text: &str| with_facts(HistoryEntry { detail: text.to_owned(), ..entry });
        let old = |entry: HistoryEntry| HistoryEntry { generation: GenerationNumber(0), ..entry };
        vec![
            old(told(1, 10, "daemon", "")),
            old(detail(told(2, 20, "go", ""), "to generation 7, by root")),
            told(3, 30, "activate", ""),
            HistoryEntry { to: Some(state("down")), ..told(4, 40, "check", "n1/db") },
            detail(told(5, 50, "request", "n1/db"), "n2/app@down|off"),
            HistoryEntry { to: Some(state("down")), ..detail(told(6, 60, "hold", "n1/db"), "n2/app") },
            moved(7, 70, "start", "down", "up", None),
            moved(8, 80, "end", "down", "up", Some(false)),
            told(9, 80, "failed", "n1/db"),
            told(10, 90, "retry", "n1/db"),
            moved(11, 100, "start", "down", "up", None),
            moved(12, 110, "end", "down", "up", Some(true)),
            HistoryEntry { to: Some(state("down")), ..told(13, 120, "gone", "n1/db") },
        ]
    }

    fn at(moment: u64, entries: &[HistoryEntry]) -> PastHost {
        let mut folding = Folding::new(moment, []);
        entries.iter().for_each(|entry| folding.take(entry));
        folding.picture(&BTreeSet::new()).hosts.remove(0)
    }

    #[test]
    fn every_moment_of_a_host_is_shown_as_it_was() {
        let all = life();
        let words = |moment| {
            let host = at(moment, &all);
            assert!(host.is_known(), "{moment}: {host:?}");
            let cob = host.cobs.first().map_or("not there".to_owned(), |c| format!("{}{:?}", c.words(), c.waits_for));
            format!("{}; {cob}", host.words())
        };
        assert_eq!(words(5), "no generation yet; not there", "before its first life");
        assert_eq!(words(25), "no generation yet, switching to 7; not there");
        assert_eq!(words(35), "generation 7; unknown[]", "activated and not checked yet");
        assert_eq!(words(45), "generation 7; down[]");
        assert_eq!(words(55), "generation 7; down[\"n2/app@down|off\"]");
        assert_eq!(words(65), "generation 7; down[]");
        assert_eq!(words(75), "generation 7; down → up[]");
        assert_eq!(words(85), "generation 7; down, failed[]", "later entries show its state");
        assert_eq!(words(95), "generation 7; down[]");
        assert_eq!(words(115), "generation 7; up[]");
        assert_eq!(words(125), "generation 7; not there");
    }

    #[test]
    fn a_held_or_paused_host_of_the_past_is_shown_as_such() {
        let order = |seq, ts_ns, event, detail: &str| {
            with_facts(HistoryEntry { detail: detail.to_owned(), ..told(seq, ts_ns, event, "") })
        };
        let all = [
            order(1, 10, "pause", ""),
            order(2, 20, "cancel", "the switch to generation 7 by \"ann\""),
            order(3, 30, "unhold", "a cancelled transition leads elsewhere"),
            order(4, 40, "resume", ""),
            order(5, 50, "cancel", "the switch to generation 8"),
            order(6, 60, "go", "to generation 9"),
        ];
        let seen = |moment| {
            let host = at(moment, &all);
            (host.paused, host.held.map(|g| g.0), host.words())
        };
        assert_eq!(seen(15), (true, None, "generation 7, paused".to_owned()));
        assert_eq!(
            seen(25),
            (true, Some(7), "generation 7, held: the switch to generation 7 was cancelled".to_owned())
        );
        assert_eq!(seen(35), (true, None, "generation 7, paused".to_owned()), "held no more, and paused still");
        assert_eq!(seen(45), (false, None, "generation 7".to_owned()));
        assert_eq!(seen(55).1, Some(8));
        assert_eq!(seen(65), (false, None, "generation 7, switching to 9".to_owned()));
    }

    /// A change object that requested a lock at 20, with these later entries.
    fn asker(later: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        let first = HistoryEntry { to: Some(state("down")), ..told(1, 10, "check", "n1/db") };
        [first, asks(2, 20)].into_iter().chain(later).collect()
    }

    fn asks(seq: u64, at: u64) -> HistoryEntry {
        with_facts(HistoryEntry { detail: "n2/app@up".to_owned(), ..told(seq, at, "request", "n1/db") })
    }

    fn waits(moment: u64, all: &[HistoryEntry]) -> bool {
        !at(moment, all).cobs[0].waits_for.is_empty()
    }

    #[test]
    fn a_dropped_request_is_no_longer_waited_for() {
        let holds =
            |seq, at| with_facts(HistoryEntry { detail: "n2/app".to_owned(), ..told(seq, at, "hold", "n1/db") });
        assert!(waits(99, &asker(vec![])), "that is all that is known");
        for event in ["activate", "settled", "daemon"] {
            let all = asker(vec![told(3, 30, event, "")]);
            assert_eq!((waits(25, &all), waits(35, &all)), (true, false), "{event}");
        }
        let moves = asker(vec![moved(3, 30, "start", "down", "up", None)]);
        assert_eq!((waits(25, &moves), waits(35, &moves)), (true, false));
        // The request was pending all the time: the lock arrives in the end.
        let came = asker(vec![told(3, 30, "activate", ""), holds(4, 40)]);
        assert_eq!((waits(35, &came), waits(45, &came)), (true, false));
        let anew = asker(vec![told(3, 30, "activate", ""), asks(4, 40), holds(5, 50)]);
        assert_eq!((waits(35, &anew), waits(45, &anew), waits(55, &anew)), (false, true, false));
    }

    #[test]
    fn a_change_object_never_active_on_a_host_is_not_shown() {
        let mut all = life();
        all.push(told(14, 130, "gone", "n1/other"));
        assert!(at(115, &all).cobs.iter().all(|c| c.id != id("n1/other")));
        // In a truncated history it may have existed.
        assert!(at(115, &all[6..]).cobs.iter().any(|c| c.id == id("n1/other") && !c.known));
    }

    #[test]
    fn a_stopped_switch_is_shown_until_it_is_tried_again() {
        let order = |seq, ts_ns, event, detail: &str| {
            with_facts(HistoryEntry { detail: detail.to_owned(), ..told(seq, ts_ns, event, "") })
        };
        let all = [
            order(1, 10, "return", "from generation 7 to 6"),
            order(2, 20, "stopped", "n1/db gave up"),
            order(3, 30, "withdraw", "generation 7, back to 6: ordered"),
        ];
        assert_eq!(at(25, &all).words(), "generation 7, stopped: n1/db gave up");
        assert_eq!((at(15, &all).stopped, at(35, &all).stopped), (None, None));
    }

    #[test]
    fn a_pruned_part_of_the_history_is_reported_as_missing() {
        let kept = &life()[6..];
        let host = at(45, kept);
        assert!(host.missing.as_deref().is_some_and(|m| m.contains("begins later")), "{host:?}");
        assert!(!host.is_known() && host.cobs.is_empty());
        assert_eq!(at(75, kept).cobs[0].words(), "down → up");
        // Another change object, without entries in between.
        let mut silent = kept.to_vec();
        silent.push(HistoryEntry { to: Some(state("up")), ..told(14, 130, "check", "n1/silent") });
        let host = at(75, &silent);
        assert_eq!((host.cobs[1].words().as_str(), host.is_known()), ("not known", false));
        let mut lost = Folding::new(75, []);
        silent.iter().for_each(|entry| lost.take(entry));
        let lost = lost.picture(&BTreeSet::from([silent[0].host.clone()]));
        assert!(!lost.hosts[0].reachable && lost.hosts[0].missing.is_some());
    }

    #[test]
    fn a_change_object_of_a_later_generation_is_not_shown_before_it() {
        let mut all = life();
        all.push(HistoryEntry { generation: GenerationNumber(8), ..told(14, 130, "activate", "") });
        let later = HistoryEntry { generation: GenerationNumber(8), ..told(15, 140, "check", "n1/new") };
        all.push(HistoryEntry { to: Some(state("up")), ..later });
        assert!(at(115, &all).cobs.iter().all(|c| c.id != id("n1/new")));
        assert_eq!(at(145, &all).cobs[0].words(), "up");
    }

    #[test]
    fn two_moments_are_compared() {
        let all = life();
        let picture = |moment| Picture { at_ns: moment, hosts: vec![at(moment, &all)] };
        let changed = changes(&picture(25), &picture(115));
        let lines: Vec<_> = changed.iter().map(|c| (c.cob.is_some(), c.before.as_str(), c.after.as_str())).collect();
        assert_eq!(lines, [(false, "no generation yet, switching to 7", "generation 7"), (true, "not there", "up")]);
        assert!(changes(&picture(112), &picture(115)).is_empty());
    }
}
