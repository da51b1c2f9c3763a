//! What came of a switch: who started it, when, from where to where, and how it ended on each host.
//!
//! Each host knows its own part from its history ([`of_host`]); the parts together are the outcome of the switch
//! ([`together`]). A host that has all where it should be does not know whether others will ask something of it in the
//! same switch: what it did after that is told beside its part ([`Later`]), and belongs to the switch if it began before
//! all others were there. Nothing here is believed: it is for people, and any text may stand in it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::generation::GenerationNumber;
use crate::history::HistoryEntry;
use crate::id::{CobId, HostName, StateName};
use crate::words::list;

/// The format that is written.
pub const FORMAT: u32 = 1;
/// How much later than another part one may begin that belongs to the same switch, where that was said in stages or
/// was called off: hosts are told one after the other, and their clocks differ.
const SLACK_NS: u64 = 60_000_000_000;
/// The same where one order was meant for all: they tell each other of it within ten seconds.
const SKEW_NS: u64 = 10_000_000_000;
/// So many times a host is moved again are told.
const LATER: usize = 100;
/// The most hosts that are named in a line.
const NAMED: usize = 6;
/// The longest outcome that is read, in bytes.
pub const MAX_OUTCOME: usize = 16 << 20;

/// How a switch, or a part of it, ended. Of parts that ended differently, the whole ended as the last one here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Everything is where it should be.
    Converged,
    /// It was prepared, and forgotten before anything had changed.
    CalledOff,
    /// Another switch took its place before it had converged.
    Superseded,
    /// It was cancelled, and stands still.
    Cancelled,
    /// It was left for an older generation.
    RolledBack,
    /// It goes on.
    UnderWay,
    /// Something has given up.
    Failed,
}

impl Ended {
    /// In words.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Ended::Converged => "converged",
            Ended::CalledOff => "called off",
            Ended::Superseded => "superseded",
            Ended::Cancelled => "cancelled",
            Ended::RolledBack => "rolled back",
            Ended::UnderWay => "under way",
            Ended::Failed => "failed",
        }
    }
}

/// A switch on all hosts that have told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchOutcome {
    /// [`FORMAT`].
    pub format: u32,
    /// The generation that it led to.
    pub to: GenerationNumber,
    /// Who said go first.
    pub by: String,
    /// When, in nanoseconds since 1970-01-01 UTC.
    pub began_ns: u64,
    /// When the last host had ended; none: one goes on.
    #[serde(default)]
    pub ended_ns: Option<u64>,
    /// How it ended.
    pub ended: Ended,
    /// Each host's part.
    pub hosts: BTreeMap<HostName, HostOutcome>,
    /// Hosts that were to take part and have told nothing.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub silent: BTreeSet<HostName>,
}

/// A switch on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostOutcome {
    /// The generation that it had; none: none.
    #[serde(default)]
    pub from: Option<GenerationNumber>,
    /// The generation that it led to.
    pub to: GenerationNumber,
    /// Who said go.
    pub by: String,
    /// When.
    pub began_ns: u64,
    /// When the generation became active.
    #[serde(default)]
    pub activated_ns: Option<u64>,
    /// When it ended.
    #[serde(default)]
    pub ended_ns: Option<u64>,
    /// How.
    pub ended: Ended,
    /// The go was for some hosts alone: a canary, or a wave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// When it was said to be for everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widened_ns: Option<u64>,
    /// The change objects that were moved or have failed; the others had nothing to do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cobs: BTreeMap<CobId, CobOutcome>,
    /// What happened to it after it had converged, in its order: of the switch, or of something else. None where the part
    /// is that of a [`SwitchOutcome`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<Later>,
}

/// A time in which a host that had converged was moved again, or the moment in which it went back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Later {
    /// When it began, in nanoseconds since 1970-01-01 UTC.
    pub began_ns: u64,
    /// When all was where it had been before; none: it is not.
    #[serde(default)]
    pub ended_ns: Option<u64>,
    /// How it ended.
    pub ended: Ended,
    /// The change objects that were moved or have failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cobs: BTreeMap<CobId, CobOutcome>,
}

impl SwitchOutcome {
    /// The hosts for which alone it was, if it never was for all.
    #[must_use]
    pub fn alone(&self) -> Vec<&HostName> {
        let gone = || self.hosts.iter().filter(|(_, part)| part.ended != Ended::CalledOff);
        let all = gone().all(|(_, part)| part.stays_alone());
        if all { gone().map(|(host, _)| host).collect() } else { Vec::new() }
    }

