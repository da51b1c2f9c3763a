//! A bundle as a daemon keeps it: the change objects are packed, and each is unpacked on demand.
//!
//! A decoded change object takes half a kilobyte to two, mostly for names of states and neighbours, which many change
//! objects share. It is needed when its job begins, and when a generation changes it.
//!
//! Each change object is compressed alone, with a few change objects as the dictionary (LZ4): unpacking takes little
//! more time than decoding, and common parts are stored once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle, available_parallelism};
use std::{io, iter};

use lz4_flex::block::{compress_prepend_size_with_dict, decompress_size_prepended_with_dict};

use crate::askers::Askers;
use crate::beside::{Difference, merged};
use crate::cob::{Cob, Fingerprint};
use crate::codec::{self, CodecError};
use crate::generation::{Bundle, BundleError, MAX_BUNDLE};
use crate::id::{BlobHash, CobId, HostName, KindName};
use crate::kind::Kind;
use crate::outline::{Digest, Entry, Outline};
use crate::secret::SecretId;

/// How many change objects make up the dictionary.
const SAMPLES: usize = 4;
/// The most bytes of each change object in the dictionary.
const SAMPLE: usize = 1 << 10;
/// The number of change objects that are worth a thread. Tests have few.
const ENOUGH: usize = if cfg!(test) { 4 } else { 256 };
/// A kind that is not in the bundle.
const NO_KIND: u16 = u16::MAX;

/// A bundle whose change objects are packed.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The bundle without its change objects.
    frame: Bundle,
    dictionary: Vec<u8>,
    rows: Rows,
}

/// A sequence of change objects.
#[derive(Debug, Clone, Default)]
struct Rows {
    slots: Vec<Slot>,
    /// The compressed change objects, concatenated.
    bytes: Vec<u8>,
}

/// The data of a change object that is available without unpacking.
#[derive(Debug, Clone)]
struct Slot {
    id: CobId,
    digest: Digest,
    fingerprint: Fingerprint,
    /// The end of its compressed bytes; they begin at the end of the previous slot.
    end: u32,
    /// The index of its kind among the bundle's kinds, in the order of their names.
    kind: u16,
    /// It has travelling files of its own.
    has_files: bool,
}

/// The reason why the bytes of a bundle were refused.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not a bundle.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The bundle is not valid.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

impl Packed {
    /// Decodes and validates a bundle, as [`codec::decode`] and [`Bundle::validate`] do. Change objects with the same
    /// bytes as in `known`, which was read by this function, are not decoded.
    ///
    /// # Errors
    /// As there, independent of `known`.
    pub fn read(bytes: &[u8], known: Option<&Self>) -> Result<Self, ReadError> {
        if let Some(read) = Outline::of(bytes).and_then(|outline| Self::read_entries(&outline, known)) {
            return Ok(read?);
        }
        let bundle: Bundle = codec::decode(bytes, MAX_BUNDLE)?;
        bundle.validate()?;
        Ok(Self::of(&bundle)?)
    }

