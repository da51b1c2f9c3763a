//! Writes many records in a single pack, with a commit and a sync.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use cob_depot::pack::{PackWriter, object_id};
use cob_types::canonical;
use git2::{Commit, Mempack, ObjectType, Oid, PackBuilder, Repository, Tree};

use super::log::Numbered;
use super::newest::{self, Shards};
use super::packs;
use super::tree::{FOLDER_MODE, Objects, write_listing};
use super::{Current, FORMAT, Info, MAIN, Newest, Part, PartPlace, Version, held_begun};

const COBS: &str = "cobs";
/// The number of the last record in the repository.
const RECORDED: &str = "recorded";
const INFO: &str = "info";
const BEFORE: &str = "before";
const APPLIED: &str = "applied";
const FOUND: &str = "found";
/// The parts of an action that has begun.
const BEGUN: [&str; 4] = ["from", "base", "aim", "result"];
const FILE_MODE: i32 = 0o100_644;
pub(super) const PACK_MODE: u32 = 0o400;

/// Writes records into the repository.
pub(super) struct Writer {
    path: PathBuf,
    recorded: u64,
}

/// A version in the repository, as far as the next version needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    id: Oid,
    before: Option<Oid>,
    applied: Option<Oid>,
}

impl Last {
    /// `None`: it is not in the repository.
    pub(super) fn of(version: &Current) -> Option<Self> {
        let tree = |held: &PartPlace| match held {
            PartPlace::Tree(id) => Some(*id),
            PartPlace::Nowhere | PartPlace::Waiting(..) => None,
        };
        Some(Self { id: version.id?, before: tree(&version.before), applied: tree(&version.applied) })
    }
}

/// The objects of a new pack.
struct Batch<'r> {
    odb: git2::Odb<'r>,
    pack: PackWriter,
}

/// Shorter objects are written again without a lookup.
const LOOKED_FOR: usize = 200;

impl Batch<'_> {
    fn add(&mut self, sort: ObjectType, bytes: &[u8]) -> Result<Oid, git2::Error> {
        let id = object_id(sort, bytes);
        // All packs were there when the repository was opened: do not list the folder again.
        let there =
            self.pack.has(id) || bytes.len() >= LOOKED_FOR && self.odb.exists_ext(id, git2::OdbLookupFlags::NO_REFRESH);
        if !there {
            self.pack.add(id, sort, bytes).map_err(io)?;
        }
        Ok(id)
    }
}

impl Objects for Batch<'_> {
    fn blob(&mut self, bytes: &[u8]) -> Result<Oid, git2::Error> {
        self.add(ObjectType::Blob, bytes)
    }

    fn tree(&mut self, entries: &BTreeMap<Vec<u8>, (Oid, i32)>) -> Result<Oid, git2::Error> {
        // Git sorts a folder as if its name ended with a slash.
        let key = |(name, (_, mode)): &(&Vec<u8>, &(Oid, i32))| {
            let mut key = (*name).clone();
            key.extend((*mode == FOLDER_MODE).then_some(b'/'));
            key
        };
        let mut sorted: Vec<_> = entries.iter().collect();
        sorted.sort_by_cached_key(key);
        let mut bytes = Vec::new();
        for (name, (id, mode)) in sorted {
            bytes.extend_from_slice(format!("{mode:o} ").as_bytes());
            bytes.extend_from_slice(name);
            bytes.push(0);
            bytes.extend_from_slice(id.as_bytes());
        }
        self.add(ObjectType::Tree, &bytes)
    }
}

fn io(error: std::io::Error) -> git2::Error {
    git2::Error::from_str(&error.to_string())
}

impl Writer {
    /// `recorded` is the number of the last record in the repository.
    pub(super) fn new(path: &Path, recorded: u64) -> Self {
        Self { path: path.to_owned(), recorded }
    }

