//! What came of a switch: who started it, when, from where to where, and how it ended on each host.
//!
//! Each host knows its own part from its history ([`of_host`]); the parts together are the outcome of the switch
//! ([`together`]). A host that has all where it should be does not know whether others will ask something of it in the
//! same switch: what it did after that is told beside its part ([`Later`]), and belongs to the switch if it began before
//! all others were there. Nothing here is believed: it is for people, and any text may stand in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::history::HistoryEntry;
use crate::id::{CobId, GenerationNumber, HostName};
use crate::words::list;

mod course;
mod noted;

pub use course::{Course, of_host};

/// The format that is written.
pub const FORMAT: u32 = 1;
/// How much later than another part one may begin that belongs to the same switch, where that was said in stages or
/// was called off: hosts are told one after the other, and their clocks differ.
const SLACK_NS: u64 = 60_000_000_000;
/// The same where one order was meant for all: they tell each other of it within ten seconds.
const SKEW_NS: u64 = 10_000_000_000;
/// So long what a host does after all had converged is of the switch, as a failure is for its policy.
const GRACE_NS: u64 = 3_000_000_000;
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
    #[serde(default, skip_serializing_if = "no_cobs")]
    pub cobs: Arc<BTreeMap<CobId, CobOutcome>>,
    /// What happened to it after it had converged, in its order: of the switch, or of something else. None where the part
    /// is that of a [`SwitchOutcome`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<Later>,
}

