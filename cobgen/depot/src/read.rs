//! Reading generations: lengths before bytes, hashes before meaning.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::generation::{FORMAT, MAX_BUNDLE, MAX_MANIFEST};
use cob_types::{Bundle, Generation, GenerationNumber, HostName, Manifest};
use cob_types::{canonical, codec};
use git2::{ObjectType, Oid, Tree};
use rayon::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::depot::Depot;
use crate::error::DepotError;

pub(crate) const MANIFEST: &str = "manifest.cbor";
pub(crate) const BUNDLES: &str = "bundles";
pub(crate) const MODEL: &str = "model";
pub(crate) const PROVENANCE: &str = "provenance.json";

/// The longest record of where things come from: a few hundred bytes for each of a million
/// dependencies.
const MAX_PROVENANCE: usize = 512 << 20;
/// The longest object of any sort.
pub(crate) const MAX_OBJECT: usize = MAX_PROVENANCE;
/// The most bytes of a model, all files together.
pub(crate) const MAX_MODEL: usize = 256 << 20;
/// The deepest folder of a model.
pub(crate) const MAX_DEPTH: usize = 32;
/// The longest tree object: about a million entries.
const MAX_TREE: usize = 64 << 20;

impl Depot {
    /// What all hosts share of a generation.
    ///
    /// # Errors
    /// When the depot does not have it, or it is not whole.
    pub fn read_manifest(&self, number: GenerationNumber) -> Result<Manifest, DepotError> {
        decode_manifest(number, &self.read_manifest_bytes(number)?)
    }

    /// The bytes of the manifest as they were published, for one who keeps them.
    ///
    /// # Errors
    /// When the depot does not have it, or it is not whole.
    pub fn read_manifest_bytes(&self, number: GenerationNumber) -> Result<Vec<u8>, DepotError> {
        let view = View::of(self, number)?;
        view.blob(view.entry(&view.root, MANIFEST)?, MANIFEST, MAX_MANIFEST)
    }

    /// One host's part of a generation, checked in every way that a daemon relies on.
    ///
    /// # Errors
    /// When the depot does not have it, or it is not what the manifest says.
    pub fn read_bundle(&self, number: GenerationNumber, host: &HostName) -> Result<Bundle, DepotError> {
        decode_bundle(number, host, &self.read_bundle_bytes(number, host)?)
    }

    /// The bytes of a bundle as they were published, with the hash that the manifest says.
    ///
    /// # Errors
    /// When the depot does not have it, or it has another hash.
    pub fn read_bundle_bytes(&self, number: GenerationNumber, host: &HostName) -> Result<Vec<u8>, DepotError> {
        let view = View::of(self, number)?;
        let manifest = view.manifest()?;
        let bundles = view.tree(view.entry(&view.root, BUNDLES)?, BUNDLES)?;
        view.bundle(&manifest, &bundles, host)
    }

    /// The parts of some hosts, checked as one is.
    ///
    /// # Errors
    /// When the depot does not have the generation or one of them, or any of it is not whole.
    pub fn read_bundles(
        &self,
        number: GenerationNumber,
        hosts: &BTreeSet<HostName>,
    ) -> Result<BTreeMap<HostName, Bundle>, DepotError> {
        if hosts.is_empty() {
            return Ok(BTreeMap::new());
        }
        let view = View::of(self, number)?;
        let manifest = view.manifest()?;
        let tree = view.tree(view.entry(&view.root, BUNDLES)?, BUNDLES)?;
        let read = |host: &HostName| Ok((host.clone(), view.bundle(&manifest, &tree, host)?));
        let bytes: Vec<(HostName, Vec<u8>)> = hosts.iter().map(read).collect::<Result<_, DepotError>>()?;
        let decode = |(host, bytes): (HostName, Vec<u8>)| {
            let bundle = decode_bundle(number, &host, &bytes)?;
            Ok((host, bundle))
        };
        bytes.into_par_iter().map(decode).collect()
    }

    /// A whole generation.
    ///
    /// # Errors
    /// When the depot does not have it, or any of it is not whole.
    pub fn read(&self, number: GenerationNumber) -> Result<Generation, DepotError> {
        let view = View::of(self, number)?;
        let manifest = view.manifest()?;
        let tree = view.tree(view.entry(&view.root, BUNDLES)?, BUNDLES)?;
        let mut bundles = BTreeMap::new();
        for host in manifest.hosts.keys() {
            let bytes = view.bundle(&manifest, &tree, host)?;
            bundles.insert(host.clone(), decode_bundle(number, host, &bytes)?);
        }
        Ok(Generation { manifest, bundles })
    }

    /// The files of the data model as they were given, by their relative names.
    ///
    /// # Errors
    /// When the depot does not have the generation, or a file can't be read.
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

