//! The kind `attributes`: mode, owner and group of a file or folder that others make.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint, source};

/// The content of `attributes`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attributes {
    /// The file or folder: an absolute path.
    pub path: String,
    /// Its mode, in quotes.
    #[schemars(extend("x-mode" = true, "x-what" = "a file mode in quotes"))]
    pub mode: Option<String>,
    /// Its owner, a name or a number.
    pub owner: Option<String>,
    /// Its group, a name or a number.
    pub group: Option<String>,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Content for Attributes {
    const KIND: Builtin = Builtin::setting("attributes");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_place("path", &self.path, faults);
        source::check_mode(self.mode.as_ref(), faults);
        source::check_owner(self.owner.as_ref(), self.group.as_ref(), faults);
        if self.mode.is_none() && self.owner.is_none() && self.group.is_none() {
            faults.add("mode", "no attribute is given", "write `mode`, `owner` or `group`");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("attributes of", &self.path).with_shared(&[&self.path])
    }
}

impl Attributes {
    /// The mode as a number.
    #[must_use]
    pub fn mode(&self) -> Option<u32> {
        self.mode.as_deref().and_then(source::mode)
    }
}
