//! Queries about the files and the output of a change object, and their answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The answer to a query about files.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilesAnswer {
    /// The answer as text, or the requested text.
    pub text: String,
    /// The file, if the query did not name it.
    pub path: Option<String>,
    /// The id of the conflict in a file to edit, for the decision.
    pub conflict: Option<String>,
    /// The state that the check found, for a difference.
    pub state: Option<String>,
    /// Files in conflict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<FileConflict>,
    /// The versions, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<FileVersion>,
}

/// A file in conflict.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileConflict {
    /// The file.
    pub path: String,
    /// The two changes that conflict.
    pub what: String,
    /// The merged text with both sides.
    pub hunks: Option<String>,
    /// The existing file is to be removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes: bool,
}

/// A version of a file tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileVersion {
    /// The id for `show` and `restore`.
    pub id: String,
    /// The creation time in seconds since 1970.
    pub time: u64,
    /// The generation at that time.
    pub generation: u64,
    /// The reason: `before`, `applied`, `found`, `retired`.
    pub reason: String,
    /// Some of its paths.
    pub paths: Vec<String>,
}

/// A query for output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogsQuery {
    /// The most lines, counted from the end.
    pub lines: usize,
    /// Only output after this place.
    pub after: Option<String>,
    /// The output of the previous run.
    pub previous: bool,
}

impl LogsQuery {
    /// The most lines of a query.
    pub const MAX_LINES: usize = 10_000;
}

/// Output of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogsAnswer {
    /// The source: `output`, a file of the daemon, or `journal`, the machine's journal.
    pub source: String,
    /// The output, unchanged.
    pub text: String,
    /// The place at its end, for the next query.
    pub next: String,
    /// Another run has started, and its output follows.
    #[serde(default)]
    pub ended: bool,
}