    /// Writes records and returns the new newest versions. `known` returns a change object's newest version in the
    /// repository. A commit has at most a single version of each change object, so that the history has all versions.
    pub(super) fn write(
        &mut self,
        records: &[Numbered],
        known: impl Fn(&str) -> Option<Last>,
    ) -> Result<Vec<(String, Current)>, git2::Error> {
        let repo = Repository::open_bare(&self.path)?;
        let mut batch = Batch {
            odb: repo.odb()?,
            pack: PackWriter::begin(&self.path.join("objects/pack"), PACK_MODE).map_err(io)?,
        };
        let head = head(&repo)?;
        let mut all = All::read(&repo, head.as_ref())?;
        let mut commit = head.map(|head| head.id());
        let mut last = BTreeMap::new();
        let mut new: BTreeMap<String, Current> = BTreeMap::new();
        let rounds = rounds(records);
        let newest: BTreeMap<&str, u64> = records.iter().map(|n| (n.record.cob.as_str(), n.number)).collect();
        let all_recorded = records.iter().map(|numbered| numbered.number).fold(self.recorded, u64::max);
        for (at, round) in rounds.iter().enumerate() {
            for numbered in round {
                let cob = &numbered.record.cob;
                let before = last.get(cob).copied().or_else(|| known(cob));
                let newest = newest.get(cob.as_str()) == Some(&numbered.number);
                let version = write_version(&mut batch, numbered, before, newest)?;
                let written = Last::of(&version).ok_or_else(|| git2::Error::from_str("a version was not written"))?;
                all.put(&repo, cob, written.id)?;
                last.insert(cob.clone(), written);
                new.insert(cob.clone(), version);
            }
            let recorded = if at + 1 == rounds.len() { all_recorded } else { self.recorded };
            let tree = all.write(&mut batch, recorded)?;
            commit = Some(batch.add(ObjectType::Commit, commit_text(tree, commit, round).as_bytes())?);
        }
        batch.pack.finish().map_err(io)?;
        if let Some(commit) = commit {
            repo.reference(MAIN, commit, true, "files")?;
        }
        self.recorded = all_recorded;
        Ok(new.into_iter().collect())
    }

