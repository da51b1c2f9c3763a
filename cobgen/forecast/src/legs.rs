//! A switch over several generations as a single plan: the plans of its legs in sequence.
//!
//! A host continues from an intermediate generation once that is active there, even with unfinished transitions. How
//! much of a leg it completes depends on timing, so the plan assumes all of it: an upper bound.

use cob_types::GenerationNumber;

use crate::plan::{Forecast, PointOfNoReturn, SwitchPlan, Why};

/// Joins the plans of these legs into a plan in which each leg starts when the leg before it has ended.
///
/// # Panics
/// Without a leg.
#[must_use]
pub fn joined(legs: Vec<SwitchPlan>, steps: Vec<GenerationNumber>) -> SwitchPlan {
    let mut legs = legs.into_iter();
    let mut whole = legs.next().expect("a way has a leg");
    name(&mut whole);
    for leg in legs {
        append(&mut whole, leg);
    }
    SwitchPlan { steps, ..whole }
}

/// Writes the leg's generation into its parts.
fn name(leg: &mut SwitchPlan) {
    let to = Some(leg.to);
    leg.groups.iter_mut().for_each(|group| group.to = to);
    leg.transitions.iter_mut().for_each(|step| step.step = to);
}

fn append(whole: &mut SwitchPlan, mut leg: SwitchPlan) {
    name(&mut leg);
    let (transitions, begin) = (whole.transitions.len(), whole.forecast.end_us);
    let (stages, groups) = (whole.stages.len(), whole.groups.len());
    // No transition of the leg starts before the end of the leg before it.
    let last = whole.critical_path.last().copied();
    let ended = last.map_or(0, |last| whole.transitions[last].end_us);
    for step in &mut leg.transitions {
        step.id += transitions;
        step.after.iter_mut().for_each(|before| *before += transitions);
        step.stage += stages;
        (step.begin_us, step.end_us) = (step.begin_us + begin, step.end_us + begin);
        match &mut step.cause {
            Some(cause) => *cause += transitions,
            on_go => {
                *on_go = last;
                step.after.splice(..0, last);
                step.lag_us = step.begin_us - ended;
            }
        }
        step.why = of_whole(std::mem::replace(&mut step.why, Why::Astray), transitions);
    }
    for gap in &mut leg.interrupted {
        gap.begin_us += begin;
        gap.end_us = gap.end_us.map(|end| end + begin);
        gap.why = of_whole(std::mem::replace(&mut gap.why, Why::Astray), transitions);
    }
    for group in &mut leg.groups {
        group.after.iter_mut().for_each(|before| *before += groups);
        group.activated_us += begin;
    }
    for step in &mut leg.irreversible {
        step.transition += transitions;
        step.latest_us += begin;
    }
    whole.point_of_no_return = match (whole.point_of_no_return.take(), leg.point_of_no_return) {
        (Some(point), _) => Some(PointOfNoReturn { behind: point.behind + leg.transitions.len(), ..point }),
        (None, Some(point)) => Some(PointOfNoReturn {
            transition: point.transition + transitions,
            at_us: point.at_us + begin,
            latest_us: point.latest_us + begin,
            before: point.before + transitions,
            behind: point.behind,
        }),
        (None, None) => None,
    };
    whole.to = leg.to;
    whole.groups.append(&mut leg.groups);
    whole.transitions.append(&mut leg.transitions);
    whole.stages.extend(leg.stages.into_iter().map(|stage| stage.iter().map(|at| at + transitions).collect()));
    whole.interrupted.append(&mut leg.interrupted);
    whole.irreversible.append(&mut leg.irreversible);
    whole.critical_path.extend(leg.critical_path.iter().map(|at| at + transitions));
    let (before, after) = (&mut whole.forecast, leg.forecast);
    before.stuck.extend(after.stuck);
    *before = Forecast {
        end_us: before.end_us + after.end_us,
        p50_us: before.p50_us + after.p50_us,
        p90_us: before.p90_us + after.p90_us,
        runs: before.runs.max(after.runs),
        seed: before.seed,
        known: before.known + after.known,
        converges: before.converges && after.converges,
        stuck: std::mem::take(&mut before.stuck),
    };
}

/// The reason, with transition numbers of the whole plan.
fn of_whole(why: Why, transitions: usize) -> Why {
    match why {
        Why::NeededBy { mut moves } => {
            moves.iter_mut().for_each(|by| by.transition += transitions);
            Why::NeededBy { moves }
        }
        Why::New | Why::Leaves | Why::Content | Why::Kind | Why::RestsOn { .. } | Why::Preferred | Why::Astray => why,
    }
}
