//! The kind `lvm-volume`: a logical volume of LVM, with its volume group and physical volumes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use cob_types::CobId;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::filesystem::OnDeparture;
use super::footprint::Subject;
use super::source::{self, Size};
use super::{Builtin, Content, Faults, Footprint};

/// The longest name of a group or volume.
const MAX_NAME: usize = 127;
/// Parts of names that LVM has for itself.
const RESERVED: [&str; 16] = [
    "_cdata", "_cmeta", "_corig", "_cpool", "_cvol", "_imeta", "_iorig", "_mimage", "_mlog", "_pmspare", "_rimage",
    "_rmeta", "_tdata", "_tmeta", "_vdata", "_vorigin",
];

/// The content of `lvm-volume`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LvmVolume {
    /// The volume group.
    pub group: String,
    /// The block devices of the group: absolute paths. Without them the group must exist.
    #[serde(default)]
    pub devices: Vec<String>,
    /// The logical volume: its device is `/dev/GROUP/NAME`.
    pub name: String,
    /// The least size: `20G`, or a share of the group, `80%`.
    pub size: VolumeSize,
    /// The UUID of a group that others made, as the refusal names it: the volume may be made in it.
    pub adopt: Option<String>,
    /// The UUID of a lost volume that may be made again, as the refusal names it.
    pub overwrite: Option<String>,
    /// When the change object leaves: `keep` the data (default), or `erase` the volume, the group and the physical
    /// volumes that it made.
    #[serde(default)]
    pub on_departure: OnDeparture,
}

/// The size of a logical volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeSize {
    /// A number of bytes.
    Bytes(Size),
    /// A share of the volume group, 1 to 100.
    Percent(u64),
}

impl VolumeSize {
    /// The number of extents in a group with so many extents of this length.
    #[must_use]
    pub fn extents(self, all: u64, length: u64) -> u64 {
        match self {
            Self::Bytes(size) => size.0.div_ceil(length.max(1)),
            Self::Percent(percent) => all.saturating_mul(percent) / 100,
        }
    }
}

impl fmt::Display for VolumeSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(size) => size.fmt(f),
            Self::Percent(percent) => write!(f, "{percent} % of the group"),
        }
    }
}

impl<'de> Deserialize<'de> for VolumeSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VolumeSizeVisitor)
    }
}

impl JsonSchema for VolumeSize {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "VolumeSize".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "x-what": "a size, such as `20G`, or a share of the volume group, such as `80%`",
        })
    }
}

struct VolumeSizeVisitor;

impl Visitor<'_> for VolumeSizeVisitor {
    type Value = VolumeSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size like \"20G\", or a share of the volume group like \"80%\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<VolumeSize, E> {
        let Some(percent) = text.strip_suffix('%') else {
            let size = Size::deserialize(de::value::StrDeserializer::<E>::new(text));
            return size.map(VolumeSize::Bytes).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self));
        };
        let share = percent.parse::<u64>().ok().filter(|share| (1..=100).contains(share));
        share.map(VolumeSize::Percent).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<VolumeSize, E> {
        Ok(VolumeSize::Bytes(Size(bytes)))
    }
}

impl Content for LvmVolume {
    const KIND: Builtin = Builtin { timeout_ms: 300_000, ..Builtin::setting("lvm-volume") };

    fn check(&self, faults: &mut Faults) {
        for (key, name) in [("group", &self.group), ("name", &self.name)] {
            if let Err(help) = check_name(key, name) {
                faults.add(key, format!("{name:?} is not a name of LVM"), help);
            }
        }
        let mut seen = BTreeSet::new();
        for device in &self.devices {
            let mut of_path = Faults::default();
            source::check_place("devices", device, &mut of_path);
            if of_path.first().is_err() {
                let what = format!("{device:?} is not a block device");
                faults.add(("devices", device), what, "write its path, for example /dev/vdb or /dev/disk/by-id/…");
            } else if !seen.insert(device) {
                faults.add(("devices", device), format!("{device} is there twice"), "remove the repetition");
            }
        }
        if self.size == VolumeSize::Bytes(Size(0)) {
            faults.add("size", "the size is 0", "for example `20G` or `80%`");
        }
        for (key, uuid) in [("adopt", &self.adopt), ("overwrite", &self.overwrite)] {
            if let Some(uuid) = uuid.as_ref().filter(|uuid| !is_uuid(uuid)) {
                faults.add(key, format!("{uuid:?} is not a UUID of LVM"), "copy the UUID from the refusal");
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let mut footprint = Footprint::of("logical volume", format!("{}/{}", self.group, self.name));
        let devices = self.devices.iter();
        footprint.parts.extend(devices.map(|device| Subject { sort: Subject::DEVICE, name: device.clone() }));
        footprint
    }
}

/// Checks a name of a group or volume; the error is the remedy.
fn check_name(key: &str, name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with(['-', '.']) || !name.chars().all(is_plain) {
        return Err(format!("1 to {MAX_NAME} letters, digits, `+`, `_`, `.` and `-`, no `-` or `.` at the beginning"));
    }
    let is_reserved = name.starts_with("snapshot") || name.starts_with("pvmove");
    if key == "name" && (is_reserved || RESERVED.iter().any(|part| name.contains(part))) {
        return Err("LVM has names with this part for itself: choose another name".to_owned());
    }
    Ok(())
}

/// Whether a text has the form of a UUID of LVM, for example `kjpraW-AYaT-yRNl-q0x2-Thfv-pT8N-opMzX3`.
fn is_uuid(text: &str) -> bool {
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.split('-').map(str::len).eq([6, 4, 4, 4, 4, 4, 6]) && text.split('-').all(is_plain)
}
