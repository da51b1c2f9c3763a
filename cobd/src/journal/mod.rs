//! The journal: this host's source of truth, a sequence of durable records.
//!
//! The daemon appends the records of the engine and commits once per iteration of its loop, before it sends a message
//! or starts an action; after a start it feeds the engine with the records that [`FileJournal::open`] returns. Only the
//! engine interprets the payloads.
//!
//! ```text
//!   append ... append ── commit ──> SEGMENT: record record record …      (one write, one fdatasync)
//!   rotate(snapshot) ─────────────> NEW SEGMENT: snapshot                (temp, fsync, rename, fsync)
//!   open ─────────────────────────> the newest segment: snapshot + all records after it
//!   index ────────────────────────> sled: history and durations, can be rebuilt from the records
//! ```
//!
//! Rules: a committed record is never lost and never changed; only a torn end is cut off; damage at any other place
//! stops the daemon with a clear error, because continuing without a record may break a grant to another host. After a
//! failed commit the journal accepts no more records: the daemon stops, and starts again with the records committed
//! before.

mod error;
mod file;
pub mod index;

mod lock;
#[cfg(test)]
#[path = "memory_test.rs"]
mod memory;
mod past;
mod record;

pub use error::JournalError;
pub use file::{FileJournal, Keep, Opened, TornTail};
pub use lock::FolderLock;
#[cfg(test)]
pub(crate) use memory::{MemoryDisk, MemoryJournal};
pub use past::Past;
pub use record::{Entry, MAX_PAYLOAD, What};

/// Writes a snapshot.
pub type WriteSnapshot<'a> = dyn FnMut(&mut dyn std::io::Write) -> std::io::Result<()> + 'a;

/// The journal as the daemon uses it; implemented by [`FileJournal`], and in tests by a journal in memory.
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
    #[cfg(test)]
    fn rotate(&mut self, snapshot: &[u8]) -> Result<u64, JournalError> {
        self.rotate_with(&mut |to| to.write_all(snapshot))
    }

    /// The sequence number of the last appended record; zero: no record yet.
    fn last_seq(&self) -> u64;

    /// The size of the current segment in bytes, including uncommitted records.
    fn segment_bytes(&self) -> u64;
}
