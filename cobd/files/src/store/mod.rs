//! The store of a host: earlier, applied and found entries in a bare git repository.
//!
//! ```text
//!   refs/heads/main ── commit (shared by all records written together) ── commit …
//!     cobs/3f/n1+db+config/          a version: the state of a change object's files
//!        info                        time, reason, generation, and the previous version
//!        before/etc/db.conf          the file from before it was first managed; if there was no file: only in =meta
//!        applied/etc/db.conf         the text of the last application: the base of merges
//!        found/etc/db.conf           the text of others that was overwritten
//!        from/, base/, aim/, result/  the steps of an action that has begun and not ended
//!        …/=meta                     owner, group, mode, attributes of a folder's entries; entries that git can't name
//! ```
//! A version is durable before the first write of an action that it can roll back. Records that arrive at the same time
//! share a write to the log and a sync. Later all waiting records go into the repository in a pack and a commit. A
//! single process opens the store; its threads share it.

mod claims;
mod flush;
mod frames;
mod frozen;
mod log;
mod newest;
mod packs;
mod spec;
mod spool;
mod thin;
mod trace;
mod tree;
mod version;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use git2::{Oid, Repository, RepositoryInitOptions};

use crate::error::FilesError;
use crate::path::TreePath;

use claims::Claims;
use flush::Bell;
pub(crate) use frozen::Frozen;
use log::{Log, Numbered, Place};
pub(crate) use spec::Spec;
pub(crate) use spool::{HELD, Spool};
use thin::{QUOTA, Quota};
use trace::Trace;
pub(crate) use trace::{missing, remedy};
pub(crate) use tree::read_listing;
use version::held_begun;
pub(crate) use version::{
    Begun, Blob, Current, Listing, Part, PartPlace, Piece, Record, RecordedEntry, RecordedNode, Text, Version,
};
pub use version::{Info, Reason};
use write::{Loaded, Writer};

/// The format of the versions written here, noted in every version.
const FORMAT: u32 = 1;
const MAIN: &str = "refs/heads/main";
/// A larger record goes into the repository at once: to write it twice would take longer.
const LARGE: usize = 1 << 20;
/// The most records in a pack: the pack is built in memory, about 2 KiB a record.
const TOGETHER: usize = 2048;
/// If there are more packs, small packs are merged when the store is idle.
const MOST_PACKS: usize = 50;
/// If there are more packs, small packs are merged even when the store is busy.
const TOO_MANY_PACKS: usize = 200;
/// The file of newest versions is rewritten when 1/`STALE` of the shards differ from it.
const STALE: usize = 4;
/// The most bytes that wait in the log.
const MOST_WAITING: usize = 16 << 20;

/// The store. Clones share it.
#[derive(Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

/// The newest version of each change object. Nodes of the map are half empty, so its entries are pointers.
type Newest = BTreeMap<Box<str>, Box<Current>>;

struct Shared {
    path: PathBuf,
    index: RwLock<Newest>,
    arrived: Mutex<Vec<Arrived>>,
    log: Mutex<Log>,
    /// Locked before the log.
    writer: Mutex<Writer>,
    /// Held while packs are replaced. Locked before the writer.
    replacing: Mutex<()>,
    readers: Mutex<Vec<Repository>>,
    /// The shards that differ from the file of newest versions. Locked after the writer.
    stale: Mutex<BTreeSet<Vec<u8>>>,
    /// Built at the first query.
    claims: Mutex<Option<Claims>>,
    /// Change objects that were put off and have changes set aside.
    aside: Mutex<BTreeSet<Box<str>>>,
    bell: Arc<Bell>,
    /// Versions older than this time are to be pruned when the store is idle.
    prune_before: Mutex<Option<u64>>,
    quota: Quota,
    /// The size of the packs after the last thinning.
    thinned_to: Mutex<u64>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.bell.close();
    }
}

/// A record to be written.
struct Arrived {
    record: Record,
    /// The previous listing of `before`, if it was read already.
    was: Option<Frozen>,
    slot: Slot,
}

/// The place for the result of a record.
type Slot = Arc<Mutex<Option<Result<(), String>>>>;

impl Store {
    /// Opens the store of a host, or creates it.
    pub(crate) fn open(path: &Path) -> Result<Self, FilesError> {
        Self::open_with(path, QUOTA)
    }

