//! Reads the kept records of a journal's folder one by one, while the journal is written.
//!
//! For readers that catch up with committed records: only one record is in memory at a time.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::error::JournalError;
use super::file::{name, segments};
use super::record::{self, Entry};

/// Committed records in order. The sequence ends at an incomplete record, or after the last requested record.
#[derive(Debug)]
pub struct Past {
    folder: PathBuf,
    /// The segments still to be read, the next segment last.
    left: Vec<u64>,
    reader: Option<BufReader<File>>,
    from: u64,
    upto: u64,
}

impl Past {
    /// The kept records from `from` to `upto`, which must be committed.
    ///
    /// # Errors
    /// [`JournalError::Io`] if the folder can't be listed.
    pub fn read(folder: &Path, from: u64, upto: u64) -> Result<Self, JournalError> {
        let mut left = segments(folder)?;
        // The last segment that starts at or before `from`, and all later segments.
        let begin = left.iter().rposition(|first| *first <= from).unwrap_or(0);
        left.drain(..begin);
        left.reverse();
        Ok(Self { folder: folder.to_owned(), left, reader: None, from, upto })
    }

    /// The next record of the current segment; `None`: it has no more records.
    fn next_here(&mut self) -> io::Result<Option<Entry>> {
        match &mut self.reader {
            Some(reader) => record::next(reader),
            None => Ok(None),
        }
    }
}

impl Iterator for Past {
    type Item = Result<Entry, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_here() {
                Ok(Some(entry)) if entry.seq > self.upto => return None,
                Ok(Some(entry)) if entry.seq < self.from => {}
                Ok(Some(entry)) => return Some(Ok(entry)),
                Ok(None) => {
                    let segment = self.left.pop().filter(|first| *first <= self.upto)?;
                    let path = self.folder.join(name(segment));
                    match File::open(&path) {
                        Ok(file) => self.reader = Some(BufReader::with_capacity(64 << 10, file)),
                        // Deleted in the meantime, like all old segments.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => self.reader = None,
                        Err(source) => return Some(Err(JournalError::io(&path, "opening")(source))),
                    }
                }
                Err(source) => {
                    self.reader = None;
                    return Some(Err(JournalError::io(&self.folder, "reading a segment")(source)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileJournal, Journal as _, Keep};

    #[test]
    fn a_reader_of_past_records_sees_what_the_journal_sees() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut journal = FileJournal::open(folder.path(), Keep { segments: 8, bytes: 0 }).expect("opens").journal;
        for n in 0..300_u32 {
            journal.append(&vec![n as u8; (n * 7 % 501) as usize]).expect("taken");
            if n % 3 == 0 {
                journal.commit().expect("committed");
            }
            if n % 100 == 99 {
                journal.rotate(b"a snapshot").expect("rotated");
            }
        }
        journal.append(b"not committed").expect("taken");
        let last = journal.last_seq() - 1;
        for from in [0, 1, 50, 101, 102, 250, last, last + 1] {
            let read: Result<Vec<_>, _> = Past::read(folder.path(), from, last).expect("listed").collect();
            let own: Result<Vec<_>, _> = journal.entries_since(from).collect();
            assert_eq!(read.expect("read"), own.expect("read"), "from {from}");
        }
        let some: Vec<u64> =
            Past::read(folder.path(), 99, 103).expect("listed").map(|e| e.expect("read").seq).collect();
        assert_eq!(some, [99, 100, 101, 102, 103]);
        let file = folder.path().join(name(*segments(folder.path()).expect("listed").last().expect("one")));
        let length = file.metadata().expect("there").len();
        File::options().write(true).open(&file).and_then(|f| f.set_len(length - 1)).expect("cut");
        assert!(Past::read(folder.path(), 0, last).expect("listed").all(|e| e.is_ok()), "a torn end is the end");
    }
}
