//! The kind `alternative`: the program behind a common name, such as `editor`.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint};

/// The content of `alternative`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// The common name, as `update-alternatives --get-selections` shows it.
    pub name: String,
    /// The program, which a package offers for the name.
    pub path: String,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Alternative {
    /// The folder of links.
    pub const FOLDER: &'static str = "/etc/alternatives";

    /// The link behind the common name.
    #[must_use]
    pub fn link(&self) -> String {
        format!("{}/{}", Self::FOLDER, self.name)
    }
}

impl Content for Alternative {
    const KIND: Builtin = Builtin::setting("alternative");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
        if self.name.is_empty() || self.name.starts_with(['-', '.']) || self.name.contains(is_odd) {
            let what = format!("{:?} is not the name of alternatives", self.name);
            faults.add("name", what, "see `update-alternatives --get-selections`");
        }
        faults.check_absolute("path", Some(&self.path));
        if self.path.contains(|c: char| c.is_whitespace() || c.is_control()) {
            faults.add("path", "the path has white space or control characters", "write the path of a program");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("alternative", &self.name).with_own([self.link()])
    }
}
