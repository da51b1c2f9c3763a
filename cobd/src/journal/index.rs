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
//!   o SEQ N               points to the line, of an operator's order
//!   s SEQ N               points to the line, of a switch
//!   k KIND 0 FROM 0 TO    how long the move takes, all change objects of the kind
//!   d COB 0 FROM 0 TO     how long it takes for this one
//!   u                     the last record that is in here
//!   n                     that number again, and how many lines there are
//! ```
//!
//! Opening the store takes longer than all the rest of a small daemon's start, and nobody waits for history then. What is to
//! be known of it at the start, up to which record it goes at most, stands in a file beside it.
//!
//! Rules: a record is added whole or not at all, and once: adding it again changes nothing. Numbers
//! in keys are big-endian, so that order of bytes is order in time. Of the history the newest lines are
//! kept: the store has something in memory of each, as long as the daemon lives. Orders and switches are counted by
//! themselves: however much other hosts say, it takes none of their places.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_types::history::HistoryEntry;
use cob_types::{CobId, KindName, StateName};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::durable;
use crate::run::read_capped;

mod kept;

/// An idle daemon is to stay small; more made additions no faster.
const CACHE_BYTES: u64 = 1 << 18;
/// `sled` holds several of these in memory.
const SEGMENT_BYTES: usize = 64 << 10;
/// Durations older than about this many runs no longer count: hosts and contents change.
const MEMORY: u32 = 32;
/// So many records are added in one batch: until its end the store frees none of the pages that it has replaced.
const TOGETHER: usize = 64;
/// So many lines of the history are kept: some 120 MB on disk, and 25 in memory.
const MOST_LINES: u64 = 100_000;
/// How many of the oldest lines are forgotten in one batch.
const FORGET_BATCH: usize = 1000;
/// So many orders are kept, and so many lines of switches, beside all others.
const MOST_KEPT: u64 = 10_000;
/// So long somebody may take to let go of the store.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Where an unreadable index is put, beside the index: one of them, the newest.
const ASIDE_SUFFIX: &str = ".damaged";
/// The file in its folder that says up to which record it goes at most.
const KNOWS: &str = "knows";
/// The longest number, twice.
const LONGEST_NOTE: usize = 40;

/// The index of one host.
#[derive(Debug)]
pub struct Index {
    folder: PathBuf,
    tree: sled::Db,
    upto: u64,
    /// How many lines there are; none: they were not counted yet.
    lines: Option<u64>,
    /// How many are kept that are neither orders nor of switches.
    most: u64,
    /// How many orders are kept, and how many lines of switches.
    most_kept: u64,
    kept: kept::Kept,
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

impl Index {
    /// The last record that an index may know of, beside a journal whose last record is `last_seq`. The store is opened only
    /// where that is not noted, or can't be.
    ///
    /// # Errors
    /// [`IndexError::Ahead`] when it knows more than the journal: it is told of nothing that is not durable there. Others
    /// when the folder can't be used at all.
    pub fn known_beside(folder: &Path, last_seq: u64) -> Result<u64, IndexError> {
        match noted(folder) {
            Some(noted) if noted <= last_seq => Ok(noted),
            Some(knows) => Err(IndexError::Ahead { folder: folder.to_owned(), knows }),
            None if !folder.exists() => Ok(0),
            None => Ok(Self::open_beside(folder, last_seq)?.upto),
        }
    }

    /// Opens the index beside a journal whose last record is `last_seq`. What can't be read is moved aside and begun anew.
    ///
    /// # Errors
    /// As [`Index::known_beside`].
    pub fn open_beside(folder: &Path, last_seq: u64) -> Result<Self, IndexError> {
        let index = Self::open(folder)?;
        if index.upto > last_seq {
            // A version that notes nothing has fed it: the next start hears of it at once.
            index.note(index.upto)?;
            return Err(IndexError::Ahead { folder: index.folder, knows: index.upto });
        }
        Ok(index)
    }

