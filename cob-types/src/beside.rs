//! A bundle beside the one before it: from one generation to the next little changes, and only that is read, checked
//! and compared.
//!
//! A bundle's bytes have to be gone through whole, once: their hash is what has been signed. But a change object whose
//! bytes are those of the bundle before is not made a second time: both bundles share the one that is there.
//!
//! ```text
//!   bytes --> Outline: where each change object stands, by nothing but the lengths in them
//!                |  the digest of each --> as before: shared;  another: decoded
//!                v
//!            Bundle + Digests, for the next one
//! ```
//!
//! Bytes that are not laid out as they are written here are decoded as a whole: what is said of them is the same.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::cob::Cob;
use crate::codec::{self, CodecError};
use crate::generation::{Bundle, BundleError, MAX_BUNDLE};
use crate::id::{CobId, KindName};
use crate::ranks::SharedStates;

/// By which the change objects of a bundle are found again in the bytes of another: half a SHA-256 of each, in the
/// order of their ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Digests(Vec<[u8; 16]>);

/// A change object that two bundles don't have in common.
#[derive(Debug, Clone, Copy)]
pub struct Difference<'a> {
    /// Which.
    pub id: &'a CobId,
    /// As it was; none: it is new.
    pub before: Option<&'a Arc<Cob>>,
    /// As it is; none: it has left.
    pub now: Option<&'a Arc<Cob>>,
}

impl Bundle {
    /// Decodes a bundle. Change objects that stand in the bytes as they stood in those of `known` are shared with it.
    ///
    /// # Errors
    /// As [`codec::decode`], whatever is known.
    pub fn read(bytes: &[u8], known: Option<(&Self, &Digests)>) -> Result<(Self, Digests), CodecError> {
        if bytes.len() <= MAX_BUNDLE
            && let Some(outline) = Outline::of(bytes)
            && let Some(read) = outline.read(bytes, known)
        {
            return Ok(read);
        }
        Ok((codec::decode(bytes, MAX_BUNDLE)?, Digests::default()))
    }

    /// What is here otherwise than in the bundle before, by id: change objects of one kind differ when the kind does.
    pub fn differences<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Difference<'a>> {
        let same = std::ptr::eq(self, before);
        let other_kinds: BTreeSet<&KindName> = if same { BTreeSet::new() } else { self.other_kinds(before) };
        let (mut old, mut new) = (before.cobs.iter().peekable(), self.cobs.iter().peekable());
        std::iter::from_fn(move || {
            if same {
                return None;
            }
            loop {
                let which = match (old.peek(), new.peek()) {
                    (None, None) => return None,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((a, _)), Some((b, _))) => a.cmp(b),
                };
                let before = if which.is_le() { old.next() } else { None };
                let now = if which.is_ge() { new.next() } else { None };
                if let (Some((_, before)), Some((_, now))) = (before, now)
                    && before == now
                    && (other_kinds.is_empty() || !other_kinds.contains(&now.kind))
                {
                    continue;
                }
                let (id, _) = now.or(before)?;
                return Some(Difference { id, before: before.map(|b| b.1), now: now.map(|n| n.1) });
            }
        })
    }

    /// The kinds that the two don't have in common.
    fn other_kinds<'a>(&'a self, before: &'a Self) -> BTreeSet<&'a KindName> {
        let new = self.kinds.iter().filter(|(name, kind)| before.kinds.get(*name) != Some(*kind));
        let gone = before.kinds.keys().filter(|name| !self.kinds.contains_key(*name));
        new.map(|(name, _)| name).chain(gone).collect()
    }

    /// As [`Bundle::validate`], beside a bundle that was found in order, if there is one: what both have in common is not
    /// gone through.
    ///
    /// # Errors
    /// As there.
    pub fn validate_beside(&self, known: Option<&Self>) -> Result<(), BundleError> {
        let Some(known) = known else { return self.validate() };
        let same_ground = self.host == known.host
            && self.format == known.format
            && self.kinds == known.kinds
            && known.secrets.keys().all(|secret| self.secrets.contains_key(secret));
        if !same_ground {
            return self.validate();
        }
        let mut found = self.differences(known).filter_map(|d| Some((d.id, d.now?)));
        found.try_for_each(|(id, cob)| self.validate_one(id, cob))
    }
}

