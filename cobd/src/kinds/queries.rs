//! Queries of users about change objects, and the answers: files, versions, conflicts and output.

use cob_files::Choice;

/// A query or an order about a file tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesQuery {
    /// The difference between the disk and the desired tree, or the original tree if it departs.
    Diff {
        /// The change object is about to depart.
        retire: bool,
        /// For shared files, include the lines that a transition would write.
        written: bool,
    },
    /// The kept versions.
    Log,
    /// A version; with a path, the content of a file in the version.
    Show {
        /// Its id, or a prefix of it.
        version: String,
        /// The file.
        path: Option<String>,
    },
    /// A file in conflict, with both sides of each difference.
    Hunks {
        /// The file. `None`: the first file in conflict.
        path: Option<String>,
        /// The change object is about to depart.
        retire: bool,
    },
    /// The changes by users, as a patch for the model.
    Patch,
    /// Resolves conflicts.
    Resolve {
        /// The file. `None`: all files.
        path: Option<String>,
        /// Only the conflict with this id, as it was shown.
        conflict: Option<String>,
        /// The decision.
        choice: Choice,
        /// The change object is about to depart.
        retire: bool,
    },
    /// Revokes the decisions.
    Undecide,
    /// Restores a file from a version.
    Restore {
        /// The version.
        version: String,
        /// The file.
        path: String,
    },
    /// Validates an order without executing it.
    Would(Box<Self>),
}
