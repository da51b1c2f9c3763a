//! The ranks of a change object's goals.
//!
//! All change objects of a kind have ranks for the same states, so the list of states is shared.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thin_vec::ThinVec;

use crate::id::StateName;
use crate::small::SmallMap;

/// The rank of the goal (change object, state), for every state of its kind. Serialized as any other map.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Ranks {
    /// Sorted.
    states: States,
    /// In the order of `states`.
    ranks: ThinVec<u64>,
}

type States = Arc<[StateName]>;

/// Shared lists of states.
#[derive(Debug, Default)]
pub struct SharedStates(BTreeSet<States>);

impl Ranks {
    /// The rank of a state.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, state: &Q) -> Option<u64>
    where
        StateName: Borrow<Q>,
    {
        self.find(state).ok().map(|at| self.ranks[at])
    }

    /// Sets the rank of a state.
    pub fn insert(&mut self, state: StateName, rank: u64) {
        match self.find(&state) {
            Ok(at) => self.ranks[at] = rank,
            Err(at) => {
                let mut states = self.states.to_vec();
                states.insert(at, state);
                self.states = states.into();
                self.ranks.insert(at, rank);
            }
        }
    }

    /// The states and their ranks, in the order of the states' names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&StateName, u64)> {
        self.states.iter().zip(self.ranks.iter().copied())
    }

    /// Shares the list of states with other change objects that have the same states.
    pub fn share(&mut self, known: &mut SharedStates) {
        match known.0.get(&self.states) {
            Some(states) => self.states = states.clone(),
            None => drop(known.0.insert(self.states.clone())),
        }
    }

    fn find<Q: Ord + ?Sized>(&self, state: &Q) -> Result<usize, usize>
    where
        StateName: Borrow<Q>,
    {
        self.states.binary_search_by(|known| known.borrow().cmp(state))
    }
}

impl FromIterator<(StateName, u64)> for Ranks {
    /// The last rank of a repeated state counts, as in other maps.
    fn from_iter<I: IntoIterator<Item = (StateName, u64)>>(entries: I) -> Self {
        let entries: SmallMap<StateName, u64> = entries.into_iter().collect();
        let mut ranks = ThinVec::with_capacity(entries.len());
        ranks.extend(entries.values().copied());
        Self { states: entries.keys().cloned().collect(), ranks }
    }
}

impl<const N: usize> From<[(StateName, u64); N]> for Ranks {
    fn from(entries: [(StateName, u64); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<Q: Ord + ?Sized> Index<&Q> for Ranks
where
    StateName: Borrow<Q>,
{
    type Output = u64;

    fn index(&self, state: &Q) -> &u64 {
        self.find(state).ok().map(|at| &self.ranks[at]).expect("the state has a rank")
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Ranks {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Ranks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        SmallMap::deserialize(from).map(|entries: SmallMap<StateName, u64>| entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::codec;

    fn state(text: &str) -> StateName {
        StateName::new(text).expect("a state")
    }

    #[test]
    fn they_are_as_other_maps_and_share_what_they_have_in_common() {
        let all = [("up", 7), ("down", 3), ("up", 9), ("outdated", 4)];
        let (mut ranks, other): (Ranks, BTreeMap<_, _>) =
            (all.map(|(s, r)| (state(s), r)).into(), all.map(|(s, r)| (state(s), r)).into());
        assert!(ranks.iter().eq(other.iter().map(|(s, r)| (s, *r))));
        assert_eq!(format!("{ranks:?}"), format!("{other:?}"));
        let bytes = codec::encode(&ranks).expect("CBOR");
        assert_eq!(bytes, codec::encode(&other).expect("CBOR"));
        let mut read: Ranks = codec::decode(&bytes, 1 << 10).expect("the same");
        let mut known = SharedStates::default();
        [&mut ranks, &mut read].into_iter().for_each(|ranks| ranks.share(&mut known));
        assert!(read == ranks && Arc::ptr_eq(&read.states, &ranks.states));
        read.insert(state("up"), 1);
        read.insert(state("at"), 2);
        assert_eq!(read.iter().map(|(_, rank)| rank).collect::<Vec<_>>(), [2, 3, 4, 1]);
        assert_eq!((read.get(&state("at")), ranks.get(&state("at")), ranks[&state("up")]), (Some(2), None, 9));
    }
}
