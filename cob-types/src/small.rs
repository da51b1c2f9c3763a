//! A map for a few entries: each change object has several.
//!
//! A `BTreeMap` allocates space for eleven entries at its first entry: in a generation with a hundred thousand change
//! objects that was a third of the memory.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thin_vec::ThinVec;

/// The most entries that are allocated in advance: altered bytes may claim any number.
const TRUSTED: usize = 64;

/// A sorted map that stores its entries in sequence. Serialized as any other map.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SmallMap<K, V>(ThinVec<(K, V)>);

impl<K, V> SmallMap<K, V> {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self(ThinVec::new())
    }

    /// The number of its entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + ExactSizeIterator {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    /// Whether it has a key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Sets the value of a key; returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                // Most maps have a single entry: allocate space for it, and not for four.
                if self.0.capacity() == 0 {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (key, value));
                None
            }
        }
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    /// Removes a key; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    /// Keeps the entries for which the function returns `true`.
    pub fn retain(&mut self, stays: impl Fn(&K, &V) -> bool) {
        self.0.retain(|(key, value)| stays(key, value));
    }
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    /// The last of several entries with the same key counts, as in other maps.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(K, V)> = entries.into_iter().collect();
        if !entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            entries.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    std::mem::swap(later, kept);
                }
                same
            });
        }
        let mut exact = ThinVec::with_capacity(entries.len());
        exact.extend(entries);
        Self(exact)
    }
}

impl<K, V> IntoIterator for SmallMap<K, V> {
    type Item = (K, V);
    type IntoIter = thin_vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for SmallMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for SmallMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("no entry found for key")
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SmallMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Serialize, V: Serialize> Serialize for SmallMap<K, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for SmallMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Entries::<K, V, Self>(PhantomData))
    }
}

/// Reads a map of many entries densely: a map that is filled in order, entry by entry, is half empty.
///
/// # Errors
/// As any map.
pub(crate) fn dense<'de, D, K, V>(from: D) -> Result<BTreeMap<K, Arc<V>>, D::Error>
where
    D: Deserializer<'de>,
    K: Ord + Deserialize<'de>,
    V: Deserialize<'de>,
{
    from.deserialize_map(Entries::<K, Owned<V>, Dense<K, V>>(PhantomData)).map(|dense| dense.0)
}

/// A value that is boxed as soon as it is read; serde's own way has a detour.
struct Owned<V>(Arc<V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Owned<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        V::deserialize(from).map(|value| Self(Arc::new(value)))
    }
}

struct Dense<K, V>(BTreeMap<K, Arc<V>>);

impl<K: Ord, V> FromIterator<(K, Owned<V>)> for Dense<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, Owned<V>)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(key, Owned(value))| (key, value)).collect())
    }
}

/// Collects all entries, and then makes a map.
struct Entries<K, V, M>(PhantomData<(K, V, M)>);

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>, M: FromIterator<(K, V)>> Visitor<'de> for Entries<K, V, M> {
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<M, A::Error> {
        let mut entries = Vec::with_capacity(map.size_hint().unwrap_or(0).min(TRUSTED));
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec;

    proptest! {
        /// It behaves as a `BTreeMap`, also as bytes, for any order and repetition of keys.
        #[test]
        fn it_is_as_other_maps(entries in prop::collection::vec((0_u8..20, any::<u16>()), 0..40)) {
            let (small, other): (SmallMap<u8, u16>, BTreeMap<u8, u16>) =
                (entries.iter().copied().collect(), entries.iter().copied().collect());
            prop_assert!(small.iter().eq(other.iter()) && small.len() == other.len());
            prop_assert!((0..20).all(|key| small.get(&key) == other.get(&key)));
            let mut filled = SmallMap::new();
            for (key, value) in &entries {
                filled.insert(*key, *value);
            }
            prop_assert_eq!(&filled, &small);
            let bytes = codec::encode(&small).expect("CBOR");
            prop_assert_eq!(&bytes, &codec::encode(&other).expect("CBOR"));
            prop_assert_eq!(&codec::decode::<SmallMap<u8, u16>>(&bytes, 1 << 20).expect("the same"), &small);
            prop_assert_eq!(format!("{small:?}"), format!("{other:?}"));
        }
    }

    #[test]
    fn a_length_that_is_not_true_takes_no_memory() {
        // A map with a claimed length of 2^40 entries and no data.
        let bytes = [0xbb, 0, 0, 1, 0, 0, 0, 0, 0];
        assert!(codec::decode::<SmallMap<u8, u16>>(&bytes, 100).is_err());
    }
}
