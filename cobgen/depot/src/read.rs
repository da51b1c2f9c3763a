//! Reads generations: checks lengths before it reads bytes, and hashes before it decodes them.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::generation::{FORMAT, MAX_BUNDLE, MAX_MANIFEST};
use cob_types::secret::SecretId;
use cob_types::{BlobHash, Bundle, Generation, GenerationNumber, HostName, Manifest, canonical, codec};
use git2::{ErrorCode, ObjectType, Oid, Tree};
use rayon::prelude::*;
use serde::Deserialize;

use crate::depot::Depot;
use crate::error::DepotError;

pub(crate) const MANIFEST: &str = "manifest.cbor";
pub(crate) const BUNDLES: &str = "bundles";
pub(crate) const MODEL: &str = "model";
pub(crate) const PROVENANCE: &str = "provenance.json";
/// The format version of new provenance records.
pub const PROVENANCE_FORMAT: u32 = 2;

/// The longest provenance record: a few hundred bytes for each of a million dependencies.
const MAX_PROVENANCE: usize = 512 << 20;
/// The largest object of any type.
pub(crate) const MAX_OBJECT: usize = MAX_PROVENANCE;
/// The most bytes of a model, all files together.
pub(crate) const MAX_MODEL: usize = 256 << 20;
/// The deepest folder of a model.
pub(crate) const MAX_DEPTH: usize = 32;
/// The longest tree object: about a million entries.
const MAX_TREE: usize = 64 << 20;

impl Depot {
    /// A generation's manifest, which all hosts share.
    ///
    /// # Errors
    /// If the depot does not have the generation, or the manifest is not whole.
    pub fn read_manifest(&self, number: GenerationNumber) -> Result<Manifest, DepotError> {
        decode_manifest(number, &self.read_manifest_bytes(number)?)
    }

    /// The manifest and the hash of its bytes, by which another manifest names it.
    ///
    /// # Errors
    /// If the depot does not have the generation, or the manifest is not whole.
    pub fn read_manifest_hashed(&self, number: GenerationNumber) -> Result<(Manifest, BlobHash), DepotError> {
        let bytes = self.read_manifest_bytes(number)?;
        Ok((decode_manifest(number, &bytes)?, canonical::blob_hash(&bytes)))
    }

    /// The bytes of the manifest as they were published.
    ///
    /// # Errors
    /// If the depot does not have the generation, or the manifest is not whole.
    pub fn read_manifest_bytes(&self, number: GenerationNumber) -> Result<Vec<u8>, DepotError> {
        let view = View::of(self, number)?;
        view.blob(view.entry(&view.root, MANIFEST)?, MANIFEST, MAX_MANIFEST)
    }

    /// A host's part of a generation, with every check that a daemon relies on.
    ///
    /// # Errors
    /// If the depot does not have the bundle, or it differs from the hash in the manifest.
    pub fn read_bundle(&self, number: GenerationNumber, host: &HostName) -> Result<Bundle, DepotError> {
        decode_bundle(number, host, &self.read_bundle_bytes(number, host)?, None)
    }

    /// The bytes of a bundle as they were published, with the hash that the manifest says.
    ///
    /// # Errors
    /// If the depot does not have the bundle, or it has another hash.
    pub fn read_bundle_bytes(&self, number: GenerationNumber, host: &HostName) -> Result<Vec<u8>, DepotError> {
        let view = View::of(self, number)?;
        let manifest = view.manifest()?;
        let bundles = view.tree(view.entry(&view.root, BUNDLES)?, BUNDLES)?;
        view.bundle(&manifest, &bundles, host)
    }

    /// The bundles of some hosts, with the same checks as for a single bundle.
    ///
    /// # Errors
    /// If the depot does not have the generation or a bundle, or a part of it is not whole.
    pub fn read_bundles(
        &self,
        number: GenerationNumber,
        hosts: &BTreeSet<HostName>,
    ) -> Result<BTreeMap<HostName, Bundle>, DepotError> {
        if hosts.is_empty() {
            return Ok(BTreeMap::new());
        }
        let view = View::of(self, number)?;
        view.bundles(&view.manifest()?, hosts.iter())
    }