    /// Whether all hosts that were to have come where they should be.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        self.ended == Ended::Converged && self.silent.is_empty() && self.alone().is_empty()
    }

    /// How it ended, and for whom where that was not all: nothing is said of a host that has told nothing.
    #[must_use]
    pub fn in_words(&self) -> String {
        let (word, alone) = (self.ended.word(), self.alone());
        let mut but = Vec::new();
        if !alone.is_empty() {
            let whom = list(alone, NAMED);
            let off = self.ended == Ended::CalledOff;
            but.push(if off { format!("but for {whom}") } else { format!("for {whom} alone") });
        }
        if !self.silent.is_empty() {
            but.push(format!("not known of {}", list(&self.silent, NAMED)));
        }
        if but.is_empty() { word.to_owned() } else { format!("{word} ({})", but.join("; ")) }
    }

    /// The newest generation that a host left for this older one; none: it led forward everywhere.
    #[must_use]
    pub fn back_from(&self) -> Option<GenerationNumber> {
        self.hosts.values().filter_map(HostOutcome::back_from).max()
    }
}

impl HostOutcome {
    /// The generation that was left for this older one; none: it led forward.
    #[must_use]
    pub fn back_from(&self) -> Option<GenerationNumber> {
        self.from.filter(|from| *from > self.to)
    }

    /// It was for some hosts alone, and was never said to be for everybody.
    fn stays_alone(&self) -> bool {
        self.alone && self.widened_ns.is_none()
    }

    /// What happened later belongs to it.
    fn absorb(&mut self, later: Later) {
        (self.ended, self.ended_ns) = (later.ended, later.ended_ns);
        for (cob, more) in later.cobs {
            let of = self.cobs.entry(cob).or_default();
            of.moves = of.moves.saturating_add(more.moves);
            of.failures = of.failures.saturating_add(more.failures);
            of.failed = more.failed;
            if !more.error.is_empty() {
                of.error = more.error;
            }
        }
    }
}

/// A host's part with the host's own name, as the host tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeOf {
    /// The host.
    pub host: HostName,
    /// Its part.
    pub outcome: HostOutcome,
}

/// What a switch did to a change object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CobOutcome {
    /// Moves that ended well.
    pub moves: u32,
    /// Attempts that did not.
    pub failures: u32,
    /// It has given up.
    pub failed: bool,
    /// Why the last attempt did not end well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

impl HistoryEntry {
    /// The generation that a word like `go` or `cancel` is about.
    #[must_use]
    pub fn about(&self) -> Option<GenerationNumber> {
        let (_, rest) = self.detail.split_once("generation ")?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().map(GenerationNumber)
    }

    /// Who gave an order.
    #[must_use]
    pub fn author(&self) -> Option<&str> {
        let from = match self.detail.strip_prefix("by ") {
            Some(whole) => return Some(whole),
            None => self.detail.find(", by ")?,
        };
        self.detail.get(from + ", by ".len()..)
    }
}

/// The switches that a host's history tells of, in their order. What is cut off at its beginning is not told.
#[must_use]
pub fn of_host(history: &[HistoryEntry]) -> Vec<HostOutcome> {
    let mut course = Course::default();
    history.iter().for_each(|entry| course.note(entry));
    course.end()
}

/// The switches of a host, taken up entry by entry.
#[derive(Debug, Clone, Default)]
pub struct Course {
    all: Vec<HostOutcome>,
    /// The one that the host is in, also when it has converged.
    open: Option<HostOutcome>,
    /// Where they were, of those that were moved since it had converged and are not back.
    away: BTreeMap<CobId, StateName>,
    /// Those that somebody else has changed since: what mends that is not of the switch.
    drifted: BTreeSet<CobId>,
}

