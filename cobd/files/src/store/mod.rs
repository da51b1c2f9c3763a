//! The store: what was before, what was applied, what was found, in one bare git repository a host.
//!
//! ```text
//!   refs/heads/main ── commit (one for all that is recorded at the same time) ── commit …
//!     cobs/3f/n1+db+config/          a version: the state of one change object's files
//!        info                        when, why, under which generation, and the version before it
//!        before/etc/db.conf          as it was when the path was first managed; nothing was there: only in =meta
//!        applied/etc/db.conf         what was wanted when it was last applied: the base of merges
//!        found/etc/db.conf           what somebody else had made of it, and was overwritten
//!        from/, base/, aim/, result/  what an action finds and is about to do: it has begun, and not ended
//!        …/=meta                     owner, group, mode, attributes of what is in each folder; what git has no names for
//! ```
//! Rules: a version is durable before the first file is written that it is to be taken back with. What is recorded at the same
//! time shares one write to the log and one wait for the disk; the repository gets it later, all that waits in one pack and one
//! commit. One process opens the store; its threads share it.

mod claims;
mod flush;
mod frames;
mod frozen;
mod log;
mod newest;
mod pack;
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
pub(crate) use version::{Begun, Blob, Current, Held, Kept, KeptNode, Listing, Part, Piece, Record, Text, Version};
pub use version::{Info, Reason};
use write::{Loaded, Writer};

/// The format that is written here; stands in every version.
const FORMAT: u32 = 1;
const MAIN: &str = "refs/heads/main";
/// What is larger goes into the repository at once: written twice, it would take longer.
const LARGE: usize = 1 << 20;
/// So many records go into one pack: it is made in memory, some 2 KiB a record.
const TOGETHER: usize = 2048;
/// Beyond so many packs small ones are made one, when nothing else is to be done.
const MOST_PACKS: usize = 50;
/// Beyond so many in any case.
const TOO_MANY_PACKS: usize = 200;
/// A new file of the newest versions is written when one shard in so many is another one.
const STALE: usize = 4;
/// So much waits at most.
const MOST_WAITING: usize = 16 << 20;

/// The store. Clones share it.
#[derive(Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

/// The newest version of each change object. In the nodes of a map, which are half empty, stands little.
type Newest = BTreeMap<Box<str>, Box<Current>>;

struct Shared {
    path: PathBuf,
    index: RwLock<Newest>,
    arrived: Mutex<Vec<Arrived>>,
    log: Mutex<Log>,
    /// Taken before the log.
    writer: Mutex<Writer>,
    /// Held by who replaces packs. Taken before the writer.
    replacing: Mutex<()>,
    readers: Mutex<Vec<Repository>>,
    /// The shards that are others than in the file of the newest versions. Taken after the writer.
    stale: Mutex<BTreeSet<Vec<u8>>>,
    /// Gathered when somebody asks for the first time.
    claims: Mutex<Option<Claims>>,
    /// The change objects that went off and have something set aside.
    aside: Mutex<BTreeSet<Box<str>>>,
    bell: Arc<Bell>,
    /// Versions from before this time are to be forgotten, when nothing else is to be done.
    prune_before: Mutex<Option<u64>>,
    quota: Quota,
    /// The size of the packs after what is beyond it was forgotten.
    thinned_to: Mutex<u64>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.bell.close();
    }
}

/// A record that waits to be written.
struct Arrived {
    record: Record,
    /// What was there before the change object came, as it stands until this record, where that was read already.
    was: Option<Frozen>,
    slot: Slot,
}

/// Where the answer to a record will be.
type Slot = Arc<Mutex<Option<Result<(), String>>>>;

impl Store {
    /// Opens the store of a host, or makes it.
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
        // What is read is rarely read again, and was kept up to 256 MiB.
        git2::opts::enable_caching(false);
        let repo = Repository::open_bare(path).map_err(git)?;
        // Without it git waits for no disk at all.
        repo.config().and_then(|mut c| c.set_bool("core.fsyncObjectFiles", true)).map_err(git)?;
        packs::search_for_deltas(&repo, false);
        let Loaded { newest: mut index, recorded, stale } = write::load(path, &repo).map_err(git)?;
        // With it goes what was mapped of the packs, all of which were looked into.
        drop(repo);
        let writer = Writer::new(path, recorded);
        // What an earlier process has left in the log counts at once; it comes into the repository with what is recorded next.
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

