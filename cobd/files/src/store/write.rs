//! Writing: many records, one pack, one commit, one wait for the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cob_types::canonical;
use git2::{Commit, Mempack, ObjectType, Oid, Repository, Signature, Time, Tree};

use super::packs;
use super::tree::{FOLDER_MODE, Objects, write_listing};
use super::{Current, FORMAT, Info, MAIN, Part, Parts, Record};

const COBS: &str = "cobs";
const INFO: &str = "info";
const BEFORE: &str = "before";
const APPLIED: &str = "applied";
const FOUND: &str = "found";
/// The parts of an action that has begun.
const BEGUN: [&str; 4] = ["from", "base", "aim", "result"];
const FILE_MODE: i32 = 0o100_644;
const PACK_MODE: u32 = 0o400;
/// From so many packs on the small ones are made one.
const MOST_PACKS: usize = 50;

/// The one who writes.
pub(super) struct Writer {
    path: PathBuf,
}

/// Objects on their way into a pack.
struct Batch<'r> {
    repo: &'r Repository,
    written: BTreeSet<Oid>,
}

impl Objects for Batch<'_> {
    fn blob(&mut self, bytes: &[u8]) -> Result<Oid, git2::Error> {
        let id = Oid::hash_object(ObjectType::Blob, bytes)?;
        if !self.written.contains(&id) && !self.repo.odb()?.exists(id) {
            self.repo.blob(bytes)?;
            self.written.insert(id);
        }
        Ok(id)
    }

    fn tree(&mut self, entries: &BTreeMap<Vec<u8>, (Oid, i32)>) -> Result<Oid, git2::Error> {
        let mut builder = self.repo.treebuilder(None)?;
        for (name, (id, mode)) in entries {
            builder.insert(&name[..], *id, *mode)?;
        }
        let id = builder.write()?;
        self.written.insert(id);
        Ok(id)
    }
}

impl Writer {
    pub(super) fn new(path: &Path) -> Result<Self, git2::Error> {
        Ok(Self { path: path.to_owned() })
    }

    /// Writes records; the versions that they have become.
    pub(super) fn write(
        &mut self,
        records: &[Record],
        index: &BTreeMap<String, Current>,
    ) -> Result<Vec<(String, Current)>, git2::Error> {
        let repo = Repository::open_bare(&self.path)?;
        let odb = repo.odb()?;
        let _memory: Mempack<'_> = odb.add_new_mempack_backend(i32::MAX)?;
        let mut batch = Batch { repo: &repo, written: BTreeSet::new() };
        let now = now();
        let mut new: BTreeMap<String, Current> = BTreeMap::new();
        for record in records {
            let before = new.get(&record.cob).or_else(|| index.get(&record.cob));
            let version = write_version(&mut batch, record, before, now)?;
            new.insert(record.cob.clone(), version);
        }
        let parent = head(&repo)?;
        let tree = update(&mut batch, parent.as_ref().map(Commit::tree).transpose()?, &new)?;
        let author = author(now)?;
        let message = message(records);
        let parents: Vec<&Commit<'_>> = parent.iter().collect();
        let commit = repo.commit(None, &author, &author, &message, &repo.find_tree(tree)?, &parents)?;
        batch.written.insert(commit);
        let mut pack = repo.packbuilder()?;
        for id in &batch.written {
            pack.insert_object(*id, None)?;
        }
        packs::write(&self.path, &mut pack, PACK_MODE)?;
        repo.reference(MAIN, commit, true, "files")?;
        packs::merge_small(&self.path, MOST_PACKS, PACK_MODE)?;
        Ok(new.into_iter().collect())
    }

    /// Forgets commits from before a time.
    pub(super) fn prune(&mut self, before: u64) -> Result<usize, git2::Error> {
        let repo = Repository::open_bare(&self.path)?;
        let Some(head) = head(&repo)? else { return Ok(0) };
        let mut kept = vec![head.id()];
        let mut at = head;
        let mut older = false;
        while let Ok(parent) = at.parent(0) {
            if u64::try_from(parent.time().seconds()).unwrap_or(0) < before {
                older = true;
                break;
            }
            kept.push(parent.id());
            at = parent;
        }
        if !older {
            return Ok(kept.len());
        }
        packs::search_for_deltas(&repo, true);
        let odb = repo.odb()?;
        let _memory: Mempack<'_> = odb.add_new_mempack_backend(i32::MAX)?;
        let mut parent: Option<Oid> = None;
        let mut pack = repo.packbuilder()?;
        for id in kept.iter().rev() {
            let old = repo.find_commit(*id)?;
            let parents = parent.map(|p| repo.find_commit(p)).transpose()?;
            let parents: Vec<&Commit<'_>> = parents.iter().collect();
            let text = String::from_utf8_lossy(old.message_bytes()).into_owned();
            let new = repo.commit(None, &old.author(), &old.committer(), &text, &old.tree()?, &parents)?;
            pack.insert_commit(new)?;
            parent = Some(new);
        }
        let Some(new) = parent else { return Ok(0) };
        let name = packs::write(&self.path, &mut pack, PACK_MODE);
        packs::search_for_deltas(&repo, false);
        let name = name?;
        repo.reference(MAIN, new, true, "prune")?;
        packs::remove_all_but(&self.path, &[name])?;
        Ok(kept.len())
    }
}