    /// `None`: the decoder has to report the fault.
    fn read_entries(outline: &Outline<'_>, known: Option<&Self>) -> Option<Result<Self, BundleError>> {
        let frame = outline.frame()?;
        if let Err(error) = frame.validate() {
            return Some(Err(error));
        }
        // Next to other kinds, equal change objects have to be validated again.
        let known = known.filter(|known| frame.judges_as(&known.frame));
        let digests: Vec<Digest> = outline.entries.iter().map(Entry::digest).collect();
        let entries = || outline.entries.iter().zip(&digests);
        let find = |(entry, digest): (&Entry<'_>, &Digest)| known?.find_as(entry.id, *digest);
        // A dictionary that serves most change objects is good for the others, too.
        let again = known.filter(|_| entries().filter(|entry| find(*entry).is_some()).count() * 2 > digests.len());
        let mut packed = Self::with(frame, outline, again.map(|known| known.dictionary.clone()));
        let (frame, dictionary) = (&packed.frame, &packed.dictionary);
        let read = |range: Range<usize>| {
            let mut rows = Rows::default();
            for (entry, digest) in outline.entries[range.clone()].iter().zip(&digests[range]) {
                if let (Some(known), Some(was)) = (known, find((entry, digest))) {
                    match again {
                        Some(known) => rows.push(known.rows.slots[was].clone(), known.rows.packed(was)),
                        None => rows.put(known.rows.slots[was].clone(), entry, dictionary),
                    }
                    continue;
                }
                let (id, cob) = (CobId::new(entry.id).ok()?, codec::decode::<Cob>(entry.value, MAX_BUNDLE).ok()?);
                if let Err(error) = frame.validate_one(&id, &cob) {
                    return Some(Err(error));
                }
                rows.put(Slot::of(frame, *digest, &cob), entry, dictionary);
            }
            Some(Ok(rows))
        };
        let mut all = Rows::with_room(digests.len());
        for rows in in_parts(digests.len(), read) {
            match rows? {
                Ok(rows) => all.append(rows),
                Err(error) => return Some(Err(error)),
            }
        }
        all.bytes.shrink_to_fit();
        packed.rows = all;
        Some(Ok(packed))
    }

    /// Packs a bundle without validation.
    ///
    /// # Errors
    /// [`CodecError`], if it can't be encoded or is too large.
    pub fn of(bundle: &Bundle) -> Result<Self, CodecError> {
        let bytes = codec::encode(bundle)?;
        let too_long = || CodecError::TooLong { len: bytes.len(), max: MAX_BUNDLE };
        let outline = Outline::of(&bytes).ok_or_else(too_long)?;
        let mut packed = Self::with(Bundle { cobs: BTreeMap::new(), ..bundle.clone() }, &outline, None);
        let mut rows = Rows::with_room(outline.entries.len());
        for (entry, (id, cob)) in outline.entries.iter().zip(&bundle.cobs) {
            let slot = Slot { id: id.clone(), ..Slot::of(bundle, entry.digest(), cob) };
            rows.put(slot, entry, &packed.dictionary);
        }
        rows.bytes.shrink_to_fit();
        packed.rows = rows;
        Ok(packed)
    }

    /// Without change objects, but with their dictionary.
    fn with(frame: Bundle, outline: &Outline<'_>, dictionary: Option<Vec<u8>>) -> Self {
        let count = outline.entries.len();
        let samples = || outline.entries.iter().step_by(count.div_ceil(SAMPLES).max(1));
        let sampled = || samples().flat_map(|entry| &entry.value[..entry.value.len().min(SAMPLE)]).copied().collect();
        let dictionary = dictionary.unwrap_or_else(sampled);
        Self { frame, dictionary, rows: Rows::default() }
    }

    /// The bundle of a host that a generation lacks: it has no change objects, and grants no requests.
    #[must_use]
    pub fn empty(host: HostName) -> Self {
        let frame = Bundle { askers: Some(Arc::default()), ..Bundle::empty(host) };
        Self { frame, dictionary: Vec::new(), rows: Rows::default() }
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &HostName {
        &self.frame.host
    }

    /// The kinds of its change objects, by name.
    #[must_use]
    pub fn kinds(&self) -> &BTreeMap<KindName, Kind> {
        &self.frame.kinds
    }

    /// Contents of the files that travel with kinds and change objects.
    #[must_use]
    pub fn blobs(&self) -> &BTreeMap<BlobHash, serde_bytes::ByteBuf> {
        &self.frame.blobs
    }

    /// Secrets that its contents name, each encrypted for this host alone.
    #[must_use]
    pub fn secrets(&self) -> &BTreeMap<SecretId, serde_bytes::ByteBuf> {
        &self.frame.secrets
    }

    /// The change objects of other hosts that may send requests here; `None`: the bundle does not say.
    #[must_use]
    pub fn askers(&self) -> Option<&Arc<Askers>> {
        self.frame.askers.as_ref()
    }

    /// The number of its change objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.slots.len()
    }

    /// Whether it has no change objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.slots.is_empty()
    }

