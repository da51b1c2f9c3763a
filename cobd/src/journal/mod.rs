//! The journal: the truth of this host, one durable record after the other.
//!
//! The daemon appends what the engine wants kept and commits once a turn of its loop, before
//! anything is sent or started; after a start it feeds the engine with what [`FileJournal::open`]
//! returns. What the payloads mean is the engine's business.
//!
//! ```text
//!   append ... append ── commit ──> SEGMENT: record record record …      (one write, one fdatasync)
//!   rotate(snapshot) ─────────────> NEW SEGMENT: snapshot                (temp, fsync, rename, fsync)
//!   open ─────────────────────────> the newest segment: snapshot + all records after it
//!   index ────────────────────────> sled: history and durations, can be rebuilt from the records
//! ```
//!
//! Rules: what was committed is never lost and never changed; a torn tail is cut off, and nothing
//! but the tail; damage anywhere else stops the daemon with a clear word, because carrying on without
//! a record may break a promise to another host. After a failed commit the journal takes nothing
//! more: the daemon stops, and comes back with what was committed before.

mod error;
mod file;
pub mod index;

mod lock;
mod memory;
mod past;
mod record;

pub use error::JournalError;
pub use file::{FileJournal, Keep, Opened, TornTail};
pub use lock::FolderLock;
pub use memory::{MemoryDisk, MemoryJournal};
pub use past::Past;
pub use record::{Entry, MAX_PAYLOAD, What};

/// Writes a snapshot.
pub type WriteSnapshot<'a> = dyn FnMut(&mut dyn std::io::Write) -> std::io::Result<()> + 'a;

/// What the daemon needs of a journal; [`FileJournal`] and its twin in memory give it.
pub trait Journal {
    /// Takes a record; it becomes durable with the next [`Journal::commit`].
    ///
    /// # Errors
    /// [`JournalError::TooLong`] for a payload beyond [`MAX_PAYLOAD`]; [`JournalError::Stopped`] after
    /// a failed commit.
    fn append(&mut self, payload: &[u8]) -> Result<u64, JournalError>;

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// [`JournalError::Io`] when the disk refuses, [`JournalError::Stopped`] ever after.
    fn commit(&mut self) -> Result<(), JournalError>;

    /// Commits, then begins a new segment with what `snapshot` writes: all that recovery needs from then on. It may be too
    /// large to be held twice.
    ///
    /// # Errors
    /// As [`Journal::commit`]. When only the new segment could not be written, the journal goes on in
    /// the old one; so it does where the snapshot is [`JournalError::TooLong`], beyond [`MAX_PAYLOAD`].
    fn rotate_with(&mut self, snapshot: &mut WriteSnapshot<'_>) -> Result<u64, JournalError>;

    /// The same with a snapshot that is there already.
    #[cfg(test)]
    fn rotate(&mut self, snapshot: &[u8]) -> Result<u64, JournalError> {
        self.rotate_with(&mut |to| to.write_all(snapshot))
    }

    /// The sequence number of the last record taken; zero: none yet.
    fn last_seq(&self) -> u64;

    /// The size of the current segment in bytes, with what is not yet committed.
    fn segment_bytes(&self) -> u64;

    /// Walks through what is committed and kept, from `seq` on, oldest first. Snapshots are among it.
    fn entries_since(&self, seq: u64) -> Box<dyn Iterator<Item = Result<Entry, JournalError>> + '_>;
}
