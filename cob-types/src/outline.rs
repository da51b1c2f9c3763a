//! Finds the change objects in the bytes of a bundle, without decoding them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};

use crate::codec::{self, CodecError};
use crate::generation::{Bundle, MAX_BUNDLE};
use crate::id::CobId;

/// The layout of a bundle's bytes.
pub(crate) struct Outline<'a> {
    bytes: &'a [u8],
    /// The value with all change objects.
    all: Range<usize>,
    /// The change objects in the order of their ids.
    pub(crate) entries: Vec<Entry<'a>>,
}

/// An entry of the map of change objects.
pub(crate) struct Entry<'a> {
    pub(crate) id: &'a str,
    /// The change object.
    pub(crate) value: &'a [u8],
}

/// Identifies a change object in other bytes: half a SHA-256.
pub(crate) type Digest = [u8; 16];

impl<'a> Outline<'a> {
    /// `None`: the bytes have another layout than a written bundle, or are too many.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut at = 0;
        let mut found = None;
        for _ in 0..map(bytes, &mut at).filter(|_| bytes.len() <= MAX_BUNDLE)? {
            let field = text(bytes, &mut at)?;
            let begin = at;
            next::<IgnoredAny>(bytes, &mut at)?;
            if field == "cobs" && found.replace(begin..at).is_some() {
                return None;
            }
        }
        let all = found.filter(|_| at == bytes.len())?;
        at = all.start;
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for _ in 0..map(bytes, &mut at)? {
            let id = text(bytes, &mut at)?;
            let begin = at;
            next::<IgnoredAny>(bytes, &mut at)?;
            if entries.last().is_some_and(|last| last.id >= id) {
                return None;
            }
            entries.push(Entry { id, value: &bytes[begin..at] });
        }
        Some(Self { bytes, all, entries })
    }

    /// The bundle without its change objects. `None`: it can't be decoded.
    pub(crate) fn frame(&self) -> Option<Bundle> {
        let frame = [&self.bytes[..self.all.start], &[MAP], &self.bytes[self.all.end..]].concat();
        codec::decode(&frame, MAX_BUNDLE).ok()
    }

    fn read_beside(&self, before: &Self, known: &Bundle) -> Option<Bundle> {
        let before: BTreeMap<&str, &[u8]> = before.entries.iter().map(|entry| (entry.id, entry.value)).collect();
        let read = |entry: &Entry<'_>| {
            let id = CobId::new(entry.id).ok()?;
            let cob = match known.cobs.get(&id).filter(|_| before.get(entry.id) == Some(&entry.value)) {
                Some(cob) => cob.clone(),
                None => Arc::new(codec::decode(entry.value, MAX_BUNDLE).ok()?),
            };
            Some((id, cob))
        };
        let cobs = self.entries.iter().map(read).collect::<Option<_>>()?;
        Some(Bundle { cobs, ..self.frame()? })
    }
}

impl Entry<'_> {
    pub(crate) fn digest(&self) -> Digest {
        let full: [u8; 32] = Sha256::digest(self.value).into();
        std::array::from_fn(|at| full[at])
    }
}

impl Bundle {
    /// Decodes a bundle. Change objects with the same bytes as in `known` are shared with it.
    ///
    /// # Errors
    /// As [`codec::decode`], independent of `known`.
    pub fn read(bytes: &[u8], known: Option<(&[u8], &Self)>) -> Result<Self, CodecError> {
        let beside = known.and_then(|(before, known)| Outline::of(bytes)?.read_beside(&Outline::of(before)?, known));
        beside.map_or_else(|| codec::decode(bytes, MAX_BUNDLE), Ok)
    }
}

/// The bits of a head that tell the kind of its value (RFC 8949, section 3.1).
const KIND: u8 = 7 << 5;
/// The head of an empty map in CBOR.
const MAP: u8 = 5 << 5;
/// The head of an empty text in CBOR.
const TEXT: u8 = 3 << 5;

