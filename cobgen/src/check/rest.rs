//! P4: every change object becomes idle. No change objects undo each other's transitions forever.
//!
//! Each need of a demanded goal is an arrow between change objects. The arrows must form no circle. Only transitions
//! from states to which a transition or its failure leads count: the others happen once. A circle is an error if no
//! order of transitions brings all its members to their preferred states. If there is an order, only simulation tells
//! whether it is taken, and the circle is a warning.

use std::collections::BTreeMap;

use cob_types::StateName;

use super::circles::Arrows;
use super::demand::Demand;
use super::finding::{Finding, Findings, Step};
use super::system::{System, Transitions};
use super::ways::{Ways, ways};
use super::words::abridged;
use crate::diagnostic::Severity;

/// The most pairs of a component that are searched for a way.
const MOST_PAIRS: usize = 1000;
/// The most contradictions of a component that are reported in full.
const MOST_TOLD: usize = 10;

/// Whether P4 holds to the letter.
pub(super) fn hold(system: &System<'_>) -> bool {
    Needs::of(system, Transitions::Entered).arrows.components().is_empty()
}

/// Reports contradictory pairs, else the smallest circle, of every set of change objects that lie in circles together.
/// `demand` is Γ with transitions from any state; `told` tells which change objects are already reported as members of
/// the same circle of goals.
pub(super) fn report(system: &System<'_>, demand: &Demand, told: &[Option<usize>], findings: &mut Findings) {
    let completed = Needs::of(system, Transitions::Completed);
    let lasting = completed.arrows.components();
    for members in &lasting {
        report_component(system, demand, &completed, members, told, findings);
    }
    // Circles that need a failure have finitely many turns, as there are finitely many failures.
    let entered = Needs::of(system, Transitions::Entered);
    for members in entered.arrows.components() {
        if !lasting.iter().flatten().any(|cob| members.binary_search(cob).is_ok()) {
            let circle = entered.arrows.smallest_circle(&members);
            if already(told, &circle) {
                continue;
            }
            let finding = finding(system, &entered, &circle, &Ways::Always);
            findings.push(Finding {
                message: format!("{} may undo each other's transitions after a failure", system.names(&circle)),
                help: "give the failed transition a failure state that needs no transition of other objects".to_owned(),
                ..finding
            });
        }
    }
}

fn report_component(
    system: &System<'_>,
    demand: &Demand,
    needs: &Needs,
    members: &[usize],
    told_before: &[Option<usize>],
    findings: &mut Findings,
) {
    let arrows = &needs.arrows;
    let pairs = members.iter().flat_map(|cob| {
        let mutual = arrows.from(*cob).iter().map(|head| *head as usize).filter(move |head| head > cob);
        mutual.filter(move |head| arrows.has(*head, *cob)).map(move |head| [*cob, head])
    });
    let mut told = 0;
    for pair in pairs.filter(|pair| !already(told_before, pair)).take(MOST_PAIRS) {
        let ways = ways(system, demand, &pair);
        if told < MOST_TOLD && matches!(ways, Ways::None(_)) {
            findings.push(finding(system, needs, &pair, &ways));
            told += 1;
        }
    }
    if told > 0 {
        return;
    }
    let circle = arrows.smallest_circle(members);
    if already(told_before, &circle) {
        return;
    }
    let found = match ways(system, demand, &circle) {
        Ways::Always | Ways::NotKnown => match ways(system, demand, members) {
            // The search names states of all members, but the finding only shows the circle.
            Ways::None(_) => Ways::None(Vec::new()),
            Ways::Always => Ways::Always,
            Ways::NotKnown => Ways::NotKnown,
        },
        none @ Ways::None(_) => none,
    };
    findings.push(finding(system, needs, &circle, &found));
}

/// Whether these change objects are already reported as a circle of goals: its fix may fix this circle too.
fn already(told: &[Option<usize>], cobs: &[usize]) -> bool {
    cobs.first().is_some_and(|first| told[*first].is_some() && cobs.iter().all(|cob| told[*cob] == told[*first]))
}

