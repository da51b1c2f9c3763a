//! No change object that could never leave: who is taken out of the model must be able to go to its
//! pre-remove state.
//!
//! What leaves is asked nothing by the conditions of progress: those are about preferred states. So
//! here Γ is walked on, from the pre-remove states too, and what it gains is held against P1, P2 and
//! P3. From which state it leaves is no question: from every state it comes to its preferred one
//! (that is what `traps` says), and from there on. Those that are kept (`on_remove: keep`), or observed, go nowhere.

use std::collections::{BTreeMap, BTreeSet};

use super::demand::Demand;
use super::finding::{Finding, Findings, Severity, Step};
use super::system::{Guard, Moment, System, Want};
use super::{goals, holds, traps};

/// The code of everything found here: P1 to P3 are about preferred states.
pub(super) const CODE: &str = "leaving";

/// Reports change objects that could never leave. `staying` is Γ of the preferred states, and
/// `refused` says which change objects lie in a circle that is told already.
pub(super) fn report(
    system: &System<'_>,
    staying: &Demand,
    leaving: &Demand,
    refused: &[Option<usize>],
    findings: &mut Findings,
) {
    report_no_way(system, findings);
    traps::report_gained(system, staying, leaving, findings);
    goals::report_gained(system, staying, leaving, refused, findings);
    holds::report_gained(system, staying, leaving, findings);
    report_left_behind(system, leaving, findings);
}

/// The pre-remove state of a change object, where there is one to go to.
pub(super) fn off(system: &System<'_>, cob: usize) -> Option<usize> {
    let kind = system.kind_of(cob);
    kind.place(&kind.kind.pre_remove)
}

/// The state in which a change object leaves, as far as is known before: one that is kept leaves where it is.
fn last(system: &System<'_>, cob: usize) -> Option<usize> {
    let view = &system.cobs[cob];
    if view.cob.leaves_as_it_is() { view.preferred } else { off(system, cob) }
}

/// That a change object goes there when it leaves, for the end of a finding.
pub(super) fn because(system: &System<'_>, cob: usize) -> Step {
    let id = system.id(cob);
    let text = match system.cobs[cob].cob.leaves_as_it_is() {
        true => format!("{id} leaves the model as it is"),
        false => format!("{id} goes to {} before it leaves the model", system.kind_of(cob).kind.pre_remove),
    };
    system.statement(cob, text)
}

/// Kinds without a way from a preferred state to the pre-remove state, once for each pair.
fn report_no_way(system: &System<'_>, findings: &mut Findings) {
    let mut groups: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (cob, view) in system.cobs.iter().enumerate() {
        let (Some(preferred), Some(off), false) = (view.preferred, off(system, cob), view.cob.leaves_as_it_is()) else {
            continue;
        };
        let kind = system.kind_of(cob);
        // Where nothing leads to the preferred state either, that is told.
        let entered = kind.states() == 1 || (0..kind.states()).any(|from| kind.next(from, preferred).is_some());
        if entered && !kind.reaches(preferred, off) {
            groups.entry((view.kind, preferred)).or_default().push(cob);
        }
    }
    for ((kind, preferred), cobs) in groups {
        let is_own = system.kinds[kind].is_written_by_user();
        let kind = system.kinds[kind].kind;
        let (name, from, to) = (&kind.name, &kind.states[preferred], &kind.pre_remove);
        let first = cobs[0];
        let others = match cobs.len() {
            1 => String::new(),
            n => format!(" (and {} more of this kind)", n - 1),
        };
        findings.push(Finding {
            severity: Severity::Error,
            code: CODE,
            message: format!(
                "{}{others} could never leave the model: the kind {name} has no transitions that lead from {from} to \
                 {to}, its pre-remove state",
                system.id(first)
            ),
            place: system.provenance.and_then(|p| p.kinds.get(name)).cloned(),
            steps: vec![
                system.statement(
                    first,
                    format!("{} prefers {from}, and goes to {to} before it leaves", system.id(first)),
                ),
            ],
            help: if is_own {
                format!(
                    "add transitions to {name} that lead from {from} to {to}, or say `pre_remove: {from}` if there is \
                     nothing to undo when it leaves"
                )
            } else {
                format!("{name} is built in: let it prefer another state, or write a kind of your own")
            },
        });
    }
}

