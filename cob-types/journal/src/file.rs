//! The journal in files: a sequence of segments in its own folder.
//!
//! A segment is named after its first record and starts with a snapshot (the very first segment is empty). It appears
//! whole, by renaming, so the newest segment alone is enough for recovery; older segments are kept for the history, as
//! many as the caller wants.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tracing::warn;

use super::error::JournalError;
use super::lock::FolderLock;
use super::record::{self, End, Entry, MAX_PAYLOAD, Scan, TooLong, What};
use super::{Journal, WriteSnapshot};
use crate::durable::{self, Sync, TEMP_SUFFIX};

/// The file that names the newest segment, so that its loss is noticed.
const NEWEST: &str = "newest";
/// The ending of a segment's name.
const SUFFIX: &str = ".journal";
/// The most bytes between two commits: a payload of the largest size, and more.
const MAX_UNCOMMITTED: usize = MAX_PAYLOAD + (64 << 20);
/// The most bytes held in memory; further bytes are written to the file early, but are as little durable.
const MAX_HELD: usize = 256 << 10;

/// How many segments older than the newest are kept: this many segments, and more as long as all of them together have
/// at most this many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// The least number of segments.
    pub segments: usize,
    /// Bytes.
    pub bytes: u64,
}

impl Keep {
    /// The setting of daemons. On a busy host each segment starts with a long snapshot, and messages of other hosts
    /// fill segment after segment: so the size decides, not the number.
    pub const FOR_HISTORY: Self = Self { segments: 1, bytes: 64 << 20 };
}

/// A journal in a folder.
#[derive(Debug)]
pub struct FileJournal {
    folder: PathBuf,
    keep: Keep,
    /// The number of the current segment's first record, which is its name.
    segment: u64,
    file: File,
    /// The durable bytes of the current segment.
    committed: u64,
    /// The bytes after these that are in the file, but not durable before the next commit.
    written: u64,
    /// The number of the next record.
    next: u64,
    /// Records that are not in the file yet.
    held: Vec<u8>,
    /// Records since the last commit.
    group: u32,
    /// The bytes after the last commit. They are cut off only before the first write: the caller of `open` may find
    /// that they can't be a torn end.
    torn: Option<TornTail>,
    stopped: Option<Stopped>,
    _lock: FolderLock,
}

/// Why a journal accepts no records.
#[derive(Debug)]
struct Stopped {
    because: String,
    /// Whether the system refused bytes, and never reported that bytes it had taken did not reach the disk.
    refused: bool,
}

/// An open journal, and its content.
#[derive(Debug)]
pub struct Opened {
    /// The journal.
    pub journal: FileJournal,
    /// The last snapshot, if any, and all records after it.
    pub entries: Vec<Entry>,
    /// The torn end, which is cut off before the first record is written.
    pub torn: Option<TornTail>,
}

/// An unfinished commit: the last daemon ended in the middle of it, so no action relied on it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub file: PathBuf,
    /// The offset of the cut.
    pub offset: u64,
    /// The bytes cut off.
    pub bytes: u64,
    /// The content at the cut.
    pub what: String,
}

/// A journal's folder, locked for this process but not read yet.
#[derive(Debug)]
pub struct LockedFolder {
    folder: PathBuf,
    lock: FolderLock,
}

