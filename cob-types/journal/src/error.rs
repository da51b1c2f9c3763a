//! Errors of the journal: the place, the fault, and the part of the remedy that all owners of a journal share.

use std::io;
use std::path::PathBuf;

use super::record::MAX_PAYLOAD;

/// The reason why the journal can't be opened or can't take a record.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process holds the folder.
    #[error(
        "{} is in use by another daemon{}: stop that daemon", .folder.display(), .holder.as_deref().unwrap_or("")
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// ` (process N)`, as the holder has recorded it.
        holder: Option<String>,
    },
    /// A record that was durable is damaged or missing.
    #[error(
        "{}: damaged at byte {offset}: {what}. It is not the end of the file, so durable records are lost. Way out: \
         check the disk; restore this file from a copy",
        .file.display()
    )]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// The offset in the segment.
        offset: u64,
        /// The damage.
        what: String,
    },
    /// The journal is empty or lacks its newest segment, although it was in use.
    #[error("{}: {what}, but {because}: durable records are lost. Way out: restore this file from a copy", .file.display())]
    Lost {
        /// The segment.
        file: PathBuf,
        /// The fault of the segment.
        what: String,
        /// The evidence that there were more records.
        because: String,
    },
    /// A record of a format that this program does not know.
    #[error(
        "{}: the record at byte {offset} has format {format}, which is newer than this program: start the newer \
         program again, or a later version",
        .file.display()
    )]
    Newer {
        /// The segment.
        file: PathBuf,
        /// The offset in the segment.
        offset: u64,
        /// The format found.
        format: u16,
    },
    /// The payload is too long.
    #[error("a record of at least {len} bytes; at most {MAX_PAYLOAD} are taken")]
    TooLong {
        /// Its length, as far as known.
        len: usize,
    },
    /// More bytes wait for a commit than may be held in memory.
    #[error("{len} bytes wait for a commit; at most {max} are held: commit more often")]
    Uncommitted {
        /// The number of waiting bytes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The file system reported an error.
    #[error("{}: {doing}: {source}{}", .path.display(), hint(.source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A commit failed before.
    #[error("the journal accepts no records since a commit failed ({because}): restart the daemon")]
    Stopped {
        /// The first failure.
        because: String,
    },
}

impl JournalError {
    pub(super) fn io(path: impl Into<PathBuf>, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, doing, source }
    }
}

fn hint(error: &io::Error) -> &'static str {
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        ": make room, then start the daemon again"
    } else if kind == io::ErrorKind::ReadOnlyFilesystem {
        ": mount it writable, then start the daemon again"
    } else if kind == io::ErrorKind::PermissionDenied {
        ": the daemon needs its folder for itself"
    } else {
        ""
    }
}
