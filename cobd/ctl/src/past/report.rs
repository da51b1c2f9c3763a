//! The parts of a switch for its report: transitions, interruptions and waits, from the steps of a replay.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::history::HistoryEvent;
use cob_types::{CobId, GenerationNumber, StateName};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::replay::{ReplayStep, Waited};

/// A transition of the switch. Its attempts count together.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SwitchStep {
    /// The change object.
    pub cob: CobId,
    /// The state before.
    pub from: StateName,
    /// The state after.
    pub to: StateName,
    /// When the first attempt began, in nanoseconds since the start of the switch.
    pub begin_ns: u64,
    /// When the last attempt ended; absent: it was under way at the end of the report.
    pub end_ns: Option<u64>,
    /// The number of attempts.
    pub attempts: u32,
    /// The result of the last attempt; absent: not known.
    pub ok: Option<bool>,
    /// The reason of the last failure; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure: String,
    /// The waits before the first attempt, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<Waited>,
}

/// The time in which a change object was away from a state to which it returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interruption {
    /// The change object.
    pub cob: CobId,
    /// The state that it left and reached again.
    pub state: StateName,
    /// When it began to leave, in nanoseconds since the start of the switch.
    pub begin_ns: u64,
    /// How long it was away.
    pub ns: u64,
}

/// The steps of a switch, in parts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Parts {
    /// All transitions, by their start.
    pub transitions: Vec<SwitchStep>,
    /// The interruptions, the longest first.
    pub interruptions: Vec<Interruption>,
    /// The hosts that have departed or become active, with the nanoseconds since the start of the switch.
    pub activations: BTreeMap<String, u64>,
    /// The change objects with changes from outside during the switch.
    pub drifted: BTreeSet<CobId>,
}

impl Parts {
    /// The parts of the switch to this generation.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events do not matter here")]
    pub fn of(steps: &[ReplayStep], to: GenerationNumber) -> Self {
        let mut parts = Self::default();
        // The last transition of each change object.
        let mut last: BTreeMap<&CobId, usize> = BTreeMap::new();
        for ReplayStep { offset_ns, entry, waited } in steps {
            match entry.happened() {
                HistoryEvent::Start(cob) => {
                    let (Some(from), Some(next)) = (&entry.from, &entry.to) else { continue };
                    let again = last.get(cob).map(|at| &mut parts.transitions[*at]);
                    let again = again.filter(|step| step.ok != Some(true) && (&step.from, &step.to) == (from, next));
                    if let Some(step) = again {
                        (step.attempts, step.end_ns, step.ok) = (step.attempts + 1, None, None);
                        continue;
                    }
                    last.insert(cob, parts.transitions.len());
                    parts.transitions.push(SwitchStep {
                        cob: cob.clone(),
                        from: from.clone(),
                        to: next.clone(),
                        begin_ns: *offset_ns,
                        end_ns: None,
                        attempts: 1,
                        ok: None,
                        failure: String::new(),
                        waited: waited.clone(),
                    });
                }
                HistoryEvent::End(cob) => {
                    let Some(step) = last.get(cob).map(|at| &mut parts.transitions[*at]) else { continue };
                    (step.end_ns, step.ok) = (Some(*offset_ns), entry.ok);
                    if entry.ok == Some(false) {
                        step.failure.clone_from(&entry.detail);
                    }
                }
                HistoryEvent::Drift(cob) => _ = parts.drifted.insert(cob.clone()),
                HistoryEvent::Activate if entry.generation == to => {
                    parts.activations.insert(entry.host.to_string(), *offset_ns);
                }
                _ => {}
            }
        }
        parts.interruptions = interruptions(&parts.transitions);
        parts
    }

    /// The transitions whose last attempt failed.
    pub fn failed(&self) -> impl Iterator<Item = &SwitchStep> {
        self.transitions.iter().filter(|step| step.ok == Some(false))
    }

