//! The partial order of a course, and the slack of each transition.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cob_engine::sim::forecast::{Course, JobKind, Step};
use cob_types::{CobId, HostName, StateName, SwitchOrder};

use crate::plan::Planned;
use crate::sides::{Known, Sides};

/// The most pairs of an action before and a first action after an activation; beyond it only the cause is recorded.
const PAIRS: usize = 400;
/// The greatest depth of grants under a grant that is followed.
const DEEPEST: usize = 64;

/// An action of the course with its predecessors.
pub(crate) struct Act<'c> {
    pub(crate) step: &'c Step,
    pub(crate) from: &'c StateName,
    pub(crate) to: &'c StateName,
    pub(crate) after: BTreeSet<usize>,
    pub(crate) cause: Option<usize>,
}

/// The actions of a course in their partial order.
pub(crate) fn acts<'c>(course: &'c Course, sides: &Sides<'_>, order: &SwitchOrder) -> Vec<Act<'c>> {
    let mut number = vec![None; course.steps.len()];
    let mut acts: Vec<Act<'c>> = Vec::new();
    for (at, step) in course.steps.iter().enumerate() {
        if let JobKind::Action { from, to } = &step.job {
            number[at] = Some(acts.len());
            let cause = cause(course, &number, step.cause);
            acts.push(Act { step, from, to, after: cause.into_iter().collect(), cause });
        }
    }
    let mut link = Link { sides, order, of: HashMap::new(), users: HashMap::new() };
    for at in 0..acts.len() {
        let after = link.before(&acts, at);
        acts[at].after.extend(after);
    }
    activations(course, &number, &mut acts, order);
    acts
}

/// The action behind a step, through the checks between.
fn cause(course: &Course, number: &[Option<usize>], mut at: Option<usize>) -> Option<usize> {
    loop {
        let step = at?;
        if number[step].is_some() {
            return number[step];
        }
        at = course.steps[step].cause;
    }
}

/// The actions so far.
struct Link<'s, 'a> {
    sides: &'s Sides<'a>,
    order: &'s SwitchOrder,
    /// The last action of each change object. For look-ups only, never iterated.
    of: HashMap<CobId, usize>,
    /// The actions that needed its state since its last action. For look-ups only, never iterated.
    users: HashMap<CobId, Vec<usize>>,
}

impl Link<'_, '_> {
    /// The predecessors of an action; records the action for later calls.
    fn before(&mut self, acts: &[Act<'_>], at: usize) -> BTreeSet<usize> {
        let Act { step, from, to, .. } = &acts[at];
        let mut before: BTreeSet<usize> = self.of.get(&step.cob).copied().into_iter().collect();
        let ended = |other: &usize| acts[*other].step.end <= step.begin;
        let users = self.users.remove(&step.cob).unwrap_or_default();
        let (gone, runs): (Vec<usize>, Vec<usize>) = users.into_iter().partition(ended);
        before.extend(gone);
        if !runs.is_empty() {
            self.users.insert(step.cob.clone(), runs);
        }
        let side = if step.generation == self.order.to { &self.sides.to } else { &self.sides.from };
        let transition = |known: Known<'_>| -> Vec<CobId> {
            let needs = known.cob.transitions.iter().filter(|t| t.from == **from && t.to == **to);
            needs.flat_map(|t| &t.needs).map(|need| need.cob.clone()).collect()
        };
        let needed = side.find(&step.cob).map(transition).unwrap_or_default();
        let mut open: Vec<CobId> = needed.clone();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.len() > DEEPEST + needed.len() || !seen.insert(id.clone()) {
                continue;
            }
            if let Some(last) = self.of.get(&id) {
                before.extend(Some(*last).filter(ended));
            } else if let Some(known) = side.find(&id) {
                // It did not change its state, but change objects that its grant relies on may have.
                let locks = known.cob.locks.iter().filter(|lock| lock.state == known.cob.preferred);
                open.extend(locks.flat_map(|lock| &lock.needs).map(|need| need.cob.clone()));
            }
        }
        for id in needed {
            self.users.entry(id).or_default().push(at);
        }
        self.of.insert(step.cob.clone(), at);
        before
    }
}

/// A host's actions after its activation come after the departures that it waited for.
fn activations(course: &Course, number: &[Option<usize>], acts: &mut [Act<'_>], order: &SwitchOrder) {
    let mut last: BTreeMap<&CobId, usize> = BTreeMap::new();
    let mut leaving: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut first: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut seen: BTreeSet<&CobId> = BTreeSet::new();
    for (at, act) in acts.iter().enumerate() {
        if act.step.generation == order.to {
            if seen.insert(&act.step.cob) {
                first.entry(act.step.cob.host_str()).or_default().push(at);
            }
        } else {
            last.insert(&act.step.cob, at);
        }
    }
    for (id, at) in &last {
        leaving.entry(id.host_str()).or_default().push(*at);
    }
    let mut edges: Vec<(usize, usize)> = Vec::new();
    for activation in &course.activations {
        let Some(first) = first.get(activation.host.as_str()) else { continue };
        let mut before: Vec<usize> = leaving.get(activation.host.as_str()).cloned().unwrap_or_default();
        before.extend(waited(order, &activation.host, &last));
        before.retain(|at| acts[*at].step.end <= activation.at);
        let cause = cause(course, number, activation.cause);
        if before.len() * first.len() > PAIRS {
            before.clear();
        }
        before.extend(cause);
        edges.extend(first.iter().flat_map(|first| before.iter().map(move |before| (*before, *first))));
    }
    for (before, at) in edges {
        if before < at {
            acts[at].after.insert(before);
        }
    }
}

fn waited<'o>(
    order: &'o SwitchOrder,
    host: &HostName,
    last: &'o BTreeMap<&CobId, usize>,
) -> impl Iterator<Item = usize> + 'o {
    order.waits.get(host).into_iter().flatten().filter_map(|id| last.get(id).copied())
}

/// Sets stages and slack; returns the stages and the critical path.
pub(crate) fn measure(transitions: &mut [Planned], end_us: u64) -> (Vec<Vec<usize>>, Vec<usize>) {
    let mut stages: Vec<Vec<usize>> = Vec::new();
    for at in 0..transitions.len() {
        let before = transitions[at].after.iter().map(|before| transitions[*before].stage).max();
        let stage = before.unwrap_or(0) + 1;
        transitions[at].stage = stage;
        if stages.len() < stage {
            stages.push(Vec::new());
        }
        stages[stage - 1].push(at);
    }
    for step in transitions.iter_mut() {
        step.slack_us = end_us.saturating_sub(step.end_us);
    }
    for at in (0..transitions.len()).rev() {
        let (before, this) = transitions.split_at_mut(at);
        let this = &this[0];
        for other in &this.after {
            let lag = if this.cause == Some(*other) { this.lag_us } else { 0 };
            let gap = this.begin_us.saturating_sub(before[*other].end_us).saturating_sub(lag);
            let slack = &mut before[*other].slack_us;
            *slack = (*slack).min(this.slack_us.saturating_add(gap));
        }
    }
    let mut path = Vec::new();
    let mut at = (0..transitions.len()).max_by_key(|at| (transitions[*at].end_us, *at));
    while let Some(step) = at {
        path.push(step);
        at = transitions[step].cause;
    }
    path.reverse();
    (stages, path)
}
