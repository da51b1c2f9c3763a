//! The sides of a path (wanted, live and last applied) and their comparison.

use git2::{ObjectType, Oid};
use sha1::{Digest as _, Sha1};

use crate::attributes::{Attributes, Managed};
use crate::disk::{Disk, Found};
use crate::error::{FilesError, MAX_FILE};
use crate::path::TreePath;
use crate::store::{Blob, HELD, RecordedEntry, RecordedNode, Text};

/// The wanted entry of a path.
pub(crate) struct Target {
    pub(crate) node: TargetNode,
    pub(crate) managed: Managed,
    pub(crate) shared: bool,
    /// Changes by others are reported and stay.
    pub(crate) reported: bool,
    pub(crate) secret: bool,
    pub(crate) implied: bool,
}

#[derive(PartialEq, Eq)]
pub(crate) enum TargetNode {
    Absent,
    File(Text),
    /// A file in the store, too large to be held in memory.
    Stored {
        id: Oid,
        size: u64,
    },
    Link(Vec<u8>),
    Folder,
}

/// The last applied entry, as far as it is known.
pub(crate) enum Base<'a> {
    /// The same as the wanted entry.
    Same,
    Recorded(&'a RecordedEntry),
    /// No entry was ever applied or kept.
    None,
}

impl Base<'_> {
    /// Whether the same attributes were managed.
    pub(crate) fn manages(&self, managed: &Managed) -> bool {
        match self {
            Self::Same => true,
            Self::Recorded(kept) => kept.managed == *managed,
            Self::None => *managed == Managed::default(),
        }
    }
}

/// The reason why two sides exclude each other, and, for text files, the merge with both sides.
pub(crate) type Excluded = (String, Option<Vec<u8>>);

/// The source of the new content.
pub(crate) enum Content {
    Live,
    Target,
    Merged(Vec<u8>),
}

/// The entry on the disk, whose content is read on demand.
pub(crate) struct Live<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) path: &'a TreePath,
    pub(crate) found: &'a Found,
    pub(crate) content: std::cell::OnceCell<Text>,
}

impl<'a> Live<'a> {
    pub(crate) fn new(disk: &'a Disk, path: &'a TreePath, found: &'a Found) -> Self {
        Self { disk, path, found, content: std::cell::OnceCell::new() }
    }

    pub(crate) fn content(&self) -> Result<&Text, FilesError> {
        if let Some(content) = self.content.get() {
            return Ok(content);
        }
        let content = Text::from(self.disk.content(self.path)?);
        Ok(self.content.get_or_init(|| content))
    }

    /// The git id of the content, also for large files.
    pub(crate) fn id(&self) -> Result<Option<Oid>, FilesError> {
        let Found::File { size, .. } = self.found else { return Ok(None) };
        if *size <= HELD || self.content.get().is_some() {
            return Ok(Oid::hash_object(ObjectType::Blob, self.content()?).ok());
        }
        let mut hash = Sha1::new();
        hash.update(format!("{} {size}\0", ObjectType::Blob.str()));
        self.disk.read(self.path, |piece| {
            hash.update(piece);
            true
        })?;
        Ok(Oid::from_bytes(&hash.finalize()).ok())
    }

    /// Whether the file has other hard links, through which other users can open it.
    pub(crate) fn has_other_names(&self) -> bool {
        self.disk.has_other_names(self.path)
    }

    /// Whether the file has this content.
    fn has(&self, size: u64, text: &[u8]) -> Result<bool, FilesError> {
        if size != text.len() as u64 {
            return Ok(false);
        }
        if size <= HELD || self.content.get().is_some() {
            return Ok(**self.content()? == *text);
        }
        let mut rest = Some(text);
        self.disk.read(self.path, |piece| {
            rest = rest.and_then(|rest| rest.strip_prefix(piece));
            rest.is_some()
        })?;
        Ok(rest.is_some_and(<[u8]>::is_empty))
    }

