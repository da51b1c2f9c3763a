//! Reads a bundle next to the previous one: little changes between generations, and only the changes are decoded,
//! checked and compared.
//!
//! All bytes of a bundle must be read once, because the signature covers their hash. But a change object with the same
//! bytes as in the previous bundle is not built a second time: both bundles share it.
//!
//! ```text
//!   bytes --> Outline: the place of each change object, from the lengths in the bytes
//!                |  the digest of each --> as before: shared;  another: decoded
//!                v
//!            Bundle + Digests, for the next bundle
//! ```
//!
//! Bytes with another layout than ours are decoded as a whole, with the same result.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cob::Cob;
use crate::codec::{self, CodecError};
use crate::generation::{Bundle, BundleError, MAX_BUNDLE};
use crate::id::{CobId, KindName};
use crate::outline::{Digest, Outline};
use crate::ranks::SharedStates;

/// Digests that identify the change objects of a bundle in the bytes of another: half a SHA-256 of each, in the order
/// of their ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Digests(Vec<Digest>);

/// A change object that differs between two bundles.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its id.
    pub id: CobId,
    /// The previous form; `None`: it is new.
    pub before: Option<Arc<Cob>>,
    /// The present form; `None`: it was removed.
    pub now: Option<Arc<Cob>>,
}

impl Bundle {
    /// Decodes a bundle. Change objects with the same bytes as in `known` are shared with it.
    ///
    /// # Errors
    /// As [`codec::decode`], independent of `known`.
    pub fn read(bytes: &[u8], known: Option<(&Self, &Digests)>) -> Result<(Self, Digests), CodecError> {
        if let Some(read) = Outline::of(bytes).and_then(|outline| outline.read(known)) {
            return Ok(read);
        }
        Ok((codec::decode(bytes, MAX_BUNDLE)?, Digests::default()))
    }

    /// The differences from the previous bundle, by id: a change of a kind makes all its change objects differ.
    pub fn differences<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Difference> + 'a {
        let same = std::ptr::eq(self, before);
        let other_kinds = if same { BTreeSet::new() } else { self.other_kinds(before) };
        let differ = move |before: &Cob, now: &Cob| {
            before != now || (!other_kinds.is_empty() && other_kinds.contains(&now.kind))
        };
        let all = (!same).then(|| merged(before.cobs.iter(), self.cobs.iter())).into_iter().flatten();
        let differing = all.filter(move |(_, before, now)| match (before, now) {
            (Some(before), Some(now)) => differ(before, now),
            _ => true,
        });
        differing.map(|(id, before, now)| Difference { id: id.clone(), before: before.cloned(), now: now.cloned() })
    }

    /// The kinds that differ.
    pub(crate) fn other_kinds<'a>(&'a self, before: &'a Self) -> BTreeSet<&'a KindName> {
        let new = self.kinds.iter().filter(|(name, kind)| before.kinds.get(*name) != Some(*kind));
        let gone = before.kinds.keys().filter(|name| !self.kinds.contains_key(*name));
        new.map(|(name, _)| name).chain(gone).collect()
    }

    /// As [`Bundle::validate`], but skips all parts that are the same as in `known`, a valid bundle.
    ///
    /// # Errors
    /// As there.
    pub fn validate_beside(&self, known: Option<&Self>) -> Result<(), BundleError> {
        let Some(known) = known.filter(|known| self.judges_as(known)) else { return self.validate() };
        self.validate_blobs()?;
        self.validate_askers()?;
        let mut found = self.differences(known).filter_map(|d| Some((d.id, d.now?)));
        found.try_for_each(|(id, cob)| self.validate_one(&id, &cob))
    }

    /// Whether a change object that is valid in the other bundle is valid here, too.
    pub(crate) fn judges_as(&self, other: &Self) -> bool {
        self.host == other.host
            && self.format == other.format
            && self.kinds == other.kinds
            && other.secrets.keys().all(|secret| self.secrets.contains_key(secret))
            && other.blobs.keys().all(|blob| self.blobs.contains_key(blob))
    }
}

