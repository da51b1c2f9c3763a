//! The index: history and durations where they are found quickly, made from the journal.
//!
//! The daemon adds what its records tell after each commit, and asks for `cobctl history`, for the
//! reasons of `explain` and for forecasts. It lives in `sled`, which is quick but neither safe
//! against power failures nor above suspicion after them. So it is never the truth: what can't be
//! read is moved aside, and the daemon feeds the journal's kept records again.
//!
//! ```text
//!   h SEQ N               one line of the history, JSON
//!   c COB 0 SEQ N         points to the line, for one change object
//!   k KIND 0 FROM 0 TO    how long the move takes, all change objects of the kind
//!   d COB 0 FROM 0 TO     how long it takes for this one
//!   u                     the last record that is in here
//! ```
//!
//! Rules: a record is added whole or not at all, and once: adding it again changes nothing. Numbers
//! in keys are big-endian, so that order of bytes is order in time.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_types::history::HistoryEntry;
use cob_types::{CobId, KindName, StateName};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// An idle daemon is to stay small; more made additions no faster.
const CACHE_BYTES: u64 = 1 << 18;
/// `sled` holds several of these in memory.
const SEGMENT_BYTES: usize = 64 << 10;
/// Durations older than about this many runs no longer count: hosts and contents change.
const MEMORY: u32 = 32;
/// So many records are added in one batch: until its end the store frees none of the pages that it has replaced.
const TOGETHER: usize = 64;
/// How many old entries are forgotten in one batch.
const FORGET_BATCH: usize = 1000;
/// So long somebody may take to let go of the store.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Where an unreadable index is put, beside the index: one of them, the newest.
const ASIDE_SUFFIX: &str = ".damaged";

/// The index of one host.
#[derive(Debug)]
pub struct Index {
    folder: PathBuf,
    tree: sled::Db,
    upto: u64,
}

/// An index that was opened.
#[derive(Debug)]
pub struct OpenedIndex {
    /// The index.
    pub index: Index,
    /// The first record that it has to be fed with; one after the journal's last: none.
    pub needs_from: u64,
    /// Why the old one was put aside, if it was.
    pub rebuilt: Option<String>,
}

/// What one record tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The record's number.
    pub seq: u64,
    /// What people read of it.
    pub history: Vec<HistoryEntry>,
    /// The action that it ends.
    pub measured: Option<Measured>,
}

/// How long one action took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The kind.
    pub kind: KindName,
    /// The change object.
    pub cob: CobId,
    /// The state left.
    pub from: StateName,
    /// The state entered.
    pub to: StateName,
    /// The time between.
    pub took: Duration,
}

/// What is known about how long a move takes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Durations {
    /// How often it was measured.
    pub count: u64,
    /// The mean, in milliseconds; of many, the latest weigh most.
    pub mean_ms: f64,
    /// The standard deviation, in milliseconds.
    pub spread_ms: f64,
    /// The last one, in milliseconds.
    pub last_ms: f64,
}

/// Which part of the history is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Entries from this record on.
    pub since: u64,
    /// Of this change object alone.
    pub cob: Option<CobId>,
    /// No more than this many.
    pub limit: usize,
    /// If there are more, the newest instead of the oldest. They come oldest first all the same.
    pub newest: bool,
}

/// Why the index can't serve.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The store failed. The daemon can go on without the index, and open it again.
    #[error("the index in {}: {what}", .folder.display())]
    Store {
        /// The folder.
        folder: PathBuf,
        /// What the store said.
        what: String,
    },
    /// It has what the journal does not have any more: records that were durable are lost there.
    #[error("the index in {} knows record {knows}", .folder.display())]
    Ahead {
        /// The folder.
        folder: PathBuf,
        /// The last record that it knows.
        knows: u64,
    },
    /// The folder could not be moved, made or read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenedIndex {
    /// The same, beside a journal whose last record is `last_seq`.
    ///
    /// # Errors
    /// [`IndexError::Ahead`] when it knows more than the journal: it is told of nothing that is not durable there.
    pub fn beside(self, last_seq: u64) -> Result<Self, IndexError> {
        if self.index.upto > last_seq {
            return Err(IndexError::Ahead { folder: self.index.folder, knows: self.index.upto });
        }
        Ok(self)
    }
}

