//! Generations on this host's own disk: fetched from the depot once, verified, kept.
//!
//! After `prepare`, the depot is not needed any more for a switch to the generation or a rollback to it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

mod error;
mod known;

use cob_engine::KnownAskers;
use cob_trust::Publishers;
use cob_types::generation::{MAX_MANIFEST, RollbackTarget};
use cob_types::packed::ReadError;
use cob_types::trust::{PublicKey, Signed};
use cob_types::{BlobHash, CobId, GenerationId, GenerationNumber, HostName, Kind, Manifest, Packed, canonical, codec};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::acceptance::{MAX_UNPROVED, Verified, verify};
use crate::durable;
use crate::kinds::Kinds;
use crate::source::Source;
use cob_types::link::parse_address;
use known::Known;

pub use error::FetchError;

const MANIFEST: &str = "manifest.cbor";
const SIGNATURES: &str = "signatures.cbor";
const BUNDLE: &str = "bundle.cbor";
/// The file that names the newest abandoned generation.
const RETURNED: &str = "returned";
/// The empty generation before the first. It is made from the manifest that leads to it, and is in no depot.
const NOTHING: GenerationNumber = GenerationNumber(0);
/// The file that names the generation from which the empty generation was made.
const MADE_OF: &str = "of";
/// The longest accepted file of signatures, in bytes.
const MAX_KEPT: usize = 1 << 20;

/// The verified part of a generation that this host needs.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The part that all hosts share.
    pub manifest: Arc<Manifest>,
    /// This host's bundle.
    pub bundle: Arc<Packed>,
    /// Hash of the manifest's bytes.
    pub hash: BlobHash,
    /// The trusted publishers that have signed it.
    pub signers: Vec<PublicKey>,
}

/// A requested generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Its number.
    pub generation: GenerationNumber,
    /// Hash of its manifest's bytes; absent: only the number is known.
    pub manifest: Option<BlobHash>,
}

impl From<GenerationNumber> for Wanted {
    fn from(generation: GenerationNumber) -> Self {
        Self { generation, manifest: None }
    }
}

/// The data beside a kept manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestRecord {
    /// Hash of the manifest's bytes.
    manifest: BlobHash,
    /// Its signatures, as in the depot.
    signatures: Vec<Signed>,
}

/// The generations that are kept here.
#[derive(Debug, Clone)]
pub struct Generations {
    folder: PathBuf,
    depot: Source,
    host: HostName,
    trust: Option<Publishers>,
    /// The known contents of the numbers.
    known: Known,
    /// One writer at a time: an operator and an announcement may name the same generation.
    keeping: Arc<Mutex<()>>,
}

impl Generations {
    /// Keeps generations below the state folder, and accepts what `trust` accepts; without it, only generations with
    /// `security: loopback-only`.
    #[must_use]
    pub fn new(state_dir: &Path, depot: &Source, host: &HostName, trust: Option<Publishers>) -> Self {
        let (folder, keeping) = (state_dir.join("generations"), Arc::default());
        let known = Known::new(&folder);
        Self { folder, depot: depot.clone(), host: host.clone(), trust, known, keeping }
    }

    /// The newest generation of the depot; absent: the depot is empty.
    ///
    /// # Errors
    /// [`FetchError::Depot`] or [`FetchError::Remote`].
    pub fn newest(&self) -> Result<Option<GenerationNumber>, FetchError> {
        self.depot.newest()
    }

