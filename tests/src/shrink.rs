//! Finds smaller systems that still fail, to help find the cause.
//!
//! Removes change objects, transitions, needs, lock dependencies and states of sets, one at a time, as long as the rest
//! still fails. A system outside the conditions of progress is not a valid reduction of a system within them.

use crate::conditions::Conditions;
use crate::system::{N, System, Thing};

/// The most systems that are tried.
const TRIES: usize = 5000;

/// The smallest system found for which `fails` holds.
pub fn shrink(system: &System, fails: impl Fn(&System) -> bool) -> System {
    let within = Conditions::of(system).hold();
    let mut best = system.clone();
    let mut tries = 0;
    loop {
        let smaller = candidates(&best).into_iter().find(|s| {
            tries += 1;
            tries <= TRIES && Conditions::of(s).hold() == within && fails(s)
        });
        match smaller {
            Some(s) => best = s,
            None => return best,
        }
    }
}

/// All systems that are a step smaller, the largest steps first.
fn candidates(system: &System) -> Vec<System> {
    let mut all: Vec<System> = (0..system.things.len()).map(|t| without_thing(system, t)).collect();
    for t in 0..system.things.len() {
        let mut with = |change: &dyn Fn(&mut Thing)| {
            let mut smaller = system.clone();
            change(&mut smaller.things[t]);
            all.push(smaller);
        };
        let thing = &system.things[t];
        for i in 0..thing.locks.len() {
            with(&|t| drop(t.locks.remove(i)));
        }
        for i in 0..thing.transitions.len() {
            if !thing.transitions[i].2.is_empty() {
                with(&|t| t.transitions[i].2.clear());
            }
        }
        for i in 0..thing.transitions.len() {
            with(&|t| drop(t.transitions.remove(i)));
        }
        if thing.budget.is_some() {
            with(&|t| t.budget = None);
        }
        if thing.host != 0 {
            with(&|t| t.host = 0);
        }
        if thing.initial != thing.preferred {
            with(&|t| t.initial = t.preferred);
        }
        for at in 0..thing.transitions.len() + thing.locks.len() {
            let needs = needs_at(&mut thing.clone(), at).clone();
            for (n, need) in needs.iter().enumerate() {
                with(&|t| drop(needs_at(t, at).remove(n)));
                for s in 0..need.1.len() {
                    if need.1.len() > 1 {
                        with(&|t| _ = needs_at(t, at)[n].1.remove(s));
                    }
                }
            }
        }
    }
    all.retain(|s| !s.things.is_empty());
    all
}

/// The needs of a transition, or after all transitions, of a lock dependency.
fn needs_at(thing: &mut Thing, at: usize) -> &mut Vec<N> {
    let transitions = thing.transitions.len();
    if at < transitions { &mut thing.transitions[at].2 } else { &mut thing.locks[at - transitions].1 }
}

/// The system without a change object, and without all dependencies on it.
pub(crate) fn without_thing(system: &System, gone: usize) -> System {
    let mut smaller = system.clone();
    smaller.things.remove(gone);
    if gone < smaller.names.len() {
        smaller.names.remove(gone);
    }
    for thing in &mut smaller.things {
        thing.budget = thing.budget.filter(|b| *b != gone).map(|b| b - usize::from(b > gone));
        for at in 0..thing.transitions.len() + thing.locks.len() {
            let needs = needs_at(thing, at);
            needs.retain(|n| n.0 != gone);
            for need in needs {
                need.0 -= usize::from(need.0 > gone);
            }
        }
    }
    smaller
}