impl Index {
    /// Opens the index. What can't be read is moved aside and begun anew.
    ///
    /// # Errors
    /// [`IndexError`] when the folder can't be used at all.
    pub fn open(folder: &Path) -> Result<OpenedIndex, IndexError> {
        let reason = match Self::try_open(folder) {
            Ok(index) => {
                let needs_from = index.upto + 1;
                return Ok(OpenedIndex { index, needs_from, rebuilt: None });
            }
            Err(Fault::Damaged(what)) => what,
            Err(Fault::Refused(source)) => return Err(IndexError::Io { path: folder.to_owned(), source }),
        };
        let aside = put_aside(folder).map_err(|source| IndexError::Io { path: folder.to_owned(), source })?;
        warn!(folder = %folder.display(), aside = %aside.display(), reason,
            "the index was put aside; it is made again from the journal");
        match Self::try_open(folder) {
            Ok(index) => Ok(OpenedIndex { index, needs_from: 1, rebuilt: Some(reason) }),
            Err(Fault::Damaged(what)) => Err(IndexError::Store { folder: folder.to_owned(), what }),
            Err(Fault::Refused(source)) => Err(IndexError::Io { path: folder.to_owned(), source }),
        }
    }

    /// Opens it as soon as its last user has let go of it.
    fn try_open(folder: &Path) -> Result<Self, Fault> {
        let limit = Instant::now() + LOCK_PATIENCE;
        loop {
            match Self::open_store(folder) {
                Err(Fault::Refused(error)) if is_locked(&error) && Instant::now() < limit => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                opened => return opened,
            }
        }
    }

    fn open_store(folder: &Path) -> Result<Self, Fault> {
        clear_unfinished(folder).map_err(Fault::Refused)?;
        let config = sled::Config::new()
            .path(folder)
            .mode(sled::Mode::HighThroughput)
            .cache_capacity(CACHE_BYTES)
            .segment_size(SEGMENT_BYTES)
            .flush_every_ms(None);
        // sled panics over some damaged files where it could return an error.
        let opened = catch_unwind(AssertUnwindSafe(|| -> sled::Result<(sled::Db, Option<sled::IVec>)> {
            let tree = config.open()?;
            let upto = tree.get(b"u")?;
            Ok((tree, upto))
        }));
        match opened {
            Ok(Ok((tree, upto))) => {
                let upto = upto.map_or(Ok([0; 8]), |v| <[u8; 8]>::try_from(v.as_ref()));
                let upto = upto.map_err(|_| Fault::Damaged("its end mark is no number".to_owned()))?;
                Ok(Self { folder: folder.to_owned(), tree, upto: u64::from_be_bytes(upto) })
            }
            Ok(Err(sled::Error::Io(source))) if !is_about_content(&source) => Err(Fault::Refused(source)),
            Ok(Err(error)) => Err(Fault::Damaged(error.to_string())),
            Err(_) => Err(Fault::Damaged("the store gave up over it".to_owned())),
        }
    }

    /// The last record that was added.
    #[must_use]
    pub fn upto(&self) -> u64 {
        self.upto
    }

