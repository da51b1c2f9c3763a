//! P2: no circle of goals. A goal that needs itself, directly or over other goals, never starts.
//!
//! Transitions from any state count, also from `outdated`: a check may find every member there. A circle that exists
//! only through a second choice of some set is refused only if no order of transitions leads out of it.

use cob_types::StateName;

use super::demand::Demand;
use super::finding::{Finding, Findings};
use super::leaving::{CODE, because};
use super::system::{Guard, Moment, System, Transitions, Want};
use super::ways::{Ways, ways};
use super::words::abridged;
use crate::diagnostic::Severity;

/// Whether P2 holds to the letter.
pub(super) fn hold(system: &System<'_>, demand: &Demand) -> bool {
    demand.arrows(system).components().is_empty()
}

/// Reports the smallest circle of every set of goals that lie in circles together. The answer has, for each change
/// object with a goal in a refused set, the number of that set.
pub(super) fn report(system: &System<'_>, demand: &Demand, findings: &mut Findings) -> Vec<Option<usize>> {
    let mut certain = demand.chosen(system).components();
    // A circle of `requires` exists twice: for starting and for stopping. The circle for starting is reported.
    let prefers = |goal: &usize| {
        let (cob, target) = system.goal(*goal);
        system.cobs[cob].preferred == Some(target)
    };
    certain.sort_by_key(|members| !members.goals.iter().any(prefers));
    let mut refused = vec![None; system.cobs.len()];
    for (i, members) in certain.iter().enumerate() {
        let circle = demand.chosen(system).smallest_circle(members);
        findings.push(finding(system, &circle, members.goals.len(), Severity::Error));
        members.goals.iter().for_each(|goal| refused[system.goal(*goal).0] = Some(i));
    }
    for members in demand.arrows(system).components() {
        if certain.iter().flat_map(|c| &c.goals).any(|goal| members.binary_search(goal).is_ok()) {
            continue;
        }
        let circle = demand.arrows(system).smallest_circle(&members);
        let mut cobs: Vec<usize> = circle.iter().map(|goal| system.goal(*goal).0).collect();
        cobs.sort_unstable();
        cobs.dedup();
        let severity = match ways(system, demand, &cobs) {
            Ways::None(_) => Severity::Error,
            Ways::Always | Ways::NotKnown => Severity::Warning,
        };
        findings.push(finding(system, &circle, members.len(), severity));
    }
    refused
}

/// Reports circles that exist only because a change object departs, except circles of change objects whose circle is
/// already reported (`refused`).
pub(super) fn report_gained(
    system: &System<'_>,
    staying: &Demand,
    leaving: &Demand,
    refused: &[Option<usize>],
    findings: &mut Findings,
) {
    let gained = |members: &Vec<usize>| {
        members.iter().any(|goal| !staying.asked[*goal])
            && members.iter().all(|goal| refused[system.goal(*goal).0].is_none())
    };
    let certain = leaving.chosen(system).components();
    let told =
        |members: &[usize]| certain.iter().flat_map(|c| &c.goals).any(|goal| members.binary_search(goal).is_ok());
    let possible = leaving.arrows(system).components().into_iter().filter(|members| !told(members));
    let all = certain
        .iter()
        .filter(|members| gained(&members.goals))
        .map(|members| (members.goals.clone(), leaving.chosen(system).smallest_circle(members), Severity::Error));
    let all = all.chain(possible.filter(gained).map(|members| {
        let circle = leaving.arrows(system).smallest_circle(&members);
        (members, circle, Severity::Warning)
    }));
    for (members, circle, severity) in all {
        let mut finding = finding(system, &circle, members.len(), severity);
        let leaver = circle.iter().find(|goal| !staying.asked[**goal]).or(members.first());
        finding.code = CODE;
        finding.steps.extend(leaver.map(|goal| because(system, system.goal(*goal).0)));
        findings.push(finding);
    }
}

