//! What can go wrong with files: what, where, why, and what to do about it.

use std::io;

use crate::path::{PathError, TreePath};

/// Why a file tree could not be looked at, brought about or taken back.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A path that is none.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The content asks for something that makes no sense.
    #[error("{0}")]
    Content(String),
    /// The system refused something.
    #[error("{doing} {path}: {source}; {}", hint(.source))]
    Disk {
        /// What was being done: `writing`.
        doing: &'static str,
        /// To which path.
        path: TreePath,
        /// What the system said.
        source: io::Error,
    },
    /// A link stands where a folder has to be gone through.
    #[error(
        "{path} is a link to {target:?}, and no link is followed on the way to a managed file: whoever can change the link \
         could choose what is written; write the path that it leads to"
    )]
    Link {
        /// The link.
        path: TreePath,
        /// Where it leads.
        target: String,
    },
    /// Something stands where something of another sort is wanted.
    #[error("{path} is {found}, and {wanted} is wanted there; nothing was changed. Move it away, or change the model")]
    InTheWay {
        /// Where.
        path: TreePath,
        /// What is there.
        found: &'static str,
        /// What should be there.
        wanted: &'static str,
    },
    /// Somebody has changed it since it was looked at.
    #[error("{path} is changed by somebody else again and again: it is left as it is")]
    Changed {
        /// What.
        path: TreePath,
    },
    /// The owner or group that is wanted is nobody on this host.
    #[error("{path}: {what}")]
    Unknown {
        /// Of what.
        path: TreePath,
        /// Who.
        what: String,
    },
    /// A file whose content would have to be kept, and is too large for that.
    #[error(
        "{path} has {size} bytes; before it is overwritten or removed its content would have to be kept, and files of more \
         than {} MiB are not. Move it away first", MAX_FILE >> 20
    )]
    TooLarge {
        /// Which.
        path: TreePath,
        /// Its size.
        size: u64,
    },
    /// More files than are looked after in one tree.
    #[error(
        "{path} holds too much: more than {MAX_ENTRIES} files and folders, or more than {} MiB of names and attributes, are \
         in it and below; remove what has no place there, or manage a smaller folder", MAX_NAMES >> 20
    )]
    TooMany {
        /// The folder.
        path: TreePath,
    },
    /// A merge can't be made without losing something.
    #[error("`cobctl diff` shows both sides, `cobctl resolve` decides: {}", list(.0))]
    Conflict(Vec<Conflict>),
    /// The store of what was and what was applied.
    #[error("the store of files at {path}: {what}; nothing was changed on the host")]
    Store {
        /// Its folder.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// A sealed content can't be opened, or one can't be sealed.
    #[error("{path}: its earlier content, which holds a secret, {what}")]
    Vault {
        /// Which file.
        path: TreePath,
        /// What is wrong.
        what: String,
    },
    /// There is no such version, or no such file in it.
    #[error("{0}")]
    NotThere(String),
    /// Somebody asked for the end.
    #[error("cancelled")]
    Cancelled,
}

/// A path that two sides have changed in ways that exclude each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Where.
    pub path: TreePath,
    /// What excludes each other.
    pub what: String,
    /// The merge with both sides where they differ, for text files.
    pub hunks: Option<Vec<u8>>,
    /// What is there is to go: nothing is wanted in its place.
    pub goes: bool,
    /// Changes with either side: a decision is for exactly this conflict.
    pub id: String,
}

/// The largest file that is managed, or kept before it is overwritten.
pub const MAX_FILE: u64 = 64 << 20;
/// The most files and folders of one tree.
pub const MAX_ENTRIES: usize = 200_000;
/// The most bytes of names, links and attributes that are held of what is in one folder that is managed as a whole.
pub(crate) const MAX_NAMES: usize = 32 << 20;
/// The most bytes that one action may have to keep or write.
pub const MAX_TREE: u64 = 512 << 20;

impl FilesError {
    pub(crate) fn disk(doing: &'static str, path: &TreePath) -> impl FnOnce(rustix::io::Errno) -> Self {
        let path = path.clone();
        move |error| Self::Disk { doing, path, source: error.into() }
    }
}

fn hint(error: &io::Error) -> &'static str {
    const KINDS: [(io::ErrorKind, &str); 5] = [
        (io::ErrorKind::StorageFull, "what was there is untouched; make room, then `cobctl retry`"),
        (io::ErrorKind::QuotaExceeded, "what was there is untouched; the quota of the daemon's user is used up"),
        (
            io::ErrorKind::ReadOnlyFilesystem,
            "what was there is untouched; the file system is mounted read-only: mount it for writing, then `cobctl retry`",
        ),
        (
            io::ErrorKind::PermissionDenied,
            "the daemon's user may not; does cobd run as root, and is the file immutable?",
        ),
        (io::ErrorKind::NotFound, "it went away while it was looked at; it is tried again"),
    ];
    let known = KINDS.iter().find(|(kind, _)| *kind == error.kind());
    known.map_or("what was there is untouched", |(_, hint)| hint)
}

fn list(conflicts: &[Conflict]) -> String {
    const SHOWN: usize = 5;
    let mut text: Vec<_> =
        conflicts.iter().take(SHOWN).map(|c| format!("conflict in {}: {}", c.path, c.what)).collect();
    if conflicts.len() > SHOWN {
        text.push(format!("and {} more", conflicts.len() - SHOWN));
    }
    text.join("; ")
}
