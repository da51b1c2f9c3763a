//! Publishing: a generation becomes visible to all readers at once, or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use cob_types::generation::FORMAT;
use cob_types::trust::Signed;
use cob_types::{Bundle, Generation, GenerationNumber, HostName, Manifest};
use cob_types::{canonical, codec};
use git2::{ErrorCode, ObjectType, Oid, Signature};
use rayon::prelude::*;

use crate::depot::{Counts, Depot, MAIN, ref_of, sync_folder, write_message};
use crate::error::{DepotError, PublishError};
use crate::lock::{ObjectsLock, PublisherLock};
use crate::objects::{Objects, PACK_FROM};
use crate::pack::object_id;
use crate::read::{BUNDLES, MANIFEST, MAX_DEPTH, MAX_MODEL, MODEL, PROVENANCE, bundle_name};

/// How long a publisher waits for others: each holds the lock for a few milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A lock file of git older than this was left behind by a killed program.
const LEFT_BEHIND: Duration = Duration::from_secs(600);
/// After a failed write, a test checks whether there is space for at most this many bytes.
const MOST_TRIED: usize = 64 << 20;

/// The content and metadata of a publication.
#[derive(Debug, Clone, Copy)]
pub struct Publication<'a> {
    /// The generation, numbered after the depot's latest.
    pub generation: &'a Generation,
    /// The files of the data model, by relative names.
    pub model: &'a BTreeMap<String, Vec<u8>>,
    /// The provenance record; may be empty.
    pub provenance: &'a [u8],
    /// The message in the log; may be empty.
    pub message: &'a str,
    /// The publisher.
    pub author: &'a Author,
    /// The time of publication, in seconds since 1970-01-01 UTC.
    pub time: i64,
    /// Publishers' signatures over the manifest's bytes; they are visible as soon as the generation is.
    pub signatures: &'a [Signed],
}

/// The author of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// The author's name.
    pub name: String,
    /// The author's e-mail address.
    pub email: String,
}

/// The result of publishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The generation is in the depot under this number.
    New(GenerationNumber),
    /// The depot's latest generation, with this number, asks for the same; no new generation was made.
    Unchanged(GenerationNumber),
}

impl Depot {
    /// Publishes a generation.
    ///
    /// # Errors
    /// [`PublishError::Overtaken`] if the depot's latest generation is not the parent of this generation; other errors
    /// if the parts do not fit together or the depot can't be written. No part of the generation is visible then,
    /// unless the disk failed at the very last step: check [`Depot::latest`].
    pub fn publish(&self, publication: &Publication<'_>) -> Result<Published, PublishError> {
        fits_together(publication)?;
        if let Some(unchanged) = self.standing(publication)? {
            return Ok(unchanged);
        }
        let encoded = Encoded::of(publication)?;
        self.write(publication, &encoded).map_err(|error| self.or_full(publication, &encoded, error))
    }

    fn write(&self, publication: &Publication<'_>, encoded: &Encoded) -> Result<Published, PublishError> {
        // Until the refs are set, no ref reaches the new objects: the lock keeps pruning away.
        let _objects = ObjectsLock::shared(&self.path, PATIENCE)?;
        let commit = self.write_objects(publication, encoded)?;
        let _lock = PublisherLock::take(&self.path, PATIENCE)?;
        if let Some(unchanged) = self.standing(publication)? {
            return Ok(unchanged);
        }
        let number = publication.generation.manifest.generation;
        self.write_signatures(number, canonical::blob_hash(&encoded.manifest), publication.signatures)?;
        match self.set_ref(&ref_of(number), commit, false) {
            Err(PublishError::Depot(DepotError::Git { source, .. })) if source.code() == ErrorCode::Exists => {
                return Err(self.overtaken(publication, Some(number)));
            }
            outcome => outcome?,
        }
        // The generation exists. If `main` can't be set now, the next publisher repairs it.
        let _ = self.set_ref(MAIN, commit, true);
        Ok(Published::New(number))
    }

    /// The default publisher: the user of git's configuration, else the program.
    #[must_use]
    pub fn default_author(&self) -> Author {
        let configured = self.repo.signature().ok();
        let configured = configured.and_then(|s| Some((s.name().ok()?.to_owned(), s.email().ok()?.to_owned())));
        let (name, email) = configured.unwrap_or_else(|| ("cobgen".to_owned(), "cobgen@localhost".to_owned()));
        Author { name, email }
    }