    /// The bundles of the given hosts in two generations, with the same checks as for a single bundle. The parts that
    /// both bundles of a host have in common are shared.
    ///
    /// # Errors
    /// As for [`Depot::read_bundles`].
    pub fn read_both(
        &self,
        numbers: [GenerationNumber; 2],
        hosts: [&BTreeSet<HostName>; 2],
    ) -> Result<[BTreeMap<HostName, Bundle>; 2], DepotError> {
        let mut found: BTreeMap<&HostName, [Option<Found<'_>>; 2]> = BTreeMap::new();
        for (side, (number, hosts)) in numbers.into_iter().zip(hosts).enumerate() {
            if hosts.is_empty() {
                continue;
            }
            let view = View::of(self, number)?;
            for one in view.found_all(&view.manifest()?, hosts.iter())? {
                let sides = found.entry(one.host).or_default();
                sides[side] = Some(one);
            }
        }
        let found: Vec<[Option<Found<'_>>; 2]> = found.into_values().collect();
        let read = on_all_processors(self, &found, |depot, [old, new]| {
            let bytes = |found: &Option<Found<'_>>| found.as_ref().map(|found| found.read(depot)).transpose();
            let decoded = |found: &Option<Found<'_>>, bytes: &Option<Vec<u8>>, known| match (found, bytes) {
                (Some(found), Some(bytes)) => decode_bundle(found.number, found.host, bytes, known).map(Some),
                _ => Ok(None),
            };
            let before = bytes(old)?;
            let was = decoded(old, &before, None)?;
            let new = decoded(new, &bytes(new)?, before.as_deref().zip(was.as_ref()))?;
            Ok([was, new])
        })?;
        let mut both = [BTreeMap::new(), BTreeMap::new()];
        for bundles in read {
            for (side, bundle) in both.iter_mut().zip(bundles) {
                side.extend(bundle.map(|bundle| (bundle.host.clone(), bundle)));
            }
        }
        Ok(both)
    }

    /// A whole generation.
    ///
    /// # Errors
    /// If the depot does not have the generation, or a part of it is not whole.
    pub fn read(&self, number: GenerationNumber) -> Result<Generation, DepotError> {
        let view = View::of(self, number)?;
        let manifest = view.manifest()?;
        let bundles = view.bundles(&manifest, manifest.hosts.keys())?;
        Ok(Generation { manifest, bundles })
    }

    /// The files of the data model as given, by their relative names.
    ///
    /// # Errors
    /// If the depot does not have the generation, or a file can't be read.
    pub fn read_model(&self, number: GenerationNumber) -> Result<BTreeMap<String, Vec<u8>>, DepotError> {
        let view = View::of(self, number)?;
        let mut files = BTreeMap::new();
        let Some(model) = view.root.get_name(MODEL).map(|entry| entry.id()) else { return Ok(files) };
        let mut left = MAX_MODEL;
        let mut folders = vec![(String::new(), model, 0)];
        while let Some((folder, id, depth)) = folders.pop() {
            if depth > MAX_DEPTH {
                return Err(view.damaged(&format!("{MODEL}/{folder}"), "its folders are too deep"));
            }
            for entry in view.tree(id, &format!("{MODEL}/{folder}"))?.iter() {
                let Ok(name) = entry.name() else {
                    return Err(view.damaged(&format!("{MODEL}/{folder}"), "a file's name is not UTF-8"));
                };
                let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
                if entry.kind() == Some(ObjectType::Tree) {
                    folders.push((path, entry.id(), depth + 1));
                } else {
                    let bytes = view.blob(entry.id(), &format!("{MODEL}/{path}"), left)?;
                    left -= bytes.len();
                    files.insert(path, bytes);
                }
            }
        }
        Ok(files)
    }

    /// The provenance record; `None` if the generation was published without it.
    ///
    /// # Errors
    /// If the depot does not have the generation, or the record can't be read.
    pub fn read_provenance(&self, number: GenerationNumber) -> Result<Option<Vec<u8>>, DepotError> {
        let view = View::of(self, number)?;
        let entry = view.root.get_name(PROVENANCE).map(|entry| entry.id());
        entry.map(|id| view.blob(id, PROVENANCE, MAX_PROVENANCE)).transpose()
    }

    /// The names of a generation's secrets, as far as they are known.
    ///
    /// # Errors
    /// If the depot can't be read.
    pub fn secret_names(&self, number: GenerationNumber) -> Result<BTreeMap<SecretId, String>, DepotError> {
        #[derive(Deserialize)]
        struct Names {
            format: u32,
            #[serde(default)]
            secrets: BTreeMap<SecretId, String>,
        }
        let written = if number == GenerationNumber(0) { None } else { self.read_provenance(number)? };
        let read = written.and_then(|bytes| serde_json::from_slice::<Names>(&bytes).ok());
        Ok(read.filter(|names| names.format == PROVENANCE_FORMAT).map(|names| names.secrets).unwrap_or_default())
    }
}

/// A generation's tree.
struct View<'d> {
    depot: &'d Depot,
    number: GenerationNumber,
    root: Tree<'d>,
}

