//! Where a change object may be led by what others ask of it.
//!
//! By rule 1 of the lock protocol it goes to the first state of the first wish that the further wishes leave over, and stays where
//! it is if its own state is among those that are left over. So of a set of states that somebody asks for only some are
//! ever gone to, and only from some: who is content is not asked to move (decision 0019), and what never comes first is
//! never gone to (decision 0104).

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

    /// The states that it may be led to where somebody asks for these. `reaches(from, to)`: its kind has a way.
    pub(super) fn led_to(
        &self,
        asked: &[State],
        states: usize,
        reaches: impl Fn(State, State) -> bool,
    ) -> BTreeSet<State> {
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
                return asked.iter().copied().collect();
            }
        }
        let mut found = BTreeSet::new();
        for left in &left {
            for first in wishes.iter().filter(|wish| left.iter().all(|state| wish.contains(state))) {
                let from = (0..states).filter(|state| !left.contains(state));
                let goes = |from| first.iter().copied().find(|to| left.contains(to) && reaches(from, *to));
                found.extend(from.filter_map(goes));
            }
        }
        found
    }

    /// The states from which it does not set out for this one: whoever asks for this one is content with them, too.
    pub(super) fn content_with(&self, state: State) -> BTreeSet<State> {
        let mut asking = self.sets.iter().filter(|set| set.contains(&state));
        let Some(first) = asking.next() else { return BTreeSet::new() };
        let all = asking.fold(first.clone(), |all, set| all.into_iter().filter(|s| set.contains(s)).collect());
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led_to(sets: &[&[State]], asked: &[State]) -> Vec<State> {
        let wishes = Wishes::of(sets.iter().map(|set| set.to_vec()));
        wishes.led_to(asked, 4, |_, _| true).into_iter().collect()
    }

    #[test]
    fn of_one_set_the_first_state_is_gone_to() {
        assert_eq!(led_to(&[], &[2, 1, 0]), [2]);
        assert_eq!(led_to(&[&[2, 1, 0], &[3]], &[2, 1, 0]), [2]);
        let all: Vec<State> = (0..4).collect();
        assert_eq!(led_to(&[], &all), [0; 0], "any state will do");
    }

    #[test]
    fn what_others_leave_over_may_be_gone_to() {
        assert_eq!(led_to(&[&[1, 0]], &[2, 1, 0]), [1, 2]);
        assert_eq!(led_to(&[&[0, 1]], &[2, 1]), [1, 2]);
        assert_eq!(led_to(&[&[0, 1, 2]], &[2, 1, 0]), [0, 2], "the other wish may be the first");
    }

    #[test]
    fn where_no_way_leads_the_next_one_is_gone_to() {
        let wishes = Wishes::of([vec![2, 1]]);
        let found = wishes.led_to(&[2, 1], 4, |from, to| !(from == 3 && to == 2));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn who_is_content_does_not_set_out() {
        let wishes = Wishes::of([vec![2, 1, 0], vec![3, 2, 1]]);
        assert_eq!(wishes.content_with(1), BTreeSet::from([1, 2]));
        assert_eq!(wishes.content_with(0), BTreeSet::from([0, 1, 2]));
        assert_eq!(Wishes::default().content_with(0), BTreeSet::new());
    }
}