    /// Repairs `main` if a publisher was killed between the two refs.
    pub(crate) fn heal(&self) -> Result<(), DepotError> {
        let behind = || -> Result<Option<Oid>, DepotError> {
            let Some(latest) = self.latest()? else { return Ok(None) };
            let commit = self.commit(latest)?.id();
            Ok((self.repo.refname_to_id(MAIN).ok() != Some(commit)).then_some(commit))
        };
        if behind()?.is_none() {
            return Ok(());
        }
        let healed = PublisherLock::take(&self.path, PATIENCE).and_then(|_lock| match behind()? {
            Some(commit) => self.set_ref(MAIN, commit, true),
            None => Ok(()),
        });
        match healed {
            Err(PublishError::Depot(error)) => Err(error),
            // The publisher that holds the lock sets `main` too.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Git's errors do not report a full disk, so this function tests whether there is space.
    fn or_full(&self, publication: &Publication<'_>, encoded: &Encoded, error: PublishError) -> PublishError {
        let PublishError::Depot(DepotError::Git { .. } | DepotError::Io { .. }) = error else { return error };
        let all =
            encoded.length() + publication.provenance.len() + publication.model.values().map(Vec::len).sum::<usize>();
        match room(&self.path, all.min(MOST_TRIED)) {
            Err(source) if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                let number = publication.generation.manifest.generation;
                let what = format!("there is no room for generation {number} in {}", self.path.display());
                DepotError::Io { what, source }.into()
            }
            Ok(()) | Err(_) => error,
        }
    }

    /// Compares the generation with the depot's latest: `Some` if the latest asks for the same, `None` if the new
    /// generation follows it, and an error if another generation came first.
    fn standing(&self, publication: &Publication<'_>) -> Result<Option<Published>, PublishError> {
        let new = &publication.generation.manifest;
        let latest = self.latest()?;
        if let Some(number) = latest {
            let old = self.read_manifest(number)?;
            if stands_for(&old, new) {
                return Ok(Some(Published::Unchanged(number)));
            }
        }
        if latest.unwrap_or_default() != new.parent {
            return Err(self.overtaken(publication, latest));
        }
        Ok(None)
    }

    fn overtaken(&self, publication: &Publication<'_>, latest: Option<GenerationNumber>) -> PublishError {
        let manifest = &publication.generation.manifest;
        PublishError::Overtaken { number: manifest.generation, parent: manifest.parent, latest }
    }

    /// Writes all objects, but not the refs.
    fn write_objects(&self, publication: &Publication<'_>, encoded: &Encoded) -> Result<Oid, PublishError> {
        let manifest = &publication.generation.manifest;
        let failed = || DepotError::git(format!("can't write generation {}", manifest.generation));
        let author =
            Signature::new(&publication.author.name, &publication.author.email, &git2::Time::new(publication.time, 0));
        let author = author.map_err(|error| PublishError::Unfit {
            number: manifest.generation,
            why: format!("its author {:?} has no name that git accepts: {}", publication.author, error.message()),
        })?;
        let parent = match manifest.parent {
            GenerationNumber(0) => None,
            parent => Some(self.commit(parent)?.id()),
        };
        let counts = Counts { hosts: manifest.hosts.len() as u64, cobs: manifest.cobs };
        let message = write_message(publication.message, manifest.generation, counts);
        let mut new = encoded.new_bundles(self).map_err(failed())?;
        let many = new.len() >= PACK_FROM;
        if many && !publication.provenance.is_empty() {
            // The provenance is nearly as long as all bundles together, so it is compressed in parallel with them.
            new.push((object_id(ObjectType::Blob, publication.provenance), publication.provenance));
        }
        let mut objects = Objects::open(self, many).map_err(failed())?;
        objects.new_blobs(&new).map_err(failed())?;
        let model = Folder::of(publication.model)?;
        let model = (!publication.model.is_empty()).then(|| model.write(&mut objects, MODEL)).transpose()?;
        let tree = encoded.write(&mut objects, model, publication.provenance).map_err(failed())?;
        let commit = objects.commit(tree, parent, &message, &author).map_err(failed())?;
        objects.finish().map_err(failed())?;
        Ok(commit)
    }

    /// Writes a blob and the ref that names it.
    pub(crate) fn set_blob(&self, name: &str, bytes: &[u8], what: &str) -> Result<(), PublishError> {
        let failed = || DepotError::git(format!("can't write {what}"));
        // Git does not write an object whose file exists already, so check that file.
        self.integrity.check(Oid::hash_object(ObjectType::Blob, bytes).map_err(failed())?)?;
        let blob = self.repo.blob(bytes).map_err(failed())?;
        self.set_ref(name, blob, true)
    }

    /// Makes the entries of folders durable: git does not do so for a new ref or object.
    pub(crate) fn sync_folders(&self, folders: &[&str]) -> Result<(), PublishError> {
        for folder in folders.iter().map(|folder| self.path.join(folder)) {
            sync_folder(&folder).map_err(DepotError::io(format!("can't write {}", folder.display())))?;
        }
        Ok(())
    }

    /// Creates or moves a ref; a lock that a killed program left behind is removed.
    pub(crate) fn set_ref(&self, name: &str, commit: Oid, force: bool) -> Result<(), PublishError> {
        self.integrity.check(commit)?;
        let set = || self.repo.reference(name, commit, force, "cobgen publish").map(drop);
        let lock = self.path.join(format!("{name}.lock"));
        let outcome = match set() {
            Err(error) if error.code() == ErrorCode::Locked && left_behind(&lock) => {
                let removed = fs::remove_file(&lock);
                removed.map_err(DepotError::io(format!("can't remove {}", lock.display())))?;
                set()
            }
            outcome => outcome,
        };
        match outcome {
            Err(error) if error.code() == ErrorCode::Locked => Err(PublishError::Busy { lock }),
            outcome => Ok(outcome.map_err(DepotError::git(format!("can't set {name}")))?),
        }
    }
}

/// Whether an existing generation makes a new one superfluous: it asks for the same, and it forbids rollback past it
/// (`mends`) if the new generation does.
#[must_use]
pub fn stands_for(old: &Manifest, new: &Manifest) -> bool {
    // A generation that skips numbers needs its own number: hosts know the skipped numbers.
    let is_next = new.generation.0 <= old.generation.0.saturating_add(1);
    is_next && old.asks_for_the_same(new) && (old.mends || !new.mends)
}

/// Whether there is space for this many bytes.
fn room(folder: &Path, mut bytes: usize) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(folder)?;
    while bytes > 0 {
        let part = &[0xa5; 1 << 16][..bytes.min(1 << 16)];
        file.write_all(part)?;
        bytes -= part.len();
    }
    file.sync_all()
}