    /// Adds what records tell, each whole or not at all, in their order. Those that are in here already are left out.
    ///
    /// # Errors
    /// [`IndexError::Store`]; those from one record on were not added then.
    pub fn add(&mut self, entries: impl IntoIterator<Item = Entry>) -> Result<(), IndexError> {
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            self.add_some(entries.by_ref().take(TOGETHER))?;
        }
        Ok(())
    }

    /// Adds what some records tell, all of them or none.
    fn add_some(&mut self, entries: impl Iterator<Item = Entry>) -> Result<(), IndexError> {
        let mut batch = sled::Batch::default();
        let mut upto = self.upto;
        // Two measures may be about the same move: the second sees the first.
        let mut updated = std::collections::BTreeMap::new();
        for Entry { seq, history, measured } in entries {
            if seq <= upto {
                continue;
            }
            upto = seq;
            for (n, entry) in (0u16..).zip(&history) {
                let at = position(seq, n);
                batch.insert(key(b'h', &[], &at), json(entry));
                if let Some(cob) = &entry.cob {
                    batch.insert(key(b'c', &[cob.as_str()], &at), &[]);
                }
            }
            let Some(m) = measured else { continue };
            let (from, to) = (m.from.as_str(), m.to.as_str());
            for key in [key(b'k', &[m.kind.as_str(), from, to], &[]), key(b'd', &[m.cob.as_str(), from, to], &[])] {
                let known = match updated.get(&key) {
                    Some(known) => *known,
                    None => self.read_durations(&key)?.unwrap_or_default(),
                };
                updated.insert(key, known.with(m.took));
            }
        }
        if upto == self.upto {
            return Ok(());
        }
        for (key, durations) in updated {
            batch.insert(key, json(&durations));
        }
        batch.insert(b"u", &upto.to_be_bytes());
        self.tree.apply_batch(batch).map_err(|e| self.store_error(&e))?;
        self.upto = upto;
        Ok(())
    }

    /// A part of the history, oldest first.
    ///
    /// # Errors
    /// [`IndexError::Store`].
    pub fn history(&self, query: &Query) -> Result<Vec<HistoryEntry>, IndexError> {
        let prefix = match &query.cob {
            Some(cob) => key(b'c', &[cob.as_str()], &[]),
            None => vec![b'h'],
        };
        let bounds = [query.since, u64::MAX].map(|seq| {
            let n = if seq == u64::MAX { u16::MAX } else { 0 };
            [prefix.as_slice(), &position(seq, n)].concat()
        });
        let range = self.tree.range(bounds[0].as_slice()..=bounds[1].as_slice());
        let found: Result<Vec<_>, _> =
            if query.newest { range.rev().take(query.limit).collect() } else { range.take(query.limit).collect() };
        let mut found = found.map_err(|e| self.store_error(&e))?;
        if query.newest {
            found.reverse();
        }
        let mut entries = Vec::with_capacity(found.len());
        for (key, value) in found {
            let line = if query.cob.is_some() {
                let at = [b"h", &key[prefix.len()..]].concat();
                self.tree.get(at).map_err(|e| self.store_error(&e))?
            } else {
                Some(value)
            };
            let Some(line) = line else { continue };
            entries.push(serde_json::from_slice(&line).map_err(|e| self.store_error(&e))?);
        }
        Ok(entries)
    }

    /// How long a move takes for one change object.
    ///
    /// # Errors
    /// [`IndexError::Store`].
    pub fn durations_of_cob(
        &self,
        cob: &CobId,
        from: &StateName,
        to: &StateName,
    ) -> Result<Option<Durations>, IndexError> {
        self.read_durations(&key(b'd', &[cob.as_str(), from.as_str(), to.as_str()], &[]))
    }

    /// How long a move takes for all change objects of a kind.
    ///
    /// # Errors
    /// [`IndexError::Store`].
    pub fn durations_of_kind(
        &self,
        kind: &KindName,
        from: &StateName,
        to: &StateName,
    ) -> Result<Option<Durations>, IndexError> {
        self.read_durations(&key(b'k', &[kind.as_str(), from.as_str(), to.as_str()], &[]))
    }

    /// Forgets the history before a record; durations stay.
    ///
    /// # Errors
    /// [`IndexError::Store`].
    pub fn forget_before(&self, seq: u64) -> Result<(), IndexError> {
        loop {
            let end = [b"h".as_slice(), &position(seq, 0)].concat();
            let found: Result<Vec<_>, _> =
                self.tree.range(b"h".as_slice()..end.as_slice()).take(FORGET_BATCH).collect();
            let found = found.map_err(|e| self.store_error(&e))?;
            if found.is_empty() {
                return Ok(());
            }
            let mut batch = sled::Batch::default();
            for (line, value) in &found {
                let cob = serde_json::from_slice::<HistoryEntry>(value).ok().and_then(|e| e.cob);
                if let Some(cob) = cob {
                    batch.remove(key(b'c', &[cob.as_str()], &line[1..]));
                }
                batch.remove(line);
            }
            self.tree.apply_batch(batch).map_err(|e| self.store_error(&e))?;
        }
    }

    /// Hands everything to the system. Without it a crash costs the last additions, which are fed again.
    ///
    /// # Errors
    /// [`IndexError::Store`].
    pub fn flush(&self) -> Result<(), IndexError> {
        self.tree.flush().map(|_| ()).map_err(|e| self.store_error(&e))
    }

    fn read_durations(&self, key: &[u8]) -> Result<Option<Durations>, IndexError> {
        let Some(value) = self.tree.get(key).map_err(|e| self.store_error(&e))? else { return Ok(None) };
        serde_json::from_slice(&value).map(Some).map_err(|e| self.store_error(&e))
    }

    fn store_error(&self, error: &dyn std::fmt::Display) -> IndexError {
        IndexError::Store { folder: self.folder.clone(), what: error.to_string() }
    }
}

