//! The kind `host-entry`: names of an address in `/etc/hosts`.

use std::net::IpAddr;
use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint};

/// The content of `host-entry`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    /// The address.
    pub address: String,
    /// Its names, the full name first.
    pub names: Vec<String>,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Content for HostEntry {
    const KIND: Builtin = Builtin::setting("host-entry");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        if self.ip().is_none() {
            let what = format!("{:?} is not an address", self.address);
            faults.add("address", what, "write it as in 10.0.0.1 or fe80::1");
        }
        if self.names.is_empty() {
            faults.add("names", "`names` is empty", "write at least a name");
        }
        let is_good = |name: &String| {
            !name.is_empty() && name.len() < 254 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        };
        for name in self.names.iter().filter(|name| !is_good(name)) {
            let what = format!("{name:?} is not the name of a host");
            faults.add(("names", name), what, "letters, digits, dots and hyphens");
        }
    }

    /// A name may have several addresses, so entries are shared.
    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::default().with_shared(&[Self::FILE])
    }
}

impl HostEntry {
    /// The file.
    pub const FILE: &'static str = "/etc/hosts";

    /// The address; `None`: it is not an address.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.parse().ok()
    }
}
