//! The journal of a daemon: its source of truth, a sequence of durable records in a folder of its own.
//!
//! The daemon of a host (`cobd`) and the store of a hub (`cob-hub-store`) keep their state in it. The owner appends
//! records and commits before it answers, sends or starts anything; after a start it builds its state from the records
//! that [`FileJournal::open`] returns. Only the owner interprets the payloads.
//!
//! ```text
//!   append ... append ── commit ──> SEGMENT: record record record …      (one write, one fdatasync)
//!   rotate(snapshot) ─────────────> NEW SEGMENT: snapshot                (temp, fsync, rename, fsync)
//!   open ─────────────────────────> the newest segment: snapshot + all records after it
//! ```
//!
//! Rules: a committed record is never lost and never changed; only a torn end is cut off; damage at any other place is
//! a clear error, because an owner without a record may break a promise. After a failed commit the journal accepts no
//! more records, until the owner starts again or calls [`FileJournal::resume`].
//!
//! [`durable`] has the files that are complete or absent; [`testing`] has a journal in memory.

pub mod durable;
mod error;
mod file;
mod lock;
mod past;
mod record;
pub mod testing;

pub use error::JournalError;
pub use file::{FileJournal, Keep, LockedFolder, Opened, TornTail};
pub use lock::FolderLock;
pub use past::Past;
pub use record::{Entry, MAX_PAYLOAD, What};

/// Writes a snapshot.
pub type WriteSnapshot<'a> = dyn FnMut(&mut dyn std::io::Write) -> std::io::Result<()> + 'a;

/// A journal as its owner uses it; implemented by [`FileJournal`], and by [`testing::MemoryJournal`].
pub trait Journal {
    /// Appends a record; it becomes durable with the next [`Journal::commit`].
    ///
    /// # Errors
    /// [`JournalError::TooLong`] for a payload beyond [`MAX_PAYLOAD`]; [`JournalError::Stopped`] after a failed commit.
    fn append(&mut self, payload: &[u8]) -> Result<u64, JournalError>;

    /// Makes all appended records durable.
    ///
    /// # Errors
    /// [`JournalError::Io`] if the disk reports an error, and [`JournalError::Stopped`] ever after.
    fn commit(&mut self) -> Result<(), JournalError>;

    /// Commits, then starts a new segment with the output of `snapshot`: all data that recovery needs from then on. It
    /// may be too large to be held in memory twice.
    ///
    /// # Errors
    /// As for [`Journal::commit`]. If only the new segment can't be written, the journal continues in the old segment;
    /// the same holds for a snapshot that is [`JournalError::TooLong`], beyond [`MAX_PAYLOAD`].
    fn rotate_with(&mut self, snapshot: &mut WriteSnapshot<'_>) -> Result<u64, JournalError>;

    /// Like [`Journal::rotate_with`], with an existing snapshot.
    ///
    /// # Errors
    /// As for [`Journal::rotate_with`].
    fn rotate(&mut self, snapshot: &[u8]) -> Result<u64, JournalError> {
        self.rotate_with(&mut |to| to.write_all(snapshot))
    }

    /// The sequence number of the last appended record; zero: no record yet.
    fn last_seq(&self) -> u64;

    /// The size of the current segment in bytes, including uncommitted records.
    fn segment_bytes(&self) -> u64;
}