/// Every change object's newest version.
pub(super) fn load(repo: &Repository) -> Result<BTreeMap<String, Current>, git2::Error> {
    let mut all = BTreeMap::new();
    let Some(head) = head(repo)? else { return Ok(all) };
    let Some(cobs) = head.tree()?.get_name(COBS).map(|e| e.id()) else { return Ok(all) };
    for shard in &repo.find_tree(cobs)? {
        for entry in &repo.find_tree(shard.id())? {
            let current = version(repo, entry.id())?;
            all.insert(current.info.cob.clone(), current);
        }
    }
    Ok(all)
}

/// A version by its id.
pub(super) fn version(repo: &Repository, id: Oid) -> Result<Current, git2::Error> {
    let tree = repo.find_tree(id)?;
    let part = |name: &str| tree.get_name(name).map(|e| e.id());
    let info = part(INFO).ok_or_else(|| git2::Error::from_str(&format!("the version {id} has no {INFO}")))?;
    let info: Info = serde_json::from_slice(repo.find_blob(info)?.content())
        .map_err(|e| git2::Error::from_str(&format!("the version {id}: {e}")))?;
    if info.format > FORMAT {
        let what = format!("it was written by a newer cobd (format {}, this one knows {FORMAT})", info.format);
        return Err(git2::Error::from_str(&what));
    }
    let (before, applied, found) = (part(BEFORE), part(APPLIED), part(FOUND));
    Ok(Current { id, info, parts: Parts { before, applied, found, begun: BEGUN.map(part) } })
}

fn write_version(
    batch: &mut Batch<'_>,
    record: &Record,
    before: Option<&Current>,
    time: u64,
) -> Result<Current, git2::Error> {
    let mut part = |part: &Part, same: Option<Oid>| match part {
        Part::Same => Ok(same),
        Part::New(listing) => write_listing(batch, listing),
    };
    let was = before.map(|b| b.parts).unwrap_or_default();
    let parts = Parts {
        before: part(&record.before, was.before)?,
        applied: part(&record.applied, was.applied)?,
        found: write_listing(batch, &record.found)?,
        begun: [
            write_listing(batch, &record.begun.from)?,
            write_listing(batch, &record.begun.base)?,
            write_listing(batch, &record.begun.aim)?,
            write_listing(batch, &record.begun.result)?,
        ],
    };
    let info = Info {
        format: FORMAT,
        cob: record.cob.clone(),
        generation: record.generation,
        time,
        reason: record.reason,
        spec: record.spec.clone(),
        previous: before.map(|b| b.id.to_string()),
        paths: record.paths.clone(),
    };
    let text = serde_json::to_vec(&info).map_err(|e| git2::Error::from_str(&e.to_string()))?;
    let mut entries = BTreeMap::from([(INFO.as_bytes().to_vec(), (batch.blob(&text)?, FILE_MODE))]);
    let named = [(BEFORE, parts.before), (APPLIED, parts.applied), (FOUND, parts.found)];
    for (name, id) in named.into_iter().chain(BEGUN.into_iter().zip(parts.begun)) {
        entries.extend(id.map(|id| (name.as_bytes().to_vec(), (id, FOLDER_MODE))));
    }
    Ok(Current { id: batch.tree(&entries)?, info, parts })
}

/// The tree of all, with these versions in it.
fn update(batch: &mut Batch<'_>, head: Option<Tree<'_>>, new: &BTreeMap<String, Current>) -> Result<Oid, git2::Error> {
    let repo = batch.repo;
    let below = |tree: &Option<Tree<'_>>, name: &str| -> Option<Oid> { Some(tree.as_ref()?.get_name(name)?.id()) };
    let cobs = below(&head, COBS).map(|id| repo.find_tree(id)).transpose()?;
    let mut shards: BTreeMap<String, Vec<(String, Oid)>> = BTreeMap::new();
    for (cob, version) in new {
        let shard = canonical::fingerprint(&[cob.as_bytes()]).to_string()[..2].to_owned();
        shards.entry(shard).or_default().push((cob.replace('/', "+"), version.id));
    }
    let mut all = repo.treebuilder(cobs.as_ref())?;
    for (shard, versions) in shards {
        let old = below(&cobs, &shard).map(|id| repo.find_tree(id)).transpose()?;
        let mut builder = repo.treebuilder(old.as_ref())?;
        for (name, id) in versions {
            builder.insert(name, id, FOLDER_MODE)?;
        }
        let id = builder.write()?;
        batch.written.insert(id);
        all.insert(shard, id, FOLDER_MODE)?;
    }
    let cobs = all.write()?;
    batch.written.insert(cobs);
    batch.tree(&BTreeMap::from([(COBS.as_bytes().to_vec(), (cobs, FOLDER_MODE))]))
}

fn head(repo: &Repository) -> Result<Option<Commit<'_>>, git2::Error> {
    match repo.refname_to_id(MAIN) {
        Ok(id) => repo.find_commit(id).map(Some),
        Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn author(time: u64) -> Result<Signature<'static>, git2::Error> {
    Signature::new("cobd", "cobd@localhost", &Time::new(i64::try_from(time).unwrap_or(i64::MAX), 0))
}

fn message(records: &[Record]) -> String {
    const SHOWN: usize = 20;
    let mut lines: Vec<String> =
        records.iter().take(SHOWN).map(|r| format!("{} {:?} (generation {})", r.cob, r.reason, r.generation)).collect();
    if records.len() > SHOWN {
        lines.push(format!("and {} more", records.len() - SHOWN));
    }
    lines.join("\n")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), git2::Error> {
    let synced = File::open(path).and_then(|f| f.sync_all());
    synced.map_err(|e| git2::Error::from_str(&format!("{}: {e}", path.display())))
}