    /// Fetches a generation from the depot, verifies and keeps it; a kept generation is only read. With `leaving`, a
    /// generation that lacks this host counts as empty: the host is being removed. Without it, the host never took part
    /// and has the wrong name. Parts that are the same in `known` are taken over from there.
    ///
    /// # Errors
    /// [`FetchError`]; an invalid generation is not kept.
    pub fn fetch(
        &self,
        wanted: impl Into<Wanted>,
        leaving: bool,
        known: Option<&Prepared>,
    ) -> Result<Prepared, FetchError> {
        let wanted = wanted.into();
        let generation = wanted.generation;
        if generation == NOTHING {
            return self.load(generation, known);
        }
        self.is_the_one(wanted)?;
        match self.load(generation, known) {
            Ok(prepared) => return Ok(prepared),
            Err(error) if error.is_missing() => {}
            // The depot may have more signatures by now, or an undamaged copy.
            Err(error) => warn!(%generation, %error, "the local copy of a generation is unusable; the depot is asked"),
        }
        let (manifest_bytes, signatures, verified) = self.manifest_from_depot(generation)?;
        self.is_offered(wanted, verified.hash)?;
        // Without trusted publishers, signatures are not kept: no check would detect that they were altered.
        let signatures = if self.trust.is_some() { signatures } else { Vec::new() };
        let kept = ManifestRecord { manifest: verified.hash, signatures };
        if !verified.manifest.hosts.contains_key(&self.host) {
            if !leaving {
                return Err(self.not_in(&verified.manifest));
            }
            self.keep(generation, &manifest_bytes, &kept, None)?;
            return Ok(self.nothing_of(verified));
        }
        let bundle_bytes = self.bundle_bytes(&verified.manifest, known)?;
        let bundle = self.parse_bundle(&verified.manifest, &bundle_bytes, known)?;
        self.keep(generation, &manifest_bytes, &kept, Some(&bundle_bytes))?;
        Ok(prepared(verified, bundle))
    }

    /// The known content of a number; absent: this host does not know the number.
    #[must_use]
    pub fn manifest_known(&self, generation: GenerationNumber) -> Option<BlobHash> {
        self.known.of(generation, |noted| self.ids_kept(noted))
    }

    /// The newest known generations, at most this many, including generations that are not kept any more.
    #[must_use]
    pub fn newest_known(&self, most: usize) -> Vec<GenerationId> {
        self.known.newest(most, |noted| self.ids_kept(noted))
    }

