//! The kind `absent`: a path that does not exist.

use std::path::{Component, Path, PathBuf};

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint};

/// The content of `absent`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// The file, link or folder that must not exist: an absolute path. It returns when the change object leaves.
    pub path: String,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Content for Absent {
    const KIND: Builtin = Builtin::setting("absent");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let path = Path::new(self.path());
        let mut parts = path.components();
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if parts.next() != Some(Component::RootDir) || !parts.clone().all(is_plain) || self.path.contains('\0') {
            let what = format!("{:?} is not a path that can be removed", self.path);
            faults.add("path", what, "write it from the root and without `..`, for example /etc/nginx/conf.d/old.conf");
        } else if parts.count() < 2 {
            let what = format!("without {:?} the host does not work", self.path);
            faults.add("path", what, "name a path inside of a folder of the root, for example /srv/old");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::default().with_whole([self.path().to_owned()])
    }
}

impl Absent {
    /// The path without a slash at its end.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.trim_end_matches('/')
    }
}
