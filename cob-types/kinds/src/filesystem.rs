//! The kind `filesystem`: a file system on a block device or an image file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::footprint::Subject;
use super::source;
use super::{Builtin, Content, Faults, Footprint, Scalar, yes};

/// The content of `filesystem`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Filesystem {
    /// A block device, or an existing file that is an image: an absolute path.
    pub device: String,
    /// The type: `ext4`, `xfs` or `btrfs`.
    #[serde(rename = "type")]
    pub kind: FilesystemType,
    /// The label of a new file system.
    pub label: Option<String>,
    /// The UUID of a new file system, and the only UUID that is accepted; default: a random UUID.
    pub uuid: Option<String>,
    /// Options of `mkfs` for a new file system: `{-m: 1}`; `true` for an option without a value.
    #[serde(default)]
    pub options: BTreeMap<String, Scalar>,
    /// Grow the file system when the device has grown; default: true.
    #[serde(default = "yes")]
    pub grow: bool,
    /// The UUID or signature on the device that may be overwritten, as the refusal names it.
    pub overwrite: Option<String>,
    /// When the change object leaves: `keep` the data (default), or `erase` a file system that it made.
    #[serde(default)]
    pub on_departure: OnDeparture,
    /// A folder that is to become a host, instead of the host itself: `device` is an image file in it.
    pub root: Option<PathBuf>,
}

/// The type of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FilesystemType {
    /// The fourth extended file system.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs, on a single device.
    Btrfs,
}

/// The effect of a departure on data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDeparture {
    /// The data stay.
    #[default]
    Keep,
    /// The data on all that the change object made are erased.
    Erase,
}

impl FilesystemType {
    /// Its name, as `blkid` and `mount` write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The package with its programs.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
            Self::Btrfs => "btrfs-progs",
        }
    }

    /// The options of `mkfs` that a content may set. Others choose the device, force, or belong to keys.
    fn options(self) -> &'static str {
        match self {
            Self::Ext4 => "bCEgGiIJmMNOrT",
            Self::Xfs => "bdiKlmns",
            Self::Btrfs => "AdKmnO",
        }
    }

    /// The longest label, in bytes.
    fn max_label(self) -> usize {
        match self {
            Self::Ext4 => 16,
            Self::Xfs => 12,
            Self::Btrfs => 255,
        }
    }
}

/// Words in a value that name another device, a file or an identity: checks of the device would not see them.
const ELSEWHERE: [&str; 7] = ["device", "logdev", "rtdev", "name", "file", "uuid", "offset"];

impl Content for Filesystem {
    const KIND: Builtin = Builtin { timeout_ms: 1_800_000, ..Builtin::setting("filesystem") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_place("device", &self.device, faults);
        if self.root.is_some() && self.device.starts_with("/dev/") {
            let what = format!("{:?} is a device of a running host, and `root` is a folder", self.device);
            faults.add("device", what, "name an image file below `root`");
        }
        if let Some(label) = &self.label {
            let longest = self.kind.max_label();
            let is_odd = |c: char| c.is_control() || c.is_whitespace() || "/\\\"'".contains(c);
            if label.is_empty() || label.len() > longest || label.starts_with('-') || label.contains(is_odd) {
                let what = format!("{label:?} is not a label of {}", self.kind.name());
                faults.add("label", what, format!("1 to {longest} bytes without blanks, slashes and quotes"));
            }
        }
        if let Some(uuid) = self.uuid.as_ref().filter(|uuid| !is_uuid(uuid)) {
            let what = format!("{uuid:?} is not a UUID");
            faults.add("uuid", what, "32 hexadecimal digits in small letters, as `uuidgen` prints them");
        }
        for key in self.options.keys() {
            if let Err((what, help)) = self.option(key) {
                faults.add(("options", key), what, help);
            }
        }
        if self.overwrite.as_ref().is_some_and(|word| word.trim().is_empty()) {
            faults.add(
                "overwrite",
                "`overwrite` names no signature",
                "copy the word from the refusal, or remove the key",
            );
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of(Subject::DEVICE, &self.device)
    }
}

impl Filesystem {
    /// The options of `mkfs`, each with its value in a single word: a word cannot be read as another device.
    ///
    /// # Errors
    /// The fault of an option, as text.
    pub fn words(&self) -> Result<Vec<String>, String> {
        let words = self.options.keys().map(|key| self.option(key));
        words.collect::<Result<_, _>>().map_err(|(what, help)| format!("{what}; {help}"))
    }

    fn option(&self, key: &str) -> Result<String, (String, String)> {
        let allowed = self.kind.options();
        let letter = key.strip_prefix('-').filter(|rest| rest.len() == 1 && allowed.contains(rest));
        if letter.is_none() {
            let what = format!("{key:?} is not an option of mkfs.{} that a content may set", self.kind.name());
            let each: Vec<String> = allowed.chars().map(|letter| format!("-{letter}")).collect();
            return Err((what, format!("one of {}", each.join(", "))));
        }
        let value = self.options.get(key).map_or_else(|| Ok(String::new()), |v| v.text(key, Some(["false", ""])))?;
        let names_another = value.split([',', '=']).any(|word| ELSEWHERE.contains(&word.trim()));
        if value.contains(['/', '\0', '\n']) || names_another {
            let what = format!("{key} {value:?} names a device, a file or an identity");
            return Err((what, "use the keys `device`, `label` and `uuid`".to_owned()));
        }
        if value == "false" {
            return Err((format!("{key} is false"), "remove the option".to_owned()));
        }
        if key == "-K" && !value.is_empty() {
            return Err((format!("{key} takes no value"), "write true".to_owned()));
        }
        Ok(format!("{key}{value}"))
    }
}

/// Whether a text is a UUID in small letters.
pub(super) fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
