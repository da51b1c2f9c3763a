//! The record of a job: what its process has begun and done, on disk before the next action.
//!
//! A record is a file of JSON lines. Only the job's process appends to it; the hub reads it at any time. A torn last line
//! is the trace of a crash, and counts as not written.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::order::Shape;
use super::steps::{Step, is_harmless};
use crate::circle::ward::Ward;
use crate::layout::Layout;

/// The longest record that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// An entry of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub(super) enum Entry {
    /// A step begins.
    Begun {
        /// The step.
        step: Step,
    },
    /// A step is done.
    Done {
        /// The step.
        step: Step,
    },
    /// The shape of the cluster after the operation is known; none: it is deleted.
    Aimed {
        /// The shape.
        after: Option<Shape>,
    },
    /// The layout that the step [`Step::Layout`] has computed.
    LaidOut {
        /// The layout.
        layout: Layout,
    },
    /// A generation was made.
    Published {
        /// Its number.
        generation: u64,
    },
    /// The generation waits for signatures.
    Unsigned {
        /// Its number.
        generation: u64,
    },
    /// The operation failed, and is being undone.
    Failed {
        /// The failure.
        failure: Failure,
    },
    /// The operation was canceled, and is being undone.
    Canceled,
    /// The job has ended.
    Ended {
        /// Whether the effects of a failed or canceled operation were undone; true after a success.
        clean: bool,
    },
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// What happened.
    pub what: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }

    /// With a hint.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// The state of a job, from its record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// The steps that were begun, in order, each once.
    pub begun: Vec<Step>,
    /// The steps that are done.
    pub done: Vec<Step>,
    /// The shape of the cluster after a success; none after a deletion.
    pub after: Option<Shape>,
    /// The layout.
    pub layout: Option<Layout>,
    /// The newest generation of the job.
    pub generation: Option<u64>,
    /// The generation that waits for signatures.
    pub unsigned: Option<u64>,
    /// The failure.
    pub failure: Option<Failure>,
    /// Whether the job was canceled.
    pub canceled: bool,
    /// Whether the job has ended; then, whether it left nothing half done.
    pub ended: Option<bool>,
}

impl Progress {
    /// Adds an entry.
    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Begun { step } => insert(&mut self.begun, step),
            Entry::Done { step } => {
                self.unsigned = None;
                insert(&mut self.done, step);
            }
            Entry::Aimed { after } => self.after = after,
            Entry::LaidOut { layout } => self.layout = Some(layout),
            Entry::Published { generation } => self.generation = Some(generation),
            Entry::Unsigned { generation } => self.unsigned = Some(generation),
            Entry::Failed { failure } => self.failure = Some(failure),
            Entry::Canceled => self.canceled = true,
            Entry::Ended { clean } => self.ended = Some(clean),
        }
    }

    /// Whether the operation is being undone, or was undone.
    pub(super) fn is_undoing(&self) -> bool {
        self.canceled || self.failure.is_some()
    }

    /// Whether the job has left nothing half done.
    pub fn is_clean(&self) -> bool {
        self.ended.unwrap_or_else(|| is_harmless(&self.begun))
    }

    /// The progress of a job without a process.
    ///
    /// # Errors
    ///
    /// The record is missing or can't be read, or a line before the last is damaged.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut text = Vec::new();
        File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
        Ok(parse(&text)?.0)
    }
}

fn insert(steps: &mut Vec<Step>, step: Step) {
    if !steps.contains(&step) {
        steps.push(step);
    }
}

/// The progress, and the length of the whole lines.
fn parse(text: &[u8]) -> io::Result<(Progress, usize)> {
    let mut progress = Progress::default();
    let mut read = 0;
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if !line.ends_with(b"\n") {
            break;
        }
        let entry = serde_json::from_slice(line).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {} of the record is damaged: {error}", number + 1))
        })?;
        progress.apply(entry);
        read += line.len();
    }
    Ok((progress, read))
}

/// A record that its job's process continues.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    progress: Progress,
    ward: Option<Arc<Ward>>,
}

impl Record {
    /// Opens a record, or begins it. A torn last line is removed.
    ///
    /// # Errors
    ///
    /// As [`Progress::read`].
    pub(super) fn open(path: &Path, ward: Option<Arc<Ward>>) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut text = Vec::new();
        (&file).take(LONGEST).read_to_end(&mut text)?;
        let (progress, length) = parse(&text)?;
        if length < text.len() {
            file.set_len(length as u64)?;
        }
        file.flush()?;
        file.sync_all()?;
        crate::durable::sync(path.parent().unwrap_or(Path::new(".")))?;
        Ok(Self { file, progress, ward })
    }

    /// The progress until now.
    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Appends an entry; it is on the disk when the function returns, and in the store of a circle.
    ///
    /// # Errors
    ///
    /// The disk refused, or another hub has taken the job over.
    pub(super) fn append(&mut self, entry: Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        if let Some(ward) = &self.ward {
            ward.save()?;
        }
        self.progress.apply(entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_counts_as_not_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("record");
        let mut record = Record::open(&path, None).expect("opened");
        record.append(Entry::Begun { step: Step::Layout }).expect("written");
        record.append(Entry::Done { step: Step::Layout }).expect("written");
        let whole = record.progress().clone();
        drop(record);
        let mut file = OpenOptions::new().append(true).open(&path).expect("opened");
        file.write_all(b"{\"entry\":\"beg").expect("written");
        assert_eq!(Progress::read(&path).expect("read"), whole);
        let mut record = Record::open(&path, None).expect("opened");
        assert_eq!(record.progress(), &whole);
        record.append(Entry::Canceled).expect("written");
        drop(record);
        let read = Progress::read(&path).expect("read");
        assert!(read.canceled, "{read:?}");
        assert_eq!(read.begun, [Step::Layout]);
    }

    #[test]
    fn a_damaged_line_is_refused_with_its_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("record");
        std::fs::write(&path, "{\"entry\":\"canceled\"}\nx\n{\"entry\":\"canceled\"}\n").expect("written");
        let error = Progress::read(&path).expect_err("refused").to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
