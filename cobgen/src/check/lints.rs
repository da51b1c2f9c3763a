//! Warnings about models that work but are probably not meant so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::sync::Arc;

use cob_types::StateName;

use super::demand::Demand;
use super::finding::{Finding, Findings, Step};
use super::system::{System, Transitions};
use crate::diagnostic::Severity;
use crate::draft::{Arrow, Said};
use crate::provenance::{Origin, Provenance};

/// Words with a second effect: the named change object also becomes part of the fingerprint.
const RESTS: [&str; 2] = ["restarts_on", "reloads_on"];

/// Reports states that no transition enters, if they are needed or no transition leaves them.
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
                    help: "add transitions, or remove the state".to_owned(),
                });
            }
        }
    }
    // Second choices that are never used. A single finding for each kind and state.
    let mut told = BTreeSet::new();
    for goal in &demand.goals {
        for guard in system.guards_of(*goal, Transitions::Any) {
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
                        help: "only a check can find this state; if that is not intended, remove the state".to_owned(),
                    });
                }
            }
        }
    }
}

/// Reports redundant words: all that they expand to follows from other words.
pub(super) fn report_redundant(provenance: &Provenance, findings: &mut Findings) {
    // A word that is the single source of some need is not redundant. This is true for nearly every word.
    let needs = || provenance.cobs.values().flat_map(Origin::by_need);
    let single = needs().filter_map(|sources| if let [only] = sources { Some(only) } else { None });
    let single: HashMap<*const Said, &Arrow> = single.map(|only| (Arc::as_ptr(&only.said), only)).collect();
    let single: BTreeSet<Word<'_>> = single.into_values().map(Word::of).collect();
    // For each other word all arrows that it makes: its own source of the arrow, and all sources.
    let mut words: BTreeMap<Word<'_>, Vec<(&Arrow, &[Arrow])>> = BTreeMap::new();
    for sources in needs().filter(|sources| sources.len() > 1) {
        for source in sources.iter().filter(|source| !single.contains(&Word::of(source))) {
            words.entry(Word::of(source)).or_default().push((source, sources));
        }
    }
    // From the last word to the first: of two equal words the later is reported.
    let mut told: BTreeSet<Word<'_>> = BTreeSet::new();
    for (word, arrows) in words.iter().rev() {
        let text = word.words;
        if RESTS.iter().any(|rests| text.contains(rests)) {
            continue;
        }
        let mut instead: BTreeMap<Word<'_>, &Arrow> = BTreeMap::new();
        let covered = arrows.iter().all(|(own, all)| {
            let others = all.iter().map(|source| (Word::of(source), source));
            let mut others = others.filter(|(other, source)| {
                other != word && !told.contains(other) && source.said.states == own.said.states
            });
            others.next().map(|(other, source)| instead.insert(other, source)).is_some()
        });
        if !covered {
            continue;
        }
        told.insert(*word);
        let Some(place) = arrows.first().map(|(own, _)| own.said.place.clone()) else { continue };
        let steps = instead.into_values().map(|source| Step {
            text: "it follows from".to_owned(),
            words: Some(source.said.words.to_string()),
            place: Some(source.said.place.clone()),
        });
        findings.push(Finding {
            severity: Severity::Warning,
            code: "redundant-need",
            message: format!("`{text}` has no effect"),
            place: Some(place),
            steps: steps.collect(),
            help: "remove it".to_owned(),
        });
    }
}

/// A user's word, ordered by file and line. Files are compared as plain text because there are many words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Word<'a> {
    file: &'a OsStr,
    line: u32,
    column: u32,
    words: &'a str,
}

impl<'a> Word<'a> {
    fn of(source: &'a Arrow) -> Self {
        let Said { place, words, .. } = &*source.said;
        Self { file: place.file.as_os_str(), line: place.line, column: place.column, words }
    }
}
