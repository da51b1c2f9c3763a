//! The record writer (`RecordWriter`): the journal, the state that its records add up to, and the reports on switches.
//!
//! ```text
//!   engine ── records ──> write ──> journal (durable with the next commit), durable
//!                           └─────> list ──> course of the switch, index of the history
//! ```
//! The records of a tick are written at its end, and listed after all its other effects have started. If a tick makes
//! very many records, parts are written before: a released chain makes records for each of its change objects at once.

use cob_engine::record::{Body, Record};
use cob_engine::switch::SwitchRecord;
use cob_engine::{Durable, Time};
use cob_types::outcome::Course;
use cob_types::{HostName, codec};
use tracing::{error, warn};

use super::COMMIT_WITHIN;
use super::indexing::{Answer, Indexing};
use crate::history;
use crate::journal::index::Query;
use crate::journal::{FileJournal, Journal, JournalError};

/// From this size on, the journal gets a new segment that begins with a snapshot.
const SEGMENT: u64 = 8 << 20;

/// A segment of this size is read quickly.
const SHORT: u64 = 64 << 10;

/// The journal and all data that records feed.
pub(super) struct RecordWriter<J = FileJournal> {
    host: HostName,
    journal: J,
    /// The state that the records add up to.
    durable: Durable,
    /// The index of the history.
    index: Indexing,
    /// The results of the last switches that began in this incarnation.
    course: Course,
    /// When records are committed that no effect waits for.
    commit_at: Time,
    /// A written record must be durable before its effects.
    urgent: bool,
    /// Why a part could not be written.
    failed: Option<JournalError>,
    snapshot_bytes: u64,
}

impl<J: Journal> RecordWriter<J> {
    /// The journal's segment begins with a snapshot of this size; zero: no snapshot.
    pub(super) fn new(host: HostName, journal: J, durable: Durable, index: Indexing, snapshot_bytes: u64) -> Self {
        Self {
            host,
            journal,
            durable,
            index,
            course: Course::default(),
            commit_at: Time::NEVER,
            urgent: false,
            failed: None,
            snapshot_bytes,
        }
    }

    /// The state that the written records add up to.
    pub(super) fn durable(&self) -> &Durable {
        &self.durable
    }

    pub(super) fn course(&self) -> &Course {
        &self.course
    }

    /// When the daemon must call the record writer.
    pub(super) fn due(&self) -> Time {
        self.commit_at.min(self.index.due())
    }

    /// Writes a part of a running tick. The end of the tick reports an error.
    pub(super) fn take_part(&mut self, records: &[Record], now: Time) {
        if self.failed.is_some() {
            return;
        }
        match self.write(records, now) {
            Ok(first) => {
                records.iter().zip(first..).for_each(|(record, seq)| self.note_course(seq, record));
                self.index.add_many(first, self.journal.last_seq(), now);
            }
            Err(error) => self.failed = Some(error),
        }
    }

