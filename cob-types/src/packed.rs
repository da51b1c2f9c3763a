//! A bundle as engines and daemons use it: the change objects of a daemon are packed, and each is unpacked on demand.
//!
//! A decoded change object takes half a kilobyte to two, mostly for names of states and neighbours, which many change
//! objects share. It is needed when its job begins, and when a generation changes it.
//!
//! Each change object is compressed alone, with a few change objects as the dictionary (LZ4): unpacking takes little
//! more time than decoding, and common parts are stored once. A plan iterates often over the change objects that it
//! moves: it keeps them [decoded](Packed::decoded).
//!
//! Little changes between generations. All bytes of a bundle must be read once, because the signature covers their
//! hash; but a change object with the same bytes as in the previous bundle is neither decoded nor checked again, and
//! both bundles share it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, available_parallelism};

use lz4_flex::block::{compress_prepend_size_with_dict, decompress_size_prepended_with_dict};

use crate::askers::Askers;
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

/// A bundle whose change objects are packed or shared.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The bundle without its change objects.
    frame: Bundle,
    dictionary: Vec<u8>,
    /// The change objects in the order of their ids.
    slots: Vec<Slot>,
}

/// A change object, and the data that is available without unpacking.
#[derive(Debug, Clone)]
struct Slot {
    id: CobId,
    fingerprint: Fingerprint,
    form: Form,
    /// The index of its kind among the bundle's kinds, in the order of their names.
    kind: u16,
    /// It has travelling files of its own.
    has_files: bool,
}

#[derive(Debug, Clone)]
enum Form {
    Decoded(Arc<Cob>),
    Packed(Digest, Arc<[u8]>),
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
        let entries: Vec<_> = outline.entries.iter().map(|entry| (entry, entry.digest())).collect();
        // Next to other kinds, equal change objects have to be validated again. A dictionary that serves most change
        // objects is good for the others, too.
        let known = known.filter(|known| {
            let is_known = |entry: &&(&Entry<'_>, Digest)| known.find_same(**entry).is_some();
            judges_as(&frame, &known.frame) && entries.iter().filter(is_known).count() * 2 > entries.len()
        });
        let dictionary = known.map_or_else(|| sample(&outline.entries), |known| known.dictionary.clone());
        let read = |&(entry, digest): &(&Entry<'_>, Digest)| {
            if let Some(slot) = known.and_then(|known| known.find_same((entry, digest))) {
                return Some(Ok(slot.clone()));
            }
            let (id, cob) = (CobId::new(entry.id).ok()?, codec::decode::<Cob>(entry.value, MAX_BUNDLE).ok()?);
            Some(frame.validate_one(&id, &cob).map(|()| Slot::of(&frame, id, &cob, entry.pack(digest, &dictionary))))
        };
        match in_parts(&entries, |part| part.iter().map(read).collect::<Option<Result<Vec<Slot>, _>>>()) {
            Some(Ok(slots)) => Some(Ok(Self { frame, dictionary, slots })),
            Some(Err(error)) => Some(Err(error)),
            None => None,
        }
    }

    /// Packs a bundle without validation.
    ///
    /// # Errors
    /// [`CodecError`], if it can't be encoded or is too large.
    pub fn of(bundle: &Bundle) -> Result<Self, CodecError> {
        let bytes = codec::encode(bundle)?;
        let too_long = || CodecError::TooLong { len: bytes.len(), max: MAX_BUNDLE };
        let entries = Outline::of(&bytes).ok_or_else(too_long)?.entries;
        let dictionary = sample(&entries);
        let mut packed = Self::decoded(bundle);
        for (slot, entry) in packed.slots.iter_mut().zip(&entries) {
            slot.form = entry.pack(entry.digest(), &dictionary);
        }
        Ok(Self { dictionary, ..packed })
    }

    /// Shares the decoded change objects of a bundle.
    #[must_use]
    pub fn decoded(bundle: &Bundle) -> Self {
        let slot = |(id, cob): (&CobId, &Arc<Cob>)| Slot::of(bundle, id.clone(), cob, Form::Decoded(cob.clone()));
        let slots = bundle.cobs.iter().map(slot).collect();
        Self { frame: Bundle { cobs: BTreeMap::new(), ..bundle.clone() }, dictionary: Vec::new(), slots }
    }