fn finding(system: &System<'_>, circle: &[usize], members: usize, severity: Severity) -> Finding {
    let steps = circle.iter().enumerate().filter_map(|(i, goal)| {
        let next = circle[(i + 1) % circle.len()];
        let (guard, want) = arrow(system, *goal, next)?;
        Some(system.step(*goal, guard, want))
    });
    let steps = abridged(circle.len(), steps);
    let cobs: Vec<usize> = circle.iter().map(|goal| system.goal(*goal).0).collect();
    let more = match members.saturating_sub(circle.len()) {
        0 => String::new(),
        more => format!(" (the shortest circle among {} states)", more + circle.len()),
    };
    let (message, help) = match severity {
        Severity::Error => (
            format!("circular dependency between {}{more}", system.names(&cobs)),
            by_order(system, circle)
                .or_else(|| over_outdated(system, circle))
                .unwrap_or_else(|| "remove or reverse a dependency of the circle".to_owned()),
        ),
        Severity::Warning => (
            format!("possible circular dependency between {}{more}", system.names(&cobs)),
            "it occurs only with the second choice of a need: `cobgen verify` shows by simulation whether that \
             happens"
                .to_owned(),
        ),
    };
    Finding { severity, code: "P2", message, place: None, steps, help }
}

/// Advice for a circle over a route that is not the only shortest route, if another shortest route needs no member of
/// the circle: the route that the kind lists first is taken.
fn by_order(system: &System<'_>, circle: &[usize]) -> Option<String> {
    let members: Vec<usize> = circle.iter().map(|goal| system.goal(*goal).0).collect();
    circle.iter().enumerate().find_map(|(i, goal)| {
        let (guard, _) = arrow(system, *goal, circle[(i + 1) % circle.len()])?;
        let Moment::Transition { from, to } = guard.moment else { return None };
        let (cob, target) = system.goal(*goal);
        let kind = system.kind_of(cob);
        if !kind.is_written_by_user() {
            return None;
        }
        let free = |other: usize| {
            let mut wants = system.wants(cob, Moment::Transition { from, to: other });
            wants.all(|want| !members.contains(&want.on))
        };
        let far = kind.far(to, target)?;
        let as_short = |other: &usize| *other != to && kind.far(*other, target) == Some(far) && free(*other);
        let other = kind.transitions_from(from).find(as_short)?;
        let [from, to, other, target] = [from, to, other, target].map(|at| system.state(cob, at));
        let kind = &kind.kind.name;
        Some(format!(
            "list {from} -> {other} before {from} -> {to} in the kind {kind}: both lead to {target} in equally few \
             steps, and the transition that is listed first counts"
        ))
    })
}

/// Advice for a circle over a detour: a member that must reach a state and is found `outdated` passes another state on
/// its route, which needs more.
fn over_outdated(system: &System<'_>, circle: &[usize]) -> Option<String> {
    circle.iter().enumerate().find_map(|(i, goal)| {
        let (guard, _) = arrow(system, *goal, circle[(i + 1) % circle.len()])?;
        let (cob, target) = system.goal(*goal);
        match guard.moment {
            Moment::Transition { from, to }
                if to != target
                    && *system.state(cob, from) == StateName::OUTDATED
                    && system.kind_of(cob).is_written_by_user() =>
            {
                let (kind, from) = (&system.kind_of(cob).kind.name, system.state(cob, from));
                Some(format!("give the kind {kind} a transition {from} -> {}", system.state(cob, target)))
            }
            Moment::Transition { .. } | Moment::Grant(_) => None,
        }
    })
}

/// The first entry and need through which a goal needs another goal; needs with that goal as first choice come first.
pub(super) fn arrow<'s, 'a>(
    system: &'s System<'a>,
    goal: usize,
    needed: usize,
) -> Option<(&'s Guard<'a>, &'s Want<'a>)> {
    let arrows =
        || system.guards_of(goal, Transitions::Any).flat_map(|guard| guard.wants.iter().map(move |want| (guard, want)));
    arrows()
        .find(|(_, want)| system.choice(want) == needed)
        .or_else(|| arrows().find(|(_, want)| system.wanted(want).any(|goal| goal == needed)))
}