    /// The ids of its change objects, in order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &CobId> {
        self.rows.slots.iter().map(|slot| &slot.id)
    }

    /// Whether it has a change object.
    #[must_use]
    pub fn has(&self, id: &CobId) -> bool {
        self.find(id.as_str()).is_some()
    }

    /// The kind of a change object.
    #[must_use]
    pub fn kind_of(&self, id: &CobId) -> Option<&KindName> {
        self.kind_in(self.find(id.as_str())?)
    }

    /// The fingerprint of a change object.
    #[must_use]
    pub fn fingerprint_of(&self, id: &CobId) -> Option<Fingerprint> {
        self.find(id.as_str()).map(|slot| self.rows.slots[slot].fingerprint)
    }

    /// Whether a change object has travelling files of its own.
    #[must_use]
    pub fn has_files(&self, id: &CobId) -> bool {
        self.find(id.as_str()).is_some_and(|slot| self.rows.slots[slot].has_files)
    }

    /// Unpacks a change object.
    #[must_use]
    pub fn get(&self, id: &CobId) -> Option<Arc<Cob>> {
        Some(self.unpack(self.find(id.as_str())?))
    }

    /// Unpacks all change objects, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&CobId, Arc<Cob>)> {
        self.numbered().map(|(id, slot)| (id, self.unpack(slot)))
    }

    /// As [`iter`](Self::iter), but only for some kinds; no others are unpacked.
    pub fn iter_of(&self, wanted: impl Fn(&Kind) -> bool) -> impl Iterator<Item = Arc<Cob>> {
        let wanted: BTreeSet<&KindName> = self.kinds().values().filter(|kind| wanted(kind)).map(|k| &k.name).collect();
        let is_wanted = move |slot: &usize| self.kind_in(*slot).is_some_and(|kind| wanted.contains(kind));
        (0..self.len()).filter(is_wanted).map(|slot| self.unpack(slot))
    }

    /// The bundle in its original form.
    #[must_use]
    pub fn whole(&self) -> Bundle {
        Bundle { cobs: self.iter().map(|(id, cob)| (id.clone(), cob)).collect(), ..self.frame.clone() }
    }

    /// As [`Bundle::differences`]; unpacks only change objects that differ.
    pub fn differences<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Difference> + 'a {
        self.differing(before).map(|(id, was, now)| Difference {
            id: id.clone(),
            before: was.map(|slot| before.unpack(slot)),
            now: now.map(|slot| self.unpack(slot)),
        })
    }

    /// The ids of the [differences](Self::differences), without unpacking.
    pub fn changed<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a CobId> {
        self.differing(before).map(|(id, ..)| id)
    }

    fn differing<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'a CobId, Option<usize>, Option<usize>)> + 'a {
        let same = std::ptr::eq(self, before);
        let other_kinds = if same { BTreeSet::new() } else { self.frame.other_kinds(&before.frame) };
        let differ = move |was: usize, now: usize| {
            before.rows.slots[was].digest != self.rows.slots[now].digest
                || (!other_kinds.is_empty() && self.kind_in(now).is_some_and(|kind| other_kinds.contains(kind)))
        };
        let all = (!same).then(|| merged(before.numbered(), self.numbered())).into_iter().flatten();
        all.filter(move |(_, was, now)| match (was, now) {
            (Some(was), Some(now)) => differ(*was, *now),
            _ => true,
        })
    }

    fn numbered(&self) -> impl Iterator<Item = (&CobId, usize)> {
        self.ids().zip(0..)
    }

    fn unpack(&self, slot: usize) -> Arc<Cob> {
        // Each was decoded or encoded before it was packed, and memory is trusted.
        const WAS_PACKED: &str = "a change object that was packed";
        let value = decompress_size_prepended_with_dict(self.rows.packed(slot), &self.dictionary).expect(WAS_PACKED);
        Arc::new(codec::decode(&value, MAX_BUNDLE).expect(WAS_PACKED))
    }

    /// The slot with this id, if it has the same bytes.
    fn find_as(&self, id: &str, digest: Digest) -> Option<usize> {
        let slot = self.find(id)?;
        (self.rows.slots[slot].digest == digest).then_some(slot)
    }

    fn find(&self, id: &str) -> Option<usize> {
        self.rows.slots.binary_search_by(|slot| slot.id.as_str().cmp(id)).ok()
    }

    fn kind_in(&self, slot: usize) -> Option<&KindName> {
        self.frame.kinds.keys().nth(usize::from(self.rows.slots[slot].kind))
    }
}