    /// The bundle of a host that a generation lacks: it has no change objects, and grants no requests.
    #[must_use]
    pub fn empty(host: HostName) -> Self {
        Self::decoded(&Bundle { askers: Some(Arc::default()), ..Bundle::empty(host) })
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
        self.slots.len()
    }

    /// Whether it has no change objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The ids of its change objects, in order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &CobId> {
        self.slots.iter().map(|slot| &slot.id)
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
        self.find(id.as_str()).map(|slot| slot.fingerprint)
    }

    /// Whether a change object has travelling files of its own.
    #[must_use]
    pub fn has_files(&self, id: &CobId) -> bool {
        self.find(id.as_str()).is_some_and(|slot| slot.has_files)
    }

    /// Unpacks a change object.
    #[must_use]
    pub fn get(&self, id: &CobId) -> Option<Arc<Cob>> {
        Some(self.unpack(self.find(id.as_str())?))
    }

    /// Unpacks all change objects, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&CobId, Arc<Cob>)> {
        self.slots.iter().map(|slot| (&slot.id, self.unpack(slot)))
    }

    /// As [`iter`](Self::iter), but only for some kinds; no others are unpacked.
    pub fn iter_of(&self, wanted: impl Fn(&Kind) -> bool) -> impl Iterator<Item = Arc<Cob>> {
        let wanted: BTreeSet<&KindName> = self.kinds().values().filter(|kind| wanted(kind)).map(|k| &k.name).collect();
        let is_wanted = move |slot: &&Slot| self.kind_in(slot).is_some_and(|kind| wanted.contains(kind));
        self.slots.iter().filter(is_wanted).map(|slot| self.unpack(slot))
    }

    /// The bundle in its original form.
    #[must_use]
    pub fn whole(&self) -> Bundle {
        Bundle { cobs: self.iter().map(|(id, cob)| (id.clone(), cob)).collect(), ..self.frame.clone() }
    }

    /// The differences from the previous bundle, by id: a change of a kind makes all its change objects differ. Unpacks
    /// only change objects that differ.
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
    ) -> impl Iterator<Item = (&'a CobId, Option<&'a Slot>, Option<&'a Slot>)> + 'a {
        let mut sides =
            (!std::ptr::eq(self, before)).then(|| (before.slots.iter().peekable(), self.slots.iter().peekable()));
        let other_kinds = sides.as_ref().map(|_| self.other_kinds(before)).unwrap_or_default();
        let pairs = std::iter::from_fn(move || {
            let (before, now) = sides.as_mut()?;
            let which = match (before.peek(), now.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.id.cmp(&b.id),
            };
            let was = if which.is_le() { before.next() } else { None };
            let is = if which.is_ge() { now.next() } else { None };
            Some((&is.or(was)?.id, was, is))
        });
        pairs.filter(move |(_, was, now)| match (was, now) {
            (Some(was), Some(now)) => {
                !self.is_same(now, before, was)
                    || (!other_kinds.is_empty() && self.kind_in(now).is_some_and(|kind| other_kinds.contains(kind)))
            }
            _ => true,
        })
    }

    fn is_same(&self, now: &Slot, before: &Self, was: &Slot) -> bool {
        match (&was.form, &now.form) {
            (Form::Packed(was, _), Form::Packed(now, _)) => was == now,
            (Form::Decoded(was), Form::Decoded(now)) => was == now,
            _ => before.unpack(was) == self.unpack(now),
        }
    }

    /// The kinds that differ.
    fn other_kinds<'a>(&'a self, before: &'a Self) -> BTreeSet<&'a KindName> {
        let new = self.kinds().iter().filter(|(name, kind)| before.kinds().get(*name) != Some(*kind));
        let gone = before.kinds().keys().filter(|name| !self.kinds().contains_key(*name));
        new.map(|(name, _)| name).chain(gone).collect()
    }

    fn unpack(&self, slot: &Slot) -> Arc<Cob> {
        // Each was decoded or encoded before it was packed, and memory is trusted.
        const WAS_PACKED: &str = "a change object that was packed";
        match &slot.form {
            Form::Decoded(cob) => cob.clone(),
            Form::Packed(_, bytes) => {
                let value = decompress_size_prepended_with_dict(bytes, &self.dictionary).expect(WAS_PACKED);
                Arc::new(codec::decode(&value, MAX_BUNDLE).expect(WAS_PACKED))
            }
        }
    }

    /// The packed change object with the same id and bytes.
    fn find_same(&self, (entry, digest): (&Entry<'_>, Digest)) -> Option<&Slot> {
        self.find(entry.id).filter(|slot| matches!(slot.form, Form::Packed(known, _) if known == digest))
    }

    fn find(&self, id: &str) -> Option<&Slot> {
        self.slots.binary_search_by(|slot| slot.id.as_str().cmp(id)).ok().map(|at| &self.slots[at])
    }

    fn kind_in(&self, slot: &Slot) -> Option<&KindName> {
        self.frame.kinds.keys().nth(usize::from(slot.kind))
    }
}

/// Whether a change object that is valid in the other bundle is valid in this bundle, too.
fn judges_as(this: &Bundle, other: &Bundle) -> bool {
    this.host == other.host
        && this.format == other.format
        && this.kinds == other.kinds
        && other.secrets.keys().all(|secret| this.secrets.contains_key(secret))
        && other.blobs.keys().all(|blob| this.blobs.contains_key(blob))
}

/// The dictionary of these change objects.
fn sample(entries: &[Entry<'_>]) -> Vec<u8> {
    let samples = entries.iter().step_by(entries.len().div_ceil(SAMPLES).max(1));
    samples.flat_map(|entry| &entry.value[..entry.value.len().min(SAMPLE)]).copied().collect()
}

/// Reads the parts in as many threads as there are processors, if there are enough entries.
fn in_parts<T: Sync, U: Send, E: Send>(
    all: &[T],
    each: impl Fn(&[T]) -> Option<Result<Vec<U>, E>> + Sync,
) -> Option<Result<Vec<U>, E>> {
    let most = if all.len() < 2 * ENOUGH { 1 } else { available_parallelism().map_or(1, usize::from) };
    let parts = most.min(all.len() / ENOUGH).max(1);
    let (first, others) = all.split_at(all.len() / parts);
    let each = &each;
    thread::scope(|scope| {
        let begin = |part| (part, thread::Builder::new().spawn_scoped(scope, move || each(part)));
        let threads: Vec<_> = others.chunks(first.len().max(1)).map(begin).collect();
        let end = |(part, thread): (_, std::io::Result<thread::ScopedJoinHandle<'_, _>>)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => each(part),
        };
        // All threads end before the first fault counts, the fault of the smallest id.
        let read: Vec<_> = std::iter::once(each(first)).chain(threads.into_iter().map(end)).collect();
        let read: Option<Result<Vec<Vec<U>>, E>> = read.into_iter().collect();
        read.map(|read| read.map(|parts| parts.into_iter().flatten().collect()))
    })
}

impl Slot {
    fn of(frame: &Bundle, id: CobId, cob: &Cob, form: Form) -> Self {
        let kind = frame.kinds.keys().position(|known| *known == cob.kind);
        let kind = kind.and_then(|at| u16::try_from(at).ok()).unwrap_or(NO_KIND);
        Self { id, fingerprint: cob.fingerprint, form, kind, has_files: !cob.files.is_empty() }
    }
}

impl Entry<'_> {
    fn pack(&self, digest: Digest, dictionary: &[u8]) -> Form {
        Form::Packed(digest, compress_prepend_size_with_dict(self.value, dictionary).into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::{altered, bundle, id};

    fn read(bundle: &Bundle, known: Option<&Packed>) -> Packed {
        Packed::read(&codec::encode(bundle).expect("CBOR"), known).expect("in order")
    }

    /// The differences of two bundles, in words.
    fn told(differences: impl Iterator<Item = Difference>) -> Vec<String> {
        differences.map(|d| format!("{} {:?} {:?}", d.id, d.before, d.now)).collect()
    }

    #[test]
    fn content_that_objects_share_is_stored_once() {
        let mut all = bundle(&(0..200).map(|n| (n, 0)).collect::<Vec<_>>());
        let letter = |i: u32| char::from(b'a' + (i % 26) as u8);
        let text = |n: u8| (0..200_000).map(|i: u32| letter(i.wrapping_mul(i + u32::from(n)) >> 3)).collect();
        for n in [7, 100] {
            Arc::make_mut(all.cobs.get_mut(&id(n)).expect("there")).content = text(n);
        }
        let packed = read(&all, None);
        assert_eq!(packed.whole(), all);
        let few = read(&bundle(&(0..200).map(|n| (n, 0)).collect::<Vec<_>>()), None);
        let len = |slot: &Slot| if let Form::Packed(_, bytes) = &slot.form { bytes.len() } else { 0 };
        let packed_bytes: usize = few.slots.iter().map(len).sum();
        let written = codec::encode(&few.whole()).expect("CBOR").len();
        assert!(packed_bytes < written / 3, "{} of {written} bytes", packed_bytes);
    }

    #[test]
    fn unchanged_objects_are_shared_with_the_known_bundle() {
        let known = read(&bundle(&[(1, 0), (2, 0), (3, 0), (5, 0), (6, 0)]), None);
        let next = read(&bundle(&[(1, 0), (2, 1), (4, 0), (5, 0), (6, 0)]), Some(&known));
        let shared = |slot: &&Slot| match (&slot.form, &known.find(slot.id.as_str()).expect("there").form) {
            (Form::Packed(_, a), Form::Packed(_, b)) => Arc::ptr_eq(a, b),
            (Form::Decoded(_), _) | (_, Form::Decoded(_)) => false,
        };
        let ids = next.slots.iter().filter(|slot| known.has(&slot.id)).filter(shared).map(|slot| slot.id.as_str());
        assert_eq!(ids.collect::<Vec<_>>(), ["h/c1", "h/c5", "h/c6"]);
    }

    #[test]
    fn known_objects_are_validated_again_with_changed_kinds() {
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
        assert_eq!(
            told(read(&other, Some(&known)).differences(&known)),
            told(Packed::decoded(&other).differences(&Packed::decoded(&old)))
        );
        assert_eq!(told(known.differences(&known)), [""; 0]);
    }

    #[test]
    fn a_bundle_in_another_entry_order_is_read() {
        let old = bundle(&[(1, 0), (2, 1)]);
        let bytes = codec::encode(&old).expect("CBOR");
        let outline = Outline::of(&bytes).expect("as it is written");
        // Two entries are swapped: a map has the same meaning in any order.
        let both = [0, 1].map(|at: usize| {
            let Entry { id, value, .. } = outline.entries[at];
            [codec::encode(&id).expect("CBOR"), value.to_vec()].concat()
        });
        let [a, b] = both.each_ref().map(Vec::as_slice);
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
            prop_assert_eq!(told(packed.differences(&known)), told(Packed::decoded(&new).differences(&Packed::decoded(&old))));
            let differs = |id: &&CobId| old.cobs.get(*id) != new.cobs.get(*id);
            let both: BTreeSet<&CobId> = old.cobs.keys().chain(new.cobs.keys()).collect();
            prop_assert!(packed.changed(&known).eq(both.into_iter().filter(differs)));
            prop_assert!(packed.changed(&known).eq(Packed::decoded(&new).changed(&Packed::decoded(&old))));
        }
    }

    /// Cut or altered bytes give the same result as the decoder, and no panic.
    #[test]
    fn bytes_that_were_altered_are_judged_by_the_decoder() {
        let known = read(&bundle(&[(1, 0), (2, 1), (3, 2)]), None);
        for (about, bytes) in altered(&codec::encode(&known.whole()).expect("CBOR")) {
            let plain = codec::decode::<Bundle>(&bytes, MAX_BUNDLE).map_err(ReadError::from);
            let judged = plain.and_then(|bundle| bundle.validate().map(|()| bundle).map_err(ReadError::from));
            let packed = Packed::read(&bytes, Some(&known));
            let [judged, packed] =
                [judged, packed.map(|read| read.whole())].map(|read| read.map_err(|e| e.to_string()));
            assert_eq!(judged, packed, "{about}");
        }
    }
}
