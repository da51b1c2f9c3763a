//! The kind `swap-file`: a file for pages that do not fit into memory.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::source::{self, Size};
use super::{Builtin, Content, Faults, Footprint};

/// The smallest file.
const SMALLEST: Size = Size(1 << 20);
/// The largest file.
const LARGEST: Size = Size::gib(16 << 10);
/// The largest priority.
const MAX_PRIORITY: i64 = 32_767;

/// The content of `swap-file`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SwapFile {
    /// The file: an absolute path. It must not exist before.
    pub path: String,
    /// Its size.
    pub size: Size,
    /// Swap with a higher priority is used first, 0 to 32767; default: the kernel decides.
    pub priority: Option<i64>,
    /// A folder that is to become a host, instead of the host itself: the file and its line in `/etc/fstab` alone.
    pub root: Option<PathBuf>,
}

impl Content for SwapFile {
    const KIND: Builtin = Builtin { timeout_ms: 1_800_000, ..Builtin::setting("swap-file") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_place("path", &self.path, faults);
        if self.path.contains(['#', '\\']) {
            faults.add(
                "path",
                format!("{:?} has a character that `/etc/fstab` can't have", self.path),
                "rename the file",
            );
        }
        if self.size < SMALLEST || self.size > LARGEST || !self.size.0.is_multiple_of(4096) {
            let what = format!("{} is not a size for swap", self.size);
            faults.add("size", what, "at least 1 MiB and at most 16 TiB, in steps of 4096 bytes: for example `2G`");
        }
        if self.priority.is_some_and(|priority| !(0..=MAX_PRIORITY).contains(&priority)) {
            faults.add("priority", "`priority` is not between 0 and 32767", "remove the key, or write a number");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("swap file", &self.path).with_own([self.path.clone()]).with_shared(&["/etc/fstab"])
    }
}
