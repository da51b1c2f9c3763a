//! Errors of file trees: they name the path, the reason, and the remedy.

use std::io;

use crate::path::{PathError, TreePath};

/// The start of the error of a conflict, which a person has to decide.
const DECISION: &str = "`cobctl diff` shows both sides, `cobctl resolve` decides";

/// The reason why a file tree could not be checked, applied or retired.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The path is not valid.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The content contradicts itself or is not valid.
    #[error("{0}")]
    Content(String),
    /// A system call failed.
    #[error("{doing} {path}: {source}; {}", hint(.source))]
    Disk {
        /// The operation that failed: `writing`.
        doing: &'static str,
        /// The path on which it failed.
        path: TreePath,
        /// The system's error.
        source: io::Error,
    },
    /// A link stands in the place of a folder on the path.
    #[error(
        "{path} is a link to {target:?}. COB follows no link on the way to a managed file, because the owner of the \
         link could choose the file that is written; write the path that it leads to"
    )]
    Link {
        /// The link.
        path: TreePath,
        /// The link's target.
        target: String,
    },
    /// The path has a file of another type.
    #[error(
        "{path} is {found}, but the model wants {wanted}; no file was changed. Move it away, or change the \
        model"
    )]
    InTheWay {
        /// The path.
        path: TreePath,
        /// The type of the file that is there.
        found: &'static str,
        /// The type that is wanted.
        wanted: &'static str,
    },
    /// Another process changes the path again and again, after COB looked at it.
    #[error("another program changes {path} again and again: COB leaves it as it is")]
    Changed {
        /// The path.
        path: TreePath,
    },
    /// The wanted owner or group does not exist on this host.
    #[error("{path}: {what}")]
    Unknown {
        /// The path.
        path: TreePath,
        /// The message that names the user or group.
        what: String,
    },
    /// The content of the file would have to be kept, but the file is too large.
    #[error(
        "{path} has {size} bytes. COB keeps the content of a file before it overwrites or removes the file, but only \
         up to {} MiB. Move the file away first", MAX_FILE >> 20
    )]
    TooLarge {
        /// The file.
        path: TreePath,
        /// Its size.
        size: u64,
    },
    /// The folder has more entries than a tree may have.
    #[error(
        "{path} holds too much: more than {MAX_ENTRIES} files and folders, or more than {} MiB of names and \
         attributes, are in it and below; remove files that do not belong there, or manage a smaller folder",
        MAX_NAMES >> 20
    )]
    TooMany {
        /// The folder.
        path: TreePath,
    },
    /// The two sides of a merge exclude each other.
    #[error("{DECISION}: {}", list(.0))]
    Conflict(Vec<Conflict>),
    /// The store of versions failed.
    #[error("the store of files at {path}: {what}; no file on the host was changed")]
    Store {
        /// The store's folder.
        path: String,
        /// The reason.
        what: String,
    },
    /// A content could not be sealed, or a sealed content could not be opened.
    #[error("{path}: its earlier content, which holds a secret, {what}")]
    Vault {
        /// The file.
        path: TreePath,
        /// The reason.
        what: String,
    },
    /// The version does not exist, or does not have the file.
    #[error("{0}")]
    NotThere(String),
    /// The path's command did not accept the new text.
    #[error("the new text of {path} is refused by `{command}`: {what}; no file was changed")]
    Refused {
        /// The file.
        path: TreePath,
        /// The command of `validate`.
        command: String,
        /// The output of the command, or why it can't run.
        what: String,
    },
    /// The action was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// A path that both sides changed in ways that exclude each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The path.
    pub path: TreePath,
    /// The contradiction, in words.
    pub what: String,
    /// The merge with both sides where they differ, for text files.
    pub hunks: Option<Vec<u8>>,
    /// The file on the disk is to be removed: the model wants no file in its place.
    pub goes: bool,
    /// Changes with either side, so that a decision holds for exactly this conflict.
    pub id: String,
}

/// The largest file that is managed, or kept before it is overwritten.
pub const MAX_FILE: u64 = 64 << 20;
/// The most files and folders of a tree.
pub const MAX_ENTRIES: usize = 200_000;
/// The most bytes of names, links and attributes that COB holds for a folder that is managed as a whole.
pub(crate) const MAX_NAMES: usize = 32 << 20;
/// The most bytes that an action may have to keep or write.
pub const MAX_TREE: u64 = 512 << 20;

impl FilesError {
    pub(crate) fn disk(doing: &'static str, path: &TreePath) -> impl FnOnce(rustix::io::Errno) -> Self {
        let path = path.clone();
        move |error| Self::Disk { doing, path, source: error.into() }
    }
}

fn hint(error: &io::Error) -> &'static str {
    const KINDS: [(io::ErrorKind, &str); 5] = [
        (io::ErrorKind::StorageFull, "the old content is untouched; make room, then `cobctl retry`"),
        (io::ErrorKind::QuotaExceeded, "the old content is untouched; the quota of the daemon's user is used up"),
        (
            io::ErrorKind::ReadOnlyFilesystem,
            "the old content is untouched; the file system is mounted read-only: mount it for writing, then `cobctl \
             retry`",
        ),
        (
            io::ErrorKind::PermissionDenied,
            "the daemon's user has no permission; does cobd run as root, and is the file immutable?",
        ),
        (io::ErrorKind::NotFound, "it disappeared during the check; COB tries again"),
    ];
    let known = KINDS.iter().find(|(kind, _)| *kind == error.kind());
    known.map_or("the old content is untouched", |(_, hint)| hint)
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
