//! The index: the history in a form for fast queries, derived from the journal.
//!
//! The daemon adds the content of its records after each commit, and queries the index for `cobctl history` and for the
//! reasons in `explain`. The store is `sled`, which is fast, but not safe against power failures and
//! not reliable after them. So the index is never the source of truth: an unreadable index is moved aside, and the
//! daemon feeds the journal's kept records again.
//!
//! ```text
//!   h SEQ N               a line of the history, JSON
//!   c COB 0 SEQ N         points to the line, for a change object
//!   o SEQ N               points to the line, of an operator's order
//!   s SEQ N               points to the line, of a switch
//!   u                     the last record in the index
//!   n                     that number again, and the number of lines
//! ```
//!
//! Opening the store takes longer than the rest of a small daemon's start, and the start needs no history. It only
//! needs the last record that the index may contain, and a file beside the store holds that number.
//!
//! Rules: a record is added whole or not at all, and once: adding it again has no effect. Numbers in keys are
//! big-endian, so that byte order is order in time. Only the newest lines of the history are kept, because the store
//! needs memory for each line as long as the daemon runs. Orders and switches are counted separately: no number of
//! messages from other hosts displaces them.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cob_types::CobId;
use cob_types::history::HistoryEntry;
use serde::Serialize;
use tracing::warn;

use crate::durable;
use crate::run::read_capped;

mod kept;

/// Small, so that an idle daemon needs little memory; a larger cache made additions no faster.
const CACHE_BYTES: u64 = 1 << 18;
/// The store holds several segments in memory.
const SEGMENT_BYTES: usize = 64 << 10;
/// How many records are added in a batch: before its end the store frees no replaced pages.
const TOGETHER: usize = 64;
/// How many lines of the history are kept: some 120 MB on disk, and 25 MB in memory.
const MOST_LINES: u64 = 100_000;
/// How many of the oldest lines are deleted in a batch.
const FORGET_BATCH: usize = 1000;
/// How many orders are kept, and how many lines of switches, besides all others.
const MOST_KEPT: u64 = 10_000;
/// How long another process may take to close the store.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// The suffix under which an unreadable index is moved aside, beside the index; only the newest is kept.
const ASIDE_SUFFIX: &str = ".damaged";
/// The file in its folder with the last record that the index may contain.
const KNOWS: &str = "knows";
/// The longest number, twice.
const LONGEST_NOTE: usize = 40;

/// The index of a host.
#[derive(Debug)]
pub struct Index {
    folder: PathBuf,
    tree: sled::Db,
    upto: u64,
    /// The number of lines; `None`: not counted yet.
    lines: Option<u64>,
    /// How many lines are kept beside orders and switches.
    most: u64,
    /// How many orders are kept, and how many lines of switches.
    most_kept: u64,
    kept: kept::LineCounts,
}

/// The content of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexEntry {
    /// The record's number.
    pub seq: u64,
    /// The lines for the history.
    pub history: Vec<HistoryEntry>,
}

/// A query for a part of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Only entries from this record on.
    pub since: u64,
    /// Only entries of this change object.
    pub cob: Option<CobId>,
    /// The most entries.
    pub limit: usize,
    /// If there are more entries, return the newest instead of the oldest. The order is oldest first in both cases.
    pub newest: bool,
}

