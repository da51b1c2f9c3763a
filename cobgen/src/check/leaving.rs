//! Every change object must be able to depart: if it is removed from the model, it must be able to go to its pre-remove
//! state.
//!
//! The conditions of progress are about preferred states, not about departing change objects. So this module adds the
//! pre-remove states as roots to the goals of Γ (see `demand`), and checks the added goals against P1, P2 and P3. The
//! state from which a change object departs does not matter: every state leads to the preferred state (condition
//! `traps`), and from there the change object continues. Kept (`on_remove: keep`) and observed change objects depart in
//! their present state, and are not checked.

use std::collections::{BTreeMap, BTreeSet};

use super::demand::Demand;
use super::finding::{Finding, Findings, Step};
use super::system::{Guard, Moment, System, Want};
use super::{goals, holds, traps};
use crate::diagnostic::Severity;

/// The code of all findings of this module, since P1 to P3 are about preferred states.
pub(super) const CODE: &str = "leaving";

/// Reports change objects that could never depart. `staying` is Γ of the preferred states; `refused` tells which change
/// objects lie in an already reported circle.
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

/// The pre-remove state of a change object, if its kind has this state.
pub(super) fn off(system: &System<'_>, cob: usize) -> Option<usize> {
    let kind = system.kind_of(cob);
    kind.place(&kind.kind.pre_remove)
}

/// The state in which a change object departs, as far as it is known; for a kept change object its preferred state.
fn last(system: &System<'_>, cob: usize) -> Option<usize> {
    let view = &system.cobs[cob];
    if view.cob.leaves_as_it_is() { view.preferred } else { off(system, cob) }
}

/// A closing step for a finding: the change object goes to this state when it departs.
pub(super) fn because(system: &System<'_>, cob: usize) -> Step {
    let id = system.id(cob);
    let text = match system.cobs[cob].cob.leaves_as_it_is() {
        true => format!("{id} leaves the model as it is"),
        false => format!("{id} must reach {} before it leaves the model", system.kind_of(cob).kind.pre_remove),
    };
    system.statement(cob, text)
}

/// Reports kinds without a route from a preferred state to the pre-remove state, once for each pair.
fn report_no_way(system: &System<'_>, findings: &mut Findings) {
    let mut groups: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (cob, view) in system.cobs.iter().enumerate() {
        let (Some(preferred), Some(off), false) = (view.preferred, off(system, cob), view.cob.leaves_as_it_is()) else {
            continue;
        };
        let kind = system.kind_of(cob);
        // If no transition leads to the preferred state either, another finding reports that.
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
                "{}{others} can never leave the model: the kind {name} has no transitions from {from} to {to}, its \
                 pre-remove state",
                system.id(first)
            ),
            place: system.provenance.and_then(|p| p.kinds.get(name)).cloned(),
            steps: vec![system.statement(
                first,
                format!("{} prefers {from}, and must reach {to} before it leaves", system.id(first)),
            )],
            help: if is_own {
                format!(
                    "add transitions from {from} to {to} to {name}, or write `pre_remove: {from}` if the removal \
                     needs no further step"
                )
            } else {
                format!("{name} is built in: let the object prefer another state, or write your own kind")
            },
        });
    }
}

/// Reports change objects that would each have to depart before the other: the daemons would refuse that switch. A
/// change object departs before another that it needs on its way, if both depart together.
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

/// The pairs of change objects where the first departs before the second, each with the need that is the reason.
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
            // A kept change object counts as off for change objects that depart together with it.
            let as_good = system.cobs[want.on].cob.leaves_as_it_is()
                && off(system, want.on).is_some_and(|off| want.states.contains(&off));
            if served && !as_good && !want.states.contains(&theirs) && told.insert(want.on) && !waits() {
                arrows.push((cob, guard, want));
            }
        }
    }
    arrows
}

/// Whether arrows lead from a change object to another.
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
        message: format!(
            "{leaver} and {other} can't leave the model in the same generation: each would have to leave first"
        ),
        place: None,
        steps: vec![system.bare_step(cob, guard, want), because(system, want.on)],
        help: format!("remove {leaver} a generation earlier than {other}, or let {leaver} require {other}"),
    }
}

/// The needs of all transitions on the route from a state to another.
fn way_out<'s, 'a>(
    system: &'s System<'a>,
    cob: usize,
    from: usize,
    to: usize,
) -> impl Iterator<Item = (&'s Guard<'a>, &'s Want<'a>)> {
    let mut transitions = Vec::new();
    let mut at = from;
    while let Some(next) = system.kind_of(cob).next(at, to) {
        transitions.push(Moment::Transition { from: at, to: next });
        at = next;
    }
    let guards = system.cobs[cob].guards.iter().filter(move |guard| transitions.contains(&guard.moment));
    guards.flat_map(|guard| guard.wants.iter().map(move |want| (guard, want)))
}

/// Whether a goal is reached only after another goal, according to the needs.
fn waits_for(system: &System<'_>, leaving: &Demand, goal: usize, first: usize) -> bool {
    leaving.chosen(system).reaches(goal, first)
}
