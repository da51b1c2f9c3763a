//! The kind `luks`: an encrypted block device.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::filesystem::{OnDeparture, is_uuid};
use super::footprint::Subject;
use super::source;
use super::{Builtin, Content, Faults, Footprint, Scalar, yes};

/// The longest name of a mapping.
const MAX_NAME: usize = 127;
/// The options of `cryptsetup luksFormat` that a content may set. Others choose a device, a file, an identity, or
/// weaken the checks.
const OPTIONS: [&str; 9] = [
    "--cipher",
    "--hash",
    "--iter-time",
    "--key-size",
    "--pbkdf",
    "--pbkdf-force-iterations",
    "--pbkdf-memory",
    "--pbkdf-parallel",
    "--sector-size",
];

/// The content of `luks`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Luks {
    /// A block device: an absolute path. With `root`, an existing file as an image.
    pub device: String,
    /// The name of the open device: `/dev/mapper/NAME`.
    pub name: String,
    /// A file on the host with the key, that only root can read: an absolute path.
    pub key_file: String,
    /// Options of `cryptsetup luksFormat` for a new header: `{--pbkdf: argon2id}`.
    #[serde(default)]
    pub options: BTreeMap<String, Scalar>,
    /// A line in `/etc/crypttab` opens the device at every boot; default: true.
    #[serde(default = "yes")]
    pub open_at_boot: bool,
    /// The UUID of a header that others made, as the refusal names it: the change object manages it.
    pub adopt: Option<String>,
    /// The data on the device that may be lost, by the word that the refusal names.
    pub overwrite: Option<String>,
    /// When the change object leaves: `keep` the data (default), or `erase` a header that it made, and so all data.
    #[serde(default)]
    pub on_departure: OnDeparture,
    /// A folder that is to become a host, instead of the host itself: `device` is an image file in it.
    pub root: Option<PathBuf>,
}

impl Content for Luks {
    const KIND: Builtin = Builtin { timeout_ms: 300_000, ..Builtin::setting("luks") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_place("device", &self.device, faults);
        source::check_place("key_file", &self.key_file, faults);
        if self.root.is_some() && self.device.starts_with("/dev/") {
            let what = format!("{:?} is a device of a running host, and `root` is a folder", self.device);
            faults.add("device", what, "name an image file below `root`");
        }
        // A line of /etc/crypttab has no escapes.
        if self.key_file.contains(char::is_whitespace) {
            faults.add("key_file", format!("{:?} has blanks", self.key_file), "name a file without blanks");
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
        let (name, is_short) = (&self.name, (1..=MAX_NAME).contains(&self.name.len()));
        if !is_short || name == "control" || name.starts_with(['-', '.']) || !name.chars().all(is_plain) {
            let help =
                format!("1 to {MAX_NAME} letters, digits, `+`, `_`, `.` and `-`, no `-` or `.` at the beginning");
            faults.add("name", format!("{name:?} is not a name of a device"), help);
        }
        for key in self.options.keys() {
            if let Err((what, help)) = self.option(key) {
                faults.add(("options", key), what, help);
            }
        }
        if let Some(uuid) = self.adopt.as_ref().filter(|uuid| !is_uuid(uuid)) {
            faults.add("adopt", format!("{uuid:?} is not a UUID"), "copy the UUID from the refusal");
        }
        if self.overwrite.as_ref().is_some_and(|word| word.trim().is_empty()) {
            let help = "copy the word from the refusal, or remove the key";
            faults.add("overwrite", "`overwrite` names no signature", help);
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let mut footprint = Footprint::of(Subject::DEVICE, &self.device);
        footprint.parts.push(Subject { sort: "device", name: format!("/dev/mapper/{}", self.name) });
        if self.open_at_boot { footprint.with_shared(&[Self::TABLE]) } else { footprint }
    }
}

impl Luks {
    /// The table of devices that are opened at boot.
    pub const TABLE: &'static str = "/etc/crypttab";

    /// The options of `cryptsetup luksFormat`, each with its value in a single word.
    ///
    /// # Errors
    /// The fault of an option, as text.
    pub fn words(&self) -> Result<Vec<String>, String> {
        let words = self.options.keys().map(|key| self.option(key));
        words.collect::<Result<_, _>>().map_err(|(what, help)| format!("{what}; {help}"))
    }

    fn option(&self, key: &str) -> Result<String, (String, String)> {
        if !OPTIONS.contains(&key) {
            let what = format!("{key:?} is not an option of cryptsetup luksFormat that a content may set");
            return Err((what, format!("one of {}", OPTIONS.join(", "))));
        }
        let value = self.options.get(key).map_or_else(|| Ok(String::new()), |v| v.text(key, None))?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ":_-".contains(c);
        if value.is_empty() || value.starts_with('-') || !value.chars().all(is_plain) {
            return Err((format!("{key} {value:?} is not a value"), "letters, digits, `:`, `_` and `-`".to_owned()));
        }
        if key == "--cipher" && value.contains("null") {
            return Err((format!("{value} does not encrypt"), "for example aes-xts-plain64".to_owned()));
        }
        Ok(format!("{key}={value}"))
    }
}
