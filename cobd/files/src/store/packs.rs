//! Packs: writes packs durably, and merges small packs so that lookups search few.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use git2::{Oid, PackBuilder, Repository};

use super::write::sync_folder;

/// Packs up to this size are small.
const SMALL: u64 = 16 << 20;
/// The header of a version 2 index, and its table of 256 counts.
const HEADER: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
const OIDS: usize = HEADER.len() + 256 * 4;

/// The option that limits the size of objects for which libgit2 searches deltas.
const DELTAS_UP_TO: &str = "pack.deltaCacheSize";
/// The search holds about ten objects in memory. Larger objects are excluded: a file of zeros is large only in memory.
const LARGEST_DELTA: i64 = 1 << 20;

/// Sets whether a new pack has deltas. The search takes longer than all other work; it pays when versions are merged.
pub(super) fn search_for_deltas(repo: &Repository, search: bool) {
    if let Ok(mut config) = repo.config() {
        // If the option can't be set, writing takes longer, or more space.
        let _ = config.set_i64(DELTAS_UP_TO, if search { LARGEST_DELTA } else { 1 });
    }
}

/// Writes a pack durably and returns its name.
pub(super) fn write(store: &Path, pack: &mut PackBuilder<'_>, mode: u32) -> Result<String, git2::Error> {
    let folder = store.join("objects/pack");
    pack.write(&folder, mode)?;
    let name = pack.name().ok().flatten().ok_or_else(|| git2::Error::from_str("a pack without a name"))?;
    let name = format!("pack-{name}");
    for end in ["pack", "idx"] {
        let path = folder.join(format!("{name}.{end}"));
        let synced = File::open(&path).and_then(|f| f.sync_all());
        synced.map_err(|e| git2::Error::from_str(&format!("{}: {e}", path.display())))?;
    }
    sync_folder(&folder)?;
    Ok(name)
}

/// A merged pack, and the small packs that can be removed.
pub(super) struct Merged {
    name: String,
    small: Vec<PathBuf>,
}

/// Merges the smallest packs if there are more than `most`: only as many as are small together, so that it takes a
/// second and little memory.
pub(super) fn merge_small(store: &Path, most: usize, mode: u32) -> Result<Option<Merged>, git2::Error> {
    let all = list(store);
    if all.len() <= most {
        return Ok(None);
    }
    let size = |path: &PathBuf| fs::metadata(path.with_extension("pack")).map_or(u64::MAX, |m| m.len());
    let sizes = all.into_iter().map(|path| (size(&path), path));
    let mut small: Vec<(u64, PathBuf)> = sizes.filter(|(size, _)| *size <= SMALL).collect();
    if small.len() < 2 {
        return Ok(None);
    }
    small.sort_unstable();
    let mut together = 0;
    let fit = small.iter().take_while(|(size, _)| {
        together += size;
        together <= SMALL
    });
    let count = fit.count().max(2);
    let small: Vec<PathBuf> = small.drain(..count).map(|(_, path)| path).collect();
    let mut objects = BTreeSet::new();
    for path in &small {
        objects.extend(oids(path).map_err(|e| git2::Error::from_str(&format!("{}: {e}", path.display())))?);
    }
    let repo = Repository::open_bare(store)?;
    search_for_deltas(&repo, true);
    let mut pack = repo.packbuilder()?;
    for id in objects {
        pack.insert_object(id, None)?;
    }
    let name = write(store, &mut pack, mode);
    search_for_deltas(&repo, false);
    Ok(Some(Merged { name: name?, small }))
}

impl Merged {
    /// Removes the small packs.
    pub(super) fn remove_small(&self, store: &Path) -> Result<(), git2::Error> {
        remove(store, self.small.iter().filter(|path| path.file_stem().is_none_or(|stem| *stem != *self.name)))
    }
}

/// Removes all packs except these.
pub(super) fn remove_all_but(store: &Path, names: &[String]) -> Result<(), git2::Error> {
    let all = list(store);
    let others = all.iter().filter(|path| !names.iter().any(|name| path.file_stem().is_some_and(|s| *s == **name)));
    remove(store, others)
}

fn remove<'p>(store: &Path, packs: impl Iterator<Item = &'p PathBuf>) -> Result<(), git2::Error> {
    for path in packs {
        // The index goes first, because git ignores a pack without an index. Remaining objects are in another pack,
        // too.
        for path in [path.clone(), path.with_extension("pack")] {
            let _ = fs::remove_file(path);
        }
    }
    sync_folder(&store.join("objects/pack"))
}

/// The bytes of all packs.
pub(super) fn size(store: &Path) -> u64 {
    list(store).iter().filter_map(|path| fs::metadata(path.with_extension("pack")).ok()).map(|meta| meta.len()).sum()
}

/// The indexes of all packs.
fn list(store: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(store.join("objects/pack")).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "idx")).collect();
    all.sort();
    all
}

/// The ids in an index.
fn oids(index: &Path) -> std::io::Result<Vec<Oid>> {
    let bad = || std::io::Error::new(std::io::ErrorKind::InvalidData, "not an index of version 2");
    let mut bytes = Vec::new();
    File::open(index)?.read_to_end(&mut bytes)?;
    let count = bytes.get(OIDS - 4..OIDS).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes).ok_or_else(bad)?;
    if !bytes.starts_with(&HEADER) {
        return Err(bad());
    }
    let end = (count as usize).checked_mul(20).and_then(|n| n.checked_add(OIDS)).ok_or_else(bad)?;
    let oids = bytes.get(OIDS..end).ok_or_else(bad)?;
    oids.chunks(20).map(|id| Oid::from_bytes(id).map_err(|_| bad())).collect()
}
