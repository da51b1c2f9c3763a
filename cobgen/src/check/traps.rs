//! P1: no traps. Every demanded state can be reached from every state that the change object can come to, and checks
//! can find any state.
//!
//! For a set of several states it is enough that some state of the set can be reached from everywhere. A state that no
//! transition leaves or enters (a conflict, a hold) waits for a person by design: a warning for kinds that the user
//! wrote, no finding for built-in kinds.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::StateName;

use super::demand::Demand;
use super::finding::{Finding, Findings, Step};
use super::leaving::{CODE, because};
use super::system::{KindView, System, Transitions};
use crate::diagnostic::Severity;

/// Whether P1 holds to the letter.
pub(super) fn hold(system: &System<'_>, demand: &Demand) -> bool {
    demand.goals.iter().all(|goal| {
        let (cob, state) = system.goal(*goal);
        system.kind_of(cob).always_reached(state)
    })
}

/// Reports the traps, once for each kind and state.
pub(super) fn report(system: &System<'_>, demand: &Demand, findings: &mut Findings) {
    report_some(system, demand, |_| true, findings);
}

/// Reports traps on the way of departing change objects: of goals that are demanded only then.
pub(super) fn report_gained(system: &System<'_>, staying: &Demand, leaving: &Demand, findings: &mut Findings) {
    report_some(system, leaving, |goal| !staying.asked[goal] && leaving.asker[goal].is_some(), findings);
}

fn report_some(system: &System<'_>, demand: &Demand, counts: impl Fn(usize) -> bool, findings: &mut Findings) {
    let firm = firm_goals(system, demand);
    let mut groups: BTreeMap<(usize, usize, Severity), Group> = BTreeMap::new();
    for goal in demand.goals.iter().copied().filter(|goal| firm[*goal] && counts(*goal)) {
        let (cob, target) = system.goal(goal);
        let kind = system.kind_of(cob);
        if kind.always_reached(target) {
            continue;
        }
        let mut counted = BTreeSet::new();
        for from in (0..kind.states()).filter(|from| !kind.reaches(*from, target)) {
            let Some(severity) = severity(system, demand, cob, from, target) else { continue };
            let group = groups.entry((system.cobs[cob].kind, target, severity)).or_insert_with(|| Group {
                goal,
                cobs: 0,
                from: BTreeSet::new(),
            });
            group.from.insert(from);
            group.cobs += usize::from(counted.insert(severity));
        }
    }
    for ((kind, target, severity), group) in groups {
        findings.push(finding(system, demand, &system.kinds[kind], target, severity, &group));
    }
}

struct Group {
    /// The first goal of the group.
    goal: usize,
    cobs: usize,
    from: BTreeSet<usize>,
}

/// Preferred goals, and goals of needs that are not certain to be satisfied by another state.
fn firm_goals(system: &System<'_>, demand: &Demand) -> Vec<bool> {
    let mut firm = vec![false; system.goals()];
    for (i, cob) in system.cobs.iter().enumerate() {
        if let Some(preferred) = cob.preferred {
            firm[system.goal_of(i, preferred)] = true;
        }
    }
    for goal in &demand.goals {
        for want in system.guards_of(*goal, Transitions::Any).flat_map(|guard| &guard.wants) {
            let kind = system.kind_of(want.on);
            let served = |from: usize| want.states.iter().any(|state| kind.reaches(from, *state));
            let served_always =
                want.states.iter().any(|state| kind.always_reached(*state)) || (0..kind.states()).all(served);
            if !served_always {
                firm[system.choice(want)] = true;
            }
        }
    }
    firm
}

/// The severity if `target` can't be reached from `from`; `None`: no finding.
fn severity(system: &System<'_>, demand: &Demand, cob: usize, from: usize, target: usize) -> Option<Severity> {
    let kind = system.kind_of(cob);
    let reached_at_all = (0..kind.states()).any(|state| kind.next(state, target).is_some());
    let moved_to = (0..kind.states()).any(|state| demand.uses_transition(system, cob, state, from));
    let waits_for_a_person = !kind.left[from] && !moved_to && kind.kind.states[from] != StateName::OUTDATED;
    match (reached_at_all && waits_for_a_person, kind.kind.backend == "command") {
        (false, _) => Some(Severity::Error),
        (true, true) => Some(Severity::Warning),
        (true, false) => None,
    }
}

fn finding(
    system: &System<'_>,
    demand: &Demand,
    kind: &KindView<'_>,
    target: usize,
    severity: Severity,
    group: &Group,
) -> Finding {
    let (cob, _) = system.goal(group.goal);
    let (name, target_name) = (&kind.kind.name, &kind.kind.states[target]);
    let from: Vec<&str> = group.from.iter().map(|state| kind.kind.states[*state].as_str()).collect();
    let from = from.join(" or ");
    let others = match group.cobs {
        0 | 1 => String::new(),
        n => format!(" (and {} more of this kind)", n - 1),
    };
    let message = match severity {
        Severity::Error => format!(
            "{}{others} can't go from {from} to {target_name}: the kind {name} has no transitions that lead there",
            system.id(cob)
        ),
        Severity::Warning => format!(
            "{}{others} can't leave {from} by itself: the kind {name} has no transition out of it",
            system.id(cob)
        ),
    };
    let leaver = leaver(system, demand, group.goal);
    let help = match severity {
        Severity::Error if kind.is_written_by_user() => {
            format!("add transitions to {name} that lead from {from} to {target_name}")
        }
        Severity::Error => format!("{name} is built in: request a state that it can reach"),
        Severity::Warning => {
            format!(
                "if a check finds it there, it waits for a person; if that is not intended, add a transition out \
                of it to {name}"
            )
        }
    };
    Finding {
        severity,
        code: if leaver.is_some() { CODE } else { "P1" },
        message,
        place: system.provenance.and_then(|p| p.kinds.get(name)).cloned(),
        steps: std::iter::once(why_asked(system, demand, group.goal)).chain(leaver).collect(),
        help,
    }
}

/// The reason for a goal: its own preference, or the first arrow that demanded it.
fn why_asked(system: &System<'_>, demand: &Demand, goal: usize) -> Step {
    let (cob, state) = system.goal(goal);
    let asker = demand.asker[goal].map(|asker| asker as usize);
    let arrow = asker.and_then(|asker| {
        let guards = system.guards_of(asker, Transitions::Any);
        let mut arrows = guards.flat_map(|guard| guard.wants.iter().map(move |want| (guard, want)));
        arrows.find(|(_, want)| system.wanted(want).any(|g| g == goal)).map(|(g, w)| system.step(asker, g, w))
    });
    arrow.unwrap_or_else(|| system.statement(cob, format!("{} prefers {}", system.id(cob), system.state(cob, state))))
}

/// The change object whose departure demands the goal, if that is the reason.
fn leaver(system: &System<'_>, demand: &Demand, goal: usize) -> Option<Step> {
    let mut goal = goal;
    while let Some(asker) = demand.asker[goal] {
        goal = asker as usize;
    }
    let (cob, state) = system.goal(goal);
    (system.cobs[cob].preferred != Some(state)).then(|| because(system, cob))
}