impl LockedFolder {
    /// Opens the journal, or starts it. Old segments stay for the history as `keep` says. `in_use` is evidence that the
    /// folder was in use: then a journal without any record is an error. A first start that ended before its first
    /// record leaves no other data behind.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if a committed record can't be read, [`JournalError::Lost`] if the newest segment, or
    /// all of them, are gone.
    pub fn open(self, keep: Keep, in_use: Option<&Path>) -> Result<Opened, JournalError> {
        let Self { folder, lock } = self;
        let refuse = |file: PathBuf, what: &str| {
            in_use.map_or(Ok(()), |trace| {
                let because = format!("there is {}", trace.display());
                Err(JournalError::Lost { file, what: what.to_owned(), because })
            })
        };
        remove_temps(&folder)?;
        let all = segments(&folder)?;
        refuse_older(&folder, &all)?;
        let segment = match all.last() {
            Some(newest) => *newest,
            None => {
                refuse(folder.join(name(1)), "this file is missing")?;
                durable::write_file(&folder, &name(1), 0o600, &[], Sync::Now)
                    .map_err(JournalError::io(&folder, "beginning the journal"))?;
                1
            }
        };
        note_newest(&folder, segment)?;
        let path = folder.join(name(segment));
        let bytes = read(&path)?;
        let length = bytes.len() as u64;
        let scan = record::scan(&bytes, segment);
        let torn = judge(&path, segment, &scan, length)?;
        if scan.entries.is_empty() {
            refuse(path.clone(), "it holds no record")?;
        }
        let mut file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(JournalError::io(&path, "opening"))?;
        let committed = scan.good as u64;
        file.seek(SeekFrom::Start(committed)).map_err(JournalError::io(&path, "seeking"))?;
        let next = segment + scan.entries.len() as u64;
        let journal = FileJournal {
            folder,
            keep,
            segment,
            file,
            committed,
            written: 0,
            next,
            held: Vec::new(),
            group: 0,
            torn: torn.clone(),
            stopped: None,
            _lock: lock,
        };
        journal.prune();
        Ok(Opened { journal, entries: scan.entries, torn })
    }
}

impl FileJournal {
    /// Locks the folder for this process.
    ///
    /// # Errors
    /// [`JournalError::InUse`] if another process has locked it.
    pub fn hold(folder: &Path) -> Result<LockedFolder, JournalError> {
        Ok(LockedFolder { folder: folder.to_owned(), lock: FolderLock::take(folder)? })
    }

    /// [Locks](Self::hold) the folder and [opens](LockedFolder::open) the journal, without evidence that it was in use.
    ///
    /// # Errors
    /// As for both functions.
    pub fn open(folder: &Path, keep: Keep) -> Result<Opened, JournalError> {
        Self::hold(folder)?.open(keep, None)
    }

    /// The error if there is evidence of records after the last record.
    #[must_use]
    pub fn lost(&self, because: String) -> JournalError {
        let what = format!("it ends with record {}", self.last_seq());
        JournalError::Lost { file: self.path(), what, because }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(name(self.segment))
    }

    fn usable(&self) -> Result<(), JournalError> {
        match &self.stopped {
            Some(Stopped { because, .. }) => Err(JournalError::Stopped { because: because.clone() }),
            None => Ok(()),
        }
    }

    /// Stops the journal: the content of the disk is no longer known.
    fn stop(&mut self, error: JournalError) -> JournalError {
        self.stopped = Some(Stopped { because: error.to_string(), refused: false });
        error
    }

    /// Continues after a failed commit, without the records of that commit. Bytes that the system refused are cut off.
    /// After a failed `fdatasync` the content of the segment is not known: then a new segment starts, with the output
    /// of `snapshot`, which must have the effects of all committed records and of no other record.
    ///
    /// # Errors
    /// [`JournalError::Io`] if the disk still fails; the journal then accepts no records as before.
    pub fn resume(&mut self, snapshot: &mut WriteSnapshot<'_>) -> Result<(), JournalError> {
        let Some(Stopped { refused, .. }) = self.stopped else { return Ok(()) };
        self.file
            .set_len(self.committed)
            .and_then(|()| self.file.seek(SeekFrom::Start(self.committed)))
            .and_then(|_| self.file.sync_all())
            .map_err(JournalError::io(self.path(), "cutting off the failed commit"))?;
        // Without the records of the failed commit, the next record takes the first of their numbers.
        self.next -= u64::from(std::mem::take(&mut self.group));
        self.held.clear();
        self.written = 0;
        if !refused {
            // The number is free: no record has it, in no segment.
            self.begin_segment(snapshot)?;
        }
        self.stopped = None;
        Ok(())
    }