    /// The same, unless it has left.
    pub(crate) fn managed(&self, cob: &str) -> Option<Current> {
        self.current(cob).filter(|current| current.reason != Reason::Retired)
    }

    /// Records a version: on the disk, unless it can be found again without it. Those that come meanwhile share the next
    /// write.
    pub(crate) fn record(&self, record: Record) -> Result<(), FilesError> {
        self.record_over(None, record)
    }

    /// The same, with contents that are on their way into the store.
    pub(crate) fn record_with(&self, spool: Option<Spool>, record: Record) -> Result<(), FilesError> {
        if spool.as_ref().is_none_or(|spool| spool.size() == 0) {
            return self.record(record);
        }
        self.shared.write_at_once(record, spool)?;
        self.shared.bell.ring();
        Ok(())
    }

    /// For contents on their way into the store.
    pub(crate) fn spool(&self) -> Spool {
        Spool::new(self.shared.path.join("objects/pack"))
    }

    /// The length of a content that is in the store.
    pub(crate) fn size(&self, id: Oid) -> Result<u64, FilesError> {
        self.read(|repo| Ok(repo.odb()?.read_header(id)?.0 as u64))
    }

    /// The same, over a version of which it is known what stands there as before.
    pub(crate) fn record_over(&self, before: Option<&Frozen>, record: Record) -> Result<(), FilesError> {
        let shared = &self.shared;
        if record.size() > LARGE {
            shared.write_at_once(record, None)?;
            shared.bell.ring();
            return Ok(());
        }
        let slot = Slot::default();
        // Read before others wait for it: there is one job at a time for a change object, so it stays true.
        let is_asked = lock(&shared.claims).is_some();
        let was = match before {
            _ if !is_asked => None,
            Some(before) => Some(before.clone()),
            None => shared.before(&record).ok().flatten(),
        };
        lock(&shared.arrived).push(Arrived { record, was, slot: slot.clone() });
        let mut log = lock(&shared.log);
        if lock(&slot).is_none() {
            // Nobody has written it while we waited: now it is our turn, for all who wait.
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
        answer.unwrap_or_else(|| Err("nobody has written it".to_owned())).map_err(|what| shared.failed(what))?;
        if much {
            return self.flush();
        }
        shared.bell.ring();
        Ok(())
    }

    /// Puts what waits into the repository.
    pub(crate) fn flush(&self) -> Result<(), FilesError> {
        self.shared.flush()
    }

    /// The same, and makes one pack of small ones where there are many.
    pub(crate) fn settle(&self) -> Result<(), FilesError> {
        self.flush()?;
        self.shared.merge_packs(|| MOST_PACKS)
    }

    /// Reads with a repository of its own.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Repository) -> Result<T, git2::Error>) -> Result<T, FilesError> {
        self.shared.read(read)
    }

    /// A part of a version.
    pub(crate) fn listing(&self, part: &Held) -> Result<Listing, FilesError> {
        self.shared.listing(part)
    }

    /// What an action has begun.
    pub(crate) fn begun(&self, current: &Current) -> Result<Begun, FilesError> {
        let Some(parts) = &current.begun else { return Ok(Begun::default()) };
        let [from, base, aim, result] = parts.each_ref().map(|part| self.listing(part));
        Ok(Begun { from: from?, base: base?, aim: aim?, result: result? })
    }

    /// What was set aside when a change object went off, if it has not come again; as [`crate::plan::Plan`] has it.
    pub(crate) fn set_aside(&self, cob: &str) -> Result<Option<Begun>, FilesError> {
        if !lock(&self.shared.aside).contains(cob) {
            return Ok(None);
        }
        let current = self.current(cob).filter(Current::has_aside);
        current.map(|current| self.begun(&current)).transpose()
    }

    /// The change objects that have something set aside.
    pub(crate) fn with_aside(&self) -> Vec<Box<str>> {
        lock(&self.shared.aside).iter().cloned().collect()
    }

    /// Whether nothing was at a path before some other change object came to it, and is there still. Asked on behalf of one
    /// that does not know what was there before.
    pub(crate) fn was_absent_for_another(&self, path: &TreePath) -> Result<bool, FilesError> {
        self.with_claims(|claims| claims.was_absent(path))
    }