/// Whoever needs another one on its way out leaves before it, when both leave together. Reported are those that would
/// have to leave before each other: such a switch is refused when it is made.
fn report_left_behind(system: &System<'_>, leaving: &Demand, findings: &mut Findings) {
    let arrows = leave_before(system, leaving);
    let mut later: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (cob, _, want) in &arrows {
        later.entry(*cob).or_default().insert(want.on);
    }
    for (cob, guard, want) in arrows {
        if leads(&later, want.on, cob) {
            findings.push(left_behind(system, cob, guard, want));
        }
    }
}

/// Who leaves before whom, and the needs that say so.
fn leave_before<'s, 'a>(system: &'s System<'a>, leaving: &Demand) -> Vec<(usize, &'s Guard<'a>, &'s Want<'a>)> {
    let mut arrows = Vec::new();
    for (cob, view) in system.cobs.iter().enumerate() {
        let (Some(preferred), Some(own), false) = (view.preferred, off(system, cob), view.cob.leaves_as_it_is()) else {
            continue;
        };
        let mut told = BTreeSet::new();
        for (guard, want) in way_out(system, cob, preferred, own) {
            let Some(theirs) = last(system, want.on) else { continue };
            let waits = || waits_for(system, leaving, system.goal_of(want.on, theirs), system.goal_of(cob, own));
            let there = system.cobs[want.on].preferred;
            let served = there.is_some_and(|at| want.states.iter().any(|s| system.kind_of(want.on).reaches(at, *s)));
            // Who leaves as it is is as good as off for those who leave beside it.
            let as_good = system.cobs[want.on].cob.leaves_as_it_is()
                && off(system, want.on).is_some_and(|off| want.states.contains(&off));
            if served && !as_good && !want.states.contains(&theirs) && told.insert(want.on) && !waits() {
                arrows.push((cob, guard, want));
            }
        }
    }
    arrows
}

/// Whether one comes to another along arrows.
fn leads(arrows: &BTreeMap<usize, BTreeSet<usize>>, from: usize, to: usize) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            open.extend(arrows.get(&at).into_iter().flatten());
        }
    }
    false
}

fn left_behind(system: &System<'_>, cob: usize, guard: &Guard<'_>, want: &Want<'_>) -> Finding {
    let (leaver, other) = (system.id(cob), system.id(want.on));
    Finding {
        severity: Severity::Warning,
        code: CODE,
        message: format!("{leaver} and {other} can't leave the model together: each would have to leave first"),
        place: None,
        steps: vec![system.bare_step(cob, guard, want), because(system, want.on)],
        help: format!("take {leaver} out one generation before {other}, or let {leaver} require {other}"),
    }
}

/// The needs of all moves from one state to another.
fn way_out<'s, 'a>(
    system: &'s System<'a>,
    cob: usize,
    from: usize,
    to: usize,
) -> impl Iterator<Item = (&'s Guard<'a>, &'s Want<'a>)> {
    let mut hops = Vec::new();
    let mut at = from;
    while let Some(next) = system.kind_of(cob).next(at, to) {
        hops.push(Moment::Hop { from: at, to: next });
        at = next;
    }
    let guards = system.cobs[cob].guards.iter().filter(move |guard| hops.contains(&guard.moment));
    guards.flat_map(|guard| guard.wants.iter().map(move |want| (guard, want)))
}

/// Whether one goal is come to only after another, as far as needs say.
fn waits_for(system: &System<'_>, leaving: &Demand, goal: usize, first: usize) -> bool {
    leaving.chosen(system).reaches(goal, first)
}