impl Rows {
    fn with_room(count: usize) -> Self {
        Self { slots: Vec::with_capacity(count), bytes: Vec::new() }
    }

    fn put(&mut self, slot: Slot, entry: &Entry<'_>, dictionary: &[u8]) {
        let packed = compress_prepend_size_with_dict(entry.value, dictionary);
        self.push(slot, &packed);
    }

    fn push(&mut self, slot: Slot, packed: &[u8]) {
        self.bytes.extend_from_slice(packed);
        self.slots.push(Slot { end: position(self.bytes.len()), ..slot });
    }

    /// Appends other rows.
    fn append(&mut self, rows: Self) {
        let begin = position(self.bytes.len());
        self.bytes.extend_from_slice(&rows.bytes);
        // Fails if it is too long, before any use of the sum.
        position(self.bytes.len());
        self.slots.extend(rows.slots.into_iter().map(|slot| Slot { end: begin + slot.end, ..slot }));
    }

    fn packed(&self, slot: usize) -> &[u8] {
        let begin = slot.checked_sub(1).map_or(0, |before| self.slots[before].end);
        &self.bytes[begin as usize..self.slots[slot].end as usize]
    }
}

/// An offset in the compressed bytes.
fn position(at: usize) -> u32 {
    // A bundle's limit is far below 4 GiB.
    u32::try_from(at).expect("less than a bundle has")
}

/// Splits the work over as many threads as there are processors, if there is enough work.
fn in_parts<T: Send>(count: usize, each: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let most = if count < 2 * ENOUGH { 1 } else { available_parallelism().map_or(1, usize::from) };
    let parts = most.min(count / ENOUGH).max(1);
    let range = |part: usize| count * part / parts..count * (part + 1) / parts;
    let each = &each;
    thread::scope(|scope| {
        let begin = |part| (part, thread::Builder::new().spawn_scoped(scope, move || each(range(part))));
        let others: Vec<_> = (1..parts).map(begin).collect();
        let end = |(part, thread): (usize, io::Result<ScopedJoinHandle<'_, T>>)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => each(range(part)),
        };
        iter::once(each(range(0))).chain(others.into_iter().map(end)).collect()
    })
}