    /// Whether another one than `cob` has a path for its own sake. `has`: this one has it, too.
    pub(crate) fn has_another(&self, path: &TreePath, has: bool) -> Result<bool, FilesError> {
        self.with_claims(|claims| claims.owners(path) > u32::from(has))
    }

    /// What another one than `cob` that has a path for its own sake keeps of what was there before, and what it applied.
    pub(crate) fn of_another(&self, cob: &str, path: &TreePath) -> Result<Option<(Kept, Option<Kept>)>, FilesError> {
        if !self.has_another(path, false)? {
            return Ok(None);
        }
        let others = self.shared.newest();
        let others = others.iter().filter(|(other, c)| ***other != *cob && c.reason != Reason::Retired);
        let all: Vec<(Held, Held)> = others.map(|(_, c)| (c.before.clone(), c.applied.clone())).collect();
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
            let all: Vec<Held> = self.shared.newest().values().filter(|c| there(c)).map(|c| c.before.clone()).collect();
            let mut gathered = Claims::default();
            for before in &all {
                gathered.add(&self.shared.listing(before)?.into());
            }
            *claims = Some(gathered);
        }
        Ok(ask(claims.get_or_insert_default()))
    }

    /// A content.
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
            // What was pruned is the end of the history.
            let Some(older) = self.read(|repo| Ok(write::version(repo, previous).ok()))? else { break };
            (id, version) = (previous, older);
        }
        Ok(all)
    }

    /// The same as [`Self::prune`], in the background, when nothing else is to be done.
    pub(crate) fn prune_later(&self, before: u64) {
        *lock(&self.shared.prune_before) = Some(before);
        self.shared.bell.ring();
    }

    /// Forgets the versions that were made before a time, but for the newest of each change object. How many commits are
    /// left.
    pub(crate) fn prune(&self, before: u64) -> Result<usize, FilesError> {
        self.shared.prune(before)
    }
}

impl Shared {
    /// To look into.
    fn newest(&self) -> RwLockReadGuard<'_, Newest> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change.
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

    fn listing(&self, part: &Held) -> Result<Listing, FilesError> {
        match part {
            Held::Nowhere => Ok(Listing::new()),
            Held::Tree(tree) => self.read(|repo| read_listing(repo, *tree)),
            Held::Waiting(place, piece) => {
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
        // They may have what is gone open.
        lock(&self.readers).clear();
        Ok(left)
    }

    /// What is done when nothing else is to be done.
    fn tidy(&self) -> Result<(), FilesError> {
        self.flush()?;
        self.merge_packs(|| if self.bell.is_silent() { MOST_PACKS } else { TOO_MANY_PACKS })?;
        let before = lock(&self.prune_before).take();
        before.map_or(Ok(()), |before| self.prune(before).map(drop))?;
        self.thin_out()?;
        self.note_newest()?;
        // With them goes what they have mapped of the packs, which would count as this process's memory until they are used
        // again.
        lock(&self.readers).clear();
        Ok(())
    }

    /// Writes the file of the newest versions, when so many are others that looking them up would take longer.
    fn note_newest(&self) -> Result<(), FilesError> {
        // Nothing is written meanwhile.
        let _writer = lock(&self.writer);
        let mut stale = lock(&self.stale);
        if stale.is_empty() {
            return Ok(());
        }
        let shards = self.read(write::newest_shards)?;
        if stale.len() >= shards.len() / STALE {
            // Where it can't be written they are looked up the next time.
            if let Ok(others) = newest::write(&self.path, &shards, &self.index) {
                *stale = others;
            }
        }
        Ok(())
    }

    /// Makes one pack of several small ones, until there are no more than `most`. Others may write and read meanwhile.
    fn merge_packs(&self, most: impl Fn() -> usize) -> Result<(), FilesError> {
        loop {
            let _replacing = lock(&self.replacing);
            let merged = packs::merge_small(&self.path, most(), write::PACK_MODE).map_err(|e| self.git(&e))?;
            let Some(merged) = merged else { return Ok(()) };
            // Who writes opens the repository anew each time; who reads may have what is gone open.
            let _writer = lock(&self.writer);
            merged.remove_small(&self.path).map_err(|e| self.git(&e))?;
            lock(&self.readers).clear();
        }
    }

    /// Puts what waits into the repository, in one pack and one commit.
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
            // In the repository, and in a segment with what is not.
            lock(&self.log).done(TOGETHER, 0, 0);
            left -= TOGETHER;
        }
        self.write_waiting(writer, left)?;
        lock(&self.log).done(left, bytes, segment);
        // Where it can't be written, less is missed.
        let _ = Trace { segment, main: true }.write(&self.path);
        Ok(())
    }

