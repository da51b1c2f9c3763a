//! The kind `raid`: an array of Linux software RAID.

use std::collections::BTreeSet;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::filesystem::{OnDeparture, is_uuid};
use super::footprint::Subject;
use super::source;
use super::{Builtin, Content, Faults, Footprint};

/// The longest name: with `any:` in front it has to fit into a superblock.
const MAX_NAME: usize = 28;
/// The levels, with the least number of devices.
const LEVELS: [(u8, usize); 6] = [(0, 2), (1, 2), (4, 3), (5, 3), (6, 4), (10, 2)];

/// The content of `raid`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Raid {
    /// The array: its device is `/dev/md/NAME`.
    pub name: String,
    /// The level: 0, 1, 4, 5, 6 or 10.
    pub level: u8,
    /// The block devices that have the data: absolute paths. A device that is named later replaces a missing or faulty
    /// device, or becomes a spare.
    pub devices: Vec<String>,
    /// The block devices that replace a faulty device: absolute paths.
    #[serde(default)]
    pub spares: Vec<String>,
    /// The UUID of an array that others made, as the refusal names it: the change object manages it.
    pub adopt: Option<String>,
    /// The UUID of a lost array that may be made again, as the refusal names it.
    pub overwrite: Option<String>,
    /// When the change object leaves: `keep` the array (default), or `erase` it if the change object made it.
    #[serde(default)]
    pub on_departure: OnDeparture,
}

impl Raid {
    /// All devices, with the spares last.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.devices.iter().chain(&self.spares)
    }

    /// Whether the array has redundant data.
    #[must_use]
    pub fn is_redundant(&self) -> bool {
        self.level != 0
    }
}

impl Content for Raid {
    const KIND: Builtin = Builtin { timeout_ms: 300_000, ..Builtin::setting("raid") };

    fn check(&self, faults: &mut Faults) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
        let is_short = (1..=MAX_NAME).contains(&self.name.len());
        // mdadm gives numbers to devices without a name.
        let is_number = self.name.trim_start_matches("md").bytes().all(|byte| byte.is_ascii_digit());
        if !is_short || is_number || self.name.starts_with(['-', '.']) || !self.name.chars().all(is_plain) {
            let help = format!(
                "1 to {MAX_NAME} letters, digits, `+`, `_`, `.` and `-`, no `-` or `.` at the beginning, no number"
            );
            faults.add("name", format!("{:?} is not a name of an array", self.name), help);
        }
        match LEVELS.iter().find(|(level, _)| *level == self.level) {
            None => faults.add("level", format!("there is no level {}", self.level), "0, 1, 4, 5, 6 or 10"),
            Some((level, least)) if self.devices.len() < *least => {
                let what = format!("there are {} devices", self.devices.len());
                faults.add("devices", what, format!("level {level} takes at least {least}"));
            }
            Some(_) if !self.is_redundant() && !self.spares.is_empty() => {
                faults.add("spares", "level 0 has no redundant data", "remove `spares`, or choose another level");
            }
            Some(_) => {}
        }
        let mut seen = BTreeSet::new();
        for (key, device) in
            self.devices.iter().map(|one| ("devices", one)).chain(self.spares.iter().map(|one| ("spares", one)))
        {
            let mut of_path = Faults::default();
            source::check_place(key, device, &mut of_path);
            if of_path.first().is_err() {
                let what = format!("{device:?} is not a block device");
                faults.add((key, device), what, "write its path, for example /dev/vdb or /dev/disk/by-id/…");
            } else if !seen.insert(device) {
                faults.add((key, device), format!("{device} is there twice"), "remove the repetition");
            }
        }
        for (key, uuid) in [("adopt", &self.adopt), ("overwrite", &self.overwrite)] {
            if let Some(uuid) = uuid.as_ref().filter(|uuid| !is_uuid(uuid)) {
                faults.add(key, format!("{uuid:?} is not the UUID of an array"), "copy the UUID from the refusal");
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let mut footprint = Footprint::of("array", &self.name);
        footprint.parts.extend(self.all().map(|device| Subject { sort: Subject::DEVICE, name: device.clone() }));
        footprint
    }
}