impl<'d> View<'d> {
    fn of(depot: &'d Depot, number: GenerationNumber) -> Result<Self, DepotError> {
        let commit = depot.commit(number)?;
        let root = tree(depot, number, commit.tree_id(), "the tree")?;
        Ok(Self { depot, number, root })
    }

    fn damaged(&self, what: &str, why: &str) -> DepotError {
        DepotError::damaged(self.number, what, why)
    }

    fn entry(&self, tree: &Tree<'_>, name: &str) -> Result<Oid, DepotError> {
        tree.get_name(name).map(|entry| entry.id()).ok_or_else(|| self.damaged(name, "the commit does not hold it"))
    }

    fn tree(&self, id: Oid, what: &str) -> Result<Tree<'d>, DepotError> {
        tree(self.depot, self.number, id, what)
    }

    fn blob(&self, id: Oid, what: &str, max: usize) -> Result<Vec<u8>, DepotError> {
        blob(self.depot, self.number, id, what, max)
    }

    fn manifest(&self) -> Result<Manifest, DepotError> {
        decode_manifest(self.number, &self.blob(self.entry(&self.root, MANIFEST)?, MANIFEST, MAX_MANIFEST)?)
    }

    /// Locates the bundle of a host.
    fn found<'h>(&self, manifest: &Manifest, bundles: &Tree<'_>, host: &'h HostName) -> Result<Found<'h>, DepotError> {
        let number = self.number;
        let entry =
            manifest.hosts.get(host).ok_or_else(|| DepotError::NoHost { generation: number, host: host.clone() })?;
        let id = bundles.get_name(&bundle_name(host)).map(|entry| entry.id());
        let id = id.ok_or_else(|| self.damaged(&what_of(host), "the commit does not hold it"))?;
        Ok(Found { number, host, id, hash: entry.bundle })
    }

    fn bundle(&self, manifest: &Manifest, bundles: &Tree<'_>, host: &HostName) -> Result<Vec<u8>, DepotError> {
        self.found(manifest, bundles, host)?.read(self.depot)
    }

    fn found_all<'h>(
        &self,
        manifest: &Manifest,
        hosts: impl Iterator<Item = &'h HostName>,
    ) -> Result<Vec<Found<'h>>, DepotError> {
        let tree = self.tree(self.entry(&self.root, BUNDLES)?, BUNDLES)?;
        hosts.map(|host| self.found(manifest, &tree, host)).collect()
    }

    /// The bundles of many hosts.
    fn bundles<'h>(
        &self,
        manifest: &Manifest,
        hosts: impl Iterator<Item = &'h HostName>,
    ) -> Result<BTreeMap<HostName, Bundle>, DepotError> {
        let found = self.found_all(manifest, hosts)?;
        let read =
            on_all_processors(self.depot, &found, |depot, found| Ok((found.host.clone(), found.decoded(depot)?)))?;
        Ok(read.into_iter().collect())
    }
}

