//! Versions: what is kept of a change object's files, and what is recorded of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use git2::Oid;
use serde::{Deserialize, Serialize};

use super::log::Place;
use super::write::Last;
use super::{FORMAT, Frozen, Spec};
use crate::attributes::Managed;
use crate::path::TreePath;

/// What is kept of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) node: KeptNode,
    /// The attributes that count: all of what was before, the managed ones of what was applied.
    pub(crate) managed: Managed,
    /// A folder that is only there because something below it is.
    pub(crate) implied: bool,
    /// Of what was applied: whether it is shared with users. None: that was not yet noted when it was.
    pub(crate) shared: Option<bool>,
}

impl Kept {
    /// What was there before, or is found.
    pub(crate) fn found(node: KeptNode, managed: Managed) -> Self {
        Self { node, managed, implied: false, shared: None }
    }

    /// Nothing is there.
    pub(crate) fn absent() -> Self {
        Self::found(KeptNode::Absent, Managed::default())
    }
}

/// What is kept of what was at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeptNode {
    Absent,
    File(Blob),
    /// A file whose content is sealed.
    Sealed(Blob),
    /// A file whose content is not kept.
    Secret,
    Folder,
    Link(Vec<u8>),
}

/// A content that many share.
pub(crate) type Text = Arc<[u8]>;

/// A content, in the store or on its way there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blob {
    Known(Oid),
    New(Text),
}

/// What is kept, by path.
pub(crate) type Listing = BTreeMap<TreePath, Kept>;

/// Why a version was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The content of before is kept; nothing was applied yet.
    Before,
    /// The wanted content was applied.
    Applied,
    /// What others had changed is kept, and is about to be overwritten or merged.
    Found,
    /// The change object has left: what was before was brought back.
    Retired,
}

/// What is told of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The format of the version.
    pub format: u32,
    /// The change object.
    pub cob: String,
    /// The generation under which it was made.
    pub generation: u64,
    /// When, in seconds since 1970.
    pub time: u64,
    /// Why.
    pub reason: Reason,
    /// What was wanted when it was applied; none: nothing is applied as a whole.
    pub spec: Option<String>,
    /// The version before it.
    pub previous: Option<String>,
    /// Some of the paths that it is about.
    pub paths: Vec<String>,
}

/// The newest version of a change object, as far as the next move rests on it: there is one for each, so it is small.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    /// Its place in the order of all that was recorded since the store was opened; zero: before.
    pub(super) number: u64,
    /// None: it is not in the repository yet.
    pub(super) id: Option<Oid>,
    /// The newest one in the repository, if that is another one.
    pub(super) under: Option<Box<Last>>,
    /// As [`Info`] has them.
    pub(crate) generation: u64,
    pub(crate) reason: Reason,
    pub(crate) spec: Option<Spec>,
    pub(crate) before: Held,
    pub(crate) applied: Held,
    pub(crate) begun: HeldBegun,
}

/// What an action has begun, as [`Begun`] has it; most versions have nothing of it.
pub(super) type HeldBegun = Option<Box<[Held; 4]>>;

/// A version in the repository.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) info: Info,
    pub(crate) before: Held,
    pub(crate) applied: Held,
    pub(crate) found: Held,
    pub(super) begun: HeldBegun,
}

impl Version {
    /// The same for the index, of a change object whose newest version it is.
    pub(super) fn current(self, id: Oid, number: u64) -> Current {
        let Self { info: Info { generation, reason, spec, .. }, before, applied, begun, .. } = self;
        let spec = spec.as_deref().map(Spec::from);
        Current { number, id: Some(id), under: None, generation, reason, spec, before, applied, begun }
    }
}

impl Current {
    /// What is wanted by this text was applied as a whole.
    pub(crate) fn is_of(&self, spec: &str) -> bool {
        self.spec.as_ref().is_some_and(|own| own.is(spec))
    }

    /// It went off, and something was set aside.
    pub(super) fn has_aside(&self) -> bool {
        self.reason == Reason::Retired && self.begun.is_some()
    }

    /// The newest version in the repository.
    pub(super) fn last(&self) -> Option<Last> {
        Last::of(self).or_else(|| self.under.as_deref().copied())
    }
}

/// Nothing, where each part is empty.
pub(super) fn held_begun(parts: [Held; 4]) -> HeldBegun {
    let is_empty = parts.iter().all(|part| matches!(part, Held::Nowhere));
    (!is_empty).then(|| Box::new(parts))
}

/// Where a part is.
#[derive(Debug, Clone, Default)]
pub(crate) enum Held {
    #[default]
    Nowhere,
    /// A tree of the repository.
    Tree(Oid),
    /// In the log, this piece of the record there.
    Waiting(Place, Piece),
}

/// A part of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    Before,
    Applied,
    /// By its place.
    Begun(u8),
}

/// What an action is about to do, by path: what it finds (`from`) and on what it rests (`base`), what it applies (`aim`) and
/// writes for that (`result`). If it is killed, this tells whether it had got as far as a path.
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
    /// As in the version before.
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
    /// As [`Begun`] has them: `from`, `base`, `aim`, `result`.
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

    /// A part of it; what is as in the version before is empty.
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

    /// About how many bytes it has.
    pub(super) fn size(&self) -> usize {
        const ENTRY: usize = 100;
        let of = |listing: &Frozen| -> usize {
            let one = |(path, kept): &(TreePath, Kept)| {
                let content = match &kept.node {
                    KeptNode::File(Blob::New(bytes)) | KeptNode::Sealed(Blob::New(bytes)) => bytes.len(),
                    KeptNode::Link(to) => to.len(),
                    KeptNode::File(Blob::Known(_)) | KeptNode::Sealed(Blob::Known(_)) => 0,
                    KeptNode::Absent | KeptNode::Secret | KeptNode::Folder => 0,
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
    /// The id that the content has, or would have.
    pub(crate) fn id(&self) -> Option<Oid> {
        match self {
            Self::Known(id) => Some(*id),
            Self::New(bytes) => Oid::hash_object(git2::ObjectType::Blob, bytes).ok(),
        }
    }
}