    /// A record that is too large for the log. What waits goes before it, so that versions keep their order.
    fn write_at_once(&self, record: Record, spool: Option<Spool>) -> Result<(), FilesError> {
        // Whoever replaces packs keeps those alone that are in use.
        let _replacing = spool.is_some().then(|| lock(&self.replacing));
        let mut writer = lock(&self.writer);
        self.flush_with(&mut writer)?;
        if let Some(pack) = spool.and_then(Spool::into_pack) {
            let odb = |repo: &Repository| {
                let odb = repo.odb()?;
                Ok(pack.ids().all(|id| odb.exists(id)))
            };
            // What was found again and again is there once.
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

    /// A change object has something set aside by this record, or has not any more.
    fn note_aside(&self, record: &Record) {
        let mut aside = lock(&self.aside);
        if record.reason == Reason::Retired && record.begun.iter().any(|part| !part.is_empty()) {
            aside.insert(record.cob.as_str().into());
        } else {
            aside.remove(&*record.cob);
        }
    }

    /// What was there before a change object came, as it stands until this record; none: the record says nothing of that.
    fn before(&self, record: &Record) -> Result<Option<Frozen>, FilesError> {
        let Part::New(_) = &record.before else { return Ok(None) };
        let before = self.newest().get(&*record.cob).map(|current| current.before.clone()).unwrap_or_default();
        Ok(Some(self.listing(&before)?.into()))
    }

    /// The first so many of those that wait.
    fn write_waiting(&self, writer: &mut Writer, count: usize) -> Result<(), FilesError> {
        let places: Vec<_> = lock(&self.log).waiting.places().take(count).collect();
        let batch: std::io::Result<Vec<Numbered>> = places.iter().map(|place| place.read()).collect();
        let new = self.write_pack(writer, &batch.map_err(|e| self.failed(format!("its log: {e}")))?)?;
        self.take_up(new);
        Ok(())
    }

    /// Puts records into the repository. The newest versions that come of them are [taken up](Self::take_up) afterwards, by
    /// who has the writer.
    fn write_pack(&self, writer: &mut Writer, batch: &[Numbered]) -> Result<Vec<(String, Current)>, FilesError> {
        let last = |cob: &str| self.newest().get(cob).and_then(|current| current.last());
        let new = writer.write(batch, last).map_err(|e| self.git(&e))?;
        lock(&self.stale).extend(new.iter().map(|(cob, _)| write::shard_of(cob)));
        Ok(new)
    }

    /// These are in the repository.
    fn take_up(&self, new: Vec<(String, Current)>) {
        let mut index = self.index();
        for (cob, version) in new {
            match index.get_mut(&*cob) {
                // What was recorded since is newer.
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
        return format!("a part of it is gone ({}): put it back from a copy", error.message());
    }
    error.message().to_owned()
}

/// Takes up what was there before, where that is asked for: it is locked since before the index had this record.
fn note_claims(claims: &mut Option<Claims>, record: &Record, was: Result<Option<Frozen>, FilesError>) {
    let (Part::New(before), Some(known)) = (&record.before, claims.as_mut()) else { return };
    match was {
        Ok(was) => {
            was.iter().for_each(|was| known.remove(was));
            known.add(before);
        }
        // It is gathered anew, and whoever asks for that hears why it can't be.
        Err(_) => *claims = None,
    }
}

/// The newest version of a change object is this one now, and it is in the log.
fn note(index: &mut Newest, numbered: &Numbered, place: &Place) {
    let Numbered { number, record, .. } = numbered;
    let was = index.get(&*record.cob);
    let whole = |piece: Piece| {
        if record.piece(piece).is_empty() { Held::Nowhere } else { Held::Waiting(place.clone(), piece) }
    };
    let part = |part: &Part, piece: Piece, same: Option<&Held>| match part {
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

/// What a process that was killed has left: nobody else has the store open.
fn clear_leftovers(path: &Path) {
    for lock in ["HEAD.lock", "config.lock", "refs/heads/main.lock", "packed-refs.lock"] {
        // If it can't be removed, the write that it hinders says so.
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
