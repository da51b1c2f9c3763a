//! The order between services: what of one comes after what of another, on all nodes.
//!
//! Where A requires B to run: A is initialized and started after B is started, and stopped before B is
//! stopped. Where A requires B to be installed: installed after it, and removed before it. A service that does not have the action in question
//! passes the dependency on to what it requires itself, and what follows from other dependencies is left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::Action;
use crate::cluster::{Cluster, Service};
use crate::plan::Step;

/// More dependencies than this between two groups of jobs go through a gate.
const MANY: usize = 1000;

/// Whether a job is the first of its service on its node.
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

/// What a service needs, of one sort.
type Needs = fn(&Service) -> &BTreeSet<String>;

/// Adds what jobs wait for in other services.
pub(crate) fn between_services(cluster: &Cluster, groups: &Groups<'_>, steps: &mut Vec<Step>) {
    let install: Needs = |s| &s.install;
    let runtime: Needs = |s| &s.runtime;
    let mut waits: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for name in cluster.services.keys() {
        // Up: after those that it needs.
        for (needs, theirs, mine) in [
            (install, Action::Install, Action::Install),
            (runtime, Action::Start, Action::Initialize),
            (runtime, Action::Start, Action::Start),
        ] {
            // An initialization is followed by the start, which needs not wait again.
            let follows = mine == Action::Start && groups.has(name, Action::Initialize);
            if !groups.has(name, mine) || follows {
                continue;
            }
            for other in nearest(cluster, name, needs, |s| groups.has(s, theirs)) {
                waits.push((groups.get(&other, theirs).to_vec(), groups.get(name, mine).to_vec()));
            }
        }
        // Down: before those that it needs.
        for (needs, action) in [(runtime, Action::Stop), (install, Action::Remove)] {
            if !groups.has(name, action) {
                continue;
            }
            for other in nearest(cluster, name, needs, |s| groups.has(s, action)) {
                waits.push((groups.get(name, action).to_vec(), groups.get(&other, action).to_vec()));
            }
        }
        // What is never stopped is left alone until it is needed no more.
        if groups.has(name, Action::Stop) {
            let unstopped = until(cluster, name, runtime, |s| groups.has(s, Action::Stop)).1;
            for first in unstopped.into_iter().filter_map(|other| groups.first.get(other.as_str())) {
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

/// All of `after` come after all of `before`.
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

/// The nearest services that one needs and that are concerned; those needed by another nearest one are left out.
fn nearest(cluster: &Cluster, name: &str, needs: Needs, concerned: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let (found, _) = until(cluster, name, needs, concerned);
    let of = |name: &str| cluster.services.get(name).into_iter().flat_map(needs);
    let mut implied: BTreeSet<&String> = BTreeSet::new();
    let mut next: Vec<&String> = found.iter().flat_map(|f| of(f)).collect();
    while let Some(other) = next.pop() {
        if implied.insert(other) {
            next.extend(of(other));
        }
    }
    found.iter().filter(|f| !implied.contains(f)).cloned().collect()
}

/// The services that one needs, directly or not: up to the first concerned ones on each way, and those before them.
fn until(
    cluster: &Cluster,
    name: &str,
    needs: Needs,
    concerned: impl Fn(&str) -> bool,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let of = |name: &str| cluster.services.get(name).into_iter().flat_map(needs);
    let (mut found, mut passed) = (BTreeSet::new(), BTreeSet::new());
    let mut next: Vec<&String> = of(name).collect();
    while let Some(other) = next.pop() {
        if concerned(other) {
            found.insert(other.clone());
        } else if passed.insert(other.clone()) {
            next.extend(of(other));
        }
    }
    (found, passed)
}

/// Services that wait for each other, at installation or at run time; the first is named again at the end.
pub(crate) fn circle(services: &BTreeMap<String, Service>) -> Option<Vec<String>> {
    let needs: [Needs; 2] = [|s| &s.install, |s| &s.runtime];
    needs.into_iter().find_map(|needs| circle_of(services, needs))
}

fn circle_of(services: &BTreeMap<String, Service>, needs: Needs) -> Option<Vec<String>> {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in services.keys() {
        // Each with what is still to be looked at: recursion would be as deep as the chain is long.
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