    /// Writes the last records of a tick, and commits if necessary. Returns the number of the first.
    pub(super) fn end_turn(&mut self, records: &[Record], now: Time) -> Result<u64, JournalError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let first = self.write(records, now)?;
        if self.urgent || now >= self.commit_at {
            self.commit()?;
        }
        Ok(first)
    }

    /// Writes records; returns the number of the first.
    fn write(&mut self, records: &[Record], now: Time) -> Result<u64, JournalError> {
        let first = self.journal.last_seq() + 1;
        for record in records {
            match codec::encode_packed(record) {
                Ok(bytes) => self.journal.append(&bytes)?,
                Err(error) => unreachable!("records are plain values: {error}"),
            };
            self.durable.apply(record);
        }
        self.urgent |= records.iter().any(|record| record.body.must_be_durable());
        if !records.is_empty() {
            self.commit_at = self.commit_at.min(now + COMMIT_WITHIN);
        }
        Ok(first)
    }

    pub(super) fn commit(&mut self) -> Result<(), JournalError> {
        self.journal.commit()?;
        (self.commit_at, self.urgent) = (Time::NEVER, false);
        Ok(())
    }

    /// Lists records for the index.
    pub(super) fn list(&mut self, records: Vec<Record>, first: u64, now: Time) -> Result<(), JournalError> {
        for (record, seq) in records.into_iter().zip(first..) {
            self.note_course(seq, &record);
            self.index.add(seq, record, now);
        }
        if now >= self.index.due() {
            self.commit()?;
            self.index.feed(now);
        }
        Ok(())
    }

    /// Queries the history, including the latest records. The answer comes in another thread.
    pub(super) fn history(&mut self, query: Query, reply: impl FnOnce(Result<Answer, JournalError>) + Send + 'static) {
        match self.commit() {
            Ok(()) => self.index.history(query, Box::new(|answer| reply(Ok(answer)))),
            Err(error) => reply(Err(error)),
        }
    }

    /// Notes the step of a switch.
    fn note_course(&mut self, seq: u64, record: &Record) {
        use Body::{Activated, Begun, Checked, Ended, Ordered, Settled, Switch, SwitchStarted};
        let body = &record.body;
        let drifted = matches!(body, Checked { drift: true, .. });
        let sets_out = matches!(body, Switch(SwitchRecord::Begun { .. }));
        if drifted
            || sets_out
            || matches!(body, SwitchStarted(_) | Activated(_) | Settled(_) | Ordered(_) | Begun { .. } | Ended { .. })
        {
            history::entry(&self.host, seq, record).iter().for_each(|entry| self.course.note(entry));
            // The outcome of the previous switch stays: a canary's part is queried after the host was rolled back.
            self.course.keep(1);
        }
    }

    /// Begins a new segment of the journal if the present segment has become long.
    pub(super) fn rotate_if_long(&mut self, now: Time) -> Result<(), JournalError> {
        if self.journal.segment_bytes() <= SEGMENT.max(2 * self.snapshot_bytes) { Ok(()) } else { self.rotate(now) }
    }

    fn rotate(&mut self, now: Time) -> Result<(), JournalError> {
        let (lamport, generation) = (self.durable.lamport, self.durable.active);
        // Lent, not copied: it may be large.
        let body = Body::Snapshot(Box::new(std::mem::take(&mut self.durable)));
        let record = Record { at: now, lamport, generation, body, by: None };
        let rotated =
            self.journal.rotate_with(&mut |to| codec::write_packed(to, &record).map_err(std::io::Error::other));
        if let Body::Snapshot(durable) = record.body {
            self.durable = *durable;
        }
        match rotated {
            Ok(_) => {
                self.snapshot_bytes = self.journal.segment_bytes();
                Ok(())
            }
            Err(error @ JournalError::TooLong { .. }) => {
                error!(%error, "the snapshot can't be written; the journal continues to grow");
                // Tried again at twice this size.
                self.snapshot_bytes = self.journal.segment_bytes();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Ends the daemon's journal. If that saves reading time, the next incarnation gets a snapshot. While the host is
    /// active, the records stay: an older program, if it is reinstalled, refuses unknown records, but skips unknown
    /// parts of a snapshot.
    pub(super) fn close(mut self, rests: bool, now: Time) {
        // An index with more records than the journal would prevent every further start.
        let committed = self.commit().is_ok();
        let since = self.journal.segment_bytes().saturating_sub(self.snapshot_bytes);
        if rests
            && since > SHORT.max(self.snapshot_bytes / 2)
            && let Err(error) = self.rotate(now)
        {
            warn!(%error, "the next start takes longer: the journal could not be put together");
        }
        self.index.close(committed);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use cob_types::GenerationNumber;

    use super::*;
    use crate::journal::{MemoryDisk, MemoryJournal, What, WriteSnapshot};

    fn host() -> HostName {
        HostName::new("n1").expect("name")
    }

    fn book<J: Journal>(journal: J) -> RecordWriter<J> {
        let index = Indexing::new(host(), PathBuf::new(), 0, None, Time(0));
        RecordWriter::new(host(), journal, Durable::default(), index, 0)
    }

    /// A record that need not be durable before its effects.
    fn record(lamport: u64) -> Record {
        let (generation, body) = (GenerationNumber(1), Body::Settled(GenerationNumber(1)));
        Record { at: Time(lamport), lamport, generation, body, by: None }
    }

    #[test]
    fn the_parts_of_a_turn_are_in_the_journal_in_order() {
        let mut book = book(MemoryJournal::open(MemoryDisk::default()).expect("opens").0);
        book.take_part(&[record(1), record(2)], Time(0));
        book.take_part(&[record(3)], Time(0));
        assert_eq!(book.end_turn(&[record(4)], Time(0)).expect("written"), 4);
        assert_eq!(book.journal.entries_since(1).count(), 0, "no part of it must be durable");
        let urgent = Record { body: Body::SwitchStarted(GenerationNumber(2)), ..record(6) };
        book.take_part(&[record(5), urgent], Time(0));
        book.end_turn(&[], Time(0)).expect("written");
        let written = book
            .journal
            .entries_since(1)
            .map(|entry| codec::decode::<Record>(&entry?.payload, 1 << 20).map_err(|e| unreachable!("{e}")));
        let written = written.collect::<Result<Vec<Record>, JournalError>>().expect("read");
        assert_eq!(written.iter().map(|record| record.lamport).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_part_that_cannot_be_written_fails_its_turn() {
        let disk = MemoryDisk::default();
        let mut book = book(MemoryJournal::open(disk.clone()).expect("opens").0);
        book.end_turn(&[record(1)], Time(0)).expect("taken");
        disk.set_full(true);
        book.commit().expect_err("no room");
        disk.set_full(false);
        book.take_part(&[record(2)], Time(0));
        book.take_part(&[record(3)], Time(0));
        let ended = book.end_turn(&[], Time(0));
        assert!(matches!(ended, Err(JournalError::Stopped { .. })), "{ended:?}");
        assert_eq!(book.durable().lamport, 1, "an unwritten record does not count as written");
    }

    /// Runs incarnations with these numbers of records. Returns the journal's first entry and its number of records.
    fn after(rests: bool, lives: &[u64]) -> (What, usize) {
        let disk = MemoryDisk::default();
        for records in lives {
            let (journal, entries) = MemoryJournal::open(disk.clone()).expect("opens");
            let mut durable = Durable::default();
            for entry in &entries {
                durable.apply(&codec::decode::<Record>(&entry.payload, 1 << 20).expect("a record"));
            }
            let first = entries.first().filter(|first| first.what == What::Snapshot);
            let snapshot_bytes = first.map_or(0, |first| first.payload.len() as u64);
            let index = Indexing::new(host(), PathBuf::new(), 0, None, Time(0));
            let mut book = RecordWriter::new(host(), journal, durable, index, snapshot_bytes);
            for lamport in 0..*records {
                book.end_turn(&[record(lamport)], Time(0)).expect("taken");
            }
            book.commit().expect("committed");
            book.close(rests, Time(0));
        }
        let (_, last) = MemoryJournal::open(disk).expect("opens");
        (last.first().expect("not empty").what, last.len())
    }

    #[test]
    fn a_daemon_leaves_a_snapshot_only_if_it_wrote_much() {
        let bytes = codec::encode_packed(&record(1)).expect("encoded").len() as u64;
        let much = SHORT / bytes;
        assert_eq!(after(true, &[5]), (What::Change, 5));
        assert_eq!(after(true, &[much]), (What::Snapshot, 1));
        assert_eq!(after(true, &[much, 3, 4]), (What::Snapshot, 1 + 3 + 4));
        assert_eq!(after(true, &[much, 3, much]), (What::Snapshot, 1));
        assert_eq!(after(false, &[much, 3]).0, What::Change);
    }

    /// A journal whose segment has grown to this size, and for which every snapshot is too long.
    struct Full(MemoryJournal, u64);

    impl Journal for Full {
        fn append(&mut self, payload: &[u8]) -> Result<u64, JournalError> {
            self.0.append(payload)
        }
        fn commit(&mut self) -> Result<(), JournalError> {
            self.0.commit()
        }
        fn rotate_with(&mut self, snapshot: &mut WriteSnapshot<'_>) -> Result<u64, JournalError> {
            let mut bytes = Vec::new();
            snapshot(&mut bytes).expect("encoded");
            self.1 += 1;
            Err(JournalError::TooLong { len: bytes.len() })
        }
        fn last_seq(&self) -> u64 {
            self.0.last_seq()
        }
        fn segment_bytes(&self) -> u64 {
            self.1
        }
    }

    #[test]
    fn a_too_long_snapshot_is_tried_again_when_the_journal_has_doubled() {
        let long = SEGMENT + 1;
        let mut book = book(Full(MemoryJournal::open(MemoryDisk::default()).expect("opens").0, long));
        book.end_turn(&[record(7)], Time(0)).expect("taken");
        for tried in [1, 1] {
            book.rotate_if_long(Time(1)).expect("the journal goes on");
            assert_eq!(book.journal.1, long + tried);
        }
        assert_eq!(book.durable().lamport, 7, "the borrowed memory is free again");
        book.end_turn(&[record(8)], Time(1)).expect("taken");
        book.journal.1 = 2 * (long + 1) + 1;
        book.rotate_if_long(Time(2)).expect("the journal goes on");
        assert_eq!(book.journal.1, 2 * (long + 1) + 2, "tried again");
    }
}
