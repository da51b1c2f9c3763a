//! The outcome of a switch: operator, times, generations, and the result on each host.
//!
//! Each host knows its own part from its history ([`of_host`]); the parts together are the outcome ([`together`]). A
//! host that has converged does not know whether other hosts will send it more requests in the same switch: its later
//! transitions are reported beside its part ([`Later`]), and belong to the switch if they began before all other hosts
//! had converged. The outcome is only for people: no program relies on it, and any text may be in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::id::{CobId, GenerationNumber, HostName};
use crate::words::list;

mod course;
mod noted;

pub use course::{Course, of_host};

/// The format that is written.
pub const FORMAT: u32 = 1;
/// How much later than another part of the same switch a part may begin, if the switch was ordered in stages or
/// discarded: hosts get the order in turn, and their clocks differ.
const SLACK_NS: u64 = 60_000_000_000;
/// The same if a single order is for all hosts: they announce it to each other within ten seconds.
const SKEW_NS: u64 = 10_000_000_000;
/// How long after convergence the transitions of a host belong to the switch, as a failure does for the switch policy.
const GRACE_NS: u64 = 3_000_000_000;
/// The most hosts that are named in a line.
const NAMED: usize = 6;
/// The longest outcome that is read, in bytes.
pub const MAX_OUTCOME: usize = 16 << 20;

/// The end of a switch, or of a part. If parts ended differently, the last of these variants counts for the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// All change objects are in their desired states.
    Converged,
    /// It was prepared, and discarded before any change.
    CalledOff,
    /// Another switch replaced it before it had converged.
    Superseded,
    /// It was cancelled, and is paused.
    Cancelled,
    /// It was rolled back to an older generation.
    RolledBack,
    /// It is under way.
    UnderWay,
    /// A change object has failed.
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

/// A switch on all hosts that reported it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchOutcome {
    /// [`FORMAT`].
    pub format: u32,
    /// The generation of its goal.
    pub to: GenerationNumber,
    /// The operator of the first order.
    pub by: String,
    /// When it began, in nanoseconds since 1970-01-01 UTC.
    pub began_ns: u64,
    /// When the last host ended; absent: a part is under way.
    #[serde(default)]
    pub ended_ns: Option<u64>,
    /// How it ended.
    pub ended: Ended,
    /// The part of each host.
    pub hosts: BTreeMap<HostName, HostOutcome>,
    /// Participating hosts without a report.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub silent: BTreeSet<HostName>,
}

/// A switch on a host.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostOutcome {
    /// The generation before; absent: no generation was active.
    #[serde(default)]
    #[serialize_always]
    pub from: Option<GenerationNumber>,
    /// The generation of its goal.
    pub to: GenerationNumber,
    /// The operator.
    pub by: String,
    /// When it began.
    pub began_ns: u64,
    /// When the generation became active.
    #[serde(default)]
    #[serialize_always]
    pub activated_ns: Option<u64>,
    /// When it ended.
    #[serde(default)]
    #[serialize_always]
    pub ended_ns: Option<u64>,
    /// How it ended.
    pub ended: Ended,
    /// The order was only for some hosts: a canary or a wave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// When an order extended it to all hosts.
    pub widened_ns: Option<u64>,
    /// The change objects with transitions or failures; the others needed no change.
    #[serde(default, skip_serializing_if = "no_cobs")]
    pub cobs: Arc<BTreeMap<CobId, CobOutcome>>,
    /// The events after its convergence, in order: of this switch, or of another cause. Empty in a part of
    /// the outcome of a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<Later>,
}

fn no_cobs(cobs: &Arc<BTreeMap<CobId, CobOutcome>>) -> bool {
    cobs.is_empty()
}

/// A time in which a converged host had transitions again, or the moment of its rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Later {
    /// When it began, in nanoseconds since 1970-01-01 UTC.
    pub began_ns: u64,
    /// When all change objects were back in their states; absent: not yet.
    #[serde(default)]
    pub ended_ns: Option<u64>,
    /// How it ended.
    pub ended: Ended,
    /// The change objects with transitions or failures.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cobs: BTreeMap<CobId, CobOutcome>,
}

impl SwitchOutcome {
    /// The hosts of the order, if it was only for some and never extended to all.
    #[must_use]
    pub fn alone(&self) -> Vec<&HostName> {
        let gone = || self.hosts.iter().filter(|(_, part)| part.has_gone());
        let all = gone().all(|(_, part)| part.stays_alone());
        if all { gone().map(|(host, _)| host).collect() } else { Vec::new() }
    }

    /// Whether all participating hosts have converged.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        self.ended == Ended::Converged && self.silent.is_empty() && self.alone().is_empty()
    }

    /// The end in words, with the hosts that it concerns if not all; hosts without a report are listed.
    #[must_use]
    pub fn in_words(&self) -> String {
        let (word, alone) = (self.ended.word(), self.alone());
        let mut but = Vec::new();
        if !alone.is_empty() {
            let whom = list(alone, NAMED);
            let off = self.ended == Ended::CalledOff;
            but.push(if off { format!("except {whom}") } else { format!("only on {whom}") });
        }
        if !self.silent.is_empty() {
            but.push(format!("no report from {}", list(&self.silent, NAMED)));
        }
        if but.is_empty() { word.to_owned() } else { format!("{word} ({})", but.join("; ")) }
    }

    /// The newest generation from which a host rolled back to this older generation; `None`: no host rolled back.
    #[must_use]
    pub fn back_from(&self) -> Option<GenerationNumber> {
        self.hosts.values().filter_map(HostOutcome::back_from).max()
    }
}

