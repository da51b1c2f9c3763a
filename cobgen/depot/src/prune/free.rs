//! Deletes unreachable objects; before that, the reachable objects of a mixed pack move to a new pack.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use git2::{Oid, Repository};

use super::{is_older, names_in};
use crate::depot::{Depot, sync_folder};
use crate::error::DepotError;
use crate::objects::{search_for_no_deltas, write_pack};
use crate::reach::Reached;

/// Length of an object's name.
const ID: usize = 20;
/// Length of an index's head: a magic number, the version, and 256 sums of names.
const INDEX_HEAD: usize = 8 + 256 * 4;
/// The files of a pack, its index first: without the index git does not see the pack.
const OF_A_PACK: [&str; 6] = ["idx", "rev", "bitmap", "mtimes", "promisor", "pack"];

/// Deletes the files of all objects that were not reached and were not written just now; returns their size in bytes.
pub(super) fn free(depot: &Depot, reached: &Reached, grace: Duration) -> Result<u64, DepotError> {
    let objects = depot.path.join("objects");
    let packs = free_packs(depot, &objects.join("pack"), reached, grace)?;
    Ok(packs + free_loose(&objects, reached, grace)?)
}

fn free_loose(objects: &Path, reached: &Reached, grace: Duration) -> Result<u64, DepotError> {
    let mut freed = 0;
    for folder in names_in(objects)? {
        let is_one = folder.len() == 2 && folder.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_one {
            continue;
        }
        let path = objects.join(&folder);
        for name in names_in(&path)? {
            let id = (name.len() == 38).then(|| Oid::from_str(&format!("{folder}{name}")).ok()).flatten();
            // A file with any other name was left behind by a killed writer.
            if !id.is_some_and(|id| reached.ids.contains(&id)) {
                freed += remove(&path.join(&name), grace)?;
            }
        }
        // This fails if another program has just written into the folder; the folder stays then.
        let _ = fs::remove_dir(&path);
    }
    sync_folder(objects).map_err(DepotError::io(format!("can't write {}", objects.display())))?;
    Ok(freed)
}

/// A pack with objects to delete.
struct Mixed {
    pack: PathBuf,
    stays: Vec<Oid>,
    len: u64,
}

fn free_packs(depot: &Depot, folder: &Path, reached: &Reached, grace: Duration) -> Result<u64, DepotError> {
    let mut mixed = Vec::new();
    for name in names_in(folder)? {
        let path = folder.join(&name);
        match path.extension().and_then(|e| e.to_str()) {
            Some("idx") => mixed.extend(look(&path, reached, grace)?),
            Some(known) if OF_A_PACK.contains(&known) || known == "keep" => {}
            _ if name == "multi-pack-index" => {}
            Some(_) | None => drop(remove(&path, grace.max(Duration::from_secs(1)))?),
        }
    }
    if mixed.is_empty() {
        return Ok(0);
    }
    let stays: BTreeSet<Oid> = mixed.iter().flat_map(|m| m.stays.iter().copied()).collect();
    let before: u64 = mixed.iter().map(|m| m.len).sum();
    let packs_then: BTreeSet<_> = names_in(folder)?.into_iter().collect();
    if !stays.is_empty() {
        let failed = || DepotError::git("can't write a pack of the remaining objects");
        let repo = Repository::open_bare(&depot.path).map_err(failed())?;
        search_for_no_deltas(&repo);
        write_pack(&repo, stays.into_iter().collect()).map_err(failed())?;
        sync_folder(folder).map_err(DepotError::io(format!("can't write {}", folder.display())))?;
    }
    let new: Vec<PathBuf> =
        names_in(folder)?.into_iter().filter(|n| !packs_then.contains(n)).map(|n| folder.join(n)).collect();
    let new_len = |path: &PathBuf| fs::metadata(path).map_or(0, |found| found.len());
    let written: u64 = new.iter().map(new_len).sum();
    // The multi-pack index refers to packs that are about to be deleted.
    remove(&folder.join("multi-pack-index"), Duration::ZERO)?;
    for Mixed { pack, .. } in &mixed {
        for ending in OF_A_PACK {
            remove(&pack.with_extension(ending), Duration::ZERO)?;
        }
    }
    sync_folder(folder).map_err(DepotError::io(format!("can't write {}", folder.display())))?;
    Ok(before.saturating_sub(written))
}

/// The plan for a pack; `None`: it stays as it is.
fn look(index: &Path, reached: &Reached, grace: Duration) -> Result<Option<Mixed>, DepotError> {
    let pack = index.with_extension("pack");
    let failed = |path: &Path| DepotError::io(format!("can't read {}", path.display()));
    let found = match fs::metadata(&pack) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&pack)(error)),
    };
    if !is_older(&found, grace) || index.with_extension("keep").exists() {
        return Ok(None);
    }
    let all = ids(index)?;
    let (stays, goes): (Vec<Oid>, Vec<Oid>) = all.into_iter().partition(|id| reached.ids.contains(id));
    let len = found.len() + fs::metadata(index).map_or(0, |found| found.len());
    Ok((!goes.is_empty()).then_some(Mixed { pack, stays, len }))
}

/// The names in a version 2 index of a pack; the caller has just verified its checksum.
fn ids(index: &Path) -> Result<Vec<Oid>, DepotError> {
    let bytes = fs::read(index).map_err(DepotError::io(format!("can't read {}", index.display())))?;
    let bad = || DepotError::damaged_file(index, "it is not an index of version 2, or is too short");
    let head = bytes.get(..INDEX_HEAD).filter(|head| head.starts_with(b"\xfftOc\0\0\0\x02")).ok_or_else(bad)?;
    let last = head.last_chunk::<4>().ok_or_else(bad)?;
    let count = usize::try_from(u32::from_be_bytes(*last)).map_err(|_| bad())?;
    let end = count.checked_mul(ID).and_then(|len| len.checked_add(INDEX_HEAD)).ok_or_else(bad)?;
    let names = bytes.get(INDEX_HEAD..end).ok_or_else(bad)?;
    names.chunks_exact(ID).map(|name| Oid::from_bytes(name).map_err(|_| bad())).collect()
}

/// Deletes a file that was unchanged for this long; returns its length, or 0 if it stays or did not exist.
fn remove(path: &Path, grace: Duration) -> Result<u64, DepotError> {
    let failed = || DepotError::io(format!("can't delete {}", path.display()));
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() || !is_older(&found, grace) => Ok(0),
        Ok(found) => fs::remove_file(path).map(|()| found.len()).map_err(failed()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(failed()(error)),
    }
}
