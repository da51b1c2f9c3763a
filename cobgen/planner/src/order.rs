//! The order between services: which actions of a service wait for actions of other services, on all nodes.
//!
//! If A requires B to run, A is initialized and started after B is started, and stopped before B is stopped. If A
//! requires B to be installed, A is installed after B and removed before B. A service that lacks the action in question
//! passes the dependency on to the services that it requires itself. Redundant dependencies are left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::Action;
use crate::cluster::{Cluster, Service};
use crate::plan::Step;

/// With more dependencies than this, two groups of jobs are connected by a gate.
const MANY: usize = 1000;

/// Whether a job is the first job of its service on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    First,
    Later,
}

/// Jobs by service and action.
#[derive(Debug, Default)]
pub(crate) struct Groups<'a> {
    jobs: BTreeMap<Action, BTreeMap<&'a str, Vec<usize>>>,
    /// The first job of each service on each of its nodes.
    first: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Groups<'a> {
    pub(crate) fn add(&mut self, service: &'a str, action: Action, rank: Rank, at: usize) {
        self.jobs.entry(action).or_default().entry(service).or_default().push(at);
        if rank == Rank::First {
            self.first.entry(service).or_default().push(at);
        }
    }

    fn get(&self, service: &str, action: Action) -> &[usize] {
        self.jobs.get(&action).and_then(|jobs| jobs.get(service)).map_or(&[], Vec::as_slice)
    }

    fn has(&self, service: &str, action: Action) -> bool {
        !self.get(service, action).is_empty()
    }
}

/// Selects the requirements of a service, for installation or at run time.
type Needs = fn(&Service) -> &BTreeSet<String>;

/// Adds the dependencies of jobs on jobs of other services.
pub(crate) fn between_services(cluster: &Cluster, groups: &Groups<'_>, steps: &mut Vec<Step>) {
    let install = &Needed::of(&cluster.services, |s| &s.install);
    let runtime = &Needed::of(&cluster.services, |s| &s.runtime);
    let mut waits: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for name in cluster.services.keys() {
        // Up: after the required services.
        for (needs, theirs, mine) in [
            (install, Action::Install, Action::Install),
            (runtime, Action::Start, Action::Initialize),
            (runtime, Action::Start, Action::Start),
        ] {
            // The initialization waits, and the start follows it: the start need not wait again.
            let follows = mine == Action::Start && groups.has(name, Action::Initialize);
            if !groups.has(name, mine) || follows {
                continue;
            }
            for other in needs.nearest(name, |s| groups.has(s, theirs)) {
                waits.push((groups.get(other, theirs).to_vec(), groups.get(name, mine).to_vec()));
            }
        }
        // Down: before the required services.
        for (needs, action) in [(runtime, Action::Stop), (install, Action::Remove)] {
            if !groups.has(name, action) {
                continue;
            }
            for other in needs.nearest(name, |s| groups.has(s, action)) {
                waits.push((groups.get(name, action).to_vec(), groups.get(other, action).to_vec()));
            }
        }
        // A required service without a stop action is not touched before this service has stopped.
        if groups.has(name, Action::Stop) {
            let unstopped = runtime.until(name, |s| groups.has(s, Action::Stop)).1;
            for first in unstopped.into_iter().filter_map(|other| groups.first.get(other)) {
                waits.push((groups.get(name, Action::Stop).to_vec(), first.clone()));
            }
        }
    }
    for (before, after) in waits {
        join(&before, &after, steps);
    }
    for step in steps {
        step.after.sort_unstable();
        step.after.dedup();
    }
}

/// Makes all of `after` wait for all of `before`.
fn join(before: &[usize], after: &[usize], steps: &mut Vec<Step>) {
    let waited = if before.len().saturating_mul(after.len()) > MANY && before.len().min(after.len()) > 1 {
        steps.push(Step { job: None, after: before.to_vec() });
        vec![steps.len() - 1]
    } else {
        before.to_vec()
    };
    for at in after {
        steps[*at].after.extend(&waited);
    }
}

/// The direct and indirect requirements of services, for installation or at run time. There are no cycles.
struct Needed<'a> {
    services: &'a BTreeMap<String, Service>,
    needs: Needs,
    numbers: BTreeMap<&'a str, usize>,
    /// By number, a bit for each service that is required, directly or not. Empty if there are too many services.
    below: Vec<Vec<u64>>,
}

impl<'a> Needed<'a> {
    /// With more services than this, redundant dependencies stay: the bits would take more than 32 MiB.
    const MAX_REDUCED: usize = 1 << 14;