    /// Checks that the request does not mean different content under a known number.
    ///
    /// # Errors
    /// [`FetchError::Another`].
    pub fn is_the_one(&self, wanted: Wanted) -> Result<(), FetchError> {
        let generation = wanted.generation;
        match (self.manifest_known(generation), wanted.manifest) {
            (Some(here), Some(other)) if here != other => {
                Err(FetchError::Another { generation, here, other, of_depot: false })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the depot's content is the requested content, and the known content of the number.
    fn is_offered(&self, wanted: Wanted, has: BlobHash) -> Result<(), FetchError> {
        let generation = wanted.generation;
        match (self.manifest_known(generation), wanted.manifest) {
            (Some(here), _) if here != has => Err(FetchError::Another { generation, here, other: has, of_depot: true }),
            (_, Some(wanted)) if wanted != has => {
                Err(FetchError::AnotherInDepot { generation, depot: self.depot.to_string(), has, wanted })
            }
            _ => Ok(()),
        }
    }

    /// The depot's content under a known number; absent: it is not available now.
    #[must_use]
    pub fn manifest_in_depot(&self, generation: GenerationNumber) -> Option<BlobHash> {
        self.ask(generation).ok().map(|(bytes, _)| canonical::blob_hash(&bytes))
    }

    /// The error of a depot with this newest generation, if this host knows better.
    #[must_use]
    pub fn behind(&self, newest: GenerationNumber) -> Option<String> {
        let known = self.newest_known(1).first().map(|known| known.generation)?;
        if newest < known {
            return Some(format!("its newest generation is {newest}, and this host knows generation {known}"));
        }
        let (here, has) = (self.manifest_known(newest)?, self.manifest_in_depot(newest)?);
        (here != has).then(|| {
            let (has, here) = (has.short(), here.short());
            format!("its generation {newest} has the manifest {has}, but this host knows the manifest {here}")
        })
    }

    /// The kept generations that are not noted, by number and content.
    fn ids_kept(&self, noted: &BTreeMap<GenerationNumber, BlobHash>) -> Vec<GenerationId> {
        let hash = |generation| {
            // Each generation that leads to the empty generation has an empty generation of its own.
            if generation == NOTHING {
                return None;
            }
            let manifest = self.read_kept(generation, MANIFEST).ok()?;
            // A damaged generation has no known content.
            let is_whole = match self.read_kept(generation, SIGNATURES) {
                Ok(bytes) => self.parse_kept(generation, &bytes, &manifest).is_ok(),
                Err(error) => error.is_missing(),
            };
            is_whole.then(|| canonical::blob_hash(&manifest))
        };
        let id = |generation| Some(GenerationId { generation, manifest: hash(generation)? });
        self.kept().into_iter().filter(|generation| !noted.contains_key(generation)).filter_map(id).collect()
    }

    /// The bytes of a manifest and its signatures from the depot. The signatures come first: without enough of them, a
    /// long manifest is not fetched.
    fn ask(&self, generation: GenerationNumber) -> Result<(Vec<u8>, Vec<Signed>), FetchError> {
        let signatures = self.depot.signatures(generation)?;
        let possible = self.trust.as_ref().map_or(Ok(()), |trust| trust.could_be_enough(&signatures));
        let Err(why) = possible else { return Ok((self.depot.manifest(generation, MAX_MANIFEST)?, signatures)) };
        match self.depot.manifest(generation, MAX_UNPROVED) {
            Ok(bytes) => Ok((bytes, signatures)),
            Err(_) => Err(FetchError::Untrusted { generation, why }),
        }
    }

    /// The askers in this host's bundle of a generation: the kept bundle, or else the depot's, verified but not kept.
    ///
    /// # Errors
    /// [`FetchError`]; a generation without this host allows no requests to it.
    pub fn askers(&self, generation: GenerationNumber, known: Option<&Prepared>) -> Result<KnownAskers, FetchError> {
        let bundle = match self.load(generation, known) {
            Ok(prepared) => prepared.bundle,
            Err(_) => {
                let (.., verified) = self.manifest_from_depot(generation)?;
                if verified.manifest.hosts.contains_key(&self.host) {
                    self.parse_bundle(&verified.manifest, &self.bundle_bytes(&verified.manifest, known)?, known)?
                } else {
                    self.nothing_of(verified).bundle
                }
            }
        };
        Ok(bundle.askers().map_or(KnownAskers::Unsaid, |askers| KnownAskers::Named(askers.clone())))
    }

    fn manifest_from_depot(
        &self,
        generation: GenerationNumber,
    ) -> Result<(Vec<u8>, Vec<Signed>, Verified), FetchError> {
        let (bytes, signatures) = self.ask(generation)?;
        let verified = verify(self.trust.as_ref(), generation, &bytes, &signatures)?;
        Ok((bytes, signatures, verified))
    }

    /// The bytes of this host's bundle: from a known generation with the same bundle, or from the depot.
    fn bundle_bytes(&self, manifest: &Manifest, known: Option<&Prepared>) -> Result<Vec<u8>, FetchError> {
        match known.and_then(|known| self.bytes_of_the_same(manifest, known)) {
            Some(bytes) => Ok(bytes),
            None => self.depot.bundle(manifest.generation, &self.host),
        }
    }

    /// The verified manifest of a generation in the depot, without keeping it. It suffices to find the addresses of
    /// hosts.
    ///
    /// # Errors
    /// [`FetchError`], also if this host is not in the generation.
    pub fn manifest_of_depot(&self, generation: GenerationNumber) -> Result<Manifest, FetchError> {
        let (.., verified) = self.manifest_from_depot(generation)?;
        let manifest = verified.manifest;
        if !manifest.hosts.contains_key(&self.host) {
            return Err(self.not_in(&manifest));
        }
        Ok(manifest)
    }

    /// The kept bundle of a known generation, if it is also the bundle of this generation.
    fn bytes_of_the_same(&self, manifest: &Manifest, known: &Prepared) -> Option<Vec<u8>> {
        let hash = known.bundle_hash(&self.host)?;
        let same = manifest.hosts.get(&self.host)?.bundle == hash;
        let kept = || std::fs::read(self.folder_of(known.manifest.generation).join(BUNDLE)).ok();
        same.then(kept).flatten().filter(|bytes| canonical::blob_hash(bytes) == hash)
    }

    /// Fetches the rollback targets of a generation in advance: a rollback needs no depot.
    pub fn fetch_ways_back(&self, manifest: &Manifest) {
        let is_kept = |way: &&RollbackTarget| {
            self.keeps(way.generation) && self.manifest_known(way.generation) == Some(way.manifest)
        };
        for way in manifest.back.iter().filter(|way| !is_kept(way)) {
            if way.generation == NOTHING {
                if let Err(error) = self.keep_nothing(manifest.generation) {
                    warn!(of = %manifest.generation, %error, "the empty generation can't be kept as a rollback target");
                }
                continue;
            }
            let wanted = Wanted { generation: way.generation, manifest: Some(way.manifest) };
            // A host that is not in the target departs with the rollback.
            if let Err(error) = self.fetch(wanted, true, None) {
                warn!(generation = %way.generation, %error, "a rollback target can't be fetched");
            }
        }
    }

    /// Keeps the empty generation, made from a kept generation.
    fn keep_nothing(&self, of: GenerationNumber) -> Result<(), FetchError> {
        let _alone = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let temp = self.folder.join(format!("{NOTHING}.tmp"));
        let disk = |path: &Path| {
            let path = path.to_owned();
            move |source| FetchError::Disk { path, source }
        };
        let write = |name: &str, bytes: &[u8]| {
            durable::write_file(&temp, name, 0o600, bytes, durable::Sync::Now).map_err(disk(&temp))
        };
        let _ = std::fs::remove_dir_all(&temp);
        std::fs::create_dir_all(&temp).map_err(disk(&temp))?;
        write(MANIFEST, &self.read_kept(of, MANIFEST)?)?;
        match self.read_kept(of, SIGNATURES) {
            Ok(bytes) => write(SIGNATURES, &bytes)?,
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
        write(MADE_OF, of.to_string().as_bytes())?;
        let folder = self.folder_of(NOTHING);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::rename(&temp, &folder).map_err(disk(&folder))?;
        durable::sync_folder(&self.folder).map_err(disk(&self.folder))
    }

    /// Reads a kept generation and verifies it again. Parts that are the same in `known` are taken over from there.
    ///
    /// # Errors
    /// [`FetchError`] if the generation is not kept, or is damaged.
    pub fn load(&self, generation: GenerationNumber, known: Option<&Prepared>) -> Result<Prepared, FetchError> {
        let verified = self.load_verified(generation)?;
        if generation == NOTHING || !verified.manifest.hosts.contains_key(&self.host) {
            return Ok(self.nothing_of(verified));
        }
        let bytes = self.read_kept(generation, BUNDLE)?;
        let bundle = self.parse_bundle(&verified.manifest, &bytes, known)?;
        Ok(prepared(verified, bundle))
    }

    /// Reads and verifies the manifest of a kept generation.
    ///
    /// # Errors
    /// Like [`Generations::load`].
    pub fn manifest(&self, generation: GenerationNumber) -> Result<Arc<Manifest>, FetchError> {
        self.load_verified(generation).map(|verified| Arc::new(verified.manifest))
    }

    fn load_verified(&self, generation: GenerationNumber) -> Result<Verified, FetchError> {
        if generation == NOTHING {
            let of = self.read_kept(NOTHING, MADE_OF).map_err(|error| match error {
                error if error.is_missing() && !self.keeps(NOTHING) => FetchError::NoneBefore,
                error => error,
            })?;
            let of = std::str::from_utf8(&of).ok().and_then(|number| number.parse().ok()).map(GenerationNumber);
            let bad = || FetchError::Bad { generation, what: "the file that names its origin is damaged".to_owned() };
            let of = of.filter(|of| *of != NOTHING).ok_or_else(bad)?;
            let Verified { manifest, signers, .. } = self.verify_kept(NOTHING, of)?;
            return Ok(Verified { hash: manifest.way_to_nothing().manifest, manifest: manifest.emptied(), signers });
        }
        self.verify_kept(generation, generation)
    }

    /// Verifies the manifest of a generation that is kept in the folder of another generation, or in its own.
    fn verify_kept(&self, folder: GenerationNumber, generation: GenerationNumber) -> Result<Verified, FetchError> {
        let manifest_bytes = self.read_kept(folder, MANIFEST)?;
        let signatures = match self.read_kept(folder, SIGNATURES) {
            Ok(bytes) => self.parse_kept(generation, &bytes, &manifest_bytes)?,
            // ManifestRecord by version 0.1.0, which had no signatures.
            Err(error) if error.is_missing() => Vec::new(),
            Err(error) => return Err(error),
        };
        verify(self.trust.as_ref(), generation, &manifest_bytes, &signatures)
    }

    fn read_kept(&self, generation: GenerationNumber, name: &str) -> Result<Vec<u8>, FetchError> {
        let path = self.folder_of(generation).join(name);
        std::fs::read(&path).map_err(|source| FetchError::Disk { path, source })
    }

    /// Whether files of a generation are kept here, valid or not.
    #[must_use]
    pub fn keeps(&self, generation: GenerationNumber) -> bool {
        self.folder_of(generation).exists()
    }

    /// Notes that this host abandons a generation for an older generation: from then on only an order leads forward to
    /// it again, and its rollback targets apply.
    ///
    /// # Errors
    /// [`FetchError::Disk`].
    pub fn note_return(&self, from: GenerationNumber) -> Result<(), FetchError> {
        if self.returned_from().is_ok_and(|noted| noted == Some(from)) {
            return Ok(());
        }
        let text = return_note(from);
        durable::write_file(&self.folder, RETURNED, 0o600, text.as_bytes(), durable::Sync::Now)
            .map_err(|source| FetchError::Disk { path: self.folder.join(RETURNED), source })
    }

    /// The newest generation that this host has abandoned for an older generation.
    ///
    /// # Errors
    /// [`FetchError`] if the note can't be read, or is damaged.
    pub fn returned_from(&self) -> Result<Option<GenerationNumber>, FetchError> {
        let path = self.folder.join(RETURNED);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FetchError::Disk { path, source }),
        };
        let number = text.split(' ').next().and_then(|number| number.parse().ok()).map(GenerationNumber);
        match number.filter(|number| return_note(*number) == text) {
            Some(number) => Ok(Some(number)),
            None => {
                let source = io::Error::new(io::ErrorKind::InvalidData, "it is damaged; it should name a generation");
                Err(FetchError::Disk { path, source })
            }
        }
    }

    /// Deletes kept generations that are older than the newest `keep` and not among `needed`.
    pub fn prune(&self, keep: usize, needed: &[GenerationNumber]) {
        let kept = self.kept();
        let old = kept.len().saturating_sub(keep);
        for number in kept.into_iter().take(old).filter(|n| !needed.contains(n)) {
            // A failed deletion is tried again after the next activation.
            let _ = std::fs::remove_dir_all(self.folder_of(number));
        }
    }

    /// The numbers of the kept generations.
    #[must_use]
    pub fn kept(&self) -> Vec<GenerationNumber> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let mut kept: Vec<_> =
            entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok().map(GenerationNumber)).collect();
        kept.sort_unstable();
        kept
    }