fn finding(system: &System<'_>, needs: &Needs, circle: &[usize], ways: &Ways) -> Finding {
    let steps =
        circle.iter().enumerate().filter_map(|(i, cob)| needs.step(system, *cob, circle[(i + 1) % circle.len()]));
    let mut steps = abridged(circle.len(), steps);
    let mut off = None;
    for cob in circle {
        let kind = system.kind_of(*cob).kind;
        let preferred = &system.cobs[*cob].cob.preferred;
        if *preferred == kind.pre_remove && kind.preferred != kind.pre_remove {
            let id = system.id(*cob);
            steps.push(system.statement(*cob, format!("{id} prefers {preferred}")));
            off = off.or(Some((id, &kind.preferred)));
        }
    }
    let names = system.names(circle);
    let (severity, message, help) = match ways {
        Ways::None(from) => {
            if from.len() == circle.len() {
                let there: Vec<String> = circle
                    .iter()
                    .zip(from)
                    .map(|(cob, s)| format!("{} {}", system.id(*cob), system.state(*cob, *s)))
                    .collect();
                let to: Vec<String> = circle
                    .iter()
                    .filter_map(|cob| {
                        Some(format!("{} {}", system.id(*cob), system.state(*cob, system.cobs[*cob].preferred?)))
                    })
                    .collect();
                let text = format!("from {} no order of transitions leads to {}", there.join(", "), to.join(", "));
                steps.push(Step { text, words: None, place: None });
            }
            (
                Severity::Error,
                format!("{names} contradict each other: they would undo each other's transitions for ever"),
                together(off),
            )
        }
        Ways::Always | Ways::NotKnown => {
            let help = "`cobgen verify` shows by simulation whether they converge";
            (Severity::Warning, format!("{names} may undo each other's transitions"), help.to_owned())
        }
    };
    Finding { severity, code: "P4", message, place: None, steps, help }
}

/// Advice for change objects that contradict each other. Most often the reason is a change object that prefers its off
/// state.
fn together(off: Option<(&str, &StateName)>) -> String {
    match off {
        Some((id, on)) => {
            format!("let {id} prefer {on}, or let the objects that need it {on} prefer off too, or remove that need")
        }
        None => "choose preferred states that fit together, or remove a dependency between the objects".to_owned(),
    }
}

/// Arrows between change objects, and for each a goal that makes it.
struct Needs {
    arrows: Arrows,
    /// The demanded goals of each change object, preferred goals first.
    goals: BTreeMap<usize, Vec<usize>>,
    transitions: Transitions,
}

impl Needs {
    fn of(system: &System<'_>, transitions: Transitions) -> Self {
        let demand = Demand::of(system, transitions);
        let mut goals: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for goal in &demand.goals {
            let (cob, state) = system.goal(*goal);
            let own = goals.entry(cob).or_default();
            let place = if system.cobs[cob].preferred == Some(state) { 0 } else { own.len() };
            own.insert(place, *goal);
        }
        let arrows = Arrows::of(system.cobs.len(), |cob, heads| {
            for goal in goals.get(&cob).into_iter().flatten() {
                let wants = system.guards_of(*goal, transitions).flat_map(|guard| &guard.wants);
                heads.extend(wants.filter_map(|want| u32::try_from(want.on).ok()));
            }
        });
        Self { arrows, goals, transitions }
    }

    /// The arrow between two change objects, in words.
    fn step(&self, system: &System<'_>, cob: usize, on: usize) -> Option<Step> {
        let goals = self.goals.get(&cob)?;
        goals.iter().find_map(|goal| {
            let guards = system.guards_of(*goal, self.transitions);
            let mut arrows = guards.flat_map(|guard| guard.wants.iter().map(move |want| (guard, want)));
            arrows.find(|(_, want)| want.on == on).map(|(guard, want)| system.step(*goal, guard, want))
        })
    }
}