    fn open_with(path: &Path, quota: Quota) -> Result<Self, FilesError> {
        let failed = |what: String| FilesError::Store { path: path.display().to_string(), what };
        let git = |e: git2::Error| failed(words_of(&e));
        let io = |e: std::io::Error| failed(e.to_string());
        if !path.join("HEAD").exists() {
            fs::create_dir_all(path).map_err(io)?;
            let mut options = RepositoryInitOptions::new();
            options
                .bare(true)
                .initial_head("main")
                .external_template(false)
                .mode(git2::RepositoryInitMode::from_bits_retain(0o700));
            let repo = Repository::init_opts(path, &options).map_err(git)?;
            drop(repo);
        }
        clear_leftovers(path);
        // Objects are rarely read twice, and the cache may take 256 MiB.
        git2::opts::enable_caching(false);
        let repo = Repository::open_bare(path).map_err(git)?;
        // Without it, git does not sync at all.
        repo.config().and_then(|mut c| c.set_bool("core.fsyncObjectFiles", true)).map_err(git)?;
        packs::search_for_deltas(&repo, false);
        let Loaded { newest: mut index, recorded, stale } = write::load(path, &repo).map_err(git)?;
        // Unmaps the packs, all of which were read.
        drop(repo);
        let writer = Writer::new(path, recorded);
        // Records that an earlier process left in the log count at once; the next flush moves all into the repository.
        let log = Log::open(path, recorded, |numbered, place| note(&mut index, numbered, place)).map_err(io)?;
        if recorded == 0 && log.waiting.is_empty() && packs::size(path) > 0 && Trace::read(path).is_none() {
            return Err(failed(remedy(&format!("{MAIN} is gone"), path)));
        }
        let trace = Trace { segment: log.segment(), main: recorded > 0 };
        trace.write(path).map_err(io)?;
        let aside = index.iter().filter(|(_, c)| c.has_aside()).map(|(cob, _)| cob.clone()).collect();
        let (is_left, are_stale) = (!log.waiting.is_empty(), !stale.is_empty());
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            index: RwLock::new(index),
            arrived: Mutex::default(),
            log: Mutex::new(log),
            writer: Mutex::new(writer),
            replacing: Mutex::default(),
            readers: Mutex::default(),
            stale: Mutex::new(stale),
            claims: Mutex::default(),
            aside: Mutex::new(aside),
            bell: Arc::default(),
            prune_before: Mutex::default(),
            quota,
            thinned_to: Mutex::default(),
        });
        flush::begin(&shared).map_err(io)?;
        if is_left || are_stale {
            shared.bell.ring();
        }
        Ok(Self { shared })
    }

    /// The newest version of a change object.
    pub(crate) fn current(&self, cob: &str) -> Option<Current> {
        self.shared.newest().get(cob).map(|current| (**current).clone())
    }

    /// The same, unless the change object is retired.
    pub(crate) fn managed(&self, cob: &str) -> Option<Current> {
        self.current(cob).filter(|current| current.reason != Reason::Retired)
    }

    /// Records a version; syncs unless the record can be rebuilt without it. Records that arrive meanwhile share the
    /// next write.
    pub(crate) fn record(&self, record: Record) -> Result<(), FilesError> {
        self.record_over(None, record)
    }

    /// The same, with contents in a spool.
    pub(crate) fn record_with(&self, spool: Option<Spool>, record: Record) -> Result<(), FilesError> {
        if spool.as_ref().is_none_or(|spool| spool.size() == 0) {
            return self.record(record);
        }
        self.shared.write_at_once(record, spool)?;
        self.shared.bell.ring();
        Ok(())
    }

    /// A spool for contents on their way into the store.
    pub(crate) fn spool(&self) -> Spool {
        Spool::new(self.shared.path.join("objects/pack"))
    }

    /// The length of a content in the store.
    pub(crate) fn size(&self, id: Oid) -> Result<u64, FilesError> {
        self.read(|repo| Ok(repo.odb()?.read_header(id)?.0 as u64))
    }

    /// Like [`Self::record`], if the caller knows the previous listing of `before`.
    pub(crate) fn record_over(&self, before: Option<&Frozen>, record: Record) -> Result<(), FilesError> {
        let shared = &self.shared;
        if record.size() > LARGE {
            shared.write_at_once(record, None)?;
            shared.bell.ring();
            return Ok(());
        }
        let slot = Slot::default();
        // Read before the log is locked. A change object has only a single job at a time, so the listing stays true.
        let is_asked = lock(&shared.claims).is_some();
        let was = match before {
            _ if !is_asked => None,
            Some(before) => Some(before.clone()),
            None => shared.before(&record).ok().flatten(),
        };
        lock(&shared.arrived).push(Arrived { record, was, slot: slot.clone() });
        let mut log = lock(&shared.log);
        if lock(&slot).is_none() {
            // No other thread has written the record meanwhile: this thread writes all waiting records.
            let batch = std::mem::take(&mut *lock(&shared.arrived));
            let (mut records, mut were, mut slots) = (Vec::new(), Vec::new(), Vec::new());
            for Arrived { record, was, slot } in batch {
                records.push(record);
                were.push(was);
                slots.push(slot);
            }
            let durable = records.iter().any(|record| record.reason != Reason::Applied);
            let answer = match log.append(records, write::now(), durable) {
                Ok(new) => {
                    let mut claims = lock(&shared.claims);
                    for ((numbered, place), was) in new.iter().zip(were) {
                        let was = match was {
                            None if claims.is_some() => shared.before(&numbered.record),
                            was => Ok(was),
                        };
                        note(&mut shared.index(), numbered, place);
                        shared.note_aside(&numbered.record);
                        note_claims(&mut claims, &numbered.record, was);
                    }
                    Ok(())
                }
                Err(error) => Err(format!("its log: {error}")),
            };
            for slot in slots {
                *lock(&slot) = Some(answer.clone());
            }
        }
        let much = log.bytes > MOST_WAITING;
        drop(log);
        let answer = lock(&slot).take();
        answer.unwrap_or_else(|| Err("the record was not written".to_owned())).map_err(|what| shared.failed(what))?;
        if much {
            return self.flush();
        }
        shared.bell.ring();
        Ok(())
    }

    /// Moves the records of the log into the repository.
    pub(crate) fn flush(&self) -> Result<(), FilesError> {
        self.shared.flush()
    }

    /// The same, and merges small packs if there are many.
    pub(crate) fn settle(&self) -> Result<(), FilesError> {
        self.flush()?;
        self.shared.merge_packs(|| MOST_PACKS)
    }

    /// Reads with a repository handle of its own.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Repository) -> Result<T, git2::Error>) -> Result<T, FilesError> {
        self.shared.read(read)
    }

    /// The listing of a part of a version.
    pub(crate) fn listing(&self, part: &PartPlace) -> Result<Listing, FilesError> {
        self.shared.listing(part)
    }

    /// The steps of an action that has begun.
    pub(crate) fn begun(&self, current: &Current) -> Result<Begun, FilesError> {
        let Some(parts) = &current.begun else { return Ok(Begun::default()) };
        let [from, base, aim, result] = parts.each_ref().map(|part| self.listing(part));
        Ok(Begun { from: from?, base: base?, aim: aim?, result: result? })
    }

    /// The changes set aside when a change object was put off, until it comes back; with the parts of `Plan::aside`.
    pub(crate) fn set_aside(&self, cob: &str) -> Result<Option<Begun>, FilesError> {
        if !lock(&self.shared.aside).contains(cob) {
            return Ok(None);
        }
        let current = self.current(cob).filter(Current::has_aside);
        current.map(|current| self.begun(&current)).transpose()
    }

    /// The change objects that have changes set aside.
    pub(crate) fn with_aside(&self) -> Vec<Box<str>> {
        lock(&self.shared.aside).iter().cloned().collect()
    }

    /// Whether a path did not exist before another change object, which still has it, came to it. The caller has no
    /// earlier entry of the path.
    pub(crate) fn was_absent_for_another(&self, path: &TreePath) -> Result<bool, FilesError> {
        self.with_claims(|claims| claims.was_absent(path))
    }

    /// Whether a change object other than the caller has a path of its own. `has`: the caller has the path, too.
    pub(crate) fn has_another(&self, path: &TreePath, has: bool) -> Result<bool, FilesError> {
        self.with_claims(|claims| claims.owners(path) > u32::from(has))
    }

    /// The earlier and the applied entry of a path that a change object other than `cob` has of its own.
    pub(crate) fn of_another(
        &self,
        cob: &str,
        path: &TreePath,
    ) -> Result<Option<(RecordedEntry, Option<RecordedEntry>)>, FilesError> {
        if !self.has_another(path, false)? {
            return Ok(None);
        }
        let others = self.shared.newest();
        let others = others.iter().filter(|(other, c)| ***other != *cob && c.reason != Reason::Retired);
        let all: Vec<(PartPlace, PartPlace)> = others.map(|(_, c)| (c.before.clone(), c.applied.clone())).collect();
        for (before, applied) in all {
            if let Some(kept) = self.listing(&before)?.remove(path).filter(|kept| !kept.implied) {
                return Ok(Some((kept, self.listing(&applied)?.remove(path))));
            }
        }
        Ok(None)
    }

    fn with_claims<T>(&self, ask: impl FnOnce(&Claims) -> T) -> Result<T, FilesError> {
        let mut claims = lock(&self.shared.claims);
        if claims.is_none() {
            let there = |c: &Current| c.reason != Reason::Retired;
            let all: Vec<PartPlace> =
                self.shared.newest().values().filter(|c| there(c)).map(|c| c.before.clone()).collect();
            let mut gathered = Claims::default();
            for before in &all {
                gathered.add(&self.shared.listing(before)?.into());
            }
            *claims = Some(gathered);
        }
        Ok(ask(claims.get_or_insert_default()))
    }

    /// The bytes of a content.
    pub(crate) fn blob(&self, blob: &Blob) -> Result<Text, FilesError> {
        match blob {
            Blob::New(bytes) => Ok(bytes.clone()),
            Blob::Known(id) => self.read(|repo| Ok(repo.find_blob(*id)?.content().into())),
        }
    }

    /// The versions of a change object with their ids, the newest first.
    pub(crate) fn versions(&self, cob: &str, most: usize) -> Result<Vec<(Oid, Version)>, FilesError> {
        self.flush()?;
        let mut all = Vec::new();
        let Some(newest) = self.current(cob).and_then(|current| current.id) else { return Ok(all) };
        let mut version = self.read(|repo| write::version(repo, newest))?;
        let mut id = newest;
        loop {
            let previous = version.info.previous.as_deref().and_then(|previous| Oid::from_str(previous).ok());
            all.push((id, version));
            let Some(previous) = previous.filter(|_| all.len() < most) else { break };
            // A pruned version ends the history.
            let Some(older) = self.read(|repo| Ok(write::version(repo, previous).ok()))? else { break };
            (id, version) = (previous, older);
        }
        Ok(all)
    }

    /// Like [`Self::prune`], in the background, when the store is idle.
    pub(crate) fn prune_later(&self, before: u64) {
        *lock(&self.shared.prune_before) = Some(before);
        self.shared.bell.ring();
    }

    /// Forgets versions older than a time, except the newest of each change object. Returns the number of remaining
    /// commits.
    pub(crate) fn prune(&self, before: u64) -> Result<usize, FilesError> {
        self.shared.prune(before)
    }
}