/// Merges two lists that are sorted by id: equal ids give a pair.
pub(crate) fn merged<'a, T>(
    before: impl Iterator<Item = (&'a CobId, T)>,
    now: impl Iterator<Item = (&'a CobId, T)>,
) -> impl Iterator<Item = (&'a CobId, Option<T>, Option<T>)> {
    let (mut before, mut now) = (before.peekable(), now.peekable());
    std::iter::from_fn(move || {
        let which = match (before.peek(), now.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let was = if which.is_le() { before.next() } else { None };
        let is = if which.is_ge() { now.next() } else { None };
        let id = is.as_ref().or(was.as_ref())?.0;
        Some((id, was.map(|(_, was)| was), is.map(|(_, is)| is)))
    })
}

impl Outline<'_> {
    /// `None`: the decoder has to report the fault.
    fn read(&self, known: Option<(&Bundle, &Digests)>) -> Option<(Bundle, Digests)> {
        let mut bundle = self.frame()?;
        let mut before = known
            .filter(|(bundle, digests)| bundle.cobs.len() == digests.0.len())
            .map(|(bundle, digests)| bundle.cobs.iter().zip(&digests.0))
            .into_iter()
            .flatten()
            .peekable();
        let mut digests = Vec::with_capacity(self.entries.len());
        let mut cobs = Vec::with_capacity(self.entries.len());
        let mut states = SharedStates::default();
        for entry in &self.entries {
            let digest = entry.digest();
            digests.push(digest);
            while before.next_if(|((id, _), _)| id.as_str() < entry.id).is_some() {}
            match before.next_if(|((id, _), _)| id.as_str() == entry.id) {
                Some(((id, cob), was)) if *was == digest => cobs.push((id.clone(), cob.clone())),
                Some(_) | None => {
                    let mut cob: Cob = codec::decode(entry.value, MAX_BUNDLE).ok()?;
                    cob.ranks.share(&mut states);
                    cobs.push((CobId::new(entry.id).ok()?, Arc::new(cob)));
                }
            }
        }
        bundle.cobs = cobs.into_iter().collect();
        Some((bundle, Digests(digests)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::{bundle, id};

    fn read(bundle: &Bundle, known: Option<(&Bundle, &Digests)>) -> (Bundle, Digests) {
        Bundle::read(&codec::encode(bundle).expect("CBOR"), known).expect("well formed")
    }

    fn shared(a: &Bundle, b: &Bundle) -> Vec<String> {
        let same = |id: &CobId, cob: &Arc<Cob>| b.cobs.get(id).is_some_and(|other| Arc::ptr_eq(cob, other));
        a.cobs.iter().filter(|(id, cob)| same(id, cob)).map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn what_has_not_changed_is_shared() {
        let old = bundle(&[(1, 0), (2, 0), (3, 0), (5, 0)]);
        let (known, digests) = read(&old, None);
        assert_eq!(known, old);
        let new = bundle(&[(1, 0), (2, 1), (4, 0), (5, 0)]);
        let (next, _) = read(&new, Some((&known, &digests)));
        assert_eq!(next, new);
        assert_eq!(shared(&next, &known), ["h/c1", "h/c5"]);
        let told: Vec<_> =
            next.differences(&known).map(|d| (d.id.to_string(), d.before.is_some(), d.now.is_some())).collect();
        assert_eq!(
            told,
            [("h/c2", true, true), ("h/c3", true, false), ("h/c4", false, true)].map(|(id, b, n)| (
                id.to_owned(),
                b,
                n
            ))
        );
    }

    #[test]
    fn with_another_kind_its_change_objects_differ() {
        let old = bundle(&[(1, 0), (2, 0)]);
        let mut new = old.clone();
        assert_eq!(new.differences(&old).count(), 0);
        new.kinds.values_mut().for_each(|kind| kind.check.timeout_ms += 1);
        assert_eq!(new.differences(&old).count(), 2);
    }

    #[test]
    fn a_fault_of_what_has_changed_is_found_beside_the_old_one() {
        let old = bundle(&[(1, 0), (2, 0)]);
        let broken = |of: fn(&mut Bundle)| {
            let mut new = old.clone();
            of(&mut new);
            (new.validate(), new.validate_beside(Some(&old)))
        };
        let change = |bundle: &mut Bundle| Arc::make_mut(bundle.cobs.get_mut(&id(2)).expect("there")).at_most = Some(0);
        let (whole, beside) = broken(change);
        assert!(whole.is_err());
        assert_eq!(whole, beside);
        let no_kind = |bundle: &mut Bundle| bundle.kinds.clear();
        let (whole, beside) = broken(no_kind);
        assert!(whole.is_err());
        assert_eq!(whole, beside);
        assert_eq!(broken(|_| {}), (Ok(()), Ok(())));
    }

    #[test]
    fn what_is_laid_out_otherwise_is_decoded_all_the_same() {
        let old = bundle(&[(1, 0), (2, 0)]);
        let (known, digests) = read(&old, None);
        // Two entries are swapped: a map has the same meaning in any order.
        let bytes = codec::encode(&old).expect("CBOR");
        let outline = Outline::of(&bytes).expect("as it is written");
        let [a, b] = [0, 1].map(|i: usize| outline.entries[i].both);
        let begin = bytes.windows(a.len()).position(|found| found == a).expect("it is there");
        let swapped = [&bytes[..begin], b, a, &bytes[begin + a.len() + b.len()..]].concat();
        let (next, none) = Bundle::read(&swapped, Some((&known, &digests))).expect("well formed");
        assert_eq!((&next, none), (&old, Digests::default()));
        assert!(shared(&next, &known).is_empty());
    }

    proptest! {
        /// For any known bundle, the result is the same as that of the decoder.
        #[test]
        fn it_reads_what_is_written(
            old in prop::collection::btree_map(0_u8..40, 0_u8..4, 0..30),
            new in prop::collection::btree_map(0_u8..40, 0_u8..4, 0..30),
        ) {
            let list = |cobs: &BTreeMap<u8, u8>| cobs.iter().map(|(n, v)| (*n, *v)).collect::<Vec<_>>();
            let (known, digests) = read(&bundle(&list(&old)), None);
            let written = bundle(&list(&new));
            let (next, _) = read(&written, Some((&known, &digests)));
            prop_assert_eq!(&next, &written);
            let same = new.iter().filter(|(n, v)| old.get(n) == Some(v)).count();
            prop_assert_eq!(shared(&next, &known).len(), same);
            let differing = old.keys().chain(new.keys()).collect::<BTreeSet<_>>().into_iter();
            let differing: Vec<_> = differing.filter(|n| old.get(n) != new.get(n)).map(|n| id(*n)).collect();
            let mut told: Vec<_> = next.differences(&known).map(|d| d.id).collect();
            told.sort_by_key(|id| id.name()[1..].parse::<u8>().expect("a number"));
            prop_assert_eq!(told, differing);
        }

        /// Cut or altered bytes give the same result as the decoder, and no panic.
        #[test]
        fn bytes_that_were_altered_are_judged_by_the_decoder(at in any::<prop::sample::Index>(), bit in 0_u8..8, cut: bool) {
            let (known, digests) = read(&bundle(&[(1, 0), (2, 1), (3, 2)]), None);
            let mut bytes = codec::encode(&known).expect("CBOR");
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << bit;
            }
            let plain = codec::decode::<Bundle>(&bytes, MAX_BUNDLE);
            let beside = Bundle::read(&bytes, Some((&known, &digests)));
            prop_assert_eq!(plain.map_err(|e| e.to_string()), beside.map(|(b, _)| b).map_err(|e| e.to_string()));
        }
    }
}