/// Where things stand in the bytes of a bundle.
struct Outline<'a> {
    /// All change objects, as one value.
    all: Range<usize>,
    /// Their ids, in their order, and where each stands.
    cobs: Vec<(&'a str, Range<usize>)>,
}

impl<'a> Outline<'a> {
    /// None: the bytes are not laid out as a bundle is written.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (fields, mut at) = head(bytes, 0, MAP)?;
        let mut found = None;
        for _ in 0..fields {
            let (field, value) = text(bytes, at)?;
            let end = skip(bytes, value, DEPTH)?;
            if field == "cobs" && found.replace(value..end).is_some() {
                return None;
            }
            at = end;
        }
        let all = found.filter(|_| at == bytes.len())?;
        let (count, mut at) = head(bytes, all.start, MAP)?;
        let mut cobs: Vec<(&str, Range<usize>)> = Vec::new();
        for _ in 0..count {
            let (id, value) = text(bytes, at)?;
            at = skip(bytes, value, DEPTH)?;
            if cobs.last().is_some_and(|(last, _)| *last >= id) {
                return None;
            }
            cobs.push((id, value..at));
        }
        Some(Self { all, cobs })
    }

    /// None: it can't be, and the decoder is to say why.
    fn read(&self, bytes: &[u8], known: Option<(&Bundle, &Digests)>) -> Option<(Bundle, Digests)> {
        const NO_COBS: u8 = MAP << 5;
        let mut rest = Vec::with_capacity(bytes.len() - self.all.len() + 1);
        rest.extend_from_slice(&bytes[..self.all.start]);
        rest.push(NO_COBS);
        rest.extend_from_slice(&bytes[self.all.end..]);
        let mut bundle: Bundle = codec::decode(&rest, MAX_BUNDLE).ok()?;
        let mut before = known
            .filter(|(bundle, digests)| bundle.cobs.len() == digests.0.len())
            .map(|(bundle, digests)| bundle.cobs.iter().zip(&digests.0))
            .into_iter()
            .flatten()
            .peekable();
        let mut digests = Vec::with_capacity(self.cobs.len());
        let mut cobs = Vec::with_capacity(self.cobs.len());
        let mut states = SharedStates::default();
        for (text, place) in &self.cobs {
            let value = &bytes[place.clone()];
            let digest = digest(value);
            digests.push(digest);
            while before.next_if(|((id, _), _)| id.as_str() < *text).is_some() {}
            match before.next_if(|((id, _), _)| id.as_str() == *text) {
                Some(((id, cob), was)) if *was == digest => cobs.push((id.clone(), cob.clone())),
                Some(_) | None => {
                    let mut cob: Cob = codec::decode(value, MAX_BUNDLE).ok()?;
                    cob.ranks.share(&mut states);
                    cobs.push((CobId::new(text).ok()?, Arc::new(cob)));
                }
            }
        }
        bundle.cobs = cobs.into_iter().collect();
        Some((bundle, Digests(digests)))
    }
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let full: [u8; 32] = Sha256::digest(bytes).into();
    let mut half = [0; 16];
    half.copy_from_slice(&full[..16]);
    half
}

/// As deep as the decoder goes.
const DEPTH: u32 = 128;
/// What CBOR calls the types of its values.
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const LIST: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// The number in the head of a value of this type, of known length, and where the head ends.
fn head(bytes: &[u8], at: usize, wanted: u8) -> Option<(usize, usize)> {
    let (found, number, end) = any_head(bytes, at)?;
    (found == wanted).then_some((number, end))
}

fn any_head(bytes: &[u8], at: usize) -> Option<(u8, usize, usize)> {
    let first = *bytes.get(at)?;
    let (major, short) = (first >> 5, first & 0x1f);
    let len = match short {
        0..=23 => return Some((major, usize::from(short), at + 1)),
        24..=27 => 1_usize << (short - 24),
        // Without a length: nothing of ours is written so.
        _ => return None,
    };
    let end = at + 1 + len;
    let number = bytes.get(at + 1..end)?.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    Some((major, usize::try_from(number).ok()?, end))
}

/// A text, and where it ends.
fn text(bytes: &[u8], at: usize) -> Option<(&str, usize)> {
    let (len, begin) = head(bytes, at, TEXT)?;
    let end = begin.checked_add(len)?;
    Some((std::str::from_utf8(bytes.get(begin..end)?).ok()?, end))
}

