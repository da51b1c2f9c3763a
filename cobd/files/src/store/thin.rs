//! Thins out a history that grows without end: if a user changes the same files again and again, each text is kept.
//!
//! The quota holds for each change object, so that the edits of a single tree do not cost the others their history.

use std::collections::{BTreeMap, HashMap, HashSet};

use git2::{Commit, ObjectType, Oid, Repository};

use super::write::{head, shards_of, version};
use super::{PartPlace, Shared, lock, packs};
use crate::error::FilesError;

/// The part of a change object's history that is kept when a store has become large.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quota {
    /// The number of newest versions.
    pub(super) versions: usize,
    /// The bytes of found texts in these versions; the newest version is always kept.
    pub(super) bytes: u64,
    /// A store is large when it has grown to twice its size plus this number of bytes.
    pub(super) slack: u64,
}

pub(super) const QUOTA: Quota = Quota { versions: 2000, bytes: 128 << 20, slack: 64 << 20 };

impl Shared {
    /// Forgets versions beyond the quotas if the store has become large.
    pub(super) fn thin_out(&self) -> Result<(), FilesError> {
        let large = lock(&self.thinned_to).saturating_mul(2).saturating_add(self.quota.slack);
        if packs::size(&self.path) <= large {
            return Ok(());
        }
        // Others may write meanwhile: newer versions stay.
        let superfluous = self.read(|repo| superfluous(repo, &self.quota))?;
        self.prune_to(0, &superfluous)?;
        *lock(&self.thinned_to) = packs::size(&self.path);
        Ok(())
    }
}

/// The commits without a version that is to be kept.
fn superfluous(repo: &Repository, quota: &Quota) -> Result<HashSet<Oid>, git2::Error> {
    let mut kept: HashMap<Vec<u8>, HistorySize> = HashMap::new();
    let mut all = HashSet::new();
    let mut next = head(repo)?;
    while let Some(commit) = next {
        // A pruned parent ends the history.
        let parent = commit.parent(0).ok();
        let mut needed = false;
        for (cob, id) in changed(repo, &commit, parent.as_ref())? {
            let bytes = size_of_found(repo, id)?;
            needed |= kept.entry(cob).or_default().takes(bytes, quota);
        }
        if !needed {
            all.insert(commit.id());
        }
        next = parent;
    }
    Ok(all)
}

/// The kept history of a change object.
#[derive(Default)]
struct HistorySize {
    versions: usize,
    bytes: u64,
}

impl HistorySize {
    fn takes(&mut self, bytes: u64, quota: &Quota) -> bool {
        self.versions += 1;
        self.bytes += bytes;
        self.versions == 1 || self.versions <= quota.versions && self.bytes <= quota.bytes
    }
}

/// The new versions of a commit, by the names of their change objects.
fn changed(
    repo: &Repository,
    commit: &Commit<'_>,
    parent: Option<&Commit<'_>>,
) -> Result<Vec<(Vec<u8>, Oid)>, git2::Error> {
    let shards = shards_of(repo, &commit.tree()?)?;
    let before = parent.map(|parent| shards_of(repo, &parent.tree()?)).transpose()?.unwrap_or_default();
    let mut versions = Vec::new();
    for (name, shard) in shards.into_iter().filter(|(name, shard)| before.get(name) != Some(shard)) {
        let entries = |shard: Oid| -> Result<BTreeMap<Vec<u8>, Oid>, git2::Error> {
            Ok(repo.find_tree(shard)?.iter().map(|entry| (entry.name_bytes().to_vec(), entry.id())).collect())
        };
        let was = before.get(&name).map(|shard| entries(*shard)).transpose()?.unwrap_or_default();
        versions.extend(entries(shard)?.into_iter().filter(|(cob, id)| was.get(cob) != Some(id)));
    }
    Ok(versions)
}

/// The bytes of found texts in a version.
fn size_of_found(repo: &Repository, id: Oid) -> Result<u64, git2::Error> {
    let PartPlace::Tree(found) = version(repo, id)?.found else { return Ok(0) };
    let (odb, mut bytes, mut trees) = (repo.odb()?, 0, vec![found]);
    while let Some(tree) = trees.pop() {
        for entry in &repo.find_tree(tree)? {
            if entry.kind() == Some(ObjectType::Tree) {
                trees.push(entry.id());
            } else {
                bytes += odb.read_header(entry.id())?.0 as u64;
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::{Blob, Frozen, Listing, Part, Reason, Record, RecordedEntry, RecordedNode, Store};
    use super::*;
    use crate::attributes::Managed;
    use crate::path::TreePath;

    fn found(cob: &str, n: u32) -> Record {
        let noise: Vec<u8> = (0..8192_u32).flat_map(|i| (i ^ n).wrapping_mul(0x9e37_79b1).to_le_bytes()).collect();
        let kept = RecordedEntry::found(RecordedNode::File(Blob::New(noise.into())), Managed::default());
        Record {
            cob: cob.to_owned(),
            generation: n.into(),
            reason: Reason::Found,
            spec: None,
            paths: Vec::new(),
            before: Part::Same,
            applied: Part::Same,
            found: Frozen::from(Listing::from([(TreePath::new("/f").expect("a path"), kept)])),
            begun: Default::default(),
        }
    }

    #[test]
    fn a_busy_tree_keeps_its_quota_and_costs_other_trees_no_versions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.git");
        let quota = Quota { versions: 20, bytes: 400 << 10, slack: 256 << 10 };
        let store = Store::open_with(&path, quota).expect("opened");
        for n in 0..10 {
            store.record(found("h/quiet", n)).expect("recorded");
            store.flush().expect("written");
        }
        let mut largest = 0;
        for n in 0..300 {
            store.record(found("h/busy", 1000 + n)).expect("recorded");
            store.shared.tidy().expect("tidied");
            largest = largest.max(packs::size(&path));
        }
        // The records had 300 times 32 KiB.
        assert!(largest < 4 << 20, "{largest} bytes");
        let numbers = |cob| {
            let versions = store.versions(cob, usize::MAX).expect("read");
            versions.iter().map(|(_, version)| version.info.generation).collect::<Vec<_>>()
        };
        assert_eq!(numbers("h/quiet"), (0..10).rev().collect::<Vec<_>>());
        let busy = numbers("h/busy");
        assert!(busy.len() >= 12 && busy.iter().copied().eq((1300 - busy.len() as u64..1300).rev()), "{busy:?}");
        drop(store);
        let again = Store::open_with(&path, quota).expect("opened");
        assert_eq!(again.current("h/busy").map(|current| current.generation), Some(1299));
    }
}