impl Slot {
    fn of(frame: &Bundle, digest: Digest, cob: &Cob) -> Self {
        let kind = frame.kinds.keys().position(|known| *known == cob.kind);
        let kind = kind.and_then(|at| u16::try_from(at).ok()).unwrap_or(NO_KIND);
        Self {
            id: cob.id.clone(),
            digest,
            fingerprint: cob.fingerprint,
            end: 0,
            kind,
            has_files: !cob.files.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::{bundle, id};

    fn read(bundle: &Bundle, known: Option<&Packed>) -> Packed {
        Packed::read(&codec::encode(bundle).expect("CBOR"), known).expect("in order")
    }

    /// The differences of two bundles, in words.
    fn told(differences: impl Iterator<Item = Difference>) -> Vec<String> {
        differences.map(|d| format!("{} {:?} {:?}", d.id, d.before, d.now)).collect()
    }

    #[test]
    fn what_all_have_in_common_is_there_once() {
        let mut all = bundle(&(0..200).map(|n| (n, 0)).collect::<Vec<_>>());
        let letter = |i: u32| char::from(b'a' + (i % 26) as u8);
        let text = |n: u8| (0..200_000).map(|i: u32| letter(i.wrapping_mul(i + u32::from(n)) >> 3)).collect();
        for n in [7, 100] {
            Arc::make_mut(all.cobs.get_mut(&id(n)).expect("there")).content = text(n);
        }
        let packed = read(&all, None);
        assert_eq!(packed.whole(), all);
        let few = read(&bundle(&(0..200).map(|n| (n, 0)).collect::<Vec<_>>()), None);
        let written = codec::encode(&few.whole()).expect("CBOR").len();
        assert!(few.rows.bytes.len() < written / 3, "{} of {written} bytes", few.rows.bytes.len());
    }

    #[test]
    fn what_is_known_by_its_bytes_is_judged_anew_on_other_ground() {
        let old = bundle(&[(1, 0), (2, 0)]);
        let known = read(&old, None);
        let mut new = old.clone();
        new.kinds.clear();
        let refused =
            |known| Packed::read(&codec::encode(&new).expect("CBOR"), known).expect_err("no kind").to_string();
        assert_eq!(refused(Some(&known)), new.validate().expect_err("no kind").to_string());
        assert_eq!(refused(Some(&known)), refused(None));
        // It can still be packed without validation.
        let packed = Packed::of(&new).expect("CBOR");
        assert_eq!((packed.whole(), packed.kind_of(&id(1))), (new, None));
        // With another kind its change objects differ, although their bytes are the same.
        let mut other = old.clone();
        other.kinds.values_mut().for_each(|kind| kind.check.timeout_ms += 1);
        assert_eq!(told(read(&other, Some(&known)).differences(&known)), told(other.differences(&old)));
        assert_eq!(told(known.differences(&known)), [""; 0]);
    }

    #[test]
    fn what_is_laid_out_otherwise_is_read_all_the_same() {
        let old = bundle(&[(1, 0), (2, 1)]);
        let bytes = codec::encode(&old).expect("CBOR");
        let [a, b] = [0, 1].map(|at: usize| Outline::of(&bytes).expect("as it is written").entries[at].both);
        let begin = bytes.windows(a.len()).position(|found| found == a).expect("it is there");
        let swapped = [&bytes[..begin], b, a, &bytes[begin + a.len() + b.len()..]].concat();
        assert!(Outline::of(&swapped).is_none());
        assert_eq!(Packed::read(&swapped, None).expect("in order").whole(), old);
    }

    proptest! {
        /// For any known bundle: the result is the bundle that was written, by id and in order, and the differences are
        /// the same as for unpacked bundles.
        #[test]
        fn it_is_the_bundle_that_was_written(
            old in prop::collection::btree_map(0_u8..60, 0_u8..4, 0..50),
            new in prop::collection::btree_map(0_u8..60, 0_u8..4, 0..50),
        ) {
            let made = |cobs: &BTreeMap<u8, u8>| bundle(&cobs.iter().map(|(n, v)| (*n, *v)).collect::<Vec<_>>());
            let (old, new) = (made(&old), made(&new));
            let known = read(&old, None);
            let packed = read(&new, Some(&known));
            prop_assert_eq!(&packed.whole(), &new);
            prop_assert_eq!(&Packed::of(&new).expect("CBOR").whole(), &new);
            for n in 0..60 {
                let cob = new.cobs.get(&id(n));
                prop_assert_eq!(packed.get(&id(n)), cob.cloned());
                prop_assert_eq!(packed.kind_of(&id(n)), cob.map(|cob| &cob.kind));
                prop_assert_eq!(packed.has(&id(n)), cob.is_some());
                prop_assert_eq!(packed.fingerprint_of(&id(n)), cob.map(|cob| cob.fingerprint));
                prop_assert_eq!(packed.has_files(&id(n)), cob.is_some_and(|cob| !cob.files.is_empty()));
            }
            prop_assert!(packed.iter_of(|kind| kind.backend == "noop").eq(new.cobs.values().cloned()));
            prop_assert_eq!(packed.iter_of(|_| false).count(), 0);
            prop_assert_eq!(told(packed.differences(&known)), told(new.differences(&old)));
            prop_assert!(packed.changed(&known).eq(new.differences(&old).map(|d| d.id).collect::<Vec<_>>().iter()));
        }

        /// Cut or altered bytes give the same result as the decoder, and no panic.
        #[test]
        fn bytes_that_were_altered_are_judged_by_the_decoder(at in any::<prop::sample::Index>(), bit in 0_u8..8, cut: bool) {
            let known = read(&bundle(&[(1, 0), (2, 1), (3, 2)]), None);
            let mut bytes = codec::encode(&known.whole()).expect("CBOR");
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << bit;
            }
            let plain = codec::decode::<Bundle>(&bytes, MAX_BUNDLE).map_err(ReadError::from);
            let judged = plain.and_then(|bundle| bundle.validate().map(|()| bundle).map_err(ReadError::from));
            let packed = Packed::read(&bytes, Some(&known));
            prop_assert_eq!(judged.map_err(|e| e.to_string()), packed.map(|b| b.whole()).map_err(|e| e.to_string()));
        }
    }
}