impl Course {
    /// Takes the next entry of the history up.
    pub fn note(&mut self, entry: &HistoryEntry) {
        let Self { all, open, away, drifted } = self;
        match (entry.event.as_str(), open.as_mut()) {
            ("go", _) => {
                let Some(to) = entry.about() else { return };
                all.extend(open.take().map(|before| closed(before, to, entry.ts_ns)));
                *open = Some(begun(entry, to, Ended::UnderWay));
                away.clear();
                drifted.clear();
            }
            ("call-off", _) => {
                let Some(to) = entry.about() else { return };
                let ended_ns = Some(entry.ts_ns);
                all.push(HostOutcome { ended_ns, ..begun(entry, to, Ended::CalledOff) });
            }
            ("activate", Some(switch)) if switch.to == entry.generation => switch.activated_ns = Some(entry.ts_ns),
            ("settled", Some(switch)) if entry.about() == Some(switch.to) && switch.ended != Ended::Converged => {
                (switch.ended, switch.ended_ns) = (Ended::Converged, Some(entry.ts_ns));
            }
            ("only", open) => {
                let Some(switch) = open.or_else(|| all.last_mut()) else { return };
                if entry.detail.starts_with("for everybody") {
                    switch.widened_ns = Some(entry.ts_ns);
                } else {
                    switch.alone = true;
                }
            }
            (_, Some(switch)) if switch.ended == Ended::Converged => note_later(switch, away, drifted, entry),
            ("cancel", Some(switch)) if entry.about() == Some(switch.to) => {
                (switch.ended, switch.ended_ns) = (Ended::Cancelled, Some(entry.ts_ns));
            }
            ("resume", Some(switch)) => (switch.ended, switch.ended_ns) = (Ended::UnderWay, None),
            ("end" | "failed", Some(switch)) => note_move(&mut switch.cobs, entry),
            _ => {}
        }
    }

    /// Forgets all but the newest.
    pub fn keep(&mut self, newest: usize) {
        self.all.drain(..self.all.len().saturating_sub(newest));
    }

    /// The newest switch to a generation, as it stands; none: its beginning was not told.
    #[must_use]
    pub fn newest_to(&self, to: GenerationNumber) -> Option<HostOutcome> {
        let open = self.open.iter().filter(|switch| switch.to == to).cloned().map(unended).next();
        open.or_else(|| self.all.iter().rev().find(|switch| switch.to == to).cloned())
    }

    /// All of them, as they stand.
    #[must_use]
    pub fn end(self) -> Vec<HostOutcome> {
        let Self { mut all, open, .. } = self;
        all.extend(open.map(unended));
        // One may have been called off while the host was in another one.
        all.sort_by_key(|part| part.began_ns);
        all
    }
}

/// How a switch stands that nothing has ended.
fn unended(mut switch: HostOutcome) -> HostOutcome {
    let stands = |ended: Ended, cobs: &BTreeMap<CobId, CobOutcome>| {
        let failed = ended == Ended::UnderWay && cobs.values().any(|c| c.failed);
        if failed { Ended::Failed } else { ended }
    };
    switch.ended = stands(switch.ended, &switch.cobs);
    for later in &mut switch.later {
        later.ended = stands(later.ended, &later.cobs);
    }
    switch
}

fn begun(entry: &HistoryEntry, to: GenerationNumber, ended: Ended) -> HostOutcome {
    HostOutcome {
        from: Some(entry.generation).filter(|g| *g != GenerationNumber(0)),
        to,
        by: entry.author().unwrap_or_default().to_owned(),
        began_ns: entry.ts_ns,
        activated_ns: None,
        ended_ns: None,
        ended,
        alone: false,
        widened_ns: None,
        cobs: BTreeMap::new(),
        later: Vec::new(),
    }
}

/// Another switch has begun.
fn closed(mut before: HostOutcome, next: GenerationNumber, at: u64) -> HostOutcome {
    let ended = if next < before.to { Ended::RolledBack } else { Ended::Superseded };
    let ended_ns = Some(at);
    // A canary that had converged, and was sent back before the others were told.
    let canary = before.stays_alone() && before.from == Some(next) && next < before.to;
    if before.ended != Ended::Converged || canary {
        return HostOutcome { ended, ended_ns, ..before };
    }
    match before.later.last_mut().filter(|later| later.ended_ns.is_none()) {
        Some(later) => (later.ended, later.ended_ns) = (ended, ended_ns),
        None if ended == Ended::RolledBack => {
            before.later.push(Later { began_ns: at, ended_ns, ended, cobs: BTreeMap::new() });
        }
        None => {}
    }
    before
}