    /// The record of where everything comes from; none where it was published without.
    ///
    /// # Errors
    /// When the depot does not have the generation, or the record can't be read.
    pub fn read_provenance(&self, number: GenerationNumber) -> Result<Option<Vec<u8>>, DepotError> {
        let view = View::of(self, number)?;
        let entry = view.root.get_name(PROVENANCE).map(|entry| entry.id());
        entry.map(|id| view.blob(id, PROVENANCE, MAX_PROVENANCE)).transpose()
    }
}

/// One generation's tree.
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
        DepotError::Damaged { generation: self.number, what: what.to_owned(), why: why.to_owned() }
    }

    fn entry(&self, tree: &Tree<'_>, name: &str) -> Result<Oid, DepotError> {
        tree.get_name(name).map(|entry| entry.id()).ok_or_else(|| self.damaged(name, "the commit does not hold it"))
    }

    fn tree(&self, id: Oid, what: &str) -> Result<Tree<'d>, DepotError> {
        tree(self.depot, self.number, id, what)
    }

    fn blob(&self, id: Oid, what: &str, max: usize) -> Result<Vec<u8>, DepotError> {
        let failed = |error| DepotError::object(self.number, what, error);
        check_length(self.depot, self.number, id, what, ObjectType::Blob, max)?;
        let odb = self.depot.repo.odb().map_err(failed)?;
        // Git compares the object's hash while it reads.
        Ok(odb.read(id).map_err(failed)?.data().to_vec())
    }

    fn manifest(&self) -> Result<Manifest, DepotError> {
        decode_manifest(self.number, &self.blob(self.entry(&self.root, MANIFEST)?, MANIFEST, MAX_MANIFEST)?)
    }

    fn bundle(&self, manifest: &Manifest, bundles: &Tree<'_>, host: &HostName) -> Result<Vec<u8>, DepotError> {
        let entry = manifest
            .hosts
            .get(host)
            .ok_or_else(|| DepotError::NoHost { generation: self.number, host: host.clone() })?;
        let what = format!("the bundle of {host}");
        let id = bundles.get_name(&bundle_name(host)).map(|entry| entry.id());
        let id = id.ok_or_else(|| self.damaged(&what, "the commit does not hold it"))?;
        let bytes = self.blob(id, &what, MAX_BUNDLE)?;
        if canonical::blob_hash(&bytes) != entry.bundle {
            return Err(self.damaged(&what, "it has another hash than the manifest says"));
        }
        Ok(bytes)
    }
}

fn tree<'d>(depot: &'d Depot, number: GenerationNumber, id: Oid, what: &str) -> Result<Tree<'d>, DepotError> {
    check_length(depot, number, id, what, ObjectType::Tree, MAX_TREE)?;
    depot.repo.find_tree(id).map_err(|error| DepotError::object(number, what, error))
}

/// Finds the object whole and looks at its header: nothing is read, or allocated, that is longer than allowed.
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
        let why = format!("it is a {kind}, not a {expected}");
        return Err(DepotError::Damaged { generation: number, what: what.to_owned(), why });
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
    let manifest: Manifest = decode(number, "the manifest", bytes, MAX_MANIFEST)?;
    if manifest.generation != number {
        let why = format!("it is the manifest of generation {}", manifest.generation);
        return Err(DepotError::Damaged { generation: number, what: "the manifest".to_owned(), why });
    }
    Ok(manifest)
}

fn decode_bundle(number: GenerationNumber, host: &HostName, bytes: &[u8]) -> Result<Bundle, DepotError> {
    let what = format!("the bundle of {host}");
    let bundle: Bundle = decode(number, &what, bytes, MAX_BUNDLE)?;
    let damaged = |why: String| DepotError::Damaged { generation: number, what: what.clone(), why };
    if bundle.host != *host {
        return Err(damaged(format!("it is the bundle of {}", bundle.host)));
    }
    bundle.validate().map_err(|error| damaged(error.what))?;
    Ok(bundle)
}

/// The format comes first: what a newer program wrote may have any shape.
fn decode<T: DeserializeOwned>(
    number: GenerationNumber,
    what: &str,
    bytes: &[u8],
    max: usize,
) -> Result<T, DepotError> {
    #[derive(Deserialize)]
    struct FormatOnly {
        format: u32,
    }
    let damaged = |error: codec::CodecError| DepotError::Damaged {
        generation: number,
        what: what.to_owned(),
        why: error.to_string(),
    };
    let FormatOnly { format: found } = codec::decode(bytes, max).map_err(damaged)?;
    if found > FORMAT {
        let what = format!("{what} of generation {number}");
        return Err(DepotError::Newer { what, found, known: FORMAT });
    }
    codec::decode(bytes, max).map_err(damaged)
}
