//! All small systems, up to renaming, by number.
//!
//! Two or three change objects of two or three states on at most two hosts, with at most two dependencies that connect
//! them all (an unconnected system is two smaller systems). States are named so that the priority is their order. Of
//! systems that differ only in the names of change objects and hosts, the first represents all (they differ only in how
//! ties are broken).

use crate::system::{System, Thing};

/// The transitions of a kind with two or three states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Matrix {
    /// Both transitions of two states.
    Two,
    /// Both directions between this state and each of the others.
    Line(usize),
    /// A cycle, in one direction or the other.
    Round(bool),
    /// Between all states.
    Full,
}

impl Matrix {
    const OF_THREE: [Matrix; 6] =
        [Matrix::Line(0), Matrix::Line(1), Matrix::Line(2), Matrix::Round(true), Matrix::Round(false), Matrix::Full];

    fn transitions(self) -> Vec<(usize, usize)> {
        let all = |n: usize| (0..n).flat_map(move |a| (0..n).map(move |b| (a, b))).filter(|(a, b)| a != b);
        match self {
            Matrix::Two => all(2).collect(),
            Matrix::Line(mid) => all(3).filter(|(a, b)| *a == mid || *b == mid).collect(),
            Matrix::Round(up) => all(3).filter(|(a, b)| ((a + 1) % 3 == *b) == up).collect(),
            Matrix::Full => all(3).collect(),
        }
    }
}

/// A dependency: of a change object in a transition or state, on a change object in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Dependency {
    of: usize,
    /// Two equal states: a lock dependency of that state.
    transition: (usize, usize),
    on: usize,
    state: usize,
}

/// Kinds and possible dependencies; all other properties follow from a number.
#[derive(Debug, Clone)]
struct Group {
    matrices: Vec<Matrix>,
    states: Vec<usize>,
    dependencies: Vec<Vec<Dependency>>,
}

/// A numbered list of small systems.
#[derive(Debug, Clone)]
pub struct Small {
    groups: Vec<Group>,
}

impl Small {
    /// All systems with these numbers of states.
    #[must_use]
    pub fn of(states: &[usize]) -> Self {
        let mut matrices: Vec<Vec<Matrix>> = vec![Vec::new()];
        for n in states {
            let of_kind: &[Matrix] = if *n == 2 { &[Matrix::Two] } else { &Matrix::OF_THREE };
            matrices =
                matrices.iter().flat_map(|done| of_kind.iter().map(|m| [done.as_slice(), &[*m]].concat())).collect();
        }
        Self { groups: matrices.into_iter().map(|m| Group::new(m, states.to_vec())).collect() }
    }

    /// The number of systems; many numbers give a system that an earlier number gives.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.iter().map(Group::len).sum()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The system with this number, unless it is a renamed earlier system.
    #[must_use]
    pub fn get(&self, mut number: usize) -> Option<System> {
        for group in &self.groups {
            if number < group.len() {
                return group.get(number);
            }
            number -= group.len();
        }
        None
    }
}

/// The normal form of a system, for comparison.
type Key = (Vec<(Matrix, usize, usize, usize)>, Vec<Dependency>);

impl Group {
    fn new(matrices: Vec<Matrix>, states: Vec<usize>) -> Self {
        let n = states.len();
        let mut single = Vec::new();
        for of in 0..n {
            let transitions = matrices[of].transitions().into_iter().chain((0..states[of]).map(|s| (s, s)));
            for transition in transitions {
                for on in (0..n).filter(|on| *on != of) {
                    single.extend((0..states[on]).map(|state| Dependency { of, transition, on, state }));
                }
            }
        }
        let mut dependencies = Vec::new();
        for (i, first) in single.iter().enumerate() {
            dependencies.push(vec![*first]);
            let fits = |second: &&Dependency| {
                (first.of, first.transition, first.on) != (second.of, second.transition, second.on)
            };
            dependencies.extend(single[i + 1..].iter().filter(fits).map(|second| vec![*first, *second]));
        }
        dependencies.retain(|d| connect(n, d));
        Self { matrices, states, dependencies }
    }