    /// The waits before transitions, the longest first.
    #[must_use]
    pub fn waits(&self) -> Vec<(&CobId, &Waited)> {
        let mut all: Vec<_> =
            self.transitions.iter().flat_map(|step| step.waited.iter().map(|waited| (&step.cob, waited))).collect();
        all.sort_by_key(|(_, waited)| std::cmp::Reverse(waited.ns));
        all
    }

    /// The end of the last transition, in nanoseconds since the start of the switch.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        let ends = self.transitions.iter().map(|step| step.end_ns.unwrap_or(step.begin_ns));
        ends.chain(self.activations.values().copied()).max().unwrap_or_default()
    }
}

fn interruptions(transitions: &[SwitchStep]) -> Vec<Interruption> {
    let mut by_cob: BTreeMap<&CobId, Vec<&SwitchStep>> = BTreeMap::new();
    for step in transitions {
        by_cob.entry(&step.cob).or_default().push(step);
    }
    let mut found: Vec<Interruption> = by_cob
        .into_iter()
        .filter_map(|(cob, steps)| {
            let (first, state) = (steps.first()?, &steps.first()?.from);
            let back = steps.iter().rfind(|step| step.to == *state && step.ok == Some(true))?;
            let ns = back.end_ns?.saturating_sub(first.begin_ns);
            Some(Interruption { cob: cob.clone(), state: state.clone(), begin_ns: first.begin_ns, ns })
        })
        .collect();
    found.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.cob.cmp(&b.cob)));
    found
}

#[cfg(test)]
mod tests {
    use cob_types::history::HistoryEntry;

    use super::*;
    use crate::testing::{entry, id, state};

    fn step(at: u64, event: &str, cob: &str, (from, to): (&str, &str), ok: Option<bool>) -> ReplayStep {
        let states = (!from.is_empty()).then(|| (state(from), state(to)));
        let (from, to) = states.unzip();
        let cob = (!cob.is_empty()).then(|| id(cob));
        let entry = HistoryEntry { cob, event: event.to_owned(), from, to, ok, ..entry("n1", at, at, at) };
        ReplayStep { offset_ns: at, entry, waited: Vec::new() }
    }

    #[test]
    fn attempts_are_summed_and_a_stop_with_a_restart_is_an_interruption() {
        let mut steps = vec![
            step(1, "start", "n1/web", ("up", "down"), None),
            step(3, "end", "n1/web", ("up", "down"), Some(true)),
            step(4, "start", "n1/web", ("down", "up"), None),
            step(5, "end", "n1/web", ("down", "up"), Some(false)),
            step(7, "start", "n1/web", ("down", "up"), None),
            step(9, "end", "n1/web", ("down", "up"), Some(true)),
            step(9, "start", "n1/new", ("absent", "present"), None),
            step(11, "end", "n1/new", ("absent", "present"), Some(false)),
            step(12, "drift", "n1/web", ("", ""), None),
        ];
        steps[3].entry.detail = "port in use".to_owned();
        steps[7].entry.detail = "disk full".to_owned();
        steps[2].waited = vec![Waited { of: "n2/db@up".to_owned(), cob: "n2/db".to_owned(), ns: 1 }];
        let parts = Parts::of(&steps, GenerationNumber(2));
        let told: Vec<_> = parts.transitions.iter().map(|t| (t.cob.as_str(), t.attempts, t.ok, t.end_ns)).collect();
        assert_eq!(
            told,
            [
                ("n1/web", 1, Some(true), Some(3)),
                ("n1/web", 2, Some(true), Some(9)),
                ("n1/new", 1, Some(false), Some(11))
            ]
        );
        assert_eq!(parts.interruptions, [Interruption { cob: id("n1/web"), state: state("up"), begin_ns: 1, ns: 8 }]);
        assert_eq!(parts.failed().map(|t| t.failure.as_str()).collect::<Vec<_>>(), ["disk full"]);
        assert_eq!(parts.waits().iter().map(|(_, w)| w.of.as_str()).collect::<Vec<_>>(), ["n2/db@up"]);
        assert_eq!((parts.end_ns(), parts.drifted.len()), (11, 1));
    }
}
