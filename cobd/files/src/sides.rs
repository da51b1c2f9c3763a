//! The sides of a path: what is wanted, what is there, what was applied; and whether one is the other.

use git2::{ObjectType, Oid};
use sha1::{Digest as _, Sha1};

use crate::attributes::{Attributes, Managed};
use crate::disk::{Disk, Found};
use crate::error::{FilesError, MAX_FILE};
use crate::path::TreePath;
use crate::store::{Blob, HELD, Kept, KeptNode, Text};

/// What is wanted at a path.
pub(crate) struct Target {
    pub(crate) node: TargetNode,
    pub(crate) managed: Managed,
    pub(crate) shared: bool,
    /// Changes by others are told and left.
    pub(crate) reported: bool,
    pub(crate) secret: bool,
    pub(crate) implied: bool,
}

#[derive(PartialEq, Eq)]
pub(crate) enum TargetNode {
    Absent,
    File(Text),
    /// A file whose content is in the store, and too large to be held.
    Stored {
        id: Oid,
        size: u64,
    },
    Link(Vec<u8>),
    Folder,
}

/// What was last applied, as far as is known.
pub(crate) enum Base<'a> {
    /// The same as is wanted.
    Same,
    Kept(&'a Kept),
    /// Nothing was applied, or kept, ever.
    None,
}

impl Base<'_> {
    /// Whether the same attributes were managed.
    pub(crate) fn manages(&self, managed: &Managed) -> bool {
        match self {
            Self::Same => true,
            Self::Kept(kept) => kept.managed == *managed,
            Self::None => *managed == Managed::default(),
        }
    }
}

/// Why two sides exclude each other, and the merge with both where they do.
pub(crate) type Excluded = (String, Option<Vec<u8>>);

/// Which content comes of it.
pub(crate) enum Content {
    Live,
    Target,
    Merged(Vec<u8>),
}

/// What is on the disk, read when it is needed.
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

    /// The id that its content has in a store, however large it is.
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

    /// Whether it has other names elsewhere (hard links), by which others get to it.
    pub(crate) fn has_other_names(&self) -> bool {
        self.disk.has_other_names(self.path)
    }

    /// Whether its content is this one.
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

    /// Whether it is what is kept.
    pub(crate) fn is(&self, kept: &KeptNode) -> Result<bool, FilesError> {
        Ok(match (self.found, kept) {
            (Found::Absent, KeptNode::Absent) | (Found::Folder { .. }, KeptNode::Folder) => true,
            (Found::Link { target }, KeptNode::Link(kept)) => target == kept,
            (Found::File { size, .. }, KeptNode::File(_)) if *size > MAX_FILE => false,
            (Found::File { size, .. }, KeptNode::File(Blob::New(bytes))) => self.has(*size, bytes)?,
            (Found::File { .. }, KeptNode::File(blob)) => {
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
    pub(crate) fn is(&self, kept: &KeptNode) -> bool {
        match (&self.node, kept) {
            (TargetNode::Absent, KeptNode::Absent) | (TargetNode::Folder, KeptNode::Folder) => true,
            (TargetNode::Link(a), KeptNode::Link(b)) => a == b,
            (TargetNode::File(bytes), KeptNode::File(blob)) => Blob::New(bytes.clone()).id() == blob.id(),
            (TargetNode::Stored { id, .. }, KeptNode::File(blob)) => blob.id() == Some(*id),
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

pub(crate) fn kept_size(kept: &Kept) -> u64 {
    match &kept.node {
        KeptNode::File(Blob::New(bytes)) => bytes.len() as u64,
        KeptNode::File(_)
        | KeptNode::Absent
        | KeptNode::Sealed(_)
        | KeptNode::Secret
        | KeptNode::Folder
        | KeptNode::Link(_) => 0,
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

/// What can't be replaced by what is wanted: folders are not taken away for something else, nor something for a folder.
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