/// Reads many objects in parallel: each thread opens the depot for itself.
fn on_all_processors<F: Sync, T: Send>(
    depot: &Depot,
    found: &[F],
    read: impl Fn(&Depot, &F) -> Result<T, DepotError> + Sync,
) -> Result<Vec<T>, DepotError> {
    if found.len() < ALONE {
        return found.iter().map(|found| read(depot, found)).collect();
    }
    let path = &depot.path;
    let part = found.len().div_ceil(PARTS * rayon::current_num_threads()).max(ALONE);
    let parts = found.par_chunks(part).map(|part| -> Result<Vec<T>, DepotError> {
        let depot = Depot::open(path)?;
        part.iter().map(|found| read(&depot, found)).collect()
    });
    // If several objects are damaged, the first error is returned.
    let parts: Vec<Result<Vec<T>, DepotError>> = parts.collect();
    let parts: Vec<Vec<T>> = parts.into_iter().collect::<Result<_, DepotError>>()?;
    Ok(parts.into_iter().flatten().collect())
}

/// A single thread reads up to this many bundles.
const ALONE: usize = 16;
/// How many parts each thread gets: the parts differ in size.
const PARTS: usize = 4;

/// A bundle's location, and its expected hash.
struct Found<'h> {
    number: GenerationNumber,
    host: &'h HostName,
    id: Oid,
    hash: BlobHash,
}

impl Found<'_> {
    fn read(&self, depot: &Depot) -> Result<Vec<u8>, DepotError> {
        let what = what_of(self.host);
        let bytes = blob(depot, self.number, self.id, &what, MAX_BUNDLE)?;
        if canonical::blob_hash(&bytes) != self.hash {
            return Err(DepotError::damaged(self.number, &what, "it has another hash than the manifest says"));
        }
        Ok(bytes)
    }

    fn decoded(&self, depot: &Depot) -> Result<Bundle, DepotError> {
        decode_bundle(self.number, self.host, &self.read(depot)?, None)
    }
}

fn what_of(host: &HostName) -> String {
    format!("the bundle of {host}")
}

/// The blob that a ref beside a generation names.
pub(crate) fn named_blob(
    depot: &Depot,
    number: GenerationNumber,
    name: &str,
    what: &str,
    max: usize,
) -> Result<Vec<u8>, DepotError> {
    let damaged = |why: &str| DepotError::damaged(number, what, why);
    let id = match depot.repo.find_reference(name) {
        Ok(reference) => reference.target().ok_or_else(|| damaged("it names no object"))?,
        Err(error) if error.code() == ErrorCode::NotFound => return Err(damaged("its ref can't be read")),
        Err(error) => return Err(DepotError::object(number, what, error)),
    };
    blob(depot, number, id, what, max)
}

fn blob(depot: &Depot, number: GenerationNumber, id: Oid, what: &str, max: usize) -> Result<Vec<u8>, DepotError> {
    let failed = |error| DepotError::object(number, what, error);
    check_length(depot, number, id, what, ObjectType::Blob, max)?;
    let odb = depot.repo.odb().map_err(failed)?;
    // Git compares the object's hash while it reads.
    Ok(odb.read(id).map_err(failed)?.data().to_vec())
}

fn tree<'d>(depot: &'d Depot, number: GenerationNumber, id: Oid, what: &str) -> Result<Tree<'d>, DepotError> {
    check_length(depot, number, id, what, ObjectType::Tree, MAX_TREE)?;
    depot.repo.find_tree(id).map_err(|error| DepotError::object(number, what, error))
}

/// Checks that the object is whole and reads its header: objects longer than allowed are neither read nor allocated.
pub(crate) fn check_length(
    depot: &Depot,
    number: GenerationNumber,
    id: Oid,
    what: &str,
    expected: ObjectType,
    max: usize,
) -> Result<(), DepotError> {
    let failed = |error| DepotError::object(number, what, error);
    depot.integrity.check_object(number, what, id)?;
    let (len, kind) = depot.repo.odb().and_then(|odb| odb.read_header(id)).map_err(failed)?;
    if kind != expected {
        return Err(DepotError::damaged(number, what, format!("it is a {kind}, not a {expected}")));
    }
    if len > max {
        return Err(DepotError::TooLarge { generation: number, what: what.to_owned(), len, max });
    }
    Ok(())
}