impl HostOutcome {
    /// Converts the times to a clock from which the host's own clock differs by this number of nanoseconds.
    #[must_use]
    pub fn by_another_clock(mut self, ahead_ns: i64) -> Self {
        let put = |at: &mut u64| *at = at.saturating_add_signed(ahead_ns.saturating_neg());
        put(&mut self.began_ns);
        let later = self.later.iter_mut().flat_map(|later| [Some(&mut later.began_ns), later.ended_ns.as_mut()]);
        let own = [&mut self.activated_ns, &mut self.ended_ns, &mut self.widened_ns];
        own.into_iter().filter_map(Option::as_mut).chain(later.flatten()).for_each(put);
        self
    }

    /// The generation from which the host rolled back to this older generation; `None`: no rollback.
    #[must_use]
    pub fn back_from(&self) -> Option<GenerationNumber> {
        self.from.filter(|from| *from > self.to)
    }

    /// The order was only for some hosts, and was never extended to all.
    fn stays_alone(&self) -> bool {
        self.alone && self.widened_ns.is_none()
    }

    /// It was not only prepared.
    fn has_gone(&self) -> bool {
        self.ended != Ended::CalledOff
    }

    /// Adds later events to this part.
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

/// A host's part with the host's name, as the host reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeOf {
    /// The host.
    pub host: HostName,
    /// Its part.
    pub outcome: HostOutcome,
}

/// The outcome of a switch for a change object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CobOutcome {
    /// Successful transitions.
    pub moves: u32,
    /// Failed attempts.
    pub failures: u32,
    /// It has failed: no further attempt starts by itself.
    pub failed: bool,
    /// The error of the last failed attempt.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub error: Box<str>,
}

/// Combines the reports of several hosts into switches, the oldest first. Parts with the same goal and touching times
/// are a single switch: an absent host joins later, and a host that was rolled back and ordered again has two.
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
        // A discarded part may belong to a switch that had begun elsewhere, but never starts one.
        let fits = |s: &&mut SwitchOutcome| {
            if s.to != part.to || !has_room(s, &host, &part) {
                return false;
            }
            let has_begun = s.hosts.values().any(HostOutcome::has_gone);
            let begins = !has_begun && part.has_gone();
            // A host that learned of the switch from another host, and not from the operator, joins a switch under way,
            // however late. But a rollback never joins the switch in which hosts first went there.
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

/// Whether a host has no part in a switch yet; or has discarded it, and the order for a few hosts was then extended to
/// all.
fn has_room(switch: &SwitchOutcome, host: &HostName, part: &HostOutcome) -> bool {
    let Some(before) = switch.hosts.get(host) else { return true };
    let widened = |of: &HostOutcome| of.widened_ns.is_some_and(|at| at >= before.began_ns);
    part.has_gone() && !before.has_gone() && switch.hosts.values().any(widened)
}

/// Whether all hosts of a switch had begun another switch by then. `begun`: when each host began any switch.
fn is_over(switch: &SwitchOutcome, begun: &BTreeMap<HostName, Vec<u64>>, at: u64) -> bool {
    let next = |host: &HostName, after: u64| {
        let all = begun.get(host)?;
        all.get(all.partition_point(|began| *began <= after)).copied()
    };
    let mut gone = switch.hosts.iter().filter(|(_, part)| part.has_gone()).peekable();
    gone.peek().is_some() && gone.all(|(host, part)| next(host, part.began_ns).is_some_and(|next| next < at))
}

/// Sets the end of the whole from the ends of its parts.
fn add_up(switch: &mut SwitchOutcome) {
    let parts = || switch.hosts.values();
    switch.ended = parts().map(|part| part.ended).max().unwrap_or(switch.ended);
    let ends: Option<Vec<u64>> = parts().map(|part| part.ended_ns).collect();
    switch.ended_ns = ends.and_then(|ends| ends.into_iter().max());
}

/// Adds a host's later events if they began before, or shortly after, all hosts had converged; drops the rest.
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

/// When the last part of a switch ended, if all have.
fn end(switch: &SwitchOutcome) -> u64 {
    switch.hosts.values().map(|part| part.ended_ns.unwrap_or(u64::MAX)).max().unwrap_or(0)
}

/// Until when a new part may belong to a switch.
fn reach(switch: &SwitchOutcome) -> u64 {
    let of = |part: &HostOutcome| {
        let end = part.ended_ns.unwrap_or(u64::MAX);
        let slack = match part.ended {
            Ended::CalledOff => SLACK_NS,
            Ended::Converged if part.alone => SLACK_NS,
            // A host without changes may be done before another host has begun.
            Ended::Converged => SKEW_NS,
            Ended::UnderWay | Ended::Failed | Ended::RolledBack | Ended::Cancelled | Ended::Superseded => 0,
        };
        end.max(part.widened_ns.unwrap_or(0)).saturating_add(slack)
    };
    switch.hosts.values().map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
