//! The kind `download`: a file from a web server, with a known checksum.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::source::{self, Size};
use super::{Builtin, Content, Faults, Footprint};

/// The content of `download`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Download {
    /// The address, `https://…` or `http://…`.
    pub url: Option<String>,
    /// Several addresses of the same file, instead of `url`: they are tried in this order.
    #[serde(default)]
    pub urls: Vec<String>,
    /// The checksum, as `sha256sum` prints it.
    pub sha256: Option<String>,
    /// `none`: the file has no known checksum, and whatever the server sends is accepted.
    pub checksum: Option<Checksum>,
    /// The file: an absolute path. Folders that are missing are made.
    pub to: String,
    /// Its mode, in quotes.
    #[schemars(extend("x-mode" = true, "x-what" = "a file mode in quotes"))]
    pub mode: Option<String>,
    /// Its owner, a name or a number; default: the daemon's user.
    pub owner: Option<String>,
    /// Its group, a name or a number; default: the daemon's group.
    pub group: Option<String>,
    /// A proxy, as in `http://proxy:3128`.
    pub proxy: Option<String>,
    /// A file of the host with users and passwords of servers, in the format of `netrc`.
    pub netrc: Option<PathBuf>,
    /// The largest size that is accepted.
    #[serde(default = "largest")]
    pub max_size: Size,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// The alternative to a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// The file is not compared with a checksum.
    None,
}

fn largest() -> Size {
    Size::gib(1)
}

impl Content for Download {
    // A check reads the whole file.
    const KIND: Builtin = Builtin { interval_ms: Some(600_000), timeout_ms: 1_800_000, ..Builtin::setting("download") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_place("to", &self.to, faults);
        if self.addresses().is_empty() {
            faults.add("url", "no address is given", "write `url: https://HOST/PATH`");
        }
        source::check_addresses((self.url.as_ref(), &self.urls), self.proxy.as_ref(), self.netrc.as_ref(), faults);
        source::check_sha256(self.sha256.as_ref(), faults);
        match (&self.sha256, self.checksum) {
            (None, None) => {
                let help = "write `sha256` with the digits that `sha256sum FILE` prints, or `checksum: none`";
                faults.add("sha256", "the file has no checksum, so any content would be accepted", help);
            }
            (Some(_), Some(_)) => {
                faults.add("checksum", "`sha256` and `checksum: none` exclude each other", "remove either of the two");
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
        source::check_mode(self.mode.as_ref(), faults);
        source::check_owner(self.owner.as_ref(), self.group.as_ref(), faults);
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("file", &self.to).with_own([self.to.clone()])
    }
}

impl Download {
    /// The addresses, in the order of the attempts.
    #[must_use]
    pub fn addresses(&self) -> Vec<&str> {
        source::addresses(self.url.as_ref(), &self.urls)
    }

    /// The mode as a number; default: readable for all users. `None`: it is not a mode.
    #[must_use]
    pub fn mode(&self) -> Option<u32> {
        self.mode.as_deref().map_or(Some(0o644), source::mode)
    }
}
