//! Where a change object may be led by what others ask of it.
//!
//! By rule 1 of the lock protocol it goes to the first state of the first wish that the further wishes leave over, and where
//! that leads into a circle it stays in whichever state of the first wish it is (decision 0110). So a wish alone leads it
//! away only from states that it is not content with, and of its states only to those that come first in what others
//! leave over (decision 0104).

use std::collections::BTreeSet;

/// A state, by its place in the kind's list.
pub(super) type State = usize;

/// More combinations of sets than these are not looked at; any state may be gone to then.
const MOST: usize = 256;

/// The sets of states that one change object is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wishes {
    /// In the order in which they are acceptable, each once.
    sets: BTreeSet<Vec<State>>,
}

impl Wishes {
    pub(super) fn of(sets: impl IntoIterator<Item = Vec<State>>) -> Self {
        Self { sets: sets.into_iter().filter(|set| !set.is_empty()).collect() }
    }

    /// Where it may be led from each state that is none of these, where somebody asks for these: pairs of from and to.
    /// `reaches(from, to)`: its kind has a way.
    pub(super) fn led(
        &self,
        asked: &[State],
        states: usize,
        reaches: impl Fn(State, State) -> bool,
    ) -> BTreeSet<(State, State)> {
        let from = || (0..states).filter(|state| !asked.contains(state));
        let mut wishes = self.sets.clone();
        wishes.insert(asked.to_vec());
        // What several wishes leave over.
        let mut left: BTreeSet<BTreeSet<State>> = BTreeSet::from([asked.iter().copied().collect()]);
        for wish in &wishes {
            let narrowed: Vec<BTreeSet<State>> = left
                .iter()
                .map(|all| all.iter().copied().filter(|state| wish.contains(state)).collect())
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
            for first in wishes.iter().filter(|wish| left.iter().all(|state| wish.contains(state))) {
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
        let wishes = Wishes::of(sets.iter().map(|set| set.to_vec()));
        wishes.led(asked, 4, |_, _| true).into_iter().collect()
    }

    #[test]
    fn of_one_set_the_first_state_is_gone_to() {
        assert_eq!(led(&[], &[2, 1, 0]), [(3, 2)]);
        assert_eq!(led(&[&[2, 1, 0], &[3]], &[2, 1, 0]), [(3, 2)]);
        let all: Vec<State> = (0..4).collect();
        assert_eq!(led(&[], &all), [], "any state will do");
    }

    #[test]
    fn what_others_leave_over_may_be_gone_to() {
        assert_eq!(led(&[&[1, 0]], &[2, 1]), [(0, 1), (0, 2), (3, 1), (3, 2)]);
        assert_eq!(led(&[&[0, 1, 2]], &[2, 1, 0]), [(3, 0), (3, 2)], "the other wish may be the first");
    }

    #[test]
    fn where_no_way_leads_the_next_one_is_gone_to() {
        let wishes = Wishes::of([vec![2, 1]]);
        let found = wishes.led(&[2, 1], 4, |from, to| !(from == 3 && to == 2));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(0, 2), (3, 1)]);
    }

    #[test]
    fn nobody_sets_out_from_a_state_that_a_wish_is_content_with() {
        assert_eq!(led(&[&[3, 2]], &[2, 1, 0]), [(3, 2)], "not from 0, whatever others ask for");
    }
}
