//! Contents that are kept and are too large to be held: they go straight into a pack, which counts when what rests on it is
//! recorded.

use std::io::Read;
use std::path::PathBuf;

use git2::Oid;

use super::pack::NewPack;

/// What is larger is not held in memory.
pub(crate) const HELD: u64 = 256 << 10;

/// Contents on their way into the store. Dropped, nothing of them is left.
pub(crate) struct Spool {
    folder: PathBuf,
    pack: Option<NewPack>,
}

impl Spool {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, pack: None }
    }

    /// Takes up a file of so many bytes; none: it has another length.
    pub(crate) fn add(&mut self, size: u64, from: impl Read) -> std::io::Result<Option<Oid>> {
        let pack = match self.pack.take() {
            Some(pack) => pack,
            None => NewPack::begin(&self.folder)?,
        };
        self.pack.insert(pack).add_file(size, from)
    }

    /// The bytes that it takes on the disk.
    pub(crate) fn size(&self) -> u64 {
        self.pack.as_ref().map_or(0, NewPack::size)
    }

    /// The pack, if there is anything in it.
    pub(super) fn into_pack(self) -> Option<NewPack> {
        self.pack
    }
}
