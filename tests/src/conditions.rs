//! The four conditions of progress, P1 to P4, of a system in numbers.
//!
//! Written from their definitions alone: the generator checks the same conditions with its own code, and neither uses
//! the other. `wanted` is the set of goals that follow from all preferred goals by "needs"; a goal `(C, t)` needs `(B,
//! z)`, for every z of the set, if a transition on C's route to t from any state names B, or t's lock dependencies do.
//!
//! * P1: every wanted state can be reached from every possible state of the change object. A check may find any state,
//!   so these are all of its states.
//! * P2: "needs" among the wanted goals has no cycle.
//! * P3: the needs of each transition towards a wanted goal, closed under lock dependencies, do not contain the change
//!   object itself and leave every named change object a state common to all its sets.
//! * P4: as P2, among change objects instead of goals, but only with transitions from states that a transition or its
//!   failure enters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::system::{N, System, Thing};

/// A change object and a state of it.
type Goal = (usize, usize);

/// The conditions that hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// No kind has a trap among the requested states.
    pub p1: bool,
    /// The goals have no cycle.
    pub p2: bool,
    /// The needs of each transition do not contradict each other.
    pub p3: bool,
    /// No two change objects undo each other's transitions.
    pub p4: bool,
}

impl Conditions {
    /// The conditions of a system.
    #[must_use]
    pub fn of(system: &System) -> Self {
        let routes: Vec<Routes> = system.things.iter().map(Routes::new).collect();
        let needs_from_anywhere = |goal: Goal| needs_of_goal(system, &routes, goal, |_| true);
        let wanted = wanted(system, needs_from_anywhere);
        Self {
            p1: wanted.iter().all(|(t, state)| routes[*t].all_reach(*state)),
            p2: !has_circle(&wanted.iter().map(|g| (*g, needs_from_anywhere(*g))).collect()),
            p3: no_transition_contradicts_itself(system, &routes, &wanted),
            p4: no_two_undo_each_other(system, &routes),
        }
    }

    /// Whether all four hold.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.p1 && self.p2 && self.p3 && self.p4
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [("P1", self.p1), ("P2", self.p2), ("P3", self.p3), ("P4", self.p4)];
        let broken: Vec<_> = all.iter().filter(|c| !c.1).map(|c| c.0).collect();
        if broken.is_empty() { f.write_str("within P1-P4") } else { write!(f, "fails {}", broken.join(", ")) }
    }
}

/// Whether the change objects can be numbered so that every dependency points to a lower number.
#[must_use]
pub fn can_be_numbered(system: &System) -> bool {
    let arrows = system.things.iter().enumerate().map(|(t, thing)| (t, thing.depended_on().collect()));
    !has_circle(&arrows.collect())
}

/// The first transition of every route of a change object.
struct Routes {
    states: usize,
    /// `transitions[from * states + to]`.
    transitions: Vec<Option<usize>>,
}

impl Routes {
    fn new(thing: &Thing) -> Self {
        let states = thing.states;
        let mut transitions = vec![None; states * states];
        for to in 0..states {
            let distance = distances(thing, to);
            for from in (0..states).filter(|f| *f != to) {
                let Some(whole) = distance[from] else { continue };
                transitions[from * states + to] =
                    thing.transitions.iter().position(|h| h.0 == from && distance[h.1].is_some_and(|d| d + 1 == whole));
            }
        }
        Self { states, transitions }
    }

    /// The transitions on routes to this state, from the states that `from` admits.
    fn towards(&self, to: usize, from: impl Fn(usize) -> bool) -> impl Iterator<Item = usize> {
        (0..self.states).filter(move |s| from(*s)).filter_map(move |s| self.transitions[s * self.states + to])
    }

    fn all_reach(&self, to: usize) -> bool {
        (0..self.states).all(|s| s == to || self.transitions[s * self.states + to].is_some())
    }
}

