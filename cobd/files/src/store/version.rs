//! Versions: the kept entries of a change object's files, and their records.

use std::collections::BTreeMap;
use std::sync::Arc;

use git2::Oid;
use serde::{Deserialize, Serialize};

use super::log::Place;
use super::write::Last;
use super::{FORMAT, Frozen, Spec};
use crate::attributes::Managed;
use crate::path::TreePath;

/// The kept entry of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedEntry {
    pub(crate) node: RecordedNode,
    /// The attributes: all of an earlier or found entry, the managed attributes of an applied entry.
    pub(crate) managed: Managed,
    /// A folder that exists only as a parent.
    pub(crate) implied: bool,
    /// For an applied entry: whether the file is shared with users. `None`: an older version did not record it.
    pub(crate) shared: Option<bool>,
}

impl RecordedEntry {
    /// An earlier or found entry.
    pub(crate) fn found(node: RecordedNode, managed: Managed) -> Self {
        Self { node, managed, implied: false, shared: None }
    }

    /// The path does not exist.
    pub(crate) fn absent() -> Self {
        Self::found(RecordedNode::Absent, Managed::default())
    }
}

/// The kept content of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordedNode {
    Absent,
    File(Blob),
    /// A file with a sealed content.
    Sealed(Blob),
    /// A file whose content is not kept.
    Secret,
    Folder,
    Link(Vec<u8>),
}

/// A shared content.
pub(crate) type Text = Arc<[u8]>;

/// A content, in the store or on its way there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blob {
    Known(Oid),
    New(Text),
}

/// Recorded entries by path.
pub(crate) type Listing = BTreeMap<TreePath, RecordedEntry>;

/// The reason for a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The earlier entries are kept; no content was applied yet.
    Before,
    /// The wanted content was applied.
    Applied,
    /// Texts of others are kept, before they are overwritten or merged.
    Found,
    /// The change object was retired: the earlier entries were restored.
    Retired,
}

/// The description of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The format of the version.
    pub format: u32,
    /// The change object.
    pub cob: String,
    /// The generation of the action.
    pub generation: u64,
    /// The time, in seconds since 1970.
    pub time: u64,
    /// The reason.
    pub reason: Reason,
    /// The wanted content when it was applied; `None`: no content is applied as a whole.
    pub spec: Option<String>,
    /// The previous version.
    pub previous: Option<String>,
    /// Some of the changed paths.
    pub paths: Vec<String>,
}

/// The newest version of a change object, with the fields that the next action needs. Small, as each object has it.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    /// Its number among all records since the store was opened; zero: it is older.
    pub(super) number: u64,
    /// `None`: it is not in the repository yet.
    pub(super) id: Option<Oid>,
    /// The newest version in the repository, if that is an older version.
    pub(super) under: Option<Box<Last>>,
    /// As in [`Info`].
    pub(crate) generation: u64,
    pub(crate) reason: Reason,
    pub(crate) spec: Option<Spec>,
    pub(crate) before: PartPlace,
    pub(crate) applied: PartPlace,
    pub(crate) begun: BegunPlaces,
}

/// The parts of [`Begun`]; empty in most versions.
pub(super) type BegunPlaces = Option<Box<[PartPlace; 4]>>;

/// A version in the repository.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) info: Info,
    pub(crate) before: PartPlace,
    pub(crate) applied: PartPlace,
    pub(crate) found: PartPlace,
    pub(super) begun: BegunPlaces,
}

impl Version {
    /// The entry of the index, for the newest version of a change object.
    pub(super) fn current(self, id: Oid, number: u64) -> Current {
        let Self { info: Info { generation, reason, spec, .. }, before, applied, begun, .. } = self;
        let spec = spec.as_deref().map(Spec::from);
        Current { number, id: Some(id), under: None, generation, reason, spec, before, applied, begun }
    }
}

impl Current {
    /// Whether the content with this text was applied as a whole.
    pub(crate) fn is_of(&self, spec: &str) -> bool {
        self.spec.as_ref().is_some_and(|own| own.is(spec))
    }