impl Durations {
    /// Takes one more measure in: the usual mean and variance at first, later with the weight of
    /// [`MEMORY`] runs, so that old ones fade.
    #[expect(clippy::cast_precision_loss, reason = "counts of actions are far below 2^52")]
    fn with(self, took: Duration) -> Self {
        let last_ms = took.as_secs_f64() * 1000.0;
        let count = self.count + 1;
        let weight = 1.0 / count.min(u64::from(MEMORY)) as f64;
        let off = last_ms - self.mean_ms;
        let variance = (1.0 - weight) * (self.spread_ms * self.spread_ms + weight * off * off);
        Self { count, mean_ms: self.mean_ms + weight * off, spread_ms: variance.sqrt(), last_ms }
    }
}

/// Why sled did not open.
enum Fault {
    /// The files: begin anew.
    Damaged(String),
    /// The system: beginning anew would not help.
    Refused(io::Error),
}

/// The store has a lock of its own. Two daemons don't meet here, the journal's lock is taken before; but
/// a child that was begun a moment ago holds a copy until it has executed its program.
fn is_locked(error: &io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

/// Some damage comes as an I/O error.
fn is_about_content(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::NotADirectory
    )
}

/// Removes what a program that was killed while it opened the store had begun to write: sled would take it for whole,
/// and the index for damaged. Snapshots get their name without `.generating` when they are whole, and `conf` is
/// whole before `db` is there.
fn clear_unfinished(folder: &Path) -> io::Result<()> {
    let files = match fs::read_dir(folder) {
        Ok(files) => files,
        // Nothing is there yet, or what sled has its own word for.
        Err(_) => return Ok(()),
    };
    let is_begun = !folder.join("db").exists();
    for file in files {
        let name = file?.file_name();
        let snapshot = name.to_str().is_some_and(|n| n.starts_with("snap.") && n.ends_with(".generating"));
        if snapshot || is_begun && name == "conf" {
            fs::remove_file(folder.join(name))?;
        }
    }
    Ok(())
}

fn put_aside(folder: &Path) -> io::Result<PathBuf> {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(ASIDE_SUFFIX);
    let aside = folder.with_file_name(name);
    let removed = match fs::symlink_metadata(&aside) {
        Ok(old) if old.is_dir() => fs::remove_dir_all(&aside),
        Ok(_) => fs::remove_file(&aside),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed?;
    fs::rename(folder, &aside)?;
    Ok(aside)
}

fn position(seq: u64, n: u16) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&seq.to_be_bytes());
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    bytes
}

/// `sort`, each part with a zero behind it (names hold none), and the end.
fn key(sort: u8, parts: &[&str], end: &[u8]) -> Vec<u8> {
    let mut key = vec![sort];
    for part in parts {
        key.extend(part.as_bytes());
        key.push(0);
    }
    key.extend(end);
    key
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain values with text keys are JSON")
}

#[cfg(test)]
mod tests {
    use cob_types::{GenerationNumber, HostName};
    use proptest::prelude::*;

