//! Splits a switch into parts whose hosts never communicate with each other, and runs these in parallel.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cob_engine::sim::Random;
use cob_engine::sim::forecast::{Course, Pace, PlannedSwitch, course};
use cob_types::{Bundle, CobId, HostName};
use rayon::prelude::*;

/// A union-find structure over host numbers: each entry names a member of its group, the first member itself.
struct Groups(Vec<usize>);

impl Groups {
    fn first(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other)] = one.min(other);
    }
}

/// The parts, ordered by their first hosts.
pub(crate) fn split(switch: &PlannedSwitch) -> Vec<PlannedSwitch> {
    let hosts: BTreeSet<&HostName> = switch.from.keys().chain(switch.to.keys()).collect();
    let number: HashMap<&str, usize> = hosts.iter().enumerate().map(|(at, host)| (host.as_str(), at)).collect();
    let mut groups = Groups((0..hosts.len()).collect());
    let takes_part = |id: &CobId| {
        let has = |parts: &BTreeMap<HostName, Arc<Bundle>>| {
            parts.get(id.host_str()).is_some_and(|part| part.cobs.contains_key(id))
        };
        has(&switch.from) || has(&switch.to)
    };
    let mut join = |one: &str, other: &str| {
        if let (Some(one), Some(other)) = (number.get(one), number.get(other))
            && one != other
        {
            groups.join(*one, *other);
        }
    };
    for part in switch.from.values().chain(switch.to.values()) {
        for need in part.cobs.values().flat_map(|cob| cob.needs()) {
            let other = need.cob.host_str();
            if other != part.host.as_str() && takes_part(&need.cob) {
                join(part.host.as_str(), other);
            }
        }
    }
    for (host, waits) in &switch.order.waits {
        waits.iter().for_each(|id| join(host.as_str(), id.host_str()));
    }
    for (later, before) in &switch.order.after {
        before.iter().for_each(|id| join(later.host_str(), id.host_str()));
    }
    let mut parts: BTreeMap<usize, PlannedSwitch> = BTreeMap::new();
    for (at, host) in hosts.iter().enumerate() {
        let part = parts.entry(groups.first(at)).or_insert_with(|| PlannedSwitch {
            order: switch.order.clone(),
            from: BTreeMap::new(),
            to: BTreeMap::new(),
            states: BTreeMap::new(),
            stops: BTreeMap::new(),
        });
        part.from.extend(switch.from.get(*host).map(|bundle| ((*host).clone(), bundle.clone())));
        part.to.extend(switch.to.get(*host).map(|bundle| ((*host).clone(), bundle.clone())));
    }
    for (id, state) in &switch.states {
        if let Some(at) = number.get(id.host_str())
            && let Some(part) = parts.get_mut(&groups.first(*at))
        {
            part.states.insert(id.clone(), state.clone());
        }
    }
    for (id, stopped) in &switch.stops {
        if let Some(at) = number.get(id.host_str())
            && let Some(part) = parts.get_mut(&groups.first(*at))
        {
            part.stops.insert(id.clone(), stopped.clone());
        }
    }
    parts.into_values().collect()
}

/// Runs all parts to their ends. Each part has its own pace and its own random numbers.
pub(crate) fn run<P: Pace>(
    parts: &[PlannedSwitch],
    mut random: Option<Random>,
    pace: impl Fn(Option<Random>) -> P + Sync,
) -> Course {
    let seeds: Vec<Option<u64>> = parts.iter().map(|_| random.as_mut().map(Random::bits)).collect();
    let courses: Vec<Course> =
        parts.par_iter().zip(seeds).map(|(part, seed)| course(part, &mut pace(seed.map(Random::new)))).collect();
    merged(courses)
}

/// Merges the courses of all parts.
fn merged(mut courses: Vec<Course>) -> Course {
    if courses.len() == 1
        && let Some(only) = courses.pop()
    {
        return only;
    }
    let all = courses.iter().enumerate();
    let mut order: Vec<(u64, usize, usize)> =
        all.flat_map(|(part, c)| c.steps.iter().enumerate().map(move |(at, s)| (s.begin.0, part, at))).collect();
    order.sort_unstable();
    let mut place: Vec<Vec<usize>> = courses.iter().map(|course| vec![0; course.steps.len()]).collect();
    for (new, (_, part, at)) in order.iter().enumerate() {
        place[*part][*at] = new;
    }
    let mut whole = Course { converged: true, ..Course::default() };
    let mut steps = Vec::with_capacity(order.len());
    for (part, course) in courses.into_iter().enumerate() {
        let moved = |cause: Option<usize>| cause.map(|at| place[part][at]);
        for (at, mut step) in course.steps.into_iter().enumerate() {
            step.cause = moved(step.cause);
            steps.push((place[part][at], step));
        }
        for mut activation in course.activations {
            activation.cause = moved(activation.cause);
            whole.activations.push(activation);
        }
        whole.end = whole.end.max(course.end);
        whole.converged &= course.converged;
        whole.events += course.events;
        whole.messages += course.messages;
        whole.waits.extend(course.waits);
        whole.troubles.extend(course.troubles);
        whole.strangers.extend(course.strangers);
    }
    steps.sort_unstable_by_key(|(at, _)| *at);
    whole.steps = steps.into_iter().map(|(_, step)| step).collect();
    whole.activations.sort_by(|a, b| (a.at, &a.host).cmp(&(b.at, &b.host)));
    whole
}