/// The number of transitions from each state to this state.
fn distances(thing: &Thing, to: usize) -> Vec<Option<usize>> {
    let mut distance = vec![None; thing.states];
    distance[to] = Some(0);
    let mut front = vec![to];
    while let Some(near) = front.first().and_then(|s| distance[*s]) {
        let before: Vec<usize> = thing.transitions.iter().filter(|h| front.contains(&h.1)).map(|h| h.0).collect();
        front.clear();
        for state in before {
            if distance[state].is_none() {
                distance[state] = Some(near + 1);
                front.push(state);
            }
        }
    }
    distance
}

fn needs_of_goal(system: &System, routes: &[Routes], (t, state): Goal, from: impl Fn(usize) -> bool) -> BTreeSet<Goal> {
    let thing = &system.things[t];
    let transitions = routes[t].towards(state, from).flat_map(|h| &thing.transitions[h].2);
    transitions.chain(lock_needs(thing, state)).flat_map(|(cob, set)| set.iter().map(|s| (*cob, *s))).collect()
}

fn lock_needs(thing: &Thing, state: usize) -> impl Iterator<Item = &N> {
    thing.locks.iter().filter(move |l| l.0 == state).flat_map(|l| &l.1)
}

/// The preferred goals and all goals that follow from them.
fn wanted(system: &System, needs: impl Fn(Goal) -> BTreeSet<Goal>) -> BTreeSet<Goal> {
    let mut open: Vec<Goal> = system.things.iter().enumerate().map(|(t, thing)| (t, thing.preferred)).collect();
    let mut found = BTreeSet::new();
    while let Some(goal) = open.pop() {
        if found.insert(goal) {
            open.extend(needs(goal));
        }
    }
    found
}

fn no_transition_contradicts_itself(system: &System, routes: &[Routes], wanted: &BTreeSet<Goal>) -> bool {
    let mut transitions = BTreeSet::new();
    for (t, state) in wanted {
        transitions.extend(routes[*t].towards(*state, |_| true).map(|h| (*t, h)));
    }
    transitions.into_iter().all(|(t, transition)| {
        let mut common: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut open: Vec<&N> = system.things[t].transitions[transition].2.iter().collect();
        let mut seen: BTreeSet<&N> = BTreeSet::new();
        while let Some(need) = open.pop() {
            let (cob, set) = need;
            if *cob == t {
                return false;
            }
            let states: BTreeSet<usize> = set.iter().copied().collect();
            common.entry(*cob).and_modify(|c| c.retain(|s| states.contains(s))).or_insert(states);
            if seen.insert(need) {
                open.extend(set.iter().flat_map(|s| lock_needs(&system.things[*cob], *s)));
            }
        }
        common.values().all(|c| !c.is_empty())
    })
}

fn no_two_undo_each_other(system: &System, routes: &[Routes]) -> bool {
    let entered: Vec<BTreeSet<usize>> =
        system.things.iter().map(|thing| thing.transitions.iter().map(|h| h.1).collect()).collect();
    let needs = |goal: Goal| needs_of_goal(system, routes, goal, |from| entered[goal.0].contains(&from));
    let mut arrows: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for goal in wanted(system, needs) {
        arrows.entry(goal.0).or_default().extend(needs(goal).iter().map(|n| n.0));
    }
    !has_circle(&arrows)
}