/// What happens on a host that had converged.
fn note_later(
    switch: &mut HostOutcome,
    away: &mut BTreeMap<CobId, StateName>,
    drifted: &mut BTreeSet<CobId>,
    entry: &HistoryEntry,
) {
    let Some(cob) = &entry.cob else { return };
    match (entry.event.as_str(), &entry.from, &entry.to) {
        ("drift", ..) if !away.contains_key(cob) => _ = drifted.insert(cob.clone()),
        ("start", Some(from), _) if !drifted.contains(cob) => {
            if !again(switch, entry.ts_ns) {
                return;
            }
            away.entry(cob.clone()).or_insert_with(|| from.clone());
        }
        ("end", _, Some(_)) if drifted.contains(cob) && entry.ok == Some(true) => _ = drifted.remove(cob),
        ("end" | "failed", _, to) => {
            let Some(home) = away.get(cob) else { return };
            let Some(later) = switch.later.last_mut() else { return };
            note_move(&mut later.cobs, entry);
            if entry.ok == Some(true) && to.as_ref() == Some(home) {
                away.remove(cob);
                if away.is_empty() {
                    (later.ended, later.ended_ns) = (Ended::Converged, Some(entry.ts_ns));
                }
            }
        }
        _ => {}
    }
}

/// A host that had converged is moved again, at once after the last time or anew. False: that is told no more.
fn again(switch: &mut HostOutcome, at: u64) -> bool {
    let (ended, ended_ns) = (Ended::UnderWay, None);
    let told = switch.later.len();
    let goes_on = |later: &&mut Later| later.ended_ns.is_none_or(|end| at <= end.saturating_add(SKEW_NS));
    if let Some(later) = switch.later.last_mut().filter(goes_on) {
        (later.ended, later.ended_ns) = (ended, ended_ns);
    } else if told < LATER {
        switch.later.push(Later { began_ns: at, ended_ns, ended, cobs: BTreeMap::new() });
    } else {
        return false;
    }
    true
}

fn note_move(cobs: &mut BTreeMap<CobId, CobOutcome>, entry: &HistoryEntry) {
    let Some(cob) = &entry.cob else { return };
    let of = cobs.entry(cob.clone()).or_default();
    if entry.event == "failed" {
        of.failed = true;
    } else if entry.ok == Some(true) {
        of.moves = of.moves.saturating_add(1);
        of.failed = false;
    } else {
        of.failures = of.failures.saturating_add(1);
        of.error.clone_from(&entry.detail);
    }
}

/// The switches that several hosts tell of, the oldest first. Parts with the same goal whose times touch are one
/// switch: a host that was away comes to it later, and a host that was sent back and forward again has two.
#[must_use]
pub fn together(hosts: BTreeMap<HostName, Vec<HostOutcome>>) -> Vec<SwitchOutcome> {
    let mut parts: Vec<(HostName, HostOutcome)> =
        hosts.into_iter().flat_map(|(host, all)| all.into_iter().map(move |part| (host.clone(), part))).collect();
    parts.sort_by(|a, b| (a.1.began_ns, &a.0).cmp(&(b.1.began_ns, &b.0)));
    let mut all: Vec<SwitchOutcome> = Vec::new();
    for (host, part) in parts {
        // What was called off may be a part of a switch that had begun elsewhere, and never the beginning of one.
        let fits = |s: &&mut SwitchOutcome| {
            let begins = s.ended == Ended::CalledOff && part.ended != Ended::CalledOff;
            // Who was told by another host, and not by whoever ordered it, follows what goes on, however late.
            let follows = part.by.is_empty() && part.ended != Ended::CalledOff && s.ended != Ended::CalledOff;
            let reached = follows || part.began_ns <= reach(s);
            s.to == part.to && !s.hosts.contains_key(&host) && reached && !begins
        };
        match all.iter_mut().rev().find(fits) {
            Some(switch) => {
                switch.hosts.insert(host, part);
                add_up(switch);
            }
            None => all.push(SwitchOutcome {
                format: FORMAT,
                to: part.to,
                by: part.by.clone(),
                began_ns: part.began_ns,
                ended_ns: part.ended_ns,
                ended: part.ended,
                hosts: [(host, part)].into(),
                silent: BTreeSet::new(),
            }),
        }
    }
    all.iter_mut().for_each(take_later_in);
    all
}

/// How the whole ended, from how its parts did.
fn add_up(switch: &mut SwitchOutcome) {
    let parts = || switch.hosts.values();
    switch.ended = parts().map(|part| part.ended).max().unwrap_or(switch.ended);
    let ends: Option<Vec<u64>> = parts().map(|part| part.ended_ns).collect();
    switch.ended_ns = ends.and_then(|ends| ends.into_iter().max());
}

