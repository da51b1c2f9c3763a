//! An exhaustive search for orders of transitions that bring a few change objects to their preferred states.
//!
//! The search looks at these change objects alone and leaves out needs from and for other change objects. That only
//! allows more transitions, so "no way" is certain for the whole model, while "there is a way" is not.

use super::demand::Demand;
use super::system::{Moment, System, Want};

/// The most combinations of states that are searched.
const MOST_COMBINATIONS: usize = 20_000;

/// The result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ways {
    /// From every combination of states some order of transitions leads to all the preferred states.
    Always,
    /// From this combination of states (in the order of the change objects) no order of transitions does.
    None(Vec<usize>),
    /// Too many combinations, or a change object without a preferred state.
    NotKnown,
}

/// Searches backwards from the combination in which every change object is in its preferred state. A start combination
/// only has states that transitions enter and from which each change object alone could reach its preferred state.
pub(super) fn ways(system: &System<'_>, demand: &Demand, cobs: &[usize]) -> Ways {
    let Some(search) = Search::of(system, demand, cobs) else { return Ways::NotKnown };
    let Some(target) = cobs.iter().map(|cob| system.cobs[*cob].preferred).collect::<Option<Vec<usize>>>() else {
        return Ways::NotKnown;
    };
    let mut reached = vec![false; search.combinations];
    let mut queue = vec![search.number(&target)];
    reached[queue[0]] = true;
    while let Some(number) = queue.pop() {
        let states = search.states(number);
        for (i, transitions) in search.transitions.iter().enumerate() {
            for from in
                transitions.iter().filter(|transition| transition.to == states[i]).map(|transition| transition.from)
            {
                let before = number - states[i] * search.weights[i] + from * search.weights[i];
                if !reached[before] && search.allows(i, from, &states) {
                    reached[before] = true;
                    queue.push(before);
                }
            }
        }
    }
    let lost = (0..search.combinations).filter(|number| !reached[*number]).map(|number| search.states(number));
    match lost.into_iter().find(|states| search.may_begin(states)) {
        Some(states) => Ways::None(states),
        None => Ways::Always,
    }
}

struct Edge {
    from: usize,
    to: usize,
}

struct Search<'s, 'a> {
    system: &'s System<'a>,
    cobs: &'s [usize],
    /// The transitions that each change object makes on the way to a demanded goal.
    transitions: Vec<Vec<Edge>>,
    weights: Vec<usize>,
    combinations: usize,
}

impl<'s, 'a> Search<'s, 'a> {
    fn of(system: &'s System<'a>, demand: &Demand, cobs: &'s [usize]) -> Option<Self> {
        let mut weights = Vec::new();
        let mut combinations = 1_usize;
        let mut transitions = Vec::new();
        for cob in cobs {
            weights.push(combinations);
            let states = system.kind_of(*cob).states();
            combinations = combinations.checked_mul(states).filter(|n| *n <= MOST_COMBINATIONS)?;
            let all = (0..states).flat_map(|from| (0..states).map(move |to| Edge { from, to }));
            transitions.push(
                all.filter(|transition| demand.uses_transition(system, *cob, transition.from, transition.to)).collect(),
            );
        }
        Some(Self { system, cobs, transitions, weights, combinations })
    }

    fn number(&self, states: &[usize]) -> usize {
        states.iter().zip(&self.weights).map(|(state, weight)| state * weight).sum()
    }

    fn states(&self, number: usize) -> Vec<usize> {
        let sizes = self.cobs.iter().map(|cob| self.system.kind_of(*cob).states());
        self.weights.iter().zip(sizes).map(|(weight, size)| number / weight % size).collect()
    }

    /// Whether the `mover` may go from `from` to its state in `states` while the others are in their states: its needs
    /// are satisfied, and the needs of the grants that it relies on.
    fn allows(&self, mover: usize, from: usize, states: &[usize]) -> bool {
        let moment = Moment::Transition { from, to: states[mover] };
        let mut pending: Vec<&Want<'a>> = self.wants(mover, moment).collect();
        let mut seen = vec![false; self.cobs.len()];
        while let Some(want) = pending.pop() {
            let Some(on) = self.cobs.iter().position(|cob| *cob == want.on) else { continue };
            if on == mover || !want.states.contains(&states[on]) {
                return false;
            }
            if !std::mem::replace(&mut seen[on], true) {
                pending.extend(self.wants(on, Moment::Grant(states[on])));
            }
        }
        true
    }

    fn wants(&self, member: usize, moment: Moment) -> impl Iterator<Item = &'s Want<'a>> {
        self.system.wants(self.cobs[member], moment)
    }

    fn may_begin(&self, states: &[usize]) -> bool {
        self.cobs.iter().zip(states).all(|(cob, state)| {
            let kind = self.system.kind_of(*cob);
            let entered = kind.completed[*state] || kind.failed[*state];
            entered && self.system.cobs[*cob].preferred.is_some_and(|preferred| kind.reaches(*state, preferred))
        })
    }
}
