//! The kind `hostname`: the name of the host, now and at every boot.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint};

/// The content of `hostname`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hostname {
    /// The name; a domain is usually left out.
    pub name: String,
    /// A folder that is to become a host, instead of the host itself: its file alone.
    pub root: Option<PathBuf>,
}

impl Hostname {
    /// The file that sets the name at boot.
    pub const FILE: &'static str = "/etc/hostname";
    /// The longest name that the kernel takes.
    const LONGEST: usize = 64;
}

impl Content for Hostname {
    const KIND: Builtin = Builtin::setting("hostname");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let is_label = |label: &str| {
            !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(fits)
        };
        // systemd removes a dot at the end, so that the file and the name would differ.
        if self.name.len() > Self::LONGEST || !self.name.split('.').all(is_label) {
            let what = format!("{:?} is not the name of a host", self.name);
            faults.add("name", what, "write letters and digits, with hyphens only inside, at most 64 characters");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("host name in", Self::FILE).with_own([Self::FILE.to_owned()])
    }
}
