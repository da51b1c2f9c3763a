//! The past of a host, folded from its history: the only place that knows what the entries add up to.
//!
//! Programs that read a history entry by entry give each entry to a [`HostPast`], and add their own conclusions: the
//! parts of switches ([`outcome`](crate::outcome)), a picture of the cluster, the steps of a switch, the progress of a
//! plan. It keeps nothing of change objects, so that a daemon can afford it; [`Running`] knows their transitions.

use std::collections::BTreeMap;

use crate::history::{HistoryEntry, HistoryEvent};
use crate::id::{CobId, GenerationNumber, StateName};

/// The state of a host after the entries that it has taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPast {
    /// The active generation; `None`: not known, or no generation was active.
    pub generation: Option<GenerationNumber>,
    /// The generation before it.
    pub came_from: Option<GenerationNumber>,
    /// The generation of its pending switch.
    pub switching_to: Option<GenerationNumber>,
    /// An operator had paused it. A pause outlasts switches.
    pub paused: bool,
    /// Its switch was cancelled, until the host resumes or gets another target.
    pub is_cancelled: bool,
    /// The generation of that switch, if the history names it.
    pub cancelled: Option<GenerationNumber>,
    /// Why its switch could neither continue nor roll back.
    pub stopped: Option<String>,
    /// The announced final goal, if it lies beyond the next generation.
    goal: Option<GenerationNumber>,
    /// The next generation on the way to the goal of the present switch.
    step: Option<GenerationNumber>,
    /// The goal of the last switch.
    to: Option<GenerationNumber>,
}

/// A start towards a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leg {
    /// The goal of the switch.
    pub to: GenerationNumber,
    /// The generation to which the host goes first.
    pub next: GenerationNumber,
    /// It is a further step of the last switch: a host that missed many generations activates several in turn.
    pub goes_on: bool,
}

impl HostPast {
    /// Takes the next entry. Returns the leg that starts with it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events do not change the state of the host")]
    pub fn take(&mut self, entry: &HistoryEntry) -> Option<Leg> {
        if entry.generation != GenerationNumber(0) && self.generation != Some(entry.generation) {
            self.came_from = self.generation.replace(entry.generation);
        }
        match entry.happened() {
            HistoryEvent::Activate => self.switching_to = None,
            HistoryEvent::Settled(_) | HistoryEvent::Withdraw { .. } => self.stopped = None,
            HistoryEvent::Stopped(why) => self.stopped = Some(why.to_owned()),
            HistoryEvent::Pause => self.paused = true,
            HistoryEvent::Resume => (self.paused, self.is_cancelled, self.cancelled) = (false, false, None),
            HistoryEvent::Cancel(to) => (self.is_cancelled, self.cancelled) = (true, to),
            HistoryEvent::Unhold => (self.is_cancelled, self.cancelled) = (false, None),
            // It precedes the `go`.
            HistoryEvent::Terms(to) => self.goal = to.or(self.goal),
            HistoryEvent::Return(to) => {
                (self.is_cancelled, self.cancelled, self.stopped, self.goal) = (false, None, None, None);
                // A return to the present step has no `go` of its own.
                let here = self.step.take().filter(|step| to == Some(*step))?;
                self.to = Some(here);
                return Some(Leg { to: here, next: here, goes_on: false });
            }
            HistoryEvent::Go(next) => {
                (self.switching_to, self.is_cancelled, self.cancelled, self.stopped) = (next, false, None, None);
                let next = next?;
                let to = self.goal.filter(|goal| *goal > next).unwrap_or(next);
                let goes_on = self.step.is_some() && self.to == Some(to);
                self.goal = Some(to).filter(|to| *to != next);
                self.step = self.goal.map(|_| next);
                self.to = Some(to);
                return Some(Leg { to, next, goes_on });
            }
            _ => {}
        }
        None
    }

    /// Whether it starts no transitions.
    #[must_use]
    pub fn stands_still(&self) -> bool {
        self.paused || self.is_cancelled
    }
}

/// The running transitions of change objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Running(BTreeMap<CobId, RecordedTransition>);

/// A transition of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedTransition {
    /// The change object.
    pub cob: CobId,
    /// The state before.
    pub from: StateName,
    /// The state after.
    pub to: StateName,
    /// When the last attempt began, in nanoseconds since 1970.
    pub began_ns: u64,
}

impl Running {
    /// Takes the next entry. Returns the transition that has ended well with it, if the history contains its start.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events neither start nor end a transition")]
    pub fn take(&mut self, entry: &HistoryEntry) -> Option<RecordedTransition> {
        match entry.happened() {
            HistoryEvent::Start(cob) => {
                let (cob, from, to) = (cob.clone(), entry.from.clone()?, entry.to.clone()?);
                self.0.insert(cob.clone(), RecordedTransition { cob, from, to, began_ns: entry.ts_ns });
                None
            }
            HistoryEvent::End(cob) => self.0.remove(cob).filter(|_| entry.ok == Some(true)),
            _ => None,
        }
    }
}
