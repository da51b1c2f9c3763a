//! Checks that ranks and expected fingerprints agree with the rest of the generation.

use std::collections::HashMap;

use cob_types::CobId;
use cob_types::cob::Fingerprint;

use super::circles::Arrows;
use super::finding::{Finding, Findings, Step};
use super::goals::arrow;
use super::system::{System, Transitions};
use crate::diagnostic::Severity;

/// A needed goal must have a strictly lower rank, except inside a circle.
pub(super) fn report_ranks(system: &System<'_>, findings: &mut Findings) {
    let ranks: Vec<u64> = (0..system.goals())
        .map(|goal| {
            let (cob, state) = system.goal(goal);
            // A missing rank is reported by `structure`.
            system.cobs[cob].cob.ranks.get(system.state(cob, state)).copied().unwrap_or(0)
        })
        .collect();
    let arrows = Arrows::of(system.goals(), |goal, heads| {
        let wants = system.guards_of(goal, Transitions::Any).flat_map(|guard| &guard.wants);
        heads.extend(wants.flat_map(|want| system.wanted(want)).filter_map(|goal| u32::try_from(goal).ok()));
    });
    let wrong: Vec<(usize, usize)> = (0..system.goals())
        .flat_map(|goal| arrows.from(goal).iter().map(move |needed| (goal, *needed as usize)))
        .filter(|(goal, needed)| ranks[*needed] >= ranks[*goal])
        .collect();
    if wrong.is_empty() {
        return;
    }
    let mut component = vec![None; system.goals()];
    for (i, members) in arrows.components().into_iter().enumerate() {
        members.into_iter().for_each(|goal| component[goal] = Some(i));
    }
    for (goal, needed) in wrong {
        if component[goal].is_some() && component[goal] == component[needed] {
            continue;
        }
        let name = |goal: usize| {
            let (cob, state) = system.goal(goal);
            format!("({}, {}) has rank {}", system.id(cob), system.state(cob, state), ranks[goal])
        };
        findings.push(Finding {
            severity: Severity::Error,
            code: "rank",
            message: format!("{}, but {}, which it needs", name(goal), name(needed)),
            place: None,
            steps: arrow(system, goal, needed).map(|(g, w)| system.step(goal, g, w)).into_iter().collect(),
            help: "the generation is damaged or was not made by cobgen: generate it again".to_owned(),
        });
    }
}

/// Each change object must expect the actual fingerprint of every change object that it names.
pub(super) fn report_expects(system: &System<'_>, findings: &mut Findings) {
    let all: HashMap<&CobId, Fingerprint> = system.cobs.iter().map(|c| (&c.cob.id, c.cob.fingerprint)).collect();
    let prints = |id: &CobId| all.get(id).copied();
    for (number, view) in system.cobs.iter().enumerate() {
        let cob = view.cob;
        let needs = cob.transitions.iter().flat_map(|t| &t.needs).chain(cob.locks.iter().flat_map(|l| &l.needs));
        let mut named: Vec<&CobId> = needs.map(|need| &need.cob).chain(cob.expects.keys()).collect();
        named.sort_unstable();
        named.dedup();
        let wrong = named.into_iter().filter(|id| cob.expects.get(*id).copied() != prints(id));
        for on in wrong {
            let shown = |print: Option<Fingerprint>| print.map_or_else(|| "none".to_owned(), |print| print.to_string());
            let (expected, found) = (shown(cob.expects.get(on).copied()), shown(prints(on)));
            let text = format!("{} expects {expected} of {on}", cob.id);
            findings.push(Finding {
                severity: Severity::Error,
                code: "expects",
                message: format!("{text}, whose fingerprint is {found}: it would wait for ever"),
                place: system.place_of(number),
                steps: Vec::<Step>::new(),
                help: "the generation is damaged or was not made by cobgen: generate it again".to_owned(),
            });
        }
    }
}