    /// Cuts off an unfinished commit.
    fn cut_off(&mut self) -> Result<(), JournalError> {
        let Some(torn) = &self.torn else { return Ok(()) };
        self.file
            .set_len(torn.offset)
            .and_then(|()| self.file.sync_all())
            .map_err(JournalError::io(&torn.file, "cutting off the unfinished commit"))?;
        warn!(file = %torn.file.display(), offset = torn.offset, bytes = torn.bytes, what = torn.what,
            "an unfinished commit at the journal's end was cut off");
        self.torn = None;
        Ok(())
    }

    /// Writes the held records to the file.
    fn write_held(&mut self, doing: &'static str) -> Result<(), JournalError> {
        if let Err(source) = self.file.write_all(&self.held) {
            let error = JournalError::io(self.path(), doing)(source);
            self.stopped = Some(Stopped { because: error.to_string(), refused: true });
            return Err(error);
        }
        self.written += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    /// Starts a new segment with the output of `snapshot`.
    fn begin_segment(&mut self, snapshot: &mut WriteSnapshot<'_>) -> Result<u64, JournalError> {
        // The new segment would have the name of an empty current segment: skip a number.
        let seq = if self.next == self.segment { self.next + 1 } else { self.next };
        let path = self.folder.join(name(seq));
        let mut length = 0;
        let begun = durable::write_file_with(&self.folder, &name(seq), 0o600, Sync::Now, |file| {
            length = record::write(file, seq, What::Snapshot, snapshot)?;
            Ok(())
        });
        if let Err(source) = begun {
            let error = match source.downcast::<TooLong>() {
                Ok(TooLong(len)) => JournalError::TooLong { len },
                Err(source) => JournalError::io(&path, "beginning a new segment")(source),
            };
            // If the new segment exists, the next daemon would start with it: so no record may follow in the old
            // segment.
            return Err(if path.exists() { self.stop(error) } else { error });
        }
        let opened = OpenOptions::new().read(true).append(true).open(&path);
        self.file = match opened {
            Ok(file) => file,
            Err(source) => {
                let error = JournalError::io(&path, "opening the new segment")(source);
                return Err(self.stop(error));
            }
        };
        self.segment = seq;
        self.next = seq + 1;
        self.committed = length;
        if let Err(error) = note_newest(&self.folder, seq) {
            // The older name is still valid: the journal had at least that segment.
            warn!(%error, "the name of the newest journal segment could not be noted");
        }
        self.prune();
        Ok(seq)
    }

    /// Deletes old segments beyond `keep`. A failure costs space, but no data.
    fn prune(&self) {
        let Ok(all) = segments(&self.folder) else { return };
        let mut bytes = 0;
        for (newer, segment) in all.into_iter().rev().filter(|s| *s < self.segment).enumerate() {
            let path = self.folder.join(name(segment));
            bytes += fs::metadata(&path).map_or(0, |file| file.len());
            if newer < self.keep.segments || bytes <= self.keep.bytes {
                continue;
            }
            if let Err(error) = fs::remove_file(&path) {
                warn!(file = %path.display(), %error, "an old journal segment could not be deleted");
            }
        }
    }
}

impl Journal for FileJournal {
    fn append(&mut self, payload: &[u8]) -> Result<u64, JournalError> {
        self.usable()?;
        if payload.len() > MAX_PAYLOAD {
            return Err(JournalError::TooLong { len: payload.len() });
        }
        let len = usize::try_from(self.written).unwrap_or(usize::MAX).saturating_add(self.held.len() + payload.len());
        if len > MAX_UNCOMMITTED {
            return Err(JournalError::Uncommitted { len, max: MAX_UNCOMMITTED });
        }
        self.cut_off()?;
        let seq = self.next;
        record::encode(&mut self.held, seq, What::Change, self.group, payload);
        self.next += 1;
        self.group += 1;
        if self.held.len() >= MAX_HELD {
            self.write_held("writing")?;
        }
        Ok(seq)
    }

    fn commit(&mut self) -> Result<(), JournalError> {
        self.usable()?;
        if self.group == 0 {
            return Ok(());
        }
        self.write_held("committing")?;
        if let Err(source) = self.file.sync_data() {
            let error = JournalError::io(self.path(), "committing")(source);
            return Err(self.stop(error));
        }
        self.committed += std::mem::take(&mut self.written);
        // Release the memory of a burst; the usual commit has a few hundred bytes.
        self.held.shrink_to(64 << 10);
        self.group = 0;
        Ok(())
    }

