//! What works, but was probably not meant.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::StateName;

use super::demand::Demand;
use super::finding::{Finding, Findings, Severity, Step};
use super::system::{Hops, System};
use crate::draft::{Place, When};
use crate::provenance::{Provenance, Source, at};

/// Words that say more than what they expand to: what they name becomes part of the fingerprint.
const RESTS: [&str; 2] = ["restarts_on", "reloads_on"];

/// Reports states that no move enters, where somebody asks for them or nothing leads out of them.
pub(super) fn report_unreachable(system: &System<'_>, demand: &Demand, findings: &mut Findings) {
    for view in &system.kinds {
        if view.kind.backend != "command" || view.states() < 2 {
            continue;
        }
        for (place, state) in view.kind.states.iter().enumerate() {
            let entered = view.completed[place] || view.failed[place];
            if !entered && !view.left[place] && *state != StateName::OUTDATED {
                findings.push(Finding {
                    severity: Severity::Warning,
                    code: "unreachable-state",
                    message: format!("no transition of the kind {} enters or leaves {state}", view.kind.name),
                    place: system.provenance.and_then(|p| p.kinds.get(&view.kind.name)).cloned(),
                    steps: Vec::new(),
                    help: "add transitions, or take the state out".to_owned(),
                });
            }
        }
    }
    // Second choices that are never made. One finding for each kind and state.
    let mut told = BTreeSet::new();
    for goal in &demand.goals {
        for guard in system.guards_of(*goal, Hops::Any) {
            for want in guard.wants.iter().filter(|want| want.states.len() > 1) {
                let view = system.kind_of(want.on);
                let never = |state: &&usize| !view.completed[**state] && !view.failed[**state];
                let Some(state) = want.states.iter().find(never) else { continue };
                let name = &view.kind.states[*state];
                if told.insert((system.cobs[want.on].kind, *state)) && *name != StateName::OUTDATED {
                    findings.push(Finding {
                        severity: Severity::Warning,
                        code: "unreachable-state",
                        message: format!(
                            "{} accepts {} in {name}, which no transition of {} enters",
                            system.id(system.goal(*goal).0),
                            want.need.cob,
                            view.kind.name
                        ),
                        place: None,
                        steps: vec![system.step(*goal, guard, want)],
                        help: "only a check can find it there; if that is not meant, take the state out".to_owned(),
                    });
                }
            }
        }
    }
}

/// Reports words that add nothing: everything that they expand to follows from other words.
pub(super) fn report_redundant(provenance: &Provenance, findings: &mut Findings) {
    type Arrow<'a> = (&'a cob_types::CobId, &'a (When, cob_types::CobId));
    let mut words: BTreeMap<(&Place, &str), Vec<(Arrow<'_>, &Source)>> = BTreeMap::new();
    let mut written: BTreeMap<Arrow<'_>, &[Source]> = BTreeMap::new();
    for (cob, origin) in &provenance.cobs {
        for (key, sources) in &origin.arrows {
            written.insert((cob, key), sources);
            for source in sources {
                words.entry((&source.place, &source.words)).or_default().push(((cob, key), source));
            }
        }
    }
    // From the last word to the first: of two that say the same, the later one is told.
    let mut told: BTreeSet<(&Place, &str)> = BTreeSet::new();
    for ((place, text), arrows) in words.iter().rev() {
        if RESTS.iter().any(|word| text.contains(word)) {
            continue;
        }
        let mut instead: BTreeMap<(&Place, &str), ()> = BTreeMap::new();
        let covered = arrows.iter().all(|(arrow, own)| {
            let others = written.get(arrow).into_iter().flat_map(|sources| sources.iter());
            let mut others = others.filter(|other| {
                let word = (&other.place, other.words.as_str());
                word != (*place, *text) && !told.contains(&word) && other.states == own.states
            });
            others.next().map(|other| instead.insert((&other.place, &other.words), ())).is_some()
        });
        if !covered {
            continue;
        }
        told.insert((place, text));
        let steps = instead.into_keys().map(|(place, words)| Step {
            text: "it follows from".to_owned(),
            words: Some(words.to_owned()),
            place: Some(place.clone()),
        });
        findings.push(Finding {
            severity: Severity::Warning,
            code: "redundant-need",
            message: format!("`{text}` ({}) adds nothing", at(place)),
            place: Some((*place).clone()),
            steps: steps.collect(),
            help: "take it out".to_owned(),
        });
    }
}