    /// Whether the entry equals the kept entry.
    pub(crate) fn is(&self, kept: &RecordedNode) -> Result<bool, FilesError> {
        Ok(match (self.found, kept) {
            (Found::Absent, RecordedNode::Absent) | (Found::Folder { .. }, RecordedNode::Folder) => true,
            (Found::Link { target }, RecordedNode::Link(kept)) => target == kept,
            (Found::File { size, .. }, RecordedNode::File(_)) if *size > MAX_FILE => false,
            (Found::File { size, .. }, RecordedNode::File(Blob::New(bytes))) => self.has(*size, bytes)?,
            (Found::File { .. }, RecordedNode::File(blob)) => {
                let live = self.id()?;
                live.is_some() && live == blob.id()
            }
            _ => false,
        })
    }

    pub(crate) fn is_target(&self, target: &TargetNode) -> Result<bool, FilesError> {
        Ok(match (self.found, target) {
            (Found::Absent, TargetNode::Absent) | (Found::Folder { .. }, TargetNode::Folder) => true,
            (Found::Link { target }, TargetNode::Link(wanted)) => target == wanted,
            (Found::File { size, .. }, TargetNode::File(bytes)) => self.has(*size, bytes)?,
            (Found::File { size: live, .. }, TargetNode::Stored { id, size }) => {
                live == size && self.id()? == Some(*id)
            }
            _ => false,
        })
    }
}

impl Target {
    pub(crate) fn is(&self, kept: &RecordedNode) -> bool {
        match (&self.node, kept) {
            (TargetNode::Absent, RecordedNode::Absent) | (TargetNode::Folder, RecordedNode::Folder) => true,
            (TargetNode::Link(a), RecordedNode::Link(b)) => a == b,
            (TargetNode::File(bytes), RecordedNode::File(blob)) => Blob::New(bytes.clone()).id() == blob.id(),
            (TargetNode::Stored { id, .. }, RecordedNode::File(blob)) => blob.id() == Some(*id),
            _ => false,
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        match &self.node {
            TargetNode::Absent => "nothing",
            TargetNode::File(_) | TargetNode::Stored { .. } => "a file",
            TargetNode::Link(_) => "a link",
            TargetNode::Folder => "a folder",
        }
    }

    pub(crate) fn told(&self) -> String {
        match &self.node {
            TargetNode::Link(to) => format!("a link to {}", String::from_utf8_lossy(to).escape_debug()),
            TargetNode::Absent | TargetNode::File(_) | TargetNode::Stored { .. } | TargetNode::Folder => {
                self.word().to_owned()
            }
        }
    }
}

pub(crate) fn kept_size(kept: &RecordedEntry) -> u64 {
    match &kept.node {
        RecordedNode::File(Blob::New(bytes)) => bytes.len() as u64,
        RecordedNode::File(_)
        | RecordedNode::Absent
        | RecordedNode::Sealed(_)
        | RecordedNode::Secret
        | RecordedNode::Folder
        | RecordedNode::Link(_) => 0,
    }
}

pub(crate) fn told(found: &Found) -> String {
    match found {
        Found::Link { target } => format!("a link to {}", String::from_utf8_lossy(target).escape_debug()),
        Found::Absent | Found::File { .. } | Found::Folder { .. } | Found::Other => found.word().to_owned(),
    }
}

pub(crate) fn full(managed: &Managed) -> Option<Attributes> {
    let Managed { mode, uid, gid, xattrs } = managed;
    Some(Attributes { mode: (*mode)?, uid: (*uid)?, gid: (*gid)?, xattrs: xattrs.clone() })
}

/// The error if the wanted entry can't replace the present entry: folders and files never replace each other.
pub(crate) fn in_the_way(path: &TreePath, target: &Target, found: &Found) -> Option<FilesError> {
    let fits = match (&target.node, found) {
        (_, Found::Other) => false,
        (TargetNode::Folder, Found::File { .. } | Found::Link { .. }) => false,
        (TargetNode::File(_) | TargetNode::Stored { .. } | TargetNode::Link(_), Found::Folder { .. }) => false,
        (TargetNode::Absent, _) | (_, Found::Absent) => true,
        (TargetNode::Folder, Found::Folder { .. }) => true,
        (
            TargetNode::File(_) | TargetNode::Stored { .. } | TargetNode::Link(_),
            Found::File { .. } | Found::Link { .. },
        ) => true,
    };
    (!fits).then(|| FilesError::InTheWay { path: path.clone(), found: found.word(), wanted: target.word() })
}