    use super::*;

    fn entry(seq: u64, cob: Option<&str>, event: &str) -> HistoryEntry {
        HistoryEntry {
            ts_ns: seq * 1000,
            host: HostName::new("n1").expect("name"),
            seq,
            lamport: seq,
            generation: GenerationNumber(1),
            cob: cob.map(|c| CobId::new(c).expect("id")),
            event: event.to_owned(),
            from: None,
            to: None,
            attempt: None,
            ok: None,
            detail: String::new(),
            heard_ns: None,
        }
    }

    fn measured(ms: u64) -> Measured {
        Measured {
            kind: KindName::new("simple").expect("name"),
            cob: CobId::new("n1/a").expect("id"),
            from: StateName::new("down").expect("name"),
            to: StateName::new("up").expect("name"),
            took: Duration::from_millis(ms),
        }
    }

    /// Records 1 to 20: odd ones about n1/a, even ones about n1/b, each with a second line about the host.
    fn filled(folder: &Path) -> Index {
        let mut index = Index::open(folder).expect("opens").index;
        for seq in 1..=20 {
            let cob = if seq % 2 == 1 { "n1/a" } else { "n1/b" };
            let history = vec![entry(seq, Some(cob), "start"), entry(seq, None, "order")];
            index.add([Entry { seq, history, measured: Some(measured(10 * seq)) }]).expect("added");
        }
        index
    }

    fn ask(index: &Index, since: u64, cob: Option<&str>, limit: usize, newest: bool) -> Vec<(u64, String)> {
        let cob = cob.map(|c| CobId::new(c).expect("id"));
        let found = index.history(&Query { since, cob, limit, newest }).expect("answers");
        found.into_iter().map(|e| (e.seq, e.event)).collect()
    }

    #[test]
    fn history_is_found_by_time_and_by_change_object() {
        let folder = tempfile::tempdir().expect("folder");
        let index = filled(&folder.path().join("index"));
        assert_eq!(ask(&index, 0, None, 3, false), [(1, "start".into()), (1, "order".into()), (2, "start".into())]);
        assert_eq!(ask(&index, 19, Some("n1/b"), 9, false), [(20, "start".into())]);
        assert_eq!(ask(&index, 0, Some("n1/a"), 2, true), [(17, "start".into()), (19, "start".into())]);
        assert_eq!(ask(&index, 0, Some("n1/a"), 99, false).len(), 10);
        assert_eq!(ask(&index, 0, Some("n1/c"), 99, false).len(), 0);
        assert_eq!(ask(&index, 21, None, 99, false).len(), 0);
        index.forget_before(15).expect("forgotten");
        assert_eq!(ask(&index, 0, None, 1, false), [(15, "start".into())]);
        assert_eq!(ask(&index, 0, Some("n1/b"), 1, false), [(16, "start".into())]);
    }

