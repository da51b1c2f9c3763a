//! The routes within a kind: the first transition of the shortest route between any two of its states.

use std::collections::{BTreeMap, VecDeque};

use cob_types::{Kind, StateName};

/// The first transition of the shortest route between any two states of a kind.
#[derive(Debug)]
pub struct Routes<'a> {
    /// The kind.
    pub kind: &'a Kind,
    places: BTreeMap<&'a StateName, usize>,
    /// `first[from][to]`: the state after the first transition; `None` if there is no route.
    pub first: Vec<Vec<Option<usize>>>,
}

impl<'a> Routes<'a> {
    /// The routes of a kind.
    #[must_use]
    pub fn of(kind: &'a Kind) -> Self {
        let places: BTreeMap<&StateName, usize> = kind.states.iter().enumerate().map(|(i, s)| (s, i)).collect();
        // In the kind's order, which breaks ties.
        let mut transitions: Vec<Vec<usize>> = vec![Vec::new(); kind.states.len()];
        for t in &kind.transitions {
            if let (Some(from), Some(to)) = (places.get(&t.from), places.get(&t.to)) {
                transitions[*from].push(*to);
            }
        }
        let first = (0..kind.states.len()).map(|from| first_transitions(from, &transitions)).collect();
        Self { kind, places, first }
    }

    /// The place of a state in the list of the kind.
    #[must_use]
    pub fn place(&self, state: &StateName) -> Option<usize> {
        self.places.get(state).copied()
    }
}

/// A breadth-first search from a state. Each state keeps the predecessor that was found first, so among equally short
/// routes the first transition that the kind lists first wins.
fn first_transitions(from: usize, transitions: &[Vec<usize>]) -> Vec<Option<usize>> {
    let mut first = vec![None; transitions.len()];
    let mut queue = VecDeque::new();
    for to in &transitions[from] {
        if *to != from && first[*to].is_none() {
            first[*to] = Some(*to);
            queue.push_back(*to);
        }
    }
    while let Some(state) = queue.pop_front() {
        for to in &transitions[state] {
            if *to != from && first[*to].is_none() {
                first[*to] = first[state];
                queue.push_back(*to);
            }
        }
    }
    first
}
