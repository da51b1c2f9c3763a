//! The kind `host-entry`: names of an address in `/etc/hosts`.

use std::net::IpAddr;
use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::footprint::Subject;
use super::{Builtin, Content, Faults, Footprint};

/// The content of `host-entry`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    /// The address. With `absent` it can be left out: then the names must not have any address.
    #[serde(default)]
    pub address: String,
    /// Its names, the full name first. With `absent` they can be left out: then no name must have the address.
    #[serde(default)]
    pub names: Vec<String>,
    /// The names must not have the address. Earlier lines return when the change object leaves.
    #[serde(default)]
    pub absent: bool,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Content for HostEntry {
    const KIND: Builtin = Builtin::setting("host-entry");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        if self.absent && self.address.is_empty() && self.names.is_empty() {
            faults.add_as("missing-key", "names", "the content of `host-entry` names nothing", "add `names: [NAME]`");
        }
        if self.address.is_empty() && !self.absent {
            let help = "add `address: ADDRESS`";
            faults.add_as("missing-key", "address", "the content of `host-entry` lacks `address`", help);
        } else if self.ip().is_none() && !(self.absent && self.address.is_empty()) {
            let what = format!("{:?} is not an address", self.address);
            faults.add("address", what, "write it as in 10.0.0.1 or fe80::1");
        }
        if self.names.is_empty() && !self.absent {
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
        let mut footprint = Footprint::default().with_shared(&[Self::FILE]);
        if self.absent {
            let of = if self.address.is_empty() { String::new() } else { format!(" of {}", self.address) };
            let mut names: Vec<String> = self.names.iter().map(|name| name.to_ascii_lowercase() + &of).collect();
            names.extend(self.names.is_empty().then(|| self.address.clone()));
            let claimed = |name| Subject { sort: "absent entry of /etc/hosts:", name };
            footprint.parts.extend(names.into_iter().map(claimed));
        }
        footprint
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