    /// Forgets commits from before a time, and the superfluous commits.
    pub(super) fn prune(&mut self, before: u64, superfluous: &HashSet<Oid>) -> Result<usize, git2::Error> {
        let repo = Repository::open_bare(&self.path)?;
        let Some(head) = head(&repo)? else { return Ok(0) };
        let mut kept = vec![head.id()];
        let mut at = head;
        let mut goes = false;
        while let Ok(parent) = at.parent(0) {
            if u64::try_from(parent.time().seconds()).unwrap_or(0) < before {
                goes = true;
                break;
            }
            if superfluous.contains(&parent.id()) {
                goes = true;
            } else {
                kept.push(parent.id());
            }
            at = parent;
        }
        if !goes {
            return Ok(kept.len());
        }
        packs::search_for_deltas(&repo, true);
        let odb = repo.odb()?;
        let _memory: Mempack<'_> = odb.add_new_mempack_backend(i32::MAX)?;
        let mut parent: Option<Oid> = None;
        let mut pack = repo.packbuilder()?;
        let mut inserted = HashSet::new();
        for id in kept.iter().rev() {
            let old = repo.find_commit(*id)?;
            let parents = parent.map(|p| repo.find_commit(p)).transpose()?;
            let parents: Vec<&Commit<'_>> = parents.iter().collect();
            let text = String::from_utf8_lossy(old.message_bytes()).into_owned();
            let new = repo.commit(None, &old.author(), &old.committer(), &text, &old.tree()?, &parents)?;
            insert_all(&repo, new, &mut pack, &mut inserted)?;
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

/// Adds a commit and all its objects to a pack. Trees may be thousands of levels deep, so this does not recurse.
fn insert_all(
    repo: &Repository,
    commit: Oid,
    pack: &mut PackBuilder<'_>,
    inserted: &mut HashSet<Oid>,
) -> Result<(), git2::Error> {
    pack.insert_object(commit, None)?;
    let mut trees = vec![repo.find_commit(commit)?.tree_id()];
    while let Some(tree) = trees.pop() {
        if !inserted.insert(tree) {
            continue;
        }
        pack.insert_object(tree, None)?;
        for entry in &repo.find_tree(tree)? {
            if entry.kind() == Some(ObjectType::Tree) {
                trees.push(entry.id());
            } else if inserted.insert(entry.id()) {
                pack.insert_object(entry.id(), entry.name().ok())?;
            }
        }
    }
    Ok(())
}

/// The state of a repository when it was opened.
pub(super) struct Loaded {
    pub(super) newest: Newest,
    /// The number of its last record.
    pub(super) recorded: u64,
    /// The shards that had to be looked up.
    pub(super) stale: BTreeSet<Vec<u8>>,
}

/// Reads the newest version of every change object, and the number of the last record.
pub(super) fn load(path: &Path, repo: &Repository) -> Result<Loaded, git2::Error> {
    let nothing = Loaded { newest: Newest::new(), recorded: 0, stale: BTreeSet::new() };
    let Some(head) = head(repo)? else { return Ok(nothing) };
    let root = head.tree()?;
    let recorded = root.get_name(RECORDED).map(|e| repo.find_blob(e.id())).transpose()?;
    let recorded = recorded.and_then(|blob| std::str::from_utf8(blob.content()).ok()?.trim().parse().ok());
    let mut shards = shards_of(repo, &root)?;
    // Collected first, because a map that is filled entry by entry is half empty.
    let mut all = newest::read(path, &mut shards);
    for shard in shards.values() {
        for entry in &repo.find_tree(*shard)? {
            let version = version(repo, entry.id())?;
            all.push((version.info.cob.as_str().into(), Box::new(version.current(entry.id(), 0))));
        }
    }
    let stale = shards.into_keys().collect();
    Ok(Loaded { newest: all.into_iter().collect(), recorded: recorded.unwrap_or(0), stale })
}

/// The shards of the newest commit.
pub(super) fn newest_shards(repo: &Repository) -> Result<Shards, git2::Error> {
    head(repo)?.map_or(Ok(Shards::new()), |head| shards_of(repo, &head.tree()?))
}

pub(super) fn shards_of(repo: &Repository, root: &Tree<'_>) -> Result<Shards, git2::Error> {
    let Some(cobs) = root.get_name(COBS).map(|e| e.id()) else { return Ok(Shards::new()) };
    Ok(repo.find_tree(cobs)?.iter().map(|entry| (entry.name_bytes().to_vec(), entry.id())).collect())
}

/// The shard of a change object.
pub(super) fn shard_of(cob: &str) -> Vec<u8> {
    canonical::fingerprint(&[cob.as_bytes()]).to_string().as_bytes()[..2].to_vec()
}

/// Reads a version by its id.
pub(super) fn version(repo: &Repository, id: Oid) -> Result<Version, git2::Error> {
    let tree = repo.find_tree(id)?;
    let part = |name: &str| tree.get_name(name).map(|e| e.id());
    let info = part(INFO).ok_or_else(|| git2::Error::from_str(&format!("the version {id} has no {INFO}")))?;
    let info: Info = serde_json::from_slice(repo.find_blob(info)?.content())
        .map_err(|e| git2::Error::from_str(&format!("the version {id}: {e}")))?;
    if info.format > FORMAT {
        let what = format!("it was written by a newer cobd (format {}, this cobd knows {FORMAT})", info.format);
        return Err(git2::Error::from_str(&what));
    }
    let part = |name: &str| held(part(name));
    let begun = held_begun(BEGUN.map(part));
    Ok(Version { info, before: part(BEFORE), applied: part(APPLIED), found: part(FOUND), begun })
}

fn held(tree: Option<Oid>) -> PartPlace {
    tree.map_or(PartPlace::Nowhere, PartPlace::Tree)
}

/// Writes a version. Only the newest version gets the parts of an action that has begun; no older version needs them.
fn write_version(
    batch: &mut Batch<'_>,
    numbered: &Numbered,
    last: Option<Last>,
    newest: bool,
) -> Result<Current, git2::Error> {
    let record = &numbered.record;
    let mut part = |part: &Part, same: Option<Oid>| match part {
        Part::Same => Ok(same),
        Part::New(listing) => write_listing(batch, listing),
    };
    let before = part(&record.before, last.and_then(|l| l.before))?;
    let applied = part(&record.applied, last.and_then(|l| l.applied))?;
    let found = write_listing(batch, &record.found)?;
    let mut begun = [None; 4];
    if newest {
        for (part, listing) in begun.iter_mut().zip(&record.begun) {
            *part = write_listing(batch, listing)?;
        }
    }
    let info = record.info(numbered.time, last.map(|l| l.id));
    let text = serde_json::to_vec(&info).map_err(|e| git2::Error::from_str(&e.to_string()))?;
    let mut entries = BTreeMap::from([(INFO.as_bytes().to_vec(), (batch.blob(&text)?, FILE_MODE))]);
    let named = [(BEFORE, before), (APPLIED, applied), (FOUND, found)];
    for (name, id) in named.into_iter().chain(BEGUN.into_iter().zip(begun)) {
        entries.extend(id.map(|id| (name.as_bytes().to_vec(), (id, FOLDER_MODE))));
    }
    let id = batch.tree(&entries)?;
    let begun = held_begun(begun.map(held));
    let version = Version { info, before: held(before), applied: held(applied), found: held(found), begun };
    Ok(version.current(id, numbered.number))
}

/// The versions of all change objects, by shard.
struct All {
    /// For unchanged shards, the id of the tree.
    shards: BTreeMap<Vec<u8>, Shard>,
}

enum Shard {
    Written(Oid),
    Changed(BTreeMap<Vec<u8>, (Oid, i32)>),
}

impl All {
    fn read(repo: &Repository, head: Option<&Commit<'_>>) -> Result<Self, git2::Error> {
        let root = head.map(Commit::tree).transpose()?;
        let shards = root.map(|root| shards_of(repo, &root)).transpose()?.unwrap_or_default();
        Ok(Self { shards: shards.into_iter().map(|(name, tree)| (name, Shard::Written(tree))).collect() })
    }

    fn put(&mut self, repo: &Repository, cob: &str, version: Oid) -> Result<(), git2::Error> {
        let shard = self.shards.entry(shard_of(cob)).or_insert_with(|| Shard::Changed(BTreeMap::new()));
        if let Shard::Written(id) = shard {
            let tree = repo.find_tree(*id)?;
            let entries = tree.iter().map(|entry| (entry.name_bytes().to_vec(), (entry.id(), FOLDER_MODE)));
            *shard = Shard::Changed(entries.collect());
        }
        if let Shard::Changed(entries) = shard {
            entries.insert(cob.replace('/', "+").into_bytes(), (version, FOLDER_MODE));
        }
        Ok(())
    }

    fn write(&self, batch: &mut Batch<'_>, recorded: u64) -> Result<Oid, git2::Error> {
        let mut shards = BTreeMap::new();
        for (name, shard) in &self.shards {
            let id = match shard {
                Shard::Written(id) => *id,
                Shard::Changed(entries) => batch.tree(entries)?,
            };
            shards.insert(name.clone(), (id, FOLDER_MODE));
        }
        let cobs = batch.tree(&shards)?;
        let recorded = batch.blob(recorded.to_string().as_bytes())?;
        let (cobs, recorded) = ((cobs, FOLDER_MODE), (recorded, FILE_MODE));
        batch.tree(&BTreeMap::from([(COBS.as_bytes().to_vec(), cobs), (RECORDED.as_bytes().to_vec(), recorded)]))
    }
}

/// Splits records, in order, into groups with at most a single record of each change object.
fn rounds(records: &[Numbered]) -> Vec<Vec<&Numbered>> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rounds: Vec<Vec<&Numbered>> = Vec::new();
    for numbered in records {
        let count = counts.entry(&numbered.record.cob).or_default();
        if rounds.len() == *count {
            rounds.push(Vec::new());
        }
        rounds[*count].push(numbered);
        *count += 1;
    }
    rounds
}

fn commit_text(tree: Oid, parent: Option<Oid>, round: &[&Numbered]) -> String {
    let time = round.last().map_or_else(now, |numbered| numbered.time);
    let parent = parent.map(|id| format!("parent {id}\n")).unwrap_or_default();
    let who = format!("cobd <cobd@localhost> {time} +0000");
    format!("tree {tree}\n{parent}author {who}\ncommitter {who}\n\n{}", message(round))
}

pub(super) fn head(repo: &Repository) -> Result<Option<Commit<'_>>, git2::Error> {
    match repo.refname_to_id(MAIN) {
        Ok(id) => repo.find_commit(id).map(Some),
        Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn message(records: &[&Numbered]) -> String {
    const SHOWN: usize = 20;
    let line = |numbered: &&Numbered| {
        let record = &numbered.record;
        format!("{} {:?} (generation {})", record.cob, record.reason, record.generation)
    };
    let mut lines: Vec<String> = records.iter().take(SHOWN).map(line).collect();
    if records.len() > SHOWN {
        lines.push(format!("and {} more", records.len() - SHOWN));
    }
    lines.join("\n")
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Makes the entries of a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), git2::Error> {
    let synced = File::open(path).and_then(|f| f.sync_all());
    synced.map_err(|e| git2::Error::from_str(&format!("{}: {e}", path.display())))
}
