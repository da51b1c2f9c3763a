//! Contents that are too large for memory: these go straight into a pack, which counts when the record that needs it is
//! written.

use std::io::Read;
use std::path::PathBuf;

use cob_depot::pack::PackWriter;
use git2::Oid;

use super::write::PACK_MODE;

/// The largest content that is held in memory.
pub(crate) const HELD: u64 = 256 << 10;

/// Contents on their way into the store. If the spool is dropped, its pack is removed.
pub(crate) struct Spool {
    folder: PathBuf,
    pack: Option<PackWriter>,
}

impl Spool {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, pack: None }
    }

    /// Adds a file of this size; `None`: it has another length.
    pub(crate) fn add(&mut self, size: u64, from: impl Read) -> std::io::Result<Option<Oid>> {
        let pack = match self.pack.take() {
            Some(pack) => pack,
            None => PackWriter::begin(&self.folder, PACK_MODE)?,
        };
        self.pack.insert(pack).add_file(size, from)
    }

    /// The bytes on the disk.
    pub(crate) fn size(&self) -> u64 {
        self.pack.as_ref().map_or(0, PackWriter::size)
    }

    /// The pack, if it was started.
    pub(super) fn into_pack(self) -> Option<PackWriter> {
        self.pack
    }
}