    fn rotate_with(&mut self, snapshot: &mut WriteSnapshot<'_>) -> Result<u64, JournalError> {
        self.cut_off()?;
        self.commit()?;
        self.begin_segment(snapshot)
    }

    fn last_seq(&self) -> u64 {
        self.next - 1
    }

    fn segment_bytes(&self) -> u64 {
        self.committed + self.written + self.held.len() as u64
    }
}

/// Decides whether the scanned segment can be used, and which end of it must be cut off.
fn judge(path: &Path, segment: u64, scan: &Scan, length: u64) -> Result<Option<TornTail>, JournalError> {
    if let Some(error) = fault(path, scan).filter(|_| !matches!(scan.end, End::Torn(_))) {
        return Err(error);
    }
    // Every segment but the very first appeared with a durable snapshot at its start.
    if segment != 1 && scan.entries.first().is_none_or(|e| e.what != What::Snapshot) {
        let what = "the snapshot that the segment begins with is damaged".to_owned();
        return Err(JournalError::Damaged { file: path.to_owned(), offset: 0, what });
    }
    Ok(match &scan.end {
        End::Torn(what) => Some(TornTail {
            file: path.to_owned(),
            offset: scan.good as u64,
            bytes: length - scan.good as u64,
            what: what.clone(),
        }),
        End::Clean | End::Damaged(_) | End::Newer(_) => None,
    })
}

/// The error at the end of the scan; a torn end in an old segment is an error, too.
fn fault(path: &Path, scan: &Scan) -> Option<JournalError> {
    let (file, offset) = (path.to_owned(), scan.good as u64);
    match &scan.end {
        End::Clean => None,
        End::Torn(what) | End::Damaged(what) => Some(JournalError::Damaged { file, offset, what: what.clone() }),
        End::Newer(format) => Some(JournalError::Newer { file, offset, format: *format }),
    }
}

/// Refuses to continue with a segment older than the recorded newest segment.
fn refuse_older(folder: &Path, all: &[u64]) -> Result<(), JournalError> {
    let path = folder.join(NEWEST);
    let noted = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse::<u64>().ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(JournalError::io(&path, "reading")(error)),
    };
    match noted {
        Some(noted) if all.last().is_none_or(|newest| *newest < noted) => Err(JournalError::Lost {
            file: folder.join(name(noted)),
            what: "this file is missing".to_owned(),
            because: format!("{} names it as the newest", path.display()),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Records the name of the newest segment, once the segment is durable.
fn note_newest(folder: &Path, segment: u64) -> Result<(), JournalError> {
    durable::write_file(folder, NEWEST, 0o600, format!("{segment}\n").as_bytes(), Sync::Now)
        .map_err(JournalError::io(folder.join(NEWEST), "noting the newest segment"))
}

pub(super) fn name(segment: u64) -> String {
    format!("{segment:020}{SUFFIX}")
}

fn read(path: &Path) -> Result<Bytes, JournalError> {
    fs::read(path).map(Bytes::from).map_err(JournalError::io(path, "reading"))
}

/// The first numbers of all segments, in order.
pub(super) fn segments(folder: &Path) -> Result<Vec<u64>, JournalError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(JournalError::io(folder, "listing"))? {
        let entry = entry.map_err(JournalError::io(folder, "listing"))?;
        let name = entry.file_name();
        all.extend(name.to_str().and_then(|n| n.strip_suffix(SUFFIX)).and_then(|n| n.parse::<u64>().ok()));
    }
    all.sort_unstable();
    Ok(all)
}

fn remove_temps(folder: &Path) -> Result<(), JournalError> {
    for entry in fs::read_dir(folder).map_err(JournalError::io(folder, "listing"))? {
        let path = entry.map_err(JournalError::io(folder, "listing"))?.path();
        if path.to_str().is_some_and(|p| p.ends_with(TEMP_SUFFIX)) {
            fs::remove_file(&path).map_err(JournalError::io(&path, "deleting an unfinished file"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "file_test.rs"]
mod tests;