/// Where the value that begins here ends.
fn skip(bytes: &[u8], at: usize, depth: u32) -> Option<usize> {
    let (major, number, mut at) = any_head(bytes, at)?;
    let inside = match major {
        BYTES | TEXT => return at.checked_add(number).filter(|end| *end <= bytes.len()),
        LIST => number,
        MAP => number.checked_mul(2)?,
        TAG => 1,
        _ => return Some(at),
    };
    let depth = depth.checked_sub(1)?;
    for _ in 0..inside {
        at = skip(bytes, at, depth)?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use thin_vec::{ThinVec, thin_vec};

    use super::*;
    use crate::cob::{Fingerprint, Need, TransitionNeeds};
    use crate::id::{HostName, StateName};
    use crate::kind::{Check, Kind, Transition};
    use crate::small::SmallMap;

    fn state(text: &str) -> StateName {
        StateName::new(text).expect("a state")
    }

    fn kind(name: &str) -> Kind {
        let transition = Transition {
            from: state("down"),
            to: state("up"),
            run: None,
            timeout_ms: 1000,
            grace_ms: 1000,
            retries: 0,
            retry_delay_ms: 0,
            failure: None,
            revert: None,
            irreversible: false,
        };
        Kind {
            name: KindName::new(name).expect("a name"),
            backend: "noop".to_owned(),
            states: vec![state("down"), state("up")],
            preferred: state("up"),
            pre_remove: state("down"),
            priority: vec![state("down"), state("up")],
            check: Check { run: None, timeout_ms: 1000, interval_ms: None },
            transitions: vec![transition],
            files: BTreeMap::new(),
        }
    }

    fn id(n: u8) -> CobId {
        CobId::new(&format!("h/c{n}")).expect("an id")
    }

    fn cob(n: u8, version: u8) -> Cob {
        let needs = vec![Need { cob: id(n.wrapping_add(1)), states: vec![state("up")] }];
        Cob {
            id: id(n),
            kind: KindName::new("k").expect("a name"),
            preferred: state("up"),
            content: format!("{{\"text\":\"{}\"}}", "x".repeat(usize::from(version) * 9)),
            fingerprint: Fingerprint([version; 16]),
            rests_on: (version == 2).then_some(Fingerprint([n; 16])),
            transitions: if version == 1 {
                ThinVec::new()
            } else {
                thin_vec![TransitionNeeds { from: state("down"), to: state("up"), needs }]
            },
            locks: ThinVec::new(),
            ranks: [(state("down"), u64::from(n)), (state("up"), u64::MAX)].into(),
            expects: SmallMap::new(),
            files: BTreeMap::new(),
            budget: None,
            at_most: None,
            keep: version == 3,
            observe: false,
        }
    }

    fn bundle(cobs: &[(u8, u8)]) -> Bundle {
        let mut bundle = Bundle::empty(HostName::new("h").expect("a name"));
        bundle.kinds.insert(kind("k").name, kind("k"));
        bundle.cobs = cobs.iter().map(|(n, version)| (id(*n), Arc::new(cob(*n, *version)))).collect();
        bundle
    }

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
            next.differences(&known).map(|d| (d.id.as_str(), d.before.is_some(), d.now.is_some())).collect();
        assert_eq!(told, [("h/c2", true, true), ("h/c3", true, false), ("h/c4", false, true)]);
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
        // Two entries change places: a map says the same in any order.
        let bytes = codec::encode(&old).expect("CBOR");
        let outline = Outline::of(&bytes).expect("as it is written");
        let place = |i: usize| outline.cobs[i].1.start - 1 - outline.cobs[i].0.len()..outline.cobs[i].1.end;
        let swapped = [&bytes[..place(0).start], &bytes[place(1)], &bytes[place(0)], &bytes[place(1).end..]].concat();
        let (next, none) = Bundle::read(&swapped, Some((&known, &digests))).expect("well formed");
        assert_eq!((&next, none), (&old, Digests::default()));
        assert!(shared(&next, &known).is_empty());
    }

    proptest! {
        /// Whatever was known before, what is read is what any decoder reads.
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
            let mut told: Vec<_> = next.differences(&known).map(|d| d.id.clone()).collect();
            told.sort_by_key(|id| id.name()[1..].parse::<u8>().expect("a number"));
            prop_assert_eq!(told, differing);
        }

        /// Bytes that were cut or altered are judged as the decoder judges them, and never cause a panic.
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