    #[test]
    fn it_goes_on_where_it_ended_and_takes_a_record_once() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("index");
        let index = filled(&path);
        index.flush().expect("flushed");
        drop(index);
        let opened = Index::open(&path).expect("opens");
        assert_eq!((opened.needs_from, opened.rebuilt), (21, None));
        let mut index = opened.index;
        let again = Entry { seq: 20, history: vec![entry(20, None, "again")], measured: Some(measured(9999)) };
        index.add([again]).expect("left out");
        assert!(!ask(&index, 20, None, 9, false).iter().any(|(_, event)| event == "again"));
        let m = measured(0);
        let known = index.durations_of_cob(&m.cob, &m.from, &m.to).expect("answers").expect("known");
        assert_eq!((known.count, known.last_ms), (20, 200.0));
        assert!((known.mean_ms - 105.0).abs() < 1e-6, "{known:?}");
        assert!((known.spread_ms - 57.66).abs() < 0.01, "{known:?}");
        assert_eq!(index.durations_of_kind(&m.kind, &m.from, &m.to).expect("answers"), Some(known));
        assert_eq!(index.durations_of_kind(&m.kind, &m.to, &m.from).expect("answers"), None);
    }

    #[test]
    fn many_records_go_in_together_and_each_counts_once() {
        let folder = tempfile::tempdir().expect("folder");
        let many = 3 * TOGETHER as u64 + 7;
        let mut index = Index::open(&folder.path().join("index")).expect("opens").index;
        let one = |seq| Entry { seq, history: vec![entry(seq, Some("n1/a"), "end")], measured: Some(measured(seq)) };
        index.add((1..=many).map(one)).expect("added");
        index.add((1..=many).map(one)).expect("left out");
        assert_eq!(index.upto(), many);
        let found = ask(&index, 0, Some("n1/a"), usize::MAX, false);
        assert_eq!(found.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), (1..=many).collect::<Vec<_>>());
        let m = measured(0);
        let known = index.durations_of_cob(&m.cob, &m.from, &m.to).expect("answers").expect("known");
        assert_eq!(known.count, many);
    }

    #[test]
    fn old_durations_fade() {
        let old = (0..1000).fold(Durations::default(), |d, _| d.with(Duration::from_millis(100)));
        let new = (0..100).fold(old, |d, _| d.with(Duration::from_millis(300)));
        assert!(new.mean_ms > 290.0, "{new:?}");
        assert_eq!(new.count, 1100);
    }

    #[test]
    fn what_a_killed_start_leaves_costs_nothing() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("index");
        // Killed before there was anything but a part of the store's own settings.
        fs::create_dir_all(&path).expect("made");
        fs::write(path.join("conf"), b"segment_size: 65").expect("written");
        drop(filled(&path));
        // Killed while a snapshot of the store was on its way to the disk; sled takes the last of them by name.
        fs::write(path.join("snap.FFFFFFFFFFFFFFFF.generating"), b"the first bytes of").expect("written");
        let opened = Index::open(&path).expect("opens");
        assert_eq!((opened.needs_from, opened.rebuilt), (21, None));
        assert!(!folder.path().join("index.damaged").exists());
    }

    #[test]
    fn an_index_ahead_of_its_journal_shows_that_records_are_lost() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("index");
        drop(filled(&path));
        let Err(error) = Index::open(&path).expect("opens").beside(7) else { panic!("it knows 20 records") };
        assert!(matches!(error, IndexError::Ahead { knows: 20, .. }), "{error}");
        assert!(!folder.path().join("index.damaged").exists(), "nothing was changed");
        assert_eq!(Index::open(&path).expect("opens").needs_from, 21);
    }

    #[test]
    fn a_store_that_is_let_go_late_is_waited_for() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("index");
        let index = filled(&path);
        let holder = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            drop(index);
        });
        let opened = Index::open(&path).expect("opens");
        assert_eq!((opened.needs_from, opened.rebuilt), (21, None));
        holder.join().expect("ended");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        /// Whatever is done to its files: it opens, and gives out nothing that was not put in.
        #[test]
        fn damaged_files_are_put_aside(
            at in any::<prop::sample::Index>(),
            noise in proptest::collection::vec(any::<u8>(), 1..64),
            cut in any::<bool>(),
            which in 0..2,
        ) {
            let folder = tempfile::tempdir().expect("folder");
            let path = folder.path().join("index");
            let index = filled(&path);
            index.flush().expect("flushed");
            let whole = ask(&index, 0, None, 99, false);
            drop(index);
            let file = path.join(if which == 0 { "db" } else { "conf" });
            let mut bytes = fs::read(&file).expect("read");
            let at = at.index(bytes.len().min(4096));
            if cut {
                bytes.truncate(at);
            } else {
                let until = (at + noise.len()).min(bytes.len());
                bytes[at..until].copy_from_slice(&noise[..until - at]);
            }
            fs::write(&file, bytes).expect("written");
            let opened = Index::open(&path).expect("opens");
            let found = ask(&opened.index, 0, None, 99, false);
            prop_assert!(whole.starts_with(&found));
            let upto = usize::try_from(opened.needs_from - 1).expect("small");
            prop_assert_eq!(found.len(), 2 * upto);
        }
    }
}
