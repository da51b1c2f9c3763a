//! Finds all objects that a depot's refs reach, and checks that they exist and are whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use git2::{ObjectType, Oid};

use crate::depot::Depot;
use crate::error::DepotError;
use crate::read::MAX_OBJECT;

/// The most objects that are visited.
const MOST: usize = 50_000_000;

/// The objects that the refs reach.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    pub(crate) ids: BTreeSet<Oid>,
}

impl Reached {
    /// All objects that the refs reach, except for the refs `without`; history ends at the commits in `ends`.
    ///
    /// # Errors
    /// The first object that is missing or damaged.
    pub(crate) fn of(depot: &Depot, without: &[String], ends: &BTreeSet<Oid>) -> Result<Self, DepotError> {
        let without: BTreeSet<&str> = without.iter().map(String::as_str).collect();
        let failed = || DepotError::git(format!("can't read the refs of {}", depot.path.display()));
        let mut reached = Self::default();
        let mut found = BTreeSet::new();
        for reference in depot.repo.references().map_err(failed())? {
            let reference = reference.map_err(failed())?;
            let Ok(name) = reference.name() else {
                return Err(DepotError::git("can't read the name of a ref")(git2::Error::from_str("it is no UTF-8")));
            };
            found.insert(name.to_owned());
            if without.contains(name) {
                continue;
            }
            if let Some(id) = reference.target() {
                reached.walk(depot, name, id, ends)?;
            }
        }
        all_found(&depot.path, "refs", &found, 0)?;
        Ok(reached)
    }

    /// Adds the objects that a ref reaches.
    pub(crate) fn walk(
        &mut self,
        depot: &Depot,
        name: &str,
        from: Oid,
        ends: &BTreeSet<Oid>,
    ) -> Result<(), DepotError> {
        let failed = |id: Oid| DepotError::git(format!("{name} leads to {id}, which can't be read"));
        let mut coming = vec![from];
        while let Some(id) = coming.pop() {
            if self.ids.contains(&id) {
                continue;
            }
            if self.ids.len() >= MOST {
                return Err(failed(id)(git2::Error::from_str("the depot has too many objects")));
            }
            depot.integrity.check(id)?;
            let odb = depot.repo.odb().map_err(failed(id))?;
            let (len, kind) = odb.read_header(id).map_err(failed(id))?;
            if len > MAX_OBJECT {
                return Err(failed(id)(git2::Error::from_str("it is longer than any honest object")));
            }
            self.ids.insert(id);
            match kind {
                ObjectType::Commit => {
                    let commit = depot.repo.find_commit(id).map_err(failed(id))?;
                    coming.push(commit.tree_id());
                    if !ends.contains(&id) {
                        coming.extend(commit.parent_ids());
                    }
                }
                ObjectType::Tree => {
                    let tree = depot.repo.find_tree(id).map_err(failed(id))?;
                    // A submodule entry names a commit of another repository.
                    let inside = tree.iter().filter(|entry| entry.kind() != Some(ObjectType::Commit));
                    coming.extend(inside.map(|entry| entry.id()));
                }
                ObjectType::Tag => coming.push(depot.repo.find_tag(id).map_err(failed(id))?.target_id()),
                ObjectType::Blob | ObjectType::Any => {}
            }
        }
        Ok(())
    }
}

/// The deepest folder of refs.
const DEEPEST: usize = 16;

/// Git skips a ref whose file is damaged; without this check its objects would count as unreachable.
fn all_found(depot: &Path, folder: &str, found: &BTreeSet<String>, depth: usize) -> Result<(), DepotError> {
    let path = depot.join(folder);
    let failed = || DepotError::io(format!("can't read {}", path.display()));
    for entry in fs::read_dir(&path).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let here = entry.path();
        let name = entry.file_name().into_string().ok().map(|name| format!("{folder}/{name}"));
        let name = name.ok_or_else(|| DepotError::damaged_file(&here, "its name is no UTF-8"))?;
        if entry.file_type().map_err(failed())?.is_dir() {
            if depth == DEEPEST {
                return Err(DepotError::damaged_file(&here, "no honest ref is so deep"));
            }
            all_found(depot, &name, found, depth + 1)?;
        } else if !name.ends_with(".lock") && !found.contains(&name) {
            return Err(DepotError::damaged_file(&here, "git finds no ref in it"));
        }
    }
    Ok(())
}