    fn open(folder: &Path) -> Result<Self, IndexError> {
        let reason = match Self::try_open(folder) {
            Ok(index) => return Ok(index),
            Err(Fault::Damaged(what)) => what,
            Err(Fault::Refused(source)) => return Err(IndexError::Io { path: folder.to_owned(), source }),
        };
        let aside = put_aside(folder).map_err(|source| IndexError::Io { path: folder.to_owned(), source })?;
        warn!(folder = %folder.display(), aside = %aside.display(), reason,
            "the index was put aside; it is made again from the journal");
        Self::try_open(folder).map_err(|fault| match fault {
            Fault::Damaged(what) => IndexError::Store { folder: folder.to_owned(), what },
            Fault::Refused(source) => IndexError::Io { path: folder.to_owned(), source },
        })
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
        if [KNOWS.to_owned(), format!("{KNOWS}{}", durable::TEMP_SUFFIX)].iter().any(|name| folder.join(name).is_dir())
        {
            return Err(Fault::Damaged("a folder is in the place of its note".to_owned()));
        }
        let config = sled::Config::new()
            .path(folder)
            .mode(sled::Mode::HighThroughput)
            .cache_capacity(CACHE_BYTES)
            .segment_size(SEGMENT_BYTES)
            .flush_every_ms(None);
        // sled panics over some damaged files where it could return an error.
        let opened = catch_unwind(AssertUnwindSafe(|| -> sled::Result<(sled::Db, [Option<sled::IVec>; 2])> {
            let tree = config.open()?;
            let marks = [tree.get(b"u")?, tree.get(b"n")?];
            Ok((tree, marks))
        }));
        match opened {
            Ok(Ok((tree, [upto, counted]))) => {
                let upto = upto.map_or(Ok([0; 8]), |v| <[u8; 8]>::try_from(v.as_ref()));
                let upto = upto.map_err(|_| Fault::Damaged("its end mark is no number".to_owned()))?;
                // The version before adds without counting.
                let lines = counted.as_deref().and_then(|v| v.strip_prefix(&upto)?.try_into().ok());
                let (upto, lines) = (u64::from_be_bytes(upto), lines.map(u64::from_be_bytes));
                let kept = kept::Kept::default();
                Ok(Self { folder: folder.to_owned(), tree, upto, lines, most: MOST_LINES, most_kept: MOST_KEPT, kept })
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

    /// Adds what records up to `upto` tell, each whole or not at all, in their order. Those that are in here already are left
    /// out.
    ///
    /// # Errors
    /// [`IndexError`]; those from one record on were not added then.
    pub fn add(&mut self, upto: u64, entries: impl IntoIterator<Item = Entry>) -> Result<(), IndexError> {
        self.note(upto)?;
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            self.add_some(entries.by_ref().take(TOGETHER))?;
            self.forget_surplus()?;
        }
        Ok(())
    }

    /// Notes that it may know of so much, before it does.
    fn note(&self, upto: u64) -> Result<(), IndexError> {
        let text = note_of(upto.max(self.upto));
        durable::write_file(&self.folder, KNOWS, 0o600, text.as_bytes(), durable::Sync::Now)
            .map_err(|source| IndexError::Io { path: self.folder.join(KNOWS), source })
    }

    /// How many lines the history has.
    fn lines(&mut self) -> Result<u64, IndexError> {
        let lines = match self.lines {
            Some(lines) => lines,
            None => self.count(b'h')?,
        };
        self.lines = Some(lines);
        Ok(lines)
    }

    fn count(&self, sort: u8) -> Result<u64, IndexError> {
        let counted = self.tree.scan_prefix([sort]).keys().try_fold(0, |lines, key| key.map(|_| lines + 1));
        counted.map_err(|e| self.store_error(&e))
    }

    fn apply(&mut self, mut batch: sled::Batch, upto: u64, lines: u64) -> Result<(), IndexError> {
        batch.insert(b"u", &upto.to_be_bytes());
        batch.insert(b"n", [upto.to_be_bytes(), lines.to_be_bytes()].concat());
        self.tree.apply_batch(batch).map_err(|e| self.store_error(&e))?;
        (self.upto, self.lines) = (upto, Some(lines));
        Ok(())
    }

    /// Adds what some records tell, all of them or none.
    fn add_some(&mut self, entries: impl Iterator<Item = Entry>) -> Result<(), IndexError> {
        let mut batch = sled::Batch::default();
        let (mut upto, mut lines) = (self.upto, self.lines()?);
        // Two measures may be about the same move: the second sees the first.
        let mut updated = std::collections::BTreeMap::new();
        let mut kept = self.kept_lines()?;
        for Entry { seq, history, measured } in entries {
            if seq <= upto {
                continue;
            }
            upto = seq;
            lines += history.len() as u64;
            for (n, entry) in (0u16..).zip(&history) {
                let at = position(seq, n);
                batch.insert(key(b'h', &[], &at), json(entry));
                if let Some(class) = kept::class_of(entry) {
                    batch.insert(key(class.sort(), &[], &at), &[]);
                    kept[class as usize] += 1;
                }
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
        self.apply(batch, upto, lines)?;
        self.kept.lines = Some(kept);
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

/// The number twice, so that damage shows.
fn note_of(upto: u64) -> String {
    format!("{upto} {upto:x}\n")
}

/// What the note beside the store says; none: it is not there, or damaged.
fn noted(folder: &Path) -> Option<u64> {
    let text = String::from_utf8(read_capped(&folder.join(KNOWS), LONGEST_NOTE).ok()?).ok()?;
    let upto = text.split(' ').next()?.parse().ok()?;
    (text == note_of(upto)).then_some(upto)
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
mod tests;