/// Whether the arrows have a cycle: a node without arrows to the rest is removed repeatedly, and a cycle remains.
fn has_circle<T: Ord + Copy>(arrows: &BTreeMap<T, BTreeSet<T>>) -> bool {
    let mut waits: BTreeMap<T, usize> = BTreeMap::new();
    let mut waited_for: BTreeMap<T, Vec<T>> = BTreeMap::new();
    for (from, to) in arrows {
        let within: Vec<T> = to.iter().filter(|t| arrows.contains_key(t)).copied().collect();
        waits.insert(*from, within.len());
        for t in within {
            waited_for.entry(t).or_default().push(*from);
        }
    }
    let mut free: Vec<T> = waits.iter().filter(|w| *w.1 == 0).map(|w| *w.0).collect();
    let mut taken = 0;
    while let Some(one) = free.pop() {
        taken += 1;
        for other in waited_for.remove(&one).unwrap_or_default() {
            let left = waits.get_mut(&other).expect("every one that waits was counted");
            *left -= 1;
            if *left == 0 {
                free.push(other);
            }
        }
    }
    taken < arrows.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change object with the states 0 and 1 and both transitions.
    fn two(preferred: usize) -> Thing {
        Thing {
            states: 2,
            priority: vec![0, 1],
            preferred,
            transitions: vec![(0, 1, vec![]), (1, 0, vec![])],
            ..Thing::default()
        }
    }

    fn check(things: Vec<Thing>) -> String {
        Conditions::of(&System { things, ..System::default() }).to_string()
    }

    #[test]
    fn independent_change_objects_fulfil_all() {
        assert_eq!(check(vec![two(0), two(1)]), "within P1-P4");
    }

    #[test]
    fn a_trap_among_the_states_asked_for_breaks_p1() {
        // a to b and a to c, but no transition back; two dependents ask for b and for c.
        let trap = Thing { states: 3, transitions: vec![(0, 1, vec![]), (0, 2, vec![])], ..two(0) };
        let (mut b, mut c) = (two(1), two(1));
        b.transitions[0].2.push((0, vec![1]));
        c.transitions[0].2.push((0, vec![2]));
        assert_eq!(check(vec![trap, b, c]), "fails P1");
    }

    #[test]
    fn goals_in_a_circle_break_p2() {
        let (mut a, mut b) = (two(1), two(1));
        a.transitions[0].2.push((1, vec![1]));
        b.transitions[0].2.push((0, vec![1]));
        assert_eq!(check(vec![a, b]), "fails P2, P4");
    }

    #[test]
    fn counterexample_7_breaks_p3() {
        // A 0->1 needs B@0 and C@0; C@0 is granted only with B@1.
        let (mut a, b, mut c) = (two(1), two(0), two(0));
        a.transitions[0].2 = vec![(1, vec![0]), (2, vec![0])];
        c.locks.push((0, vec![(1, vec![1])]));
        assert_eq!(check(vec![a, b, c]), "fails P3");
    }

    #[test]
    fn a_transition_that_needs_itself_through_a_lock_breaks_p3() {
        let (mut a, mut b) = (two(1), two(1));
        a.transitions[0].2.push((1, vec![1]));
        b.locks.push((1, vec![(0, vec![0])]));
        assert_eq!(check(vec![a, b]), "fails P3, P4");
    }

    #[test]
    fn counterexample_10_breaks_p4() {
        // c0's transition needs c4@1, whose lock needs c3@0; c3 prefers 1 and leaves it only with c4@0.
        let (mut c0, mut c3, mut c4) = (two(1), two(1), two(0));
        c0.transitions[0].2.push((2, vec![1]));
        c3.transitions[1].2.push((2, vec![0]));
        c4.locks.push((1, vec![(1, vec![0])]));
        assert_eq!(check(vec![c0, c3, c4]), "fails P4");
    }

    #[test]
    fn requires_is_circular_and_within() {
        let mut things = vec![two(1), two(1)];
        crate::draw::requires(&mut things, 1, 0);
        let system = System { things, ..System::default() };
        assert!(!can_be_numbered(&system));
        assert!(Conditions::of(&system).hold());
    }

    #[test]
    fn requiring_an_object_that_prefers_off_breaks_p4() {
        // Counterexample 11.
        let mut things = vec![two(0), two(1)];
        crate::draw::requires(&mut things, 1, 0);
        assert_eq!(check(things), "fails P4");
    }

    #[test]
    fn hops_from_outdated_count_for_p2_but_not_for_p4() {
        // Both leave `outdated` only with the other down: no transition undoes this, so they do not flap.
        let with_outdated = || Thing {
            states: 3,
            outdated: Some(2),
            transitions: vec![(0, 1, vec![]), (1, 0, vec![]), (2, 0, vec![])],
            ..two(1)
        };
        let (mut a, mut b) = (with_outdated(), with_outdated());
        a.transitions[2].2.push((1, vec![0]));
        assert_eq!(check(vec![a.clone(), b.clone()]), "within P1-P4");
        b.transitions[2].2.push((0, vec![0]));
        assert_eq!(check(vec![a, b]), "fails P2");
    }
}
