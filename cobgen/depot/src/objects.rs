//! Writes objects: a few as single files, many in a pack.
//!
//! A file and an fsync for each of ten thousand bundles take more than ten seconds; a pack takes a second. Bundles get
//! their own pack ([`pack`]); the other objects of the generation go into another. In both cases all objects are
//! durable when [`Objects::finish`] returns.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository};

use crate::depot::{Depot, sync_folder};
use crate::integrity::Integrity;
use crate::pack;

/// From this number of new bundles on, they are written as a pack.
pub(crate) const PACK_FROM: usize = 200;
const PACKS: &str = "objects/pack";
const FILE_MODE: i32 = 0o100_644;
const FOLDER_MODE: i32 = 0o040_000;

/// Limits the size of objects for which libgit2 searches deltas; libgit2 reads the limit under this name.
const DELTAS_UP_TO: &str = "pack.deltaCacheSize";

/// Bundles are as similar as small files can be, and compress to a tenth without deltas. The search for deltas takes
/// four times as long as all other work and saves a twentieth.
///
/// libgit2 (to 1.9 at least) reads the size limit for deltas under the name of a cache size. For git itself the value
/// means that `git repack` keeps no deltas in memory during its run. If the value can't be set, publishing takes
/// longer.
pub(crate) fn search_for_no_deltas(repo: &Repository) {
    if let Ok(mut config) = repo.config()
        && config.get_i64(DELTAS_UP_TO).ok() != Some(1)
    {
        let _ = config.set_i64(DELTAS_UP_TO, 1);
    }
}

/// Writes objects with its own open repository.
pub(crate) struct Objects<'d> {
    repo: Repository,
    integrity: &'d Integrity,
    /// The objects written so far, if they are collected in memory until [`Objects::finish`].
    gathered: Option<Vec<Oid>>,
}

impl<'d> Objects<'d> {
    /// For a few objects, or for many.
    pub(crate) fn open(depot: &'d Depot, many: bool) -> Result<Self, git2::Error> {
        let repo = Repository::open_bare(&depot.path)?;
        if many {
            search_for_no_deltas(&repo);
            gather_in_memory(&repo)?;
        }
        Ok(Self { repo, integrity: &depot.integrity, gathered: many.then(Vec::new) })
    }

    /// Writes a blob, unless it exists.
    pub(crate) fn blob(&mut self, bytes: &[u8]) -> Result<Oid, git2::Error> {
        let id = pack::object_id(ObjectType::Blob, bytes);
        self.integrity.check_for_git(id)?;
        if !self.repo.odb()?.exists(id) {
            self.repo.blob(bytes)?;
            self.note(id);
        }
        Ok(id)
    }

    /// Writes blobs that do not exist yet. Many blobs are durable at once.
    pub(crate) fn new_blobs(&mut self, blobs: &[(Oid, &[u8])]) -> Result<(), git2::Error> {
        if self.gathered.is_none() {
            return blobs.iter().try_for_each(|(_, bytes)| self.repo.blob(bytes).map(drop));
        }
        pack::write(&self.repo.path().join(PACKS), blobs).map_err(as_git)
    }

    /// Writes a folder: its files and folders by name.
    pub(crate) fn folder(
        &mut self,
        files: &BTreeMap<String, Oid>,
        folders: &BTreeMap<String, Oid>,
    ) -> Result<Oid, git2::Error> {
        let mut builder = self.repo.treebuilder(None)?;
        for (name, id) in files {
            builder.insert(name, *id, FILE_MODE)?;
        }
        for (name, id) in folders {
            builder.insert(name, *id, FOLDER_MODE)?;
        }
        let id = builder.write()?;
        drop(builder);
        // The folder may have existed before, and may be damaged.
        self.integrity.check_for_git(id)?;
        self.note(id);
        Ok(id)
    }

    /// Writes a commit that no ref names yet.
    pub(crate) fn commit(
        &mut self,
        tree: Oid,
        parent: Option<Oid>,
        message: &str,
        author: &git2::Signature<'_>,
    ) -> Result<Oid, git2::Error> {
        parent.map_or(Ok(()), |id| self.integrity.check_for_git(id))?;
        self.integrity.check_for_git(tree)?;
        let parent = parent.map(|id| self.repo.find_commit(id)).transpose()?;
        let parents: Vec<&git2::Commit<'_>> = parent.iter().collect();
        let id = self.repo.commit(None, author, author, message, &self.repo.find_tree(tree)?, &parents)?;
        drop(parents);
        drop(parent);
        self.note(id);
        Ok(id)
    }

    /// Makes all objects durable.
    pub(crate) fn finish(self) -> Result<(), git2::Error> {
        let Some(gathered) = self.gathered else {
            // Git makes each object and its folder durable, but not the directory entry of a new folder.
            return sync_folder(&self.repo.path().join("objects")).map_err(as_git);
        };
        write_pack(&self.repo, gathered)
    }

    fn note(&mut self, id: Oid) {
        if let Some(gathered) = &mut self.gathered {
            gathered.push(id);
        }
    }
}

fn as_git(error: std::io::Error) -> git2::Error {
    git2::Error::new(git2::ErrorCode::GenericError, git2::ErrorClass::Os, error.to_string())
}

/// Collects written objects in memory, for [`write_pack`].
fn gather_in_memory(repo: &Repository) -> Result<(), git2::Error> {
    repo.odb()?.add_new_mempack_backend(i32::MAX).map(drop)
}

pub(crate) fn write_pack(repo: &Repository, objects: Vec<Oid>) -> Result<(), git2::Error> {
    let mut pack = repo.packbuilder()?;
    for id in objects {
        pack.insert_object(id, None)?;
    }
    pack.write(&repo.path().join(PACKS), pack::PACK_MODE)
}