impl Shared {
    /// Locks the index to read it.
    fn newest(&self) -> RwLockReadGuard<'_, Newest> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the index to change it.
    fn index(&self) -> RwLockWriteGuard<'_, Newest> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, read: impl FnOnce(&Repository) -> Result<T, git2::Error>) -> Result<T, FilesError> {
        let taken = lock(&self.readers).pop();
        let repo = match taken {
            Some(repo) => repo,
            None => Repository::open_bare(&self.path).map_err(|e| self.git(&e))?,
        };
        let result = read(&repo).map_err(|e| self.git(&e));
        lock(&self.readers).push(repo);
        result
    }

    fn listing(&self, part: &PartPlace) -> Result<Listing, FilesError> {
        match part {
            PartPlace::Nowhere => Ok(Listing::new()),
            PartPlace::Tree(tree) => self.read(|repo| read_listing(repo, *tree)),
            PartPlace::Waiting(place, piece) => {
                let numbered = place.read().map_err(|e| self.failed(format!("its log: {e}")))?;
                Ok(numbered.record.piece(*piece).thaw())
            }
        }
    }

    fn prune(&self, before: u64) -> Result<usize, FilesError> {
        self.prune_to(before, &HashSet::new())
    }

    /// The same, and forgets these commits.
    fn prune_to(&self, before: u64, superfluous: &HashSet<Oid>) -> Result<usize, FilesError> {
        self.flush()?;
        let _replacing = lock(&self.replacing);
        let mut writer = lock(&self.writer);
        let left = writer.prune(before, superfluous).map_err(|e| self.git(&e))?;
        // Readers may have removed packs open.
        lock(&self.readers).clear();
        Ok(left)
    }

    /// The work that is done when the store is idle.
    fn tidy(&self) -> Result<(), FilesError> {
        self.flush()?;
        self.merge_packs(|| if self.bell.is_silent() { MOST_PACKS } else { TOO_MANY_PACKS })?;
        let before = lock(&self.prune_before).take();
        before.map_or(Ok(()), |before| self.prune(before).map(drop))?;
        self.thin_out()?;
        self.note_newest()?;
        // Closes the readers, which have packs mapped: the maps would count as this process's memory until their next
        // use.
        lock(&self.readers).clear();
        Ok(())
    }

    /// Rewrites the file of newest versions if so many shards differ that a lookup would take longer.
    fn note_newest(&self) -> Result<(), FilesError> {
        // The lock keeps others from writing meanwhile.
        let _writer = lock(&self.writer);
        let mut stale = lock(&self.stale);
        if stale.is_empty() {
            return Ok(());
        }
        let shards = self.read(write::newest_shards)?;
        if stale.len() >= shards.len() / STALE {
            // If the write fails, these shards are looked up at the next start.
            if let Ok(others) = newest::write(&self.path, &shards, &self.index) {
                *stale = others;
            }
        }
        Ok(())
    }

    /// Merges small packs until at most `most` packs are left. Other threads may read and write meanwhile.
    fn merge_packs(&self, most: impl Fn() -> usize) -> Result<(), FilesError> {
        loop {
            let _replacing = lock(&self.replacing);
            let merged = packs::merge_small(&self.path, most(), write::PACK_MODE).map_err(|e| self.git(&e))?;
            let Some(merged) = merged else { return Ok(()) };
            // A writer opens the repository anew each time; readers may have removed packs open.
            let _writer = lock(&self.writer);
            merged.remove_small(&self.path).map_err(|e| self.git(&e))?;
            lock(&self.readers).clear();
        }
    }

    /// Moves the records of the log into the repository, in a pack and a commit.
    fn flush(&self) -> Result<(), FilesError> {
        self.flush_with(&mut lock(&self.writer))
    }

    fn flush_with(&self, writer: &mut Writer) -> Result<(), FilesError> {
        let (mut left, bytes, segment) = {
            let mut log = lock(&self.log);
            if log.waiting.is_empty() {
                return Ok(());
            }
            let segment = log.turn().map_err(|e| self.failed(format!("its log: {e}")))?;
            (log.waiting.len(), log.bytes, segment)
        };
        while left > TOGETHER {
            self.write_waiting(writer, TOGETHER)?;
            // These records are in the repository; their segment also has other records.
            lock(&self.log).done(TOGETHER, 0, 0);
            left -= TOGETHER;
        }
        self.write_waiting(writer, left)?;
        lock(&self.log).done(left, bytes, segment);
        // If the write fails, a loss may go unnoticed.
        let _ = Trace { segment, main: true }.write(&self.path);
        Ok(())
    }

    /// Writes a record that is too large for the log. Waiting records go first, so that versions keep their order.
    fn write_at_once(&self, record: Record, spool: Option<Spool>) -> Result<(), FilesError> {
        // A replacement of packs keeps only objects that are in use.
        let _replacing = spool.is_some().then(|| lock(&self.replacing));
        let mut writer = lock(&self.writer);
        self.flush_with(&mut writer)?;
        if let Some(pack) = spool.and_then(Spool::into_pack) {
            let odb = |repo: &Repository| {
                let odb = repo.odb()?;
                Ok(pack.ids().all(|id| odb.exists(id)))
            };
            // A content that was found repeatedly is stored once.
            if !self.read(odb)? {
                pack.finish().map_err(|e| self.failed(e.to_string()))?;
            }
        }
        let was = self.before(&record)?;
        let numbered = Numbered { number: 0, time: write::now(), record };
        let new = self.write_pack(&mut writer, std::slice::from_ref(&numbered))?;
        let _ = Trace { segment: lock(&self.log).segment(), main: true }.write(&self.path);
        let mut claims = lock(&self.claims);
        self.take_up(new);
        self.note_aside(&numbered.record);
        note_claims(&mut claims, &numbered.record, Ok(was));
        Ok(())
    }

    /// Notes whether a change object has changes set aside after this record.
    fn note_aside(&self, record: &Record) {
        let mut aside = lock(&self.aside);
        if record.reason == Reason::Retired && record.begun.iter().any(|part| !part.is_empty()) {
            aside.insert(record.cob.as_str().into());
        } else {
            aside.remove(&*record.cob);
        }
    }

    /// The previous listing of `before`, if the record replaces it.
    fn before(&self, record: &Record) -> Result<Option<Frozen>, FilesError> {
        let Part::New(_) = &record.before else { return Ok(None) };
        let before = self.newest().get(&*record.cob).map(|current| current.before.clone()).unwrap_or_default();
        Ok(Some(self.listing(&before)?.into()))
    }

    /// Writes the first `count` waiting records.
    fn write_waiting(&self, writer: &mut Writer, count: usize) -> Result<(), FilesError> {
        let places: Vec<_> = lock(&self.log).waiting.places().take(count).collect();
        let batch: std::io::Result<Vec<Numbered>> = places.iter().map(|place| place.read()).collect();
        let new = self.write_pack(writer, &batch.map_err(|e| self.failed(format!("its log: {e}")))?)?;
        self.take_up(new);
        Ok(())
    }

    /// Writes records into the repository. The holder of the writer then has to [take up](Self::take_up) the returned
    /// versions.
    fn write_pack(&self, writer: &mut Writer, batch: &[Numbered]) -> Result<Vec<(String, Current)>, FilesError> {
        let last = |cob: &str| self.newest().get(cob).and_then(|current| current.last());
        let new = writer.write(batch, last).map_err(|e| self.git(&e))?;
        lock(&self.stale).extend(new.iter().map(|(cob, _)| write::shard_of(cob)));
        Ok(new)
    }

    /// Takes up versions that are in the repository now.
    fn take_up(&self, new: Vec<(String, Current)>) {
        let mut index = self.index();
        for (cob, version) in new {
            match index.get_mut(&*cob) {
                // A record written since is newer.
                Some(current) if current.number > version.number && version.number != 0 => {
                    current.under = version.last().map(Box::new);
                }
                Some(current) => **current = version,
                None => drop(index.insert(cob.into(), Box::new(version))),
            }
        }
    }

    fn git(&self, error: &git2::Error) -> FilesError {
        self.failed(words_of(error))
    }

    fn failed(&self, what: String) -> FilesError {
        FilesError::Store { path: self.path.display().to_string(), what }
    }
}