fn left_behind(lock: &Path) -> bool {
    let written = fs::metadata(lock).and_then(|found| found.modified());
    written.is_ok_and(|written| SystemTime::now().duration_since(written).is_ok_and(|age| age > LEFT_BEHIND))
}

/// Checks that the manifest could be published and that it names the same hosts as the bundles.
fn fits_together(publication: &Publication<'_>) -> Result<(), PublishError> {
    let Generation { manifest, bundles } = publication.generation;
    let unfit = |why: String| PublishError::Unfit { number: manifest.generation, why };
    if manifest.format != FORMAT {
        return Err(unfit(format!("its manifest has format {}, not {FORMAT}", manifest.format)));
    }
    if manifest.generation <= manifest.parent {
        return Err(unfit(format!(
            "its number must be higher than {}, the number of the generation before",
            manifest.parent
        )));
    }
    if !manifest.hosts.keys().eq(bundles.keys()) {
        return Err(unfit("its manifest and its bundles are not of the same hosts".to_owned()));
    }
    Ok(())
}

/// Manifest and bundles as bytes, checked against each other.
struct Encoded {
    manifest: Vec<u8>,
    bundles: Vec<Blob>,
}

/// A file to be written.
struct Blob {
    name: String,
    bytes: Vec<u8>,
    id: Oid,
}

impl Encoded {
    fn of(publication: &Publication<'_>) -> Result<Self, PublishError> {
        let Generation { manifest, bundles } = publication.generation;
        let number = manifest.generation;
        let unfit = |why: String| PublishError::Unfit { number, why };
        let encode = |buffer: &mut Vec<u8>, (host, bundle): (&HostName, &Bundle)| {
            codec::encode_into(bundle, buffer).map_err(|error| unfit(format!("the bundle of {host}: {error}")))?;
            let bytes = buffer.clone();
            if manifest.hosts.get(host).map(|entry| entry.bundle) != Some(canonical::blob_hash(&bytes)) {
                return Err(unfit(format!("the bundle of {host} does not have the hash that the manifest says")));
            }
            let id = object_id(ObjectType::Blob, &bytes);
            Ok(Blob { name: bundle_name(host), bytes, id })
        };
        let encoded: Vec<Result<Blob, PublishError>> = bundles.par_iter().map_init(Vec::new, encode).collect();
        let bundles = encoded.into_iter().collect::<Result<_, _>>()?;
        let manifest = codec::encode(manifest).map_err(|error| unfit(format!("the manifest: {error}")))?;
        Ok(Self { manifest, bundles })
    }