fn no_cobs(cobs: &Arc<BTreeMap<CobId, CobOutcome>>) -> bool {
    cobs.is_empty()
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
        let gone = || self.hosts.iter().filter(|(_, part)| part.has_gone());
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
    /// The same in the time of a clock from which the host's own differs by so many nanoseconds.
    #[must_use]
    pub fn by_another_clock(mut self, ahead_ns: i64) -> Self {
        let put = |at: &mut u64| *at = at.saturating_add_signed(ahead_ns.saturating_neg());
        put(&mut self.began_ns);
        let later = self.later.iter_mut().flat_map(|later| [Some(&mut later.began_ns), later.ended_ns.as_mut()]);
        let own = [&mut self.activated_ns, &mut self.ended_ns, &mut self.widened_ns];
        own.into_iter().filter_map(Option::as_mut).chain(later.flatten()).for_each(put);
        self
    }

    /// The generation that was left for this older one; none: it led forward.
    #[must_use]
    pub fn back_from(&self) -> Option<GenerationNumber> {
        self.from.filter(|from| *from > self.to)
    }

    /// It was for some hosts alone, and was never said to be for everybody.
    fn stays_alone(&self) -> bool {
        self.alone && self.widened_ns.is_none()
    }

    /// It was not only prepared.
    fn has_gone(&self) -> bool {
        self.ended != Ended::CalledOff
    }

    /// What happened later belongs to it.
    fn absorb(&mut self, later: Later) {
        (self.ended, self.ended_ns) = (later.ended, later.ended_ns);
        for (cob, more) in later.cobs {
            let of = Arc::make_mut(&mut self.cobs).entry(cob).or_default();
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
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub error: Box<str>,
}

/// The generation that a text begins with.
fn leading_number(text: &str) -> Option<GenerationNumber> {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().map(GenerationNumber)
}

impl HistoryEntry {
    /// The generation that a word like `go` or `cancel` is about.
    #[must_use]
    pub fn about(&self) -> Option<GenerationNumber> {
        let (_, rest) = self.detail.split_once("generation ")?;
        leading_number(rest)
    }

    /// Where a `return` leads: `from generation 8 to 7`.
    fn leads_to(&self) -> Option<GenerationNumber> {
        let (_, rest) = self.detail.strip_prefix("from generation ")?.split_once(" to ")?;
        leading_number(rest)
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

/// The switches that several hosts tell of, the oldest first. Parts with the same goal whose times touch are one
/// switch: a host that was away comes to it later, and a host that was sent back and forward again has two.
#[must_use]
pub fn together(hosts: BTreeMap<HostName, Vec<HostOutcome>>) -> Vec<SwitchOutcome> {
    let mut parts: Vec<(HostName, HostOutcome)> =
        hosts.into_iter().flat_map(|(host, all)| all.into_iter().map(move |part| (host.clone(), part))).collect();
    parts.sort_by(|a, b| (a.1.began_ns, &a.0).cmp(&(b.1.began_ns, &b.0)));
    let mut begun: BTreeMap<HostName, Vec<u64>> = BTreeMap::new();
    for (host, part) in parts.iter().filter(|(_, part)| part.has_gone()) {
        begun.entry(host.clone()).or_default().push(part.began_ns);
    }
    let mut all: Vec<SwitchOutcome> = Vec::new();
    for (host, part) in parts {
        // What was called off may be a part of a switch that had begun elsewhere, and never the beginning of one.
        let fits = |s: &&mut SwitchOutcome| {
            if s.to != part.to || !has_room(s, &host, &part) {
                return false;
            }
            let has_begun = s.hosts.values().any(HostOutcome::has_gone);
            let begins = !has_begun && part.has_gone();
            // Who was told by another host, and not by whoever ordered it, follows what goes on, however late; but nobody
            // goes back with those who went there first.
            let follows = part.by.is_empty() && part.has_gone() && has_begun && s.back_from() == part.back_from();
            let beside = s.back_from().is_some() == part.back_from().is_some();
            let reached = follows || part.began_ns <= if beside { reach(s) } else { end(s) };
            reached && !begins && !is_over(s, &begun, part.began_ns)
        };
        match all.iter_mut().rev().find(fits) {
            Some(switch) => {
                if switch.by.is_empty() {
                    switch.by.clone_from(&part.by);
                }
                switch.hosts.insert(host, part);
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
    for switch in &mut all {
        take_later_in(switch);
        add_up(switch);
    }
    all
}

/// Whether a host has no part in a switch yet; or has called it off, and then those that were to go alone were told that it
/// is for everybody.
fn has_room(switch: &SwitchOutcome, host: &HostName, part: &HostOutcome) -> bool {
    let Some(before) = switch.hosts.get(host) else { return true };
    let widened = |of: &HostOutcome| of.widened_ns.is_some_and(|at| at >= before.began_ns);
    part.has_gone() && !before.has_gone() && switch.hosts.values().any(widened)
}

/// Whether all hosts of a switch had gone elsewhere by then. `begun`: when each host has gone anywhere.
fn is_over(switch: &SwitchOutcome, begun: &BTreeMap<HostName, Vec<u64>>, at: u64) -> bool {
    let next = |host: &HostName, after: u64| {
        let all = begun.get(host)?;
        all.get(all.partition_point(|began| *began <= after)).copied()
    };
    let mut gone = switch.hosts.iter().filter(|(_, part)| part.has_gone()).peekable();
    gone.peek().is_some() && gone.all(|(host, part)| next(host, part.began_ns).is_some_and(|next| next < at))
}

/// How the whole ended, from how its parts did.
fn add_up(switch: &mut SwitchOutcome) {
    let parts = || switch.hosts.values();
    switch.ended = parts().map(|part| part.ended).max().unwrap_or(switch.ended);
    let ends: Option<Vec<u64>> = parts().map(|part| part.ended_ns).collect();
    switch.ended_ns = ends.and_then(|ends| ends.into_iter().max());
}

/// What hosts did after they had converged, and before all had for a moment, was done for the switch; the rest was not.
fn take_later_in(switch: &mut SwitchOutcome) {
    let end = |ended_ns: Option<u64>| ended_ns.unwrap_or(u64::MAX);
    let mut over = switch.hosts.values().map(|part| end(part.ended_ns)).max().unwrap_or(0);
    loop {
        let mut more = false;
        for part in switch.hosts.values_mut() {
            while part.later.first().is_some_and(|later| later.began_ns <= over.saturating_add(GRACE_NS)) {
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
}

/// When the last part of a switch has ended, if none goes on.
fn end(switch: &SwitchOutcome) -> u64 {
    switch.hosts.values().map(|part| part.ended_ns.unwrap_or(u64::MAX)).max().unwrap_or(0)
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
mod tests;