    fn choices(&self) -> usize {
        let n = self.states.len();
        // Hosts: the first change object is on the first host.
        self.states.iter().map(|s| s * s).product::<usize>() << (n - 1)
    }

    fn len(&self) -> usize {
        self.choices() * self.dependencies.len()
    }

    fn get(&self, number: usize) -> Option<System> {
        let dependencies = &self.dependencies[number % self.dependencies.len()];
        let mut rest = number / self.dependencies.len();
        let mut take = |n: usize| {
            let digit = rest % n;
            rest /= n;
            digit
        };
        let mut things = Vec::new();
        for (t, states) in self.states.iter().enumerate() {
            let (initial, preferred) = (take(*states), take(*states));
            let host = if t == 0 { 0 } else { take(2) };
            things.push((self.matrices[t], initial, preferred, host));
        }
        let key = (things, dependencies.clone());
        permutations(self.states.len()).iter().all(|p| key <= renamed(&key, p)).then(|| self.system(&key))
    }

    fn system(&self, (things, dependencies): &Key) -> System {
        let mut things: Vec<Thing> = things
            .iter()
            .zip(&self.states)
            .map(|((matrix, initial, preferred, host), states)| Thing {
                host: *host,
                states: *states,
                priority: (0..*states).collect(),
                preferred: *preferred,
                initial: *initial,
                transitions: matrix.transitions().into_iter().map(|(from, to)| (from, to, Vec::new())).collect(),
                retries: 1_000_000,
                ..Thing::default()
            })
            .collect();
        for Dependency { of, transition, on, state } in dependencies {
            let need = (*on, vec![*state]);
            let thing = &mut things[*of];
            if transition.0 == transition.1 {
                match thing.locks.iter_mut().find(|l| l.0 == transition.0) {
                    Some(lock) => lock.1.push(need),
                    None => thing.locks.push((transition.0, vec![need])),
                }
            } else if let Some(of) = thing.transitions.iter_mut().find(|h| (h.0, h.1) == *transition) {
                of.2.push(need);
            }
        }
        System { things, ..System::default() }
    }
}

/// Whether these dependencies connect all of `0..n`.
fn connect(n: usize, dependencies: &[Dependency]) -> bool {
    let mut reached = vec![0];
    for _ in 0..n {
        for d in dependencies {
            for (a, b) in [(d.of, d.on), (d.on, d.of)] {
                if reached.contains(&a) && !reached.contains(&b) {
                    reached.push(b);
                }
            }
        }
    }
    reached.len() == n
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 2 {
        return vec![vec![1, 0]];
    }
    vec![vec![0, 2, 1], vec![1, 0, 2], vec![1, 2, 0], vec![2, 0, 1], vec![2, 1, 0]]
}

/// The same system with change object `i` renamed to `to[i]`, and hosts numbered by first use.
fn renamed((things, dependencies): &Key, to: &[usize]) -> Key {
    let mut moved = things.clone();
    for (i, thing) in things.iter().enumerate() {
        moved[to[i]] = *thing;
    }
    let first = moved[0].3;
    for thing in &mut moved {
        thing.3 = usize::from(thing.3 != first);
    }
    let mut dependencies: Vec<_> =
        dependencies.iter().map(|d| Dependency { of: to[d.of], on: to[d.on], ..*d }).collect();
    dependencies.sort_unstable();
    (moved, dependencies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_system_is_listed_twice() {
        let small = Small::of(&[2, 2]);
        let all: Vec<String> = (0..small.len()).filter_map(|i| small.get(i)).map(|s| s.to_string()).collect();
        let different: BTreeSet<&String> = all.iter().collect();
        assert_eq!(all.len(), different.len());
        assert!(all.len() * 2 >= small.len(), "{} of {}", all.len(), small.len());
    }
}
