//! The journal of this host: its source of truth ([`cob_journal`]), and the index of it.
//!
//! The daemon appends the records of the engine and commits once per iteration of its loop, before it sends a message
//! or starts an action; after a start it feeds the engine with the records that [`FileJournal::open`] returns. After a
//! failed commit the daemon stops, and starts again with the records committed before.

pub mod index;

#[cfg(test)]
pub(crate) use cob_journal::WriteSnapshot;
#[cfg(test)]
pub(crate) use cob_journal::testing::{MemoryDisk, MemoryJournal};
pub use cob_journal::{
    Entry, FileJournal, FolderLock, Journal, JournalError, Keep, MAX_PAYLOAD, Opened, Past, TornTail, What,
};

/// The part of the remedy that is special to a host: other hosts rely on its records.
#[must_use]
pub fn remedy(error: &JournalError) -> &'static str {
    match error {
        JournalError::InUse { .. } => ", or give this daemon its own `state_dir`",
        JournalError::Damaged { .. } | JournalError::Lost { .. } => {
            "; without a copy, move the whole state folder away and start again: the host then returns as a new host, \
             checks every change object, and `cobctl fence` releases its former grants. The daemon does not start \
             without the records: this host was in use, and could break a grant to another host"
        }
        JournalError::Newer { .. }
        | JournalError::TooLong { .. }
        | JournalError::Uncommitted { .. }
        | JournalError::Io { .. }
        | JournalError::Stopped { .. } => "",
    }
}
