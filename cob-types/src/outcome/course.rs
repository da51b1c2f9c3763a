//! Reads the switches of a host from its history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{CobOutcome, Ended, HostOutcome, Later, SKEW_NS};
use crate::history::{HistoryEntry, HistoryEvent};
use crate::id::{CobId, GenerationNumber, StateName};
use crate::past::{HostPast, Leg};

/// How often later events of a host are reported.
const LATER: usize = 100;

/// The switches in a host's history, in order. A switch whose start is cut off is not reported.
#[must_use]
pub fn of_host(history: &[HistoryEntry]) -> Vec<HostOutcome> {
    let mut course = Course::default();
    history.iter().for_each(|entry| course.note(entry));
    course.end()
}

/// The switches of a host, read entry by entry.
#[derive(Debug, Clone, Default)]
pub struct Course {
    all: Vec<HostOutcome>,
    /// The present switch, also when it has converged.
    open: Option<HostOutcome>,
    past: HostPast,
    /// The earlier states of change objects that left them after convergence and are not back.
    away: BTreeMap<CobId, StateName>,
    /// Change objects that others have changed since: their repair does not belong to the switch.
    drifted: BTreeSet<CobId>,
}

impl Course {
    /// Reads the next entry of the history.
    pub fn note(&mut self, entry: &HistoryEntry) {
        let leg = self.past.take(entry);
        let Self { all, open, away, drifted, .. } = self;
        if let Some(Leg { to, goes_on, .. }) = leg {
            if goes_on && open.as_ref().is_some_and(|on| on.ended != Ended::Converged) {
                return;
            }
            all.extend(open.take().map(|before| closed(before, to, entry.ts_ns)));
            *open = Some(begun(entry, to, Ended::UnderWay));
            away.clear();
            drifted.clear();
            return;
        }
        match (entry.happened(), open.as_mut()) {
            (HistoryEvent::Discard(to), _) => {
                let ended_ns = Some(entry.ts_ns);
                all.push(HostOutcome { ended_ns, ..begun(entry, to, Ended::CalledOff) });
            }
            (HistoryEvent::Activate, Some(switch)) if switch.to == entry.generation => {
                switch.activated_ns = Some(entry.ts_ns);
            }
            (HistoryEvent::Settled(to), Some(switch)) if to == Some(switch.to) && switch.ended != Ended::Converged => {
                (switch.ended, switch.ended_ns) = (Ended::Converged, Some(entry.ts_ns));
            }
            (HistoryEvent::Only { everywhere }, open) => match open.or_else(|| all.last_mut()) {
                Some(switch) if everywhere => switch.widened_ns = Some(entry.ts_ns),
                Some(switch) => switch.alone = true,
                None => {}
            },
            // A switch that the policy or a cancel rolls back had not converged everywhere, but perhaps on this host.
            (HistoryEvent::Withdraw { from, ordered: false }, Some(switch)) if from == Some(switch.to) => {
                std::mem::take(&mut switch.later).into_iter().for_each(|later| switch.absorb(later));
                (switch.ended, switch.ended_ns) = (Ended::UnderWay, None);
            }
            (event, Some(switch)) if switch.ended == Ended::Converged => {
                note_later(switch, away, drifted, entry, event);
            }
            (HistoryEvent::Cancel(to), Some(switch)) if to == Some(switch.to) => {
                (switch.ended, switch.ended_ns) = (Ended::Cancelled, Some(entry.ts_ns));
            }
            (HistoryEvent::Resume, Some(switch)) => (switch.ended, switch.ended_ns) = (Ended::UnderWay, None),
            (event @ (HistoryEvent::End(cob) | HistoryEvent::Failed(cob)), Some(switch)) => {
                note_move(Arc::make_mut(&mut switch.cobs), cob, entry, event);
            }
            _ => {}
        }
    }

    /// Forgets all but the newest switches.
    pub fn keep(&mut self, newest: usize) {
        self.all.drain(..self.all.len().saturating_sub(newest));
    }

    /// The newest switch to a generation, in its present state; `None`: its start is not known.
    #[must_use]
    pub fn newest_to(&self, to: GenerationNumber) -> Option<HostOutcome> {
        let open = self.open.iter().filter(|switch| switch.to == to).cloned().map(unended).next();
        open.or_else(|| self.all.iter().rev().find(|switch| switch.to == to).cloned())
    }

    /// All switches, in their present state.
    #[must_use]
    pub fn end(self) -> Vec<HostOutcome> {
        let Self { mut all, open, .. } = self;
        all.extend(open.map(unended));
        // A switch may have been discarded while the host was in another switch.
        all.sort_by_key(|part| part.began_ns);
        all
    }
}

/// The present state of a switch that has not ended.
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
        cobs: Arc::default(),
        later: Vec::new(),
    }
}

/// Ends a switch because another began.
fn closed(mut before: HostOutcome, next: GenerationNumber, at: u64) -> HostOutcome {
    let ended = if next < before.to { Ended::RolledBack } else { Ended::Superseded };
    let ended_ns = Some(at);
    // A canary that had converged, and was rolled back before the order was extended.
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

/// Notes an event on a host that had converged.
fn note_later(
    switch: &mut HostOutcome,
    away: &mut BTreeMap<CobId, StateName>,
    drifted: &mut BTreeSet<CobId>,
    entry: &HistoryEntry,
    event: HistoryEvent<'_>,
) {
    match (event, &entry.from, &entry.to) {
        (HistoryEvent::Drift(cob), ..) if !away.contains_key(cob) => _ = drifted.insert(cob.clone()),
        (HistoryEvent::Start(cob), Some(from), _) if !drifted.contains(cob) => {
            if !again(switch, entry.ts_ns) {
                return;
            }
            away.entry(cob.clone()).or_insert_with(|| from.clone());
        }
        (HistoryEvent::End(cob), _, Some(_)) if drifted.contains(cob) && entry.ok == Some(true) => {
            _ = drifted.remove(cob);
        }
        (HistoryEvent::End(cob) | HistoryEvent::Failed(cob), _, to) => {
            let Some(preferred) = away.get(cob) else { return };
            let Some(later) = switch.later.last_mut() else { return };
            note_move(&mut later.cobs, cob, entry, event);
            if entry.ok == Some(true) && to.as_ref() == Some(preferred) {
                away.remove(cob);
                if away.is_empty() {
                    (later.ended, later.ended_ns) = (Ended::Converged, Some(entry.ts_ns));
                }
            }
        }
        _ => {}
    }
}

/// Notes that a converged host has transitions again, soon after the last time or later. `false`: too many.
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

fn note_move(cobs: &mut BTreeMap<CobId, CobOutcome>, cob: &CobId, entry: &HistoryEntry, event: HistoryEvent<'_>) {
    let of = cobs.entry(cob.clone()).or_default();
    if matches!(event, HistoryEvent::Failed(_)) {
        of.failed = true;
    } else if entry.ok == Some(true) {
        of.moves = of.moves.saturating_add(1);
        of.failed = false;
    } else {
        of.failures = of.failures.saturating_add(1);
        of.error = entry.detail.as_str().into();
    }
}
