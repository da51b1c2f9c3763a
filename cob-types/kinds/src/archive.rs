//! The kind `archive`: a folder with the content of a tar or zip archive.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::source::{self, Size};
use super::{Builtin, Content, Faults, Footprint};

/// The largest number of leading folders that are removed.
const MAX_STRIP: usize = 16;

/// The content of `archive`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// An archive on the host: an absolute path.
    pub path: Option<String>,
    /// The address of an archive, `https://…` or `http://…`, instead of `path`.
    pub url: Option<String>,
    /// Several addresses of the same archive, instead of `url`: they are tried in this order.
    #[serde(default)]
    pub urls: Vec<String>,
    /// The checksum of the archive, as `sha256sum` prints it.
    pub sha256: Option<String>,
    /// The format; default: by the end of the name.
    pub format: Option<ArchiveFormat>,
    /// The folder: an absolute path. It has only the content of the archive.
    pub to: String,
    /// The number of leading folders that are removed from each path in the archive.
    #[serde(default)]
    pub strip: usize,
    /// The owner of all files, a name or a number; default: the daemon's user.
    pub owner: Option<String>,
    /// The group of all files, a name or a number; default: the daemon's group.
    pub group: Option<String>,
    /// A proxy, as in `http://proxy:3128`.
    pub proxy: Option<String>,
    /// A file of the host with users and passwords of servers, in the format of `netrc`.
    pub netrc: Option<PathBuf>,
    /// The largest size of the archive, and of all its files together.
    #[serde(default = "largest")]
    pub max_size: Size,
    /// The most files, folders and links.
    #[serde(default = "most")]
    pub max_entries: usize,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum ArchiveFormat {
    /// tar without compression.
    #[serde(rename = "tar")]
    Tar,
    /// tar with gzip.
    #[serde(rename = "tar.gz")]
    TarGz,
    /// tar with xz.
    #[serde(rename = "tar.xz")]
    TarXz,
    /// tar with Zstandard.
    #[serde(rename = "tar.zst")]
    TarZst,
    /// zip.
    #[serde(rename = "zip")]
    Zip,
}

fn largest() -> Size {
    Size::gib(2)
}

fn most() -> usize {
    100_000
}

impl Content for Archive {
    // A check reads all files.
    const KIND: Builtin = Builtin { interval_ms: Some(600_000), timeout_ms: 1_800_000, ..Builtin::setting("archive") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_whole_folder("to", &self.to, faults);
        let has_address = !self.addresses().is_empty();
        match (&self.path, has_address) {
            (None, false) => {
                faults.add("url", "no archive is given", "write `url: https://HOST/PATH` or `path: /PATH`")
            }
            (Some(_), true) => {
                faults.add("path", "`path` and an address exclude each other", "remove either of the two")
            }
            (Some(path), false) => source::check_place("path", path, faults),
            (None, true) if self.sha256.is_none() => {
                let help = "write `sha256` with the digits that `sha256sum FILE` prints";
                faults.add("sha256", "the archive has no checksum, so any content would be accepted", help);
            }
            (None, true) => {}
        }
        source::check_addresses((self.url.as_ref(), &self.urls), self.proxy.as_ref(), self.netrc.as_ref(), faults);
        source::check_sha256(self.sha256.as_ref(), faults);
        source::check_owner(self.owner.as_ref(), self.group.as_ref(), faults);
        if self.format().is_none() {
            let help = "write `format: tar`, `tar.gz`, `tar.xz`, `tar.zst` or `zip`";
            faults.add("format", "the name of the archive does not tell its format", help);
        }
        if self.strip > MAX_STRIP {
            faults.add("strip", format!("`strip` is larger than {MAX_STRIP}"), "the number of leading folders");
        }
        if self.max_entries == 0 || self.max_entries > 400_000 {
            faults.add("max_entries", "`max_entries` is not between 1 and 400000", "remove the key for 100000");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("folder", &self.to).with_whole([self.to.clone()])
    }
}

impl Archive {
    /// The addresses, in the order of the attempts.
    #[must_use]
    pub fn addresses(&self) -> Vec<&str> {
        source::addresses(self.url.as_ref(), &self.urls)
    }

    /// The format, given or by the end of the name.
    #[must_use]
    pub fn format(&self) -> Option<ArchiveFormat> {
        if self.format.is_some() {
            return self.format;
        }
        let name = self.path.as_deref().or_else(|| self.addresses().first().copied())?;
        let name = name.split(['?', '#']).next().unwrap_or(name).to_ascii_lowercase();
        let ends = [
            (&[".tar"][..], ArchiveFormat::Tar),
            (&[".tar.gz", ".tgz"], ArchiveFormat::TarGz),
            (&[".tar.xz", ".txz"], ArchiveFormat::TarXz),
            (&[".tar.zst", ".tzst"], ArchiveFormat::TarZst),
            (&[".zip", ".jar"], ArchiveFormat::Zip),
        ];
        ends.into_iter().find(|(ends, _)| ends.iter().any(|end| name.ends_with(end))).map(|(_, format)| format)
    }
}