/// The name of a host's bundle in its folder. Host names are safe file names.
pub(crate) fn bundle_name(host: &HostName) -> String {
    format!("{host}.cbor")
}

fn decode_manifest(number: GenerationNumber, bytes: &[u8]) -> Result<Manifest, DepotError> {
    let decoded = codec::decode(bytes, MAX_MANIFEST);
    let manifest: Manifest = understood(number, "the manifest", bytes, decoded, |manifest: &Manifest| manifest.format)?;
    if manifest.generation != number {
        let why = format!("it is the manifest of generation {}", manifest.generation);
        return Err(DepotError::damaged(number, "the manifest", why));
    }
    Ok(manifest)
}

/// Shares the change objects that are the same as in the known bundle.
fn decode_bundle(
    number: GenerationNumber,
    host: &HostName,
    bytes: &[u8],
    known: Option<(&[u8], &Bundle)>,
) -> Result<Bundle, DepotError> {
    let what = what_of(host);
    let bundle = understood(number, &what, bytes, Bundle::read(bytes, known), |bundle| bundle.format)?;
    let damaged = |why: String| DepotError::damaged(number, &what, why);
    if bundle.host != *host {
        return Err(damaged(format!("it is the bundle of {}", bundle.host)));
    }
    bundle.validate().map_err(|error| damaged(error.what))?;
    Ok(bundle)
}

/// The format comes first: a newer program may write any structure.
fn understood<T>(
    number: GenerationNumber,
    what: &str,
    bytes: &[u8],
    decoded: Result<T, codec::CodecError>,
    format: impl Fn(&T) -> u32,
) -> Result<T, DepotError> {
    #[derive(Deserialize)]
    struct FormatOnly {
        format: u32,
    }
    let damaged = |error: codec::CodecError| DepotError::damaged(number, what, error.to_string());
    // A decoded value contains the format, so the bytes are not scanned twice.
    let found = match &decoded {
        Ok(value) => format(value),
        Err(_) => codec::decode::<FormatOnly>(bytes, bytes.len()).map_err(damaged)?.format,
    };
    if found > FORMAT {
        let what = format!("{what} of generation {number}");
        return Err(DepotError::Newer { what, found, known: FORMAT });
    }
    decoded.map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{publication, sketch_of};

    #[test]
    fn reading_two_generations_together_gives_the_same_bundles() {
        let folder = tempfile::tempdir().expect("folder");
        let depot = Depot::create_or_open(&folder.path().join("depot")).expect("made");
        let names: Vec<String> = (0..3 * ALONE).map(|n| format!("n{n}")).collect();
        let numbers = [GenerationNumber(1), GenerationNumber(2)];
        for number in 1..=2 {
            // A few hosts are removed and a few are new; some have changed.
            let hosts = names.iter().enumerate().filter(|(n, _)| (n % 7) as u64 != number);
            let hosts: Vec<_> = hosts.map(|(n, name)| (name.as_str(), if n % 3 == 0 { number } else { 0 })).collect();
            depot.publish(&publication(&sketch_of(number, &hosts), "hosts")).expect("published");
        }
        let hosts = numbers.map(|n| depot.read_manifest(n).expect("read").hosts.into_keys().collect::<BTreeSet<_>>());
        let both = depot.read_both(numbers, [&hosts[0], &hosts[1]]).expect("read");
        for ((number, hosts), read) in numbers.into_iter().zip(&hosts).zip(&both) {
            assert_eq!(read, &depot.read_bundles(number, hosts).expect("read"));
            assert_eq!(read.len(), hosts.len());
        }
        let none = BTreeSet::new();
        let [old, new] = depot.read_both([GenerationNumber(0), numbers[1]], [&none, &hosts[1]]).expect("read");
        assert!(old.is_empty() && new == both[1], "the empty generation before the first is in no depot");
    }
}