    /// Forgets a generation durably. Returns whether it was kept.
    ///
    /// # Errors
    /// [`FetchError::Disk`].
    pub fn forget(&self, generation: GenerationNumber) -> Result<bool, FetchError> {
        let path = self.folder_of(generation);
        let failed = |source| FetchError::Disk { path: path.clone(), source };
        match std::fs::remove_dir_all(&path) {
            Ok(()) => {
                let forgotten = durable::sync_folder(&self.folder);
                let forgotten = forgotten.and_then(|()| self.known.forget(generation, |noted| self.ids_kept(noted)));
                forgotten.map(|()| true).map_err(failed)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    fn folder_of(&self, generation: GenerationNumber) -> PathBuf {
        self.folder.join(generation.to_string())
    }

    fn parse_kept(
        &self,
        generation: GenerationNumber,
        bytes: &[u8],
        manifest: &[u8],
    ) -> Result<Vec<Signed>, FetchError> {
        let bad = |what: String| FetchError::Bad { generation, what };
        let kept: ManifestRecord =
            codec::decode(bytes, MAX_KEPT).map_err(|e| bad(format!("its signatures, kept on this host: {e}")))?;
        // CBOR has several encodings of some values; only the canonical encoding is accepted here.
        if codec::encode(&kept).ok().as_deref() != Some(bytes) {
            return Err(bad("its signatures, kept on this host, were altered".to_owned()));
        }
        if kept.manifest != canonical::blob_hash(manifest) {
            return Err(bad("its manifest, kept on this host, was altered (other hash)".to_owned()));
        }
        Ok(kept.signatures)
    }

    fn nothing_of(&self, verified: Verified) -> Prepared {
        prepared(verified, Arc::new(Packed::empty(self.host.clone())))
    }

    fn not_in(&self, manifest: &Manifest) -> FetchError {
        let known: Vec<_> = manifest.hosts.keys().map(HostName::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        FetchError::NotIn { generation: manifest.generation, host: self.host.clone(), known }
    }

    fn parse_bundle(
        &self,
        manifest: &Manifest,
        bytes: &[u8],
        known: Option<&Prepared>,
    ) -> Result<Arc<Packed>, FetchError> {
        let bad = |what: String| FetchError::Bad { generation: manifest.generation, what };
        let hash = canonical::blob_hash(bytes);
        if manifest.hosts.get(&self.host).map(|h| h.bundle) != Some(hash) {
            return Err(bad("its bundle does not match its manifest (other hash)".to_owned()));
        }
        if let Some(known) = known.filter(|known| known.bundle_hash(&self.host) == Some(hash)) {
            return Ok(known.bundle.clone());
        }
        let read = Packed::read(bytes, known.map(|known| &*known.bundle));
        let bundle = read.map_err(|error| match error {
            ReadError::Codec(error) => bad(format!("its bundle: {error}")),
            ReadError::Bundle(error) => bad(error.to_string()),
        })?;
        if *bundle.host() != self.host {
            return Err(bad(format!("its bundle is for host {}", bundle.host())));
        }
        Ok(Arc::new(bundle))
    }

    /// Whether exactly this content is kept already.
    fn is_kept(
        &self,
        generation: GenerationNumber,
        manifest: &[u8],
        kept: &ManifestRecord,
        bundle: Option<&[u8]>,
    ) -> bool {
        let folder = self.folder_of(generation);
        let is = |name: &str, bytes: &[u8]| std::fs::read(folder.join(name)).is_ok_and(|read| read == bytes);
        let signed = codec::encode(kept).is_ok_and(|bytes| is(SIGNATURES, &bytes));
        signed && is(MANIFEST, manifest) && bundle.is_none_or(|bytes| is(BUNDLE, bytes))
    }

    fn keep(
        &self,
        generation: GenerationNumber,
        manifest: &[u8],
        kept: &ManifestRecord,
        bundle: Option<&[u8]>,
    ) -> Result<(), FetchError> {
        let _alone = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        // Different content may have been kept under the number since the fetch started.
        self.is_offered(generation.into(), kept.manifest)?;
        if self.is_kept(generation, manifest, kept, bundle) {
            return self.note(generation, kept);
        }
        let id = kept;
        let temp = self.folder.join(format!("{generation}.tmp"));
        let disk = |path: &Path| {
            let path = path.to_owned();
            move |source| FetchError::Disk { path, source }
        };
        let _ = std::fs::remove_dir_all(&temp);
        std::fs::create_dir_all(&temp).map_err(disk(&temp))?;
        let kept = codec::encode(kept).map_err(|e| FetchError::Bad { generation, what: e.to_string() })?;
        durable::write_file(&temp, MANIFEST, 0o600, manifest, durable::Sync::Now).map_err(disk(&temp))?;
        durable::write_file(&temp, SIGNATURES, 0o600, &kept, durable::Sync::Now).map_err(disk(&temp))?;
        if let Some(bundle) = bundle {
            durable::write_file(&temp, BUNDLE, 0o600, bundle, durable::Sync::Now).map_err(disk(&temp))?;
        }
        let folder = self.folder_of(generation);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::rename(&temp, &folder).map_err(disk(&folder))?;
        durable::sync_folder(&self.folder).map_err(disk(&self.folder))?;
        self.note(generation, id)
    }

    /// Notes the content of a number.
    fn note(&self, generation: GenerationNumber, kept: &ManifestRecord) -> Result<(), FetchError> {
        let id = GenerationId { generation, manifest: kept.manifest };
        let noted = self.known.note(id, |noted| self.ids_kept(noted));
        noted.map_err(|source| FetchError::Disk { path: self.folder.clone(), source })
    }
}

fn prepared(verified: Verified, bundle: Arc<Packed>) -> Prepared {
    let Verified { manifest, hash, signers } = verified;
    Prepared { manifest: Arc::new(manifest), bundle, hash, signers }
}

/// The addresses of all hosts of a generation.
pub(crate) fn addresses(manifest: &Manifest) -> BTreeMap<HostName, SocketAddr> {
    let with_address = |(host, entry): (&HostName, &cob_types::generation::ManifestHost)| {
        Some((host.clone(), parse_address(entry.address.as_ref()?).ok()?))
    };
    manifest.hosts.iter().filter_map(with_address).collect()
}

/// The text of the note: the number, and a hash that reveals damage.
fn return_note(from: GenerationNumber) -> String {
    format!("{from} {}\n", canonical::blob_hash(format!("returned from {from}").as_bytes()))
}

impl Prepared {
    /// Checks every kind and change object with its back end, except unchanged parts of an accepted generation. On a
    /// rollback, only the kinds are checked: the generation was accepted once, and a back end that has become stricter
    /// since must not prevent the rollback. Checks and transitions report the errors later.
    ///
    /// # Errors
    /// All errors, in words.
    pub fn accept(&self, kinds: &Kinds, before: Option<&Self>, is_back: bool) -> Result<(), FetchError> {
        let mut faults = Vec::new();
        for kind in self.bundle.kinds().values() {
            faults.extend(kinds.accept(kind).err().map(|e| e.to_string()));
        }
        let nothing;
        let before = match before {
            Some(before) => &*before.bundle,
            None => {
                nothing = Packed::empty(self.bundle.host().clone());
                &nothing
            }
        };
        for cob in self.bundle.differences(before).filter_map(|d| d.now.filter(|_| !is_back)) {
            if let Some(kind) = self.bundle.kinds().get(&cob.kind) {
                faults.extend(kinds.accept_cob(kind, &cob).err().map(|e| e.to_string()));
            }
        }
        faults.extend(kinds.accept_secrets(&self.bundle, before).err());
        if faults.is_empty() {
            return Ok(());
        }
        Err(FetchError::Bad { generation: self.manifest.generation, what: faults.join("; ") })
    }

    /// The back ends whose work ends with the daemon.
    #[must_use]
    pub fn in_process(&self, kinds: &Kinds) -> Vec<String> {
        let inside = |k: &&Kind| !kinds.durable(k).unwrap_or(true);
        self.bundle.kinds().values().filter(inside).map(|k| k.backend.clone()).collect()
    }

    /// The number and content of the generation.
    #[must_use]
    pub fn id(&self) -> GenerationId {
        GenerationId { generation: self.manifest.generation, manifest: self.hash }
    }

    /// The hash of the bundle's bytes; absent: the host is not in the generation.
    fn bundle_hash(&self, host: &HostName) -> Option<BlobHash> {
        self.manifest.hosts.get(host).map(|entry| entry.bundle)
    }

    /// The addresses of all hosts.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<HostName, SocketAddr> {
        addresses(&self.manifest)
    }

    /// The kind of a change object of the generation.
    #[must_use]
    pub fn kind_of(&self, cob: &CobId) -> Option<&Kind> {
        self.bundle.kinds().get(self.bundle.kind_of(cob)?)
    }

    /// Whether a change object is in the generation.
    #[must_use]
    pub fn has(&self, cob: &CobId) -> bool {
        self.bundle.has(cob)
    }
}

#[cfg(test)]
#[path = "generations_test.rs"]
mod tests;
