//! The kind `divert`: a file of a package under another name, by `dpkg-divert`.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::edits::{check_file, check_path};
use super::{Builtin, Content, Faults, Footprint, yes};

/// The content of `divert`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Divert {
    /// The path of the file in its package.
    pub path: String,
    /// The path that the file gets instead; default: the path with `.distrib` at its end.
    pub to: Option<String>,
    /// Whether a file that exists is renamed.
    #[serde(default = "yes")]
    pub rename: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Divert {
    /// The path that the file gets.
    #[must_use]
    pub fn to(&self) -> String {
        self.to.clone().unwrap_or_else(|| format!("{}.distrib", self.path))
    }
}

impl Content for Divert {
    const KIND: Builtin = Builtin { timeout_ms: 1_800_000, ..Builtin::setting("divert") };

    fn check(&self, faults: &mut Faults) {
        check_path(&self.path, self.root.as_ref(), faults);
        let to = self.to();
        check_file("to", &to, faults);
        let path = &self.path;
        if to == *path {
            faults.add("to", format!("the file would keep the path {path}"), "name another path, or remove the key");
        }
        for (key, path) in [("path", path), ("to", &to)] {
            if path.contains(char::is_control) {
                faults.add(key, format!("{path:?} has control characters"), "choose a path of printable characters");
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("diversion of", &self.path).with_own([self.to()])
    }
}
