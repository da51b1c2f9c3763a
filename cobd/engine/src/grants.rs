//! The recorded grants of a change object, by dependent.
//!
//! Most change objects have at most a single grant, in a sorted list. A dependency of a large host may have a hundred
//! thousand grants, which come and go separately: these are in a tree.

use std::collections::BTreeMap;
use std::fmt;

use cob_types::CobId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thin_vec::ThinVec;

use crate::object::room_for_one;
use crate::record::GrantRecord;

/// The most grants in the list.
const FEW: usize = 64;

/// Grants by dependent. Serialized like any other map.
#[derive(Clone, Default)]
pub struct Grants {
    /// All grants in the order of the dependents, as long as they are few.
    few: ThinVec<(CobId, GrantRecord)>,
    /// All grants, from then on until the map is empty.
    many: BTreeMap<CobId, GrantRecord>,
}

impl Grants {
    /// The number of grants.
    #[must_use]
    pub fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    /// Whether there is no grant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The grants in the order of the dependents.
    pub fn iter(&self) -> impl Iterator<Item = (&CobId, &GrantRecord)> {
        self.few.iter().map(|(to, grant)| (to, grant)).chain(&self.many)
    }

    /// The grant to a dependent.
    #[must_use]
    pub fn get(&self, to: &CobId) -> Option<&GrantRecord> {
        self.find(to).ok().map(|at| &self.few[at].1).or_else(|| self.many.get(to))
    }

    /// Inserts the grant to a dependent.
    pub fn insert(&mut self, to: CobId, grant: GrantRecord) {
        if self.few.len() >= FEW {
            self.many = std::mem::take(&mut self.few).into_iter().collect();
        }
        if !self.many.is_empty() {
            self.many.insert(to, grant);
            return;
        }
        match self.find(&to) {
            Ok(at) => self.few[at].1 = grant,
            Err(at) => {
                room_for_one(&mut self.few);
                self.few.insert(at, (to, grant));
            }
        }
    }

    /// Removes the grant to a dependent.
    pub fn remove(&mut self, to: &CobId) -> Option<GrantRecord> {
        self.find(to).ok().map(|at| self.few.remove(at).1).or_else(|| self.many.remove(to))
    }

    /// Keeps only the grants to the dependents that `stays` picks.
    pub fn retain(&mut self, stays: impl Fn(&CobId) -> bool) {
        self.few.retain(|(to, _)| stays(to));
        self.many.retain(|to, _| stays(to));
    }

    fn find(&self, to: &CobId) -> Result<usize, usize> {
        self.few.binary_search_by(|(known, _)| known.cmp(to))
    }
}

impl PartialEq for Grants {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Grants {}

impl FromIterator<(CobId, GrantRecord)> for Grants {
    fn from_iter<I: IntoIterator<Item = (CobId, GrantRecord)>>(promises: I) -> Self {
        let many: BTreeMap<_, _> = promises.into_iter().collect();
        if many.len() > FEW {
            return Self { few: ThinVec::new(), many };
        }
        let mut few = ThinVec::with_capacity(many.len());
        few.extend(many);
        Self { few, many: BTreeMap::new() }
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Grants {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Grants {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(from).map(|all| all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use cob_types::message::RankPhase;
    use cob_types::{Number, Rank, StateName, codec};
    use proptest::prelude::*;

    use super::*;
    use crate::record::GrantOut;

    fn id(text: &str) -> CobId {
        CobId::new(text).expect("an id")
    }

    fn grant(counter: u64) -> GrantRecord {
        let up = StateName::new("up").expect("a state");
        GrantRecord::of(&GrantOut {
            folder: None,
            number: Number { start: 1, counter },
            set: vec![up.clone()],
            state: up,
            rank: Rank { phase: RankPhase::STAY, generation: Default::default(), rank: 1 },
            origin: id("h1/o"),
            fingerprint: None,
            rests_on: Vec::new(),
            failed: false,
            at: crate::time::Time(0),
        })
    }

    proptest! {
        /// They behave like a map, also when serialized, at any size now and before.
        #[test]
        fn they_are_as_other_maps(
            steps in prop::collection::vec((any::<bool>(), 0_u64..150), 0..400), few in 0_u64..150,
        ) {
            let (mut promises, mut map) = (Grants::default(), BTreeMap::new());
            for (gives, n) in steps {
                let to = id(&format!("h1/n{n}"));
                if gives {
                    promises.insert(to.clone(), grant(n));
                    map.insert(to, grant(n));
                } else {
                    prop_assert_eq!(promises.remove(&to), map.remove(&to));
                }
                prop_assert!(promises.len() == map.len() && promises.is_empty() == map.is_empty());
            }
            let stays = |to: &CobId| to.as_str().len() + few as usize > 8 && !to.as_str().ends_with('7');
            promises.retain(stays);
            map.retain(|to, _| stays(to));
            prop_assert!(promises.iter().eq(map.iter()));
            let has_same = |n: u64| promises.get(&id(&format!("h1/n{n}"))) == map.get(&id(&format!("h1/n{n}")));
            prop_assert!((0..150).all(has_same));
            let bytes = codec::encode(&promises).expect("CBOR");
            prop_assert_eq!(&bytes, &codec::encode(&map).expect("CBOR"));
            prop_assert_eq!(&codec::decode::<Grants>(&bytes, 1 << 20).expect("the same"), &promises);
            prop_assert_eq!(&map.into_iter().collect::<Grants>(), &promises);
        }
    }
}