    fn length(&self) -> usize {
        self.manifest.len() + self.bundles.iter().map(|bundle| bundle.bytes.len()).sum::<usize>()
    }

    /// The bundles that are not in the depot yet.
    fn new_bundles(&self, depot: &Depot) -> Result<Vec<(Oid, &[u8])>, git2::Error> {
        let odb = depot.repo.odb()?;
        let mut new = Vec::new();
        for Blob { id, bytes, .. } in &self.bundles {
            depot.integrity.check_for_git(*id)?;
            if !odb.exists(*id) {
                new.push((*id, &bytes[..]));
            }
        }
        Ok(new)
    }

    /// Writes all objects but the bundles, which are written already.
    fn write(&self, objects: &mut Objects<'_>, model: Option<Oid>, provenance: &[u8]) -> Result<Oid, git2::Error> {
        let bundles = self.bundles.iter().map(|Blob { name, id, .. }| (name.clone(), *id)).collect();
        let mut files = BTreeMap::from([(MANIFEST.to_owned(), objects.blob(&self.manifest)?)]);
        if !provenance.is_empty() {
            files.insert(PROVENANCE.to_owned(), objects.blob(provenance)?);
        }
        let bundles = objects.folder(&bundles, &BTreeMap::new())?;
        let mut folders = BTreeMap::from([(BUNDLES.to_owned(), bundles)]);
        folders.extend(model.map(|model| (MODEL.to_owned(), model)));
        objects.folder(&files, &folders)
    }
}

/// The model's files by folder, at most [`MAX_DEPTH`] levels deep.
#[derive(Default)]
struct Folder<'a> {
    files: BTreeMap<&'a str, &'a [u8]>,
    folders: BTreeMap<&'a str, Folder<'a>>,
}

impl<'a> Folder<'a> {
    fn of(model: &'a BTreeMap<String, Vec<u8>>) -> Result<Self, PublishError> {
        let mut root = Self::default();
        let mut left = MAX_MODEL;
        for (path, bytes) in model {
            let refused = |why: &str| PublishError::ModelPath { path: path.clone(), why: why.to_owned() };
            left = left.checked_sub(bytes.len()).ok_or_else(|| refused("the model is larger than 256 MiB"))?;
            let parts: Vec<&str> = path.split('/').collect();
            if parts.len() > MAX_DEPTH {
                return Err(refused("its folders are too deep"));
            }
            if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
                return Err(refused("it must be relative, without `.` and `..`"));
            }
            let Some((name, above)) = parts.split_last() else { continue };
            let mut folder = &mut root;
            for part in above {
                if folder.files.contains_key(part) {
                    return Err(refused("a file has the name of its folder"));
                }
                folder = folder.folders.entry(part).or_default();
            }
            if folder.folders.contains_key(name) {
                return Err(refused("a folder has the same name"));
            }
            folder.files.insert(name, bytes);
        }
        Ok(root)
    }

    fn write(&self, objects: &mut Objects<'_>, path: &str) -> Result<Oid, PublishError> {
        let mut folders = BTreeMap::new();
        for (name, folder) in &self.folders {
            folders.insert((*name).to_owned(), folder.write(objects, &format!("{path}/{name}"))?);
        }
        let refused = |error: git2::Error| {
            if error.class() == git2::ErrorClass::Tree && error.message().contains("invalid name") {
                let why = format!("git can't store it: {}", error.message());
                return PublishError::ModelPath { path: path.to_owned(), why };
            }
            DepotError::git(format!("can't write {path}"))(error).into()
        };
        let mut files = BTreeMap::new();
        for (name, bytes) in &self.files {
            files.insert((*name).to_owned(), objects.blob(bytes).map_err(refused)?);
        }
        objects.folder(&files, &folders).map_err(refused)
    }
}

#[cfg(test)]
mod tests;