    fn of(services: &'a BTreeMap<String, Service>, needs: Needs) -> Self {
        let numbers: BTreeMap<&str, usize> = services.keys().enumerate().map(|(n, name)| (name.as_str(), n)).collect();
        let mut needed = Self { services, needs, numbers, below: Vec::new() };
        if services.len() <= Self::MAX_REDUCED {
            needed.below = vec![Vec::new(); services.len()];
            services.keys().for_each(|name| needed.look_below(name));
        }
        needed
    }

    fn directly(&self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.services.get(name).into_iter().flat_map(self.needs).map(String::as_str)
    }

    /// Fills in all direct and indirect requirements of a service. The stack is explicit: chains may be very long.
    fn look_below(&mut self, name: &'a str) {
        let mut way: Vec<(&str, usize)> = self.numbers.get(name).map(|number| (name, *number)).into_iter().collect();
        while let Some((name, number)) = way.last().copied() {
            if !self.below[number].is_empty() {
                way.pop();
                continue;
            }
            let known: Vec<(&str, usize)> =
                self.directly(name).filter_map(|other| Some((other, *self.numbers.get(other)?))).collect();
            let open = known.iter().copied().filter(|(_, other)| self.below[*other].is_empty());
            let open: Vec<(&str, usize)> = open.collect();
            if open.is_empty() {
                let mut below = vec![0; self.services.len().div_ceil(64)];
                for (_, other) in known {
                    below[other / 64] |= 1 << (other % 64);
                    below.iter_mut().zip(&self.below[other]).for_each(|(all, its)| *all |= its);
                }
                self.below[number] = below;
            }
            way.extend(open);
        }
    }

    /// The nearest concerned services that a service requires, without services that another of these requires.
    fn nearest(&self, name: &str, concerned: impl Fn(&str) -> bool) -> BTreeSet<&'a str> {
        let (mut found, _) = self.until(name, concerned);
        if found.len() > 1 && !self.below.is_empty() {
            let mut implied = vec![0; self.services.len().div_ceil(64)];
            for number in found.iter().filter_map(|other| self.numbers.get(other)) {
                implied.iter_mut().zip(&self.below[*number]).for_each(|(all, its)| *all |= its);
            }
            found.retain(|other| self.numbers.get(other).is_none_or(|n| implied[n / 64] >> (n % 64) & 1 == 0));
        }
        found
    }

    /// The first concerned services on each path of a service's requirements, and the services before these.
    fn until(&self, name: &str, concerned: impl Fn(&str) -> bool) -> (BTreeSet<&'a str>, BTreeSet<&'a str>) {
        let (mut found, mut passed) = (BTreeSet::new(), BTreeSet::new());
        let mut next: Vec<&str> = self.directly(name).collect();
        while let Some(other) = next.pop() {
            if concerned(other) {
                found.insert(other);
            } else if passed.insert(other) {
                next.extend(self.directly(other));
            }
        }
        (found, passed)
    }
}

/// Services that wait for each other, for installation or at run time; the first is repeated at the end.
pub(crate) fn circle(services: &BTreeMap<String, Service>) -> Option<Vec<String>> {
    let needs: [Needs; 2] = [|s| &s.install, |s| &s.runtime];
    needs.into_iter().find_map(|needs| circle_of(services, needs))
}

fn circle_of(services: &BTreeMap<String, Service>, needs: Needs) -> Option<Vec<String>> {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in services.keys() {
        // Each service with its unvisited requirements: recursion would be as deep as the longest chain.
        let mut way: Vec<(&str, Vec<&String>)> = Vec::new();
        let enter = |name: &str| services.get(name).into_iter().flat_map(needs).rev().collect::<Vec<_>>();
        if !done.contains(start.as_str()) {
            way.push((start, enter(start)));
        }
        let mut on_way: BTreeSet<&str> = way.iter().map(|(n, _)| *n).collect();
        while let Some((name, left)) = way.last_mut() {
            let Some(other) = left.pop() else {
                on_way.remove(name);
                done.insert(name);
                way.pop();
                continue;
            };
            if on_way.contains(other.as_str()) {
                let names = way.iter().map(|(n, _)| (*n).to_owned()).skip_while(|n| n != other);
                return Some(names.chain([other.clone()]).collect());
            }
            if !done.contains(other.as_str()) && services.contains_key(other) {
                on_way.insert(other);
                way.push((other, enter(other)));
            }
        }
    }
    None
}
