//! The states to which requests of others may lead a change object.
//!
//! By rule 1 of the lock protocol it goes to the first state of the first request that the further requests accept too.
//! If that leads into a circle, it stays in any state of the first request (decision 0004). So a request leads it away
//! only from states that the request does not accept, and only to states that come first in a combination of requests
//! (decision 0008).

use std::collections::BTreeSet;

/// A state, by its index in the kind's list.
pub(crate) type State = usize;

/// The most combinations of sets that are examined; beyond it any state counts as a possible target.
const MOST: usize = 256;

/// The sets of states that are requested of a change object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RequestedStates {
    /// Each set in its order of preference; no duplicates.
    sets: BTreeSet<Vec<State>>,
}

impl RequestedStates {
    pub(crate) fn of(sets: impl IntoIterator<Item = Vec<State>>) -> Self {
        Self { sets: sets.into_iter().filter(|set| !set.is_empty()).collect() }
    }

    /// The pairs of states (from, to) between which it may be led by a request for `asked`, from states outside
    /// `asked`. `reaches(from, to)`: its kind has a route.
    pub(crate) fn led(
        &self,
        asked: &[State],
        states: usize,
        reaches: impl Fn(State, State) -> bool,
    ) -> BTreeSet<(State, State)> {
        let from = || (0..states).filter(|state| !asked.contains(state));
        let mut requests = self.sets.clone();
        requests.insert(asked.to_vec());
        // The common states of several requests.
        let mut left: BTreeSet<BTreeSet<State>> = BTreeSet::from([asked.iter().copied().collect()]);
        for request in &requests {
            let narrowed: Vec<BTreeSet<State>> = left
                .iter()
                .map(|all| all.iter().copied().filter(|state| request.contains(state)).collect())
                .filter(|all: &BTreeSet<State>| !all.is_empty())
                .collect();
            left.extend(narrowed);
            if left.len() > MOST {
                let all = from().flat_map(|from| asked.iter().map(move |to| (from, *to)));
                return all.filter(|(from, to)| reaches(*from, *to)).collect();
            }
        }
        let mut found = BTreeSet::new();
        for left in &left {
            for first in requests.iter().filter(|request| left.iter().all(|state| request.contains(state))) {
                let goes = |from| first.iter().copied().find(|to| left.contains(to) && reaches(from, *to));
                found.extend(from().filter_map(|from| Some((from, goes(from)?))));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(sets: &[&[State]], asked: &[State]) -> Vec<(State, State)> {
        let requests = RequestedStates::of(sets.iter().map(|set| set.to_vec()));
        requests.led(asked, 4, |_, _| true).into_iter().collect()
    }

    #[test]
    fn a_request_leads_to_the_first_state_of_its_set() {
        assert_eq!(led(&[], &[2, 1, 0]), [(3, 2)]);
        assert_eq!(led(&[&[2, 1, 0], &[3]], &[2, 1, 0]), [(3, 2)]);
        let all: Vec<State> = (0..4).collect();
        assert_eq!(led(&[], &all), [], "any state will do");
    }

    #[test]
    fn another_request_may_leave_only_a_later_state() {
        assert_eq!(led(&[&[1, 0]], &[2, 1]), [(0, 1), (0, 2), (3, 1), (3, 2)]);
        assert_eq!(led(&[&[0, 1, 2]], &[2, 1, 0]), [(3, 0), (3, 2)], "the other wish may be the first");
    }

    #[test]
    fn an_unreachable_state_is_replaced_by_the_next_of_the_set() {
        let requests = RequestedStates::of([vec![2, 1]]);
        let found = requests.led(&[2, 1], 4, |from, to| !(from == 3 && to == 2));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(0, 2), (3, 1)]);
    }

    #[test]
    fn no_transition_starts_from_a_state_that_a_request_accepts() {
        assert_eq!(led(&[&[3, 2]], &[2, 1, 0]), [(3, 2)], "not from 0, whatever others ask for");
    }
}
