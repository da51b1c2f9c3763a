//! The parts of a host that a change object owns.

/// The files that a change object writes, and the object of the host that it sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The files, below the root of the content.
    pub files: Vec<OwnedFile>,
    /// The object that no other change object may set.
    pub subject: Option<Subject>,
    /// Further objects that no other change object may set.
    pub parts: Vec<Subject>,
}

/// A file that a change object writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedFile {
    /// Its absolute path.
    pub path: String,
    /// The way in which it is written.
    pub access: Access,
}

/// The way in which a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As a whole, by this change object alone.
    Alone,
    /// With all files below it.
    Whole,
    /// A part of it, while others of the same kind write other parts.
    Shared,
    /// A part of it: other writers' parts stay.
    Merged,
}

/// An object of a host: two owners would undo each other's transitions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The sort, as a message names it in front of the name: `mount on`, `unit`.
    pub sort: &'static str,
    /// The name, in a form that is equal for all spellings.
    pub name: String,
}

impl Access {
    /// Whether both accesses leave each other's data intact.
    #[must_use]
    pub fn goes_with(self, other: Self) -> bool {
        let is_part = |access: Self| matches!(access, Self::Shared | Self::Merged);
        is_part(self) && is_part(other)
    }
}

impl Subject {
    /// The sort of mounts.
    pub const MOUNT: &'static str = "mount on";
    /// The sort of units.
    pub const UNIT: &'static str = "unit";
    /// The sort of devices with data.
    pub const DEVICE: &'static str = "data on";
    /// The sort of partitions; a name is the disk, a colon, a blank, and the name of the partition.
    pub const PARTITION: &'static str = "partition on";
    /// The sort of keys in a file; a name is the file, a colon, a blank, and the key.
    pub const KEY: &'static str = "key";
    /// The sort of packages.
    pub const PACKAGE: &'static str = "package";
    /// The sort of privileges; a name is the grantee, a colon, a blank, and the objects.
    pub const PRIVILEGES: &'static str = "privileges";

    /// The objects that include this object: a key includes the keys with a dot and a further part behind it, all
    /// tables of a schema include a table, and the data on a disk its partitions.
    #[must_use]
    pub fn outer(&self) -> Vec<Self> {
        let start = self.name.find(": ").unwrap_or_default();
        let upto = |sort: &'static str, end: usize| Self { sort, name: self.name[..end].to_owned() };
        match self.sort {
            Self::KEY | Self::PRIVILEGES => {
                let dots = self.name.match_indices('.').filter(|(dot, _)| *dot > start);
                dots.map(|(dot, _)| upto(self.sort, dot)).collect()
            }
            Self::PARTITION => self.name.rfind(": ").map(|end| upto(Self::DEVICE, end)).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// A part of a nested name, without the characters that divide it.
    pub(super) fn plain_part(part: &str) -> String {
        part.replace('.', "·").replace(": ", ":")
    }
}

impl Footprint {
    /// An object of the host, without files.
    #[must_use]
    pub fn of(sort: &'static str, name: impl Into<String>) -> Self {
        Self { subject: Some(Subject { sort, name: name.into() }), ..Self::default() }
    }

    /// Adds files that are written as a whole.
    #[must_use]
    pub fn with_own(self, paths: impl IntoIterator<Item = String>) -> Self {
        self.with(paths, Access::Alone)
    }

    /// Adds files or folders that are written with everything below them.
    #[must_use]
    pub fn with_whole(self, paths: impl IntoIterator<Item = String>) -> Self {
        self.with(paths, Access::Whole)
    }

    /// Adds files of which parts are written.
    #[must_use]
    pub fn with_shared(self, paths: &[&str]) -> Self {
        self.with(paths.iter().map(|path| (*path).to_owned()), Access::Shared)
    }

    fn with(mut self, paths: impl IntoIterator<Item = String>, access: Access) -> Self {
        self.files.extend(paths.into_iter().map(|path| OwnedFile { path, access }));
        self
    }
}
