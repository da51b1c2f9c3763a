//! The journal in memory, for tests: the same records, the same bytes.
//!
//! A [`MemoryDisk`] outlives the journals that are opened on it, as a disk outlives processes. A test can make it fail
//! commits and lose uncommitted data.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::error::JournalError;
use super::record::{self, End, Entry, MAX_PAYLOAD, What};
use super::{Journal, WriteSnapshot};

/// The data that survives the process.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    /// The number of the first record, and the bytes, of each segment.
    segments: Vec<(u64, Vec<u8>)>,
    full: bool,
}

impl MemoryDisk {
    /// From now on commits fail, or succeed again.
    pub fn set_full(&self, full: bool) {
        self.get().full = full;
    }

    fn get(&self) -> MutexGuard<'_, Disk> {
        // No code panics while it holds the lock; a poisoned disk would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A journal on a [`MemoryDisk`]. Dropping it without a commit is a crash.
#[derive(Debug)]
pub struct MemoryJournal {
    disk: MemoryDisk,
    next: u64,
    uncommitted: Vec<u8>,
    group: u32,
    stopped: Option<String>,
}

impl MemoryJournal {
    /// Opens the content of the disk: the last snapshot and all records after it.
    ///
    /// # Errors
    /// [`JournalError::Damaged`], which would be a fault of this module: a memory disk has no torn writes.
    pub fn open(disk: MemoryDisk) -> Result<(Self, Vec<Entry>), JournalError> {
        let (first, bytes) = {
            let mut disk = disk.get();
            if disk.segments.is_empty() {
                disk.segments.push((1, Vec::new()));
            }
            disk.segments.last().cloned().expect("there is one")
        };
        let entries = read(first, bytes)?;
        let next = first + entries.len() as u64;
        Ok((Self { disk, next, uncommitted: Vec::new(), group: 0, stopped: None }, entries))
    }

    fn usable(&self) -> Result<(), JournalError> {
        match &self.stopped {
            Some(because) => Err(JournalError::Stopped { because: because.clone() }),
            None => Ok(()),
        }
    }
}

impl Journal for MemoryJournal {
    fn append(&mut self, payload: &[u8]) -> Result<u64, JournalError> {
        self.usable()?;
        if payload.len() > MAX_PAYLOAD {
            return Err(JournalError::TooLong { len: payload.len() });
        }
        record::encode(&mut self.uncommitted, self.next, What::Change, self.group, payload);
        self.next += 1;
        self.group += 1;
        Ok(self.next - 1)
    }

    fn commit(&mut self) -> Result<(), JournalError> {
        self.usable()?;
        let mut disk = self.disk.get();
        if disk.full && !self.uncommitted.is_empty() {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            let error = JournalError::io("memory", "committing")(source);
            self.stopped = Some(error.to_string());
            return Err(error);
        }
        let (_, segment) = disk.segments.last_mut().expect("opened with one");
        segment.append(&mut self.uncommitted);
        self.group = 0;
        Ok(())
    }

    fn rotate_with(&mut self, snapshot: &mut WriteSnapshot<'_>) -> Result<u64, JournalError> {
        self.commit()?;
        let seq = self.next;
        let (mut payload, mut bytes) = (Vec::new(), Vec::new());
        snapshot(&mut payload).map_err(JournalError::io("memory", "writing a snapshot"))?;
        if payload.len() > MAX_PAYLOAD {
            return Err(JournalError::TooLong { len: payload.len() });
        }
        record::encode(&mut bytes, seq, What::Snapshot, 0, &payload);
        self.disk.get().segments.push((seq, bytes));
        self.next += 1;
        Ok(seq)
    }

    fn last_seq(&self) -> u64 {
        self.next - 1
    }

    fn segment_bytes(&self) -> u64 {
        let disk = self.disk.get();
        (disk.segments.last().map_or(0, |(_, bytes)| bytes.len()) + self.uncommitted.len()) as u64
    }
}

impl MemoryJournal {
    /// The committed records from `seq` on, oldest first, including snapshots.
    pub fn entries_since(&self, seq: u64) -> Box<dyn Iterator<Item = Result<Entry, JournalError>> + '_> {
        let segments = self.disk.get().segments.clone();
        let entries = segments.into_iter().flat_map(|(first, bytes)| match read(first, bytes) {
            Ok(entries) => entries.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        });
        Box::new(entries.filter(move |e| e.as_ref().map_or(true, |e| e.seq >= seq)))
    }
}

fn read(first: u64, bytes: Vec<u8>) -> Result<Vec<Entry>, JournalError> {
    let scan = record::scan(&Bytes::from(bytes), first);
    match scan.end {
        End::Clean => Ok(scan.entries),
        End::Torn(what) | End::Damaged(what) => {
            Err(JournalError::Damaged { file: "memory".into(), offset: scan.good as u64, what })
        }
        End::Newer(format) => Err(JournalError::Newer { file: "memory".into(), offset: scan.good as u64, format }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_journal_drops_uncommitted_records_and_starts_at_a_snapshot() {
        let disk = MemoryDisk::default();
        let (mut journal, entries) = MemoryJournal::open(disk.clone()).expect("opens");
        assert!(entries.is_empty());
        journal.append(b"one").expect("taken");
        journal.commit().expect("committed");
        assert_eq!(journal.rotate(b"snapshot").expect("rotated"), 2);
        journal.append(b"two").expect("taken");
        journal.commit().expect("committed");
        journal.append(b"lost").expect("taken");
        drop(journal);
        let (journal, entries) = MemoryJournal::open(disk).expect("opens");
        let found: Vec<_> = entries.iter().map(|e| (e.seq, e.what, e.payload.as_ref())).collect();
        assert_eq!(found, [(2, What::Snapshot, b"snapshot".as_slice()), (3, What::Change, b"two")]);
        assert_eq!(journal.entries_since(0).count(), 3);
        assert_eq!(journal.last_seq(), 3);
    }

    #[test]
    fn a_full_disk_stops_the_memory_journal() {
        let disk = MemoryDisk::default();
        let (mut journal, _) = MemoryJournal::open(disk.clone()).expect("opens");
        disk.set_full(true);
        journal.append(b"one").expect("taken");
        assert!(matches!(journal.commit(), Err(JournalError::Io { .. })));
        disk.set_full(false);
        assert!(matches!(journal.commit(), Err(JournalError::Stopped { .. })));
        assert!(MemoryJournal::open(disk).expect("opens").1.is_empty());
    }
}