/// The number of entries of the map that starts here. Our encoder never writes a map of indefinite length.
fn map(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let short = bytes.get(*at)?.checked_sub(MAP)?;
    let len = match short {
        0..=23 => 0,
        24..=27 => 1_usize << (short - 24),
        _ => return None,
    };
    let number = bytes.get(*at + 1..*at + 1 + len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    *at += 1 + len;
    Some(if len == 0 { short.into() } else { number })
}

/// The text that starts here. The decoder of CBOR would also take bytes for a text that is borrowed.
fn text<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a str> {
    (bytes.get(*at)? & KIND == TEXT).then(|| next(bytes, at))?
}

/// The value that starts here.
fn next<'a, T: Deserialize<'a>>(bytes: &'a [u8], at: &mut usize) -> Option<T> {
    let mut decoder = serde_cbor::Deserializer::from_slice(bytes.get(*at..)?);
    let value = T::deserialize(&mut decoder).ok()?;
    *at += decoder.byte_offset();
    Some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{altered, bundle};

    fn shared(a: &Bundle, b: &Bundle) -> Vec<String> {
        let same = |id: &CobId, cob: &Arc<_>| b.cobs.get(id).is_some_and(|other| Arc::ptr_eq(cob, other));
        a.cobs.iter().filter(|(id, cob)| same(id, cob)).map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn unchanged_objects_are_shared_with_the_known_bundle() {
        let known = bundle(&[(1, 0), (2, 0), (3, 0), (5, 0)]);
        let before = codec::encode(&known).expect("CBOR");
        let new = bundle(&[(1, 0), (2, 1), (4, 0), (5, 0)]);
        let bytes = codec::encode(&new).expect("CBOR");
        let next = Bundle::read(&bytes, Some((&before, &known))).expect("well formed");
        assert_eq!(next, new);
        assert_eq!(shared(&next, &known), ["h/c1", "h/c5"]);
        // Of bytes with another layout, the decoder decodes the whole bundle.
        let (a, b) = (codec::encode_packed(&new).expect("CBOR"), Outline::of(&bytes).expect("as it is written"));
        assert!(Outline::of(&a).is_none() && b.entries.len() == 4);
        let next = Bundle::read(&a, Some((&before, &known))).expect("well formed");
        assert_eq!((shared(&next, &known), next), (Vec::new(), new));
    }

    proptest! {
        /// For any known bundle, the result is the same as that of the decoder, and all equal change objects are shared.
        #[test]
        fn a_bundle_read_with_an_outline_equals_the_written_bundle(
            old in prop::collection::btree_map(0_u8..40, 0_u8..4, 0..30),
            new in prop::collection::btree_map(0_u8..40, 0_u8..4, 0..30),
        ) {
            let made = |cobs: &BTreeMap<u8, u8>| bundle(&cobs.iter().map(|(n, v)| (*n, *v)).collect::<Vec<_>>());
            let (known, written) = (made(&old), made(&new));
            let [before, bytes] = [&known, &written].map(|bundle| codec::encode(bundle).expect("CBOR"));
            let next = Bundle::read(&bytes, Some((&before, &known))).expect("well formed");
            prop_assert_eq!(&next, &written);
            let same = new.iter().filter(|(n, v)| old.get(n) == Some(v)).count();
            prop_assert_eq!(shared(&next, &known).len(), same);
        }
    }

    /// Cut or altered bytes give the same result as the decoder, and no panic.
    #[test]
    fn bytes_that_were_altered_are_judged_by_the_decoder() {
        let known = bundle(&[(1, 0), (2, 1), (3, 2)]);
        let before = codec::encode(&known).expect("CBOR");
        for (about, bytes) in altered(&before) {
            let plain = codec::decode::<Bundle>(&bytes, MAX_BUNDLE).map_err(|error| error.to_string());
            let beside = Bundle::read(&bytes, Some((&before, &known))).map_err(|error| error.to_string());
            assert_eq!(plain, beside, "{about}");
        }
    }
}