    /// Whether the change object was put off with changes set aside.
    pub(super) fn has_aside(&self) -> bool {
        self.reason == Reason::Retired && self.begun.is_some()
    }

    /// The newest version in the repository.
    pub(super) fn last(&self) -> Option<Last> {
        Last::of(self).or_else(|| self.under.as_deref().copied())
    }
}

/// `None` if all parts are empty.
pub(super) fn held_begun(parts: [PartPlace; 4]) -> BegunPlaces {
    let is_empty = parts.iter().all(|part| matches!(part, PartPlace::Nowhere));
    (!is_empty).then(|| Box::new(parts))
}

/// The place of a part.
#[derive(Debug, Clone, Default)]
pub(crate) enum PartPlace {
    #[default]
    Nowhere,
    /// A tree of the repository.
    Tree(Oid),
    /// This part of a record in the log.
    Waiting(Place, Piece),
}

/// A part of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    Before,
    Applied,
    /// By its index in [`Begun`].
    Begun(u8),
}

/// The steps of an action, by path: the entry found (`from`), the last applied entry (`base`), the entry to apply
/// (`aim`) and the entry written for it (`result`). It tells, after a kill, which paths were reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun {
    pub(crate) from: Listing,
    pub(crate) base: Listing,
    pub(crate) aim: Listing,
    pub(crate) result: Listing,
}

impl Begun {
    pub(crate) fn freeze(self) -> [Frozen; 4] {
        [self.from, self.base, self.aim, self.result].map(Frozen::from)
    }
}

/// A part of a version to be recorded.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// As in the previous version.
    Same,
    New(Frozen),
}

/// A version to be recorded.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) cob: String,
    pub(crate) generation: u64,
    pub(crate) reason: Reason,
    pub(crate) spec: Option<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) before: Part,
    pub(crate) applied: Part,
    pub(crate) found: Frozen,
    /// `from`, `base`, `aim`, `result`, as in [`Begun`].
    pub(crate) begun: [Frozen; 4],
}

impl Record {
    pub(super) fn info(&self, time: u64, previous: Option<Oid>) -> Info {
        Info {
            format: FORMAT,
            cob: self.cob.clone(),
            generation: self.generation,
            time,
            reason: self.reason,
            spec: self.spec.clone(),
            previous: previous.map(|id| id.to_string()),
            paths: self.paths.clone(),
        }
    }

    /// A part of the record; empty if it is as in the previous version.
    pub(super) fn piece(&self, piece: Piece) -> Frozen {
        let part = |part: &Part| match part {
            Part::Same => Frozen::default(),
            Part::New(listing) => listing.clone(),
        };
        match piece {
            Piece::Before => part(&self.before),
            Piece::Applied => part(&self.applied),
            Piece::Begun(at) => self.begun[usize::from(at)].clone(),
        }
    }

    /// Roughly its size in bytes.
    pub(super) fn size(&self) -> usize {
        const ENTRY: usize = 100;
        let of = |listing: &Frozen| -> usize {
            let one = |(path, kept): &(TreePath, RecordedEntry)| {
                let content = match &kept.node {
                    RecordedNode::File(Blob::New(bytes)) | RecordedNode::Sealed(Blob::New(bytes)) => bytes.len(),
                    RecordedNode::Link(to) => to.len(),
                    RecordedNode::File(Blob::Known(_)) | RecordedNode::Sealed(Blob::Known(_)) => 0,
                    RecordedNode::Absent | RecordedNode::Secret | RecordedNode::Folder => 0,
                };
                ENTRY + path.len() + content
            };
            listing.iter().map(one).sum()
        };
        let part = |part: &Part| match part {
            Part::Same => 0,
            Part::New(listing) => of(listing),
        };
        part(&self.before) + part(&self.applied) + of(&self.found) + self.begun.iter().map(of).sum::<usize>()
    }
}

impl Blob {
    /// The git id of the content.
    pub(crate) fn id(&self) -> Option<Oid> {
        match self {
            Self::Known(id) => Some(*id),
            Self::New(bytes) => Oid::hash_object(git2::ObjectType::Blob, bytes).ok(),
        }
    }
}