/// The reason why the index can't be used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The store failed. The daemon can continue without the index, and open it again.
    #[error("the index in {}: {what}", .folder.display())]
    Store {
        /// The folder.
        folder: PathBuf,
        /// The store's error.
        what: String,
    },
    /// It contains records that the journal lacks: the journal has lost durable records.
    #[error("the index in {} knows record {knows}", .folder.display())]
    Ahead {
        /// The folder.
        folder: PathBuf,
        /// The last record in the index.
        knows: u64,
    },
    /// The folder could not be moved, made or read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Index {
    /// The last record that the index may contain, beside a journal whose last record is `last_seq`. The store is
    /// opened only if that number is not recorded, or is not plausible.
    ///
    /// # Errors
    /// [`IndexError::Ahead`] if it contains more than the journal: the index gets only records that are durable in the
    /// journal. Other errors if the folder can't be used at all.
    pub fn known_beside(folder: &Path, last_seq: u64) -> Result<u64, IndexError> {
        match noted(folder) {
            Some(noted) if noted <= last_seq => Ok(noted),
            Some(knows) => Err(IndexError::Ahead { folder: folder.to_owned(), knows }),
            None if !folder.exists() => Ok(0),
            None => Ok(Self::open_beside(folder, last_seq)?.upto),
        }
    }

    /// Opens the index beside a journal whose last record is `last_seq`. An unreadable index is moved aside.
    ///
    /// # Errors
    /// As for [`Index::known_beside`].
    pub fn open_beside(folder: &Path, last_seq: u64) -> Result<Self, IndexError> {
        let index = Self::open(folder)?;
        if index.upto > last_seq {
            // A version without the number file has fed it: record the number, so that the next start sees it.
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

    /// Opens the store as soon as its last user has closed it.
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
        // sled panics on some damaged files instead of returning an error.
        let opened = catch_unwind(AssertUnwindSafe(|| -> sled::Result<(sled::Db, [Option<sled::IVec>; 2])> {
            let tree = config.open()?;
            let marks = [tree.get(b"u")?, tree.get(b"n")?];
            Ok((tree, marks))
        }));
        match opened {
            Ok(Ok((tree, [upto, counted]))) => {
                let upto = upto.map_or(Ok([0; 8]), |v| <[u8; 8]>::try_from(v.as_ref()));
                let upto = upto.map_err(|_| Fault::Damaged("its end mark is no number".to_owned()))?;
                // The previous version adds lines without counting.
                let lines = counted.as_deref().and_then(|v| v.strip_prefix(&upto)?.try_into().ok());
                let (upto, lines) = (u64::from_be_bytes(upto), lines.map(u64::from_be_bytes));
                let kept = kept::LineCounts::default();
                Ok(Self { folder: folder.to_owned(), tree, upto, lines, most: MOST_LINES, most_kept: MOST_KEPT, kept })
            }
            Ok(Err(sled::Error::Io(source))) if !is_about_content(&source) => Err(Fault::Refused(source)),
            Ok(Err(error)) => Err(Fault::Damaged(error.to_string())),
            Err(_) => Err(Fault::Damaged("the store failed because of it".to_owned())),
        }
    }

    /// The last record that was added.
    #[must_use]
    pub fn upto(&self) -> u64 {
        self.upto
    }

    /// Adds the content of records up to `upto`, each whole or not at all, in order. Records that the index contains
    /// already are skipped.
    ///
    /// # Errors
    /// [`IndexError`]; the records from some record on were not added then.
    pub fn add(&mut self, upto: u64, entries: impl IntoIterator<Item = IndexEntry>) -> Result<(), IndexError> {
        self.note(upto)?;
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            self.add_some(entries.by_ref().take(TOGETHER))?;
            self.forget_surplus()?;
        }
        Ok(())
    }

    /// Records that the index may contain this number, before it does.
    fn note(&self, upto: u64) -> Result<(), IndexError> {
        let text = note_of(upto.max(self.upto));
        durable::write_file(&self.folder, KNOWS, 0o600, text.as_bytes(), durable::Sync::Now)
            .map_err(|source| IndexError::Io { path: self.folder.join(KNOWS), source })
    }

    /// The number of lines in the history.
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

    /// Adds the content of some records, all or none.
    fn add_some(&mut self, entries: impl Iterator<Item = IndexEntry>) -> Result<(), IndexError> {
        let mut batch = sled::Batch::default();
        let (mut upto, mut lines) = (self.upto, self.lines()?);
        let mut kept = self.kept_lines()?;
        for IndexEntry { seq, history } in entries {
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
        }
        if upto == self.upto {
            return Ok(());
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

    /// Flushes all data to the system. Without it a crash loses the last additions, which are fed again.
    ///
    /// # Errors
    /// [`IndexError::Store`].
    pub fn flush(&self) -> Result<(), IndexError> {
        self.tree.flush().map(|_| ()).map_err(|e| self.store_error(&e))
    }

    fn store_error(&self, error: &dyn std::fmt::Display) -> IndexError {
        IndexError::Store { folder: self.folder.clone(), what: error.to_string() }
    }
}

/// The reason why sled did not open.
enum Fault {
    /// The files are damaged: start anew.
    Damaged(String),
    /// The system refused: starting anew would not help.
    Refused(io::Error),
}

/// Whether the store's own lock is held. The journal's lock excludes other daemons before; but a child process that was
/// just forked holds a copy until it has executed its program.
fn is_locked(error: &io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

/// Whether an I/O error means damage.
fn is_about_content(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::NotADirectory
    )
}

/// Removes unfinished files of a program that was killed while it opened the store: sled would consider these files
/// whole, and the index damaged. Snapshots lose the ending `.generating` when they are whole, and `conf` is whole
/// before `db` exists.
fn clear_unfinished(folder: &Path) -> io::Result<()> {
    let files = match fs::read_dir(folder) {
        Ok(files) => files,
        // The folder does not exist yet, or sled will report the error.
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

/// The number twice, so that damage is detected.
fn note_of(upto: u64) -> String {
    format!("{upto} {upto:x}\n")
}

/// The number in the file beside the store; `None`: the file is missing or damaged.
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

/// A key: `sort`, each part followed by a zero byte (names contain none), and `end`.
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