/// What hosts did after they had converged, and before all had, was done for the switch; the rest was not.
fn take_later_in(switch: &mut SwitchOutcome) {
    let end = |ended_ns: Option<u64>| ended_ns.unwrap_or(u64::MAX);
    let mut over = switch.hosts.values().map(|part| end(part.ended_ns)).max().unwrap_or(0);
    loop {
        let mut more = false;
        for part in switch.hosts.values_mut() {
            while part.later.first().is_some_and(|later| later.began_ns <= over.saturating_add(SKEW_NS)) {
                let later = part.later.remove(0);
                over = over.max(end(later.ended_ns));
                part.absorb(later);
                more = true;
            }
        }
        if !more {
            break;
        }
    }
    switch.hosts.values_mut().for_each(|part| part.later.clear());
    add_up(switch);
}

/// Until when parts that begin belong to a switch.
fn reach(switch: &SwitchOutcome) -> u64 {
    let of = |part: &HostOutcome| {
        let end = part.ended_ns.unwrap_or(u64::MAX);
        let slack = match part.ended {
            Ended::CalledOff => SLACK_NS,
            Ended::Converged if part.alone => SLACK_NS,
            // Where nothing had to be done it was over before another host had begun.
            Ended::Converged => SKEW_NS,
            Ended::UnderWay | Ended::Failed | Ended::RolledBack | Ended::Cancelled | Ended::Superseded => 0,
        };
        end.max(part.widened_ns.unwrap_or(0)).saturating_add(slack)
    };
    switch.hosts.values().map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::new(text).expect("a name")
    }

    /// `5 @1 go to generation 2, by ann`: when, under which generation, what, and what of it.
    fn entries(lines: &[&str]) -> Vec<HistoryEntry> {
        let entry = |line: &&str| {
            let mut words = line.splitn(4, ' ');
            let mut word = || words.next().unwrap_or_default();
            let ts_ns = word().parse().expect("a time");
            let generation = GenerationNumber(word()[1..].parse().expect("a generation"));
            let (event, detail) = (word().to_owned(), word().to_owned());
            let moved = matches!(event.as_str(), "start" | "end" | "failed" | "drift");
            let hop = detail.split_once('>');
            let state = |name: &str| StateName::new(name).expect("a state");
            let (from, to) = hop.map(|(from, to)| (state(from), state(to))).unzip();
            let detail = if hop.is_some() { String::new() } else { detail };
            HistoryEntry {
                ts_ns,
                host: name("n1"),
                seq: ts_ns,
                lamport: ts_ns,
                generation,
                cob: moved.then(|| CobId::new("n1/a").expect("an id")),
                ok: moved.then_some(detail.is_empty()),
                event,
                from,
                to,
                attempt: None,
                detail,
                heard_ns: None,
            }
        };
        lines.iter().map(entry).collect()
    }

    fn told(lines: &[&str]) -> Vec<(u64, &'static str, Option<u64>)> {
        of_host(&entries(lines)).iter().map(|s| (s.to.0, s.ended.word(), s.ended_ns)).collect()
    }

    #[test]
    fn a_canary_that_is_sent_back_before_the_others_were_told_was_rolled_back() {
        let lines = [
            "1 @1 go to generation 2, by ann",
            "2 @1 only for n1 alone",
            "3 @2 activate",
            "4 @2 settled generation 2",
            "5 @2 go to generation 1, by ann",
            "6 @1 activate",
            "7 @1 settled generation 1",
        ];
        assert_eq!(told(&lines), [(2, "rolled back", Some(5)), (1, "converged", Some(7))]);
    }

    #[test]
    fn a_host_tells_how_each_of_its_switches_ended() {
        let lines = [
            "1 @0 go to generation 1, by root (unix socket)",
            "2 @1 activate",
            "3 @1 end",
            "4 @1 settled generation 1",
            "5 @1 end",
            "6 @1 call-off generation 2, by ann (operate)",
            "7 @1 go to generation 3, by ann (operate), for \"x, by y\"",
            "8 @3 activate",
            "9 @3 end exit status 1",
            "10 @3 failed after 1 attempt",
            "11 @3 cancel the switch to generation 3, by bob",
            "12 @3 go to generation 1, by bob",
            "13 @1 activate",
            "14 @1 settled generation 1",
            "15 @1 go to generation 4, by bob",
            "16 @1 go to generation 5, by bob",
            "17 @5 end no",
            "18 @5 failed after 1 attempt",
        ];
        let ends = [
            (1, "converged", Some(4)),
            (2, "called off", Some(6)),
            (3, "rolled back", Some(12)),
            (1, "converged", Some(14)),
            (4, "superseded", Some(16)),
            (5, "failed", None),
        ];
        assert_eq!(told(&lines), ends);
        let all = of_host(&entries(&lines));
        assert_eq!((all[0].from, all[0].by.as_str(), all[0].activated_ns), (None, "root (unix socket)", Some(2)));
        assert_eq!((all[2].from, all[2].by.as_str()), (Some(GenerationNumber(1)), "ann (operate), for \"x, by y\""));
        let cob = &all[2].cobs[&CobId::new("n1/a").expect("an id")];
        assert_eq!((cob.moves, cob.failures, cob.failed, cob.error.as_str()), (0, 1, true, "exit status 1"));
    }

    #[test]
    fn a_way_back_that_is_left_for_what_it_came_from_was_not_rolled_back() {
        let lines = [
            "1 @3 go to generation 2, by ann",
            "2 @2 activate",
            "3 @2 go to generation 3, by ann",
            "4 @3 activate",
            "5 @3 settled generation 3",
        ];
        assert_eq!(told(&lines), [(2, "superseded", Some(3)), (3, "converged", Some(5))]);
        let all = of_host(&entries(&lines));
        assert_eq!(all.iter().map(HostOutcome::back_from).collect::<Vec<_>>(), [Some(GenerationNumber(3)), None]);
        let together = together([(name("n1"), all)].into());
        let back: Vec<_> = together.iter().map(SwitchOutcome::back_from).collect();
        assert_eq!(back, [Some(GenerationNumber(3)), None]);
    }

    /// A daemon takes the entries up as they come, and forgets all but the newest part that has ended.
    #[test]
    fn what_is_taken_up_entry_by_entry_is_what_the_history_tells() {
        let lines = [
            "1 @0 go to generation 1, by ann",
            "2 @1 activate",
            "3 @1 end",
            "4 @1 settled generation 1",
            "5 @1 go to generation 2, by ann",
            "6 @1 only for n1 alone",
            "7 @2 activate",
            "8 @2 end exit status 1",
            "9 @2 end",
            "10 @2 settled generation 2",
            "11 @2 go to generation 1, by ann",
            "12 @1 failed after 3 attempts",
        ];
        let history = entries(&lines);
        let mut course = Course::default();
        for (count, entry) in (1..).zip(&history) {
            course.note(entry);
            course.keep(1);
            let all = of_host(&history[..count]);
            let newest = all.last().expect("one");
            assert_eq!(course.newest_to(newest.to).as_ref(), Some(newest), "{}", lines[count - 1]);
            for to in (0..4).map(GenerationNumber) {
                let told = all.iter().rev().find(|part| part.to == to);
                assert!(course.newest_to(to).is_none_or(|known| Some(&known) == told), "{}", lines[count - 1]);
            }
        }
        assert_eq!(course.newest_to(GenerationNumber(2)).map(|part| part.ended), Some(Ended::RolledBack));
        assert_eq!(course.newest_to(GenerationNumber(3)), None);
    }

    #[test]
    fn what_was_cancelled_and_goes_on_is_under_way_again() {
        let lines = ["1 @1 go to generation 2", "2 @1 cancel the switch to generation 2", "3 @1 resume"];
        assert_eq!(told(&lines[..2]), [(2, "cancelled", Some(2))]);
        assert_eq!(told(&lines), [(2, "under way", None)]);
    }

    #[test]
    fn strange_histories_are_read_all_the_same() {
        let odd = ["1 @1 go", "2 @1 go generation", "3 @1 go to generation 99999999999999999999999", "4 @1 settled x"];
        assert_eq!(told(&odd), []);
        assert_eq!(told(&["1 @1 activate", "2 @1 end", "3 @1 resume", "4 @1 cancel generation 1"]), []);
    }

    #[test]
    fn parts_whose_times_touch_are_one_switch() {
        let of = |lines: &[&str]| of_host(&entries(lines));
        let n1 = of(&["10 @1 go to generation 2, by ann", "20 @2 settled generation 2"]);
        // It had gone before, and was sent back.
        let n2 = of(&[
            "1 @1 go to generation 2, by ann",
            "5 @2 go to generation 1, by ann",
            "8 @1 settled generation 1",
            "11 @1 go to generation 2, by ann",
            "30 @2 settled generation 2",
        ]);
        let all = together([(name("n1"), n1), (name("n2"), n2)].into());
        let told: Vec<_> = all.iter().map(|s| (s.to.0, s.ended.word(), s.hosts.len(), s.ended_ns)).collect();
        let ends = [(2, "rolled back", 1, Some(5)), (1, "converged", 1, Some(8)), (2, "converged", 2, Some(30))];
        assert_eq!(told, ends);
    }

    #[test]
    fn a_host_that_follows_the_others_late_is_part_of_their_switch() {
        let of = |lines: &[&str]| of_host(&entries(lines));
        let n1 = of(&["10 @1 go to generation 2, by ann", "20 @2 settled generation 2"]);
        let n2 = of(&["90000000000 @1 go to generation 2", "90000000009 @2 settled generation 2"]);
        let ordered = of(&["90000000000 @1 go to generation 2, by bob", "90000000009 @2 settled generation 2"]);
        let told = |n2: Vec<HostOutcome>| {
            let all = together([(name("n1"), n1.clone()), (name("n2"), n2)].into());
            all.iter().map(|s| (s.by.clone(), s.hosts.len(), s.ended_ns)).collect::<Vec<_>>()
        };
        assert_eq!(told(n2), [("ann".to_owned(), 2, Some(90_000_000_009))]);
        let two = [("ann".to_owned(), 1, Some(20)), ("bob".to_owned(), 1, Some(90_000_000_009))];
        assert_eq!(told(ordered), two);
    }

    #[test]
    fn a_switch_for_some_or_of_which_some_are_silent_has_not_converged() {
        let of = |lines: &[&str]| of_host(&entries(lines));
        let canary = ["10 @1 go to generation 2, by ann", "10 @1 only for n1 alone", "20 @2 settled generation 2"];
        let off = of(&["21 @1 call-off generation 2, by ann"]);
        let words = |hosts: &[(&str, Vec<HostOutcome>)]| {
            let all = together(hosts.iter().map(|(host, parts)| (name(host), parts.clone())).collect());
            (all[0].in_words(), all[0].is_converged())
        };
        assert_eq!(words(&[("n1", of(&canary))]), ("converged (for n1 alone)".to_owned(), false));
        assert_eq!(words(&[("n1", of(&canary)), ("n2", off.clone())]), ("called off (but for n1)".to_owned(), false));
        assert_eq!(words(&[("n2", off)]), ("called off".to_owned(), false));
        let everybody = [&canary[..], &["30 @2 only for everybody, by ann"]].concat();
        let mut all = together([(name("n1"), of(&everybody))].into());
        assert_eq!((all[0].in_words().as_str(), all[0].is_converged()), ("converged", true));
        all[0].silent.insert(name("n3"));
        assert_eq!((all[0].in_words().as_str(), all[0].is_converged()), ("converged (not known of n3)", false));
    }

    #[test]
    fn a_host_that_had_nothing_to_do_is_part_of_the_switch_all_the_same() {
        let of = |lines: &[&str]| of_host(&entries(lines));
        let n1 = of(&["10 @1 go to generation 2, by ann", "20 @2 settled generation 2"]);
        let n2 = of(&["1000030 @1 go to generation 2, by ann", "2000000 @2 failed after 3 attempts"]);
        let all = together([(name("n1"), n1), (name("n2"), n2)].into());
        let told: Vec<_> = all.iter().map(|s| (s.to.0, s.ended.word(), s.hosts.len())).collect();
        assert_eq!(told, [(2, "failed", 2)]);
    }

    /// One host, `n1`, has something to change; `n2` is there at once, and then asked for more.
    fn asked_later(rest: &[&str], other: &[&str]) -> Vec<SwitchOutcome> {
        let of = |lines: &[&str]| of_host(&entries(lines));
        let n1 = ["1 @1 go to generation 2, by ann", "2 @2 activate", "3 @2 start old>up"];
        let n2 = ["1 @1 go to generation 2, by ann", "2 @2 activate", "2 @2 settled generation 2"];
        let parts = |first: &[&str], then: &[&str]| of(&[first, then].concat());
        together([(name("n1"), parts(&n1, other)), (name("n2"), parts(&n2, rest))].into())
    }

    #[test]
    fn what_a_host_is_asked_for_after_it_was_there_belongs_to_the_switch() {
        let own = ["20 @2 end old>up", "20 @2 settled generation 2"];
        let down = ["5 @2 start up>down", "6 @2 end up>down"];
        let up = ["21 @2 start down>up", "30 @2 end down>up"];
        let told = |rest: &[&str], own: &[&str]| {
            let all = asked_later(rest, own);
            let part = &all[0].hosts[&name("n2")];
            let moves = part.cobs.values().map(|cob| cob.moves).sum::<u32>();
            (all[0].ended.word(), all[0].ended_ns, part.ended.word(), moves)
        };
        assert_eq!(told(&[&down[..], &up].concat(), &own), ("converged", Some(30), "converged", 2));
        assert_eq!(told(&down, &own), ("under way", None, "under way", 1), "it is not back yet");
        let failed = ["21 @2 start down>up", "22 @2 end exit status 1", "22 @2 failed after 1 attempt"];
        assert_eq!(told(&[&down[..], &failed].concat(), &own), ("failed", None, "failed", 1));
        let retried = [&down[..], &failed, &["90 @2 start down>up", "95 @2 end down>up"]].concat();
        assert_eq!(told(&retried, &own), ("converged", Some(95), "converged", 2));
        // All go back because of it, also who had converged.
        let back = [&down[..], &failed, &["23 @2 go to generation 1"]].concat();
        assert_eq!(
            told(&back, &[&own[..], &["23 @2 go to generation 1"]].concat()),
            ("rolled back", Some(23), "rolled back", 1)
        );
    }

    #[test]
    fn what_a_host_does_after_all_were_there_is_something_else() {
        let own = ["20 @2 end old>up", "20 @2 settled generation 2"];
        let day = 86_400_000_000_000_u64;
        let told = |lines: &[String], own: &[&str]| {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let all = asked_later(&lines, own);
            let part = &all[0].hosts[&name("n2")];
            (all[0].ended.word(), all[0].ended_ns, part.cobs.len(), part.later.len())
        };
        let converged = ("converged", Some(20), 0, 0);
        let restart = [format!("{day} @2 start up>down"), format!("{day} @2 end up>down")];
        assert_eq!(told(&restart, &own), converged);
        let back = [format!("{day} @2 go to generation 1, by ann")];
        assert_eq!(told(&back, &[&own[..], &[back[0].as_str()]].concat()), converged, "somebody has sent it back");
        // What somebody has changed is put right meanwhile: that is no part of the switch.
        let mended =
            ["7 @2 drift", "8 @2 start old>up", "9 @2 end exit status 1", "9 @2 end old>up"].map(str::to_owned);
        assert_eq!(told(&mended, &own), converged);
    }

    #[test]
    fn the_stages_of_a_switch_are_one_and_a_canary_that_failed_is_another() {
        let of = |lines: &[&str]| of_host(&entries(lines));
        let canary = of(&[
            "10 @1 go to generation 2, by ann",
            "10 @1 only for n1 alone, by ann",
            "13 @2 go to generation 1, by ann",
            "15 @1 settled generation 1",
            "20 @1 go to generation 2, by ann",
            "20 @1 only for n1 alone, by ann",
            "30 @2 settled generation 2",
            "400000000000 @2 only for everybody, by ann",
        ]);
        let n2 = of(&[
            "12 @1 call-off generation 2, by ann",
            "400000000005 @1 go to generation 2, by ann",
            "400000000009 @2 settled generation 2",
        ]);
        let all = together([(name("n1"), canary), (name("n2"), n2)].into());
        let told: Vec<_> = all.iter().map(|s| (s.to.0, s.ended.word(), s.hosts.len())).collect();
        assert_eq!(told, [(2, "rolled back", 2), (1, "converged", 1), (2, "converged", 2)]);
        // Nobody had gone anywhere.
        let off = |at: &str| of(&[&format!("{at} @1 call-off generation 2, by ann")]);
        let all = together([(name("n1"), off("5")), (name("n2"), off("9"))].into());
        assert_eq!((all.len(), all[0].hosts.len(), all[0].ended), (1, 2, Ended::CalledOff));
    }
}