fn words_of(error: &git2::Error) -> String {
    if error.code() == git2::ErrorCode::NotFound {
        return format!("a part of it is gone ({}): restore it from a copy", error.message());
    }
    error.message().to_owned()
}

/// Updates the claims, if built: they have been locked since before the index got this record.
fn note_claims(claims: &mut Option<Claims>, record: &Record, was: Result<Option<Frozen>, FilesError>) {
    let (Part::New(before), Some(known)) = (&record.before, claims.as_mut()) else { return };
    match was {
        Ok(was) => {
            was.iter().for_each(|was| known.remove(was));
            known.add(before);
        }
        // The claims are rebuilt at the next query, which returns the error if that fails.
        Err(_) => *claims = None,
    }
}

/// Makes a record of the log the newest version of its change object.
fn note(index: &mut Newest, numbered: &Numbered, place: &Place) {
    let Numbered { number, record, .. } = numbered;
    let was = index.get(&*record.cob);
    let whole = |piece: Piece| {
        if record.piece(piece).is_empty() { PartPlace::Nowhere } else { PartPlace::Waiting(place.clone(), piece) }
    };
    let part = |part: &Part, piece: Piece, same: Option<&PartPlace>| match part {
        Part::Same => same.cloned().unwrap_or_default(),
        Part::New(_) => whole(piece),
    };
    let current = Current {
        number: *number,
        id: None,
        under: was.and_then(|was| was.last()).map(Box::new),
        generation: record.generation,
        reason: record.reason,
        spec: record.spec.as_deref().map(Spec::from),
        before: part(&record.before, Piece::Before, was.map(|w| &w.before)),
        applied: part(&record.applied, Piece::Applied, was.map(|w| &w.applied)),
        begun: held_begun([0, 1, 2, 3].map(|at| whole(Piece::Begun(at)))),
    };
    match index.get_mut(&*record.cob) {
        Some(was) => **was = current,
        None => drop(index.insert(record.cob.as_str().into(), Box::new(current))),
    }
}

/// Removes the remains of a killed process: no other process has the store open.
fn clear_leftovers(path: &Path) {
    for lock in ["HEAD.lock", "config.lock", "refs/heads/main.lock", "packed-refs.lock"] {
        // If it can't be removed, the write that it blocks reports it.
        let _ = fs::remove_file(path.join(lock));
    }
    let Ok(entries) = fs::read_dir(path.join("objects/pack")) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let half = name.ends_with(".pack") && !entry.path().with_extension("idx").exists();
        if half || !(name.ends_with(".pack") || name.ends_with(".idx")) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
