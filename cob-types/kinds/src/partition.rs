//! The kind `partition`: a GPT partition of a disk or of an image file.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use cob_types::CobId;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::filesystem::{OnDeparture, is_uuid};
use super::footprint::Subject;
use super::source::{self, Size};
use super::{Builtin, Content, Faults, Footprint};

/// The longest name, in characters of a GPT.
const MAX_NAME: usize = 36;
/// The types with a word, as GUIDs of a GPT.
const TYPES: [(&str, &str); 5] = [
    ("linux", "0fc63daf-8483-4772-8e79-3d69d8477de4"),
    ("lvm", "e6d6d379-f507-44c2-a23c-238f2a3df928"),
    ("raid", "a19d880f-05fc-4d3b-a006-743f0f84911e"),
    ("efi", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"),
    ("swap", "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"),
];

/// The content of `partition`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// A block device, or an existing file that is an image: an absolute path.
    pub disk: String,
    /// The name in the table: the device is `/dev/disk/by-partlabel/NAME`.
    pub name: String,
    /// The size, rounded up to MiB.
    pub size: Option<Size>,
    /// The largest free space, later also all space behind it.
    #[serde(default)]
    pub rest: bool,
    /// The type: `linux` (default), `lvm`, `raid`, `efi`, `swap`, or a GUID.
    #[serde(rename = "type", default)]
    pub kind: PartitionType,
    /// The UUID of a partition that others made, as the refusal names it: the change object manages it.
    pub adopt: Option<String>,
    /// The UUID of a lost partition that may be made again, as the refusal names it.
    pub overwrite: Option<String>,
    /// When the change object leaves: `keep` the partition (default), or `erase` it if the change object made it and
    /// it is empty.
    #[serde(default)]
    pub on_departure: OnDeparture,
    /// A folder that is to become a host, instead of the host itself: `disk` is an image file in it.
    pub root: Option<PathBuf>,
}

/// The type of a partition: a GUID in small letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionType(String);

impl PartitionType {
    /// Its GUID, in small letters.
    #[must_use]
    pub fn guid(&self) -> &str {
        &self.0
    }
}

impl Default for PartitionType {
    fn default() -> Self {
        Self(TYPES[0].1.to_owned())
    }
}

impl<'de> Deserialize<'de> for PartitionType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(PartitionTypeVisitor)
    }
}

impl JsonSchema for PartitionType {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "PartitionType".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "x-what": "`linux`, `lvm`, `raid`, `efi`, `swap`, or a GUID" })
    }
}

struct PartitionTypeVisitor;

impl Visitor<'_> for PartitionTypeVisitor {
    type Value = PartitionType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`linux`, `lvm`, `raid`, `efi`, `swap`, or a GUID")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PartitionType, E> {
        let known = TYPES.iter().find(|(word, _)| *word == text).map(|(_, guid)| (*guid).to_owned());
        let guid = known.unwrap_or_else(|| text.to_ascii_lowercase());
        // Zeros mean an unused entry.
        let is_guid = is_uuid(&guid) && guid.bytes().any(|byte| byte != b'0' && byte != b'-');
        is_guid.then_some(PartitionType(guid)).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl Content for Partition {
    const KIND: Builtin = Builtin { timeout_ms: 300_000, ..Builtin::setting("partition") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        source::check_place("disk", &self.disk, faults);
        if self.root.is_some() && self.disk.starts_with("/dev/") {
            let what = format!("{:?} is a device of a running host, and `root` is a folder", self.disk);
            faults.add("disk", what, "name an image file below `root`");
        }
        // Other characters have another form below /dev/disk/by-partlabel.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
        let (name, is_short) = (&self.name, (1..=MAX_NAME).contains(&self.name.len()));
        if !is_short || name.starts_with(['-', '.']) || !name.chars().all(is_plain) {
            let help =
                format!("1 to {MAX_NAME} letters, digits, `+`, `_`, `.` and `-`, no `-` or `.` at the beginning");
            faults.add("name", format!("{name:?} is not a name of a partition"), help);
        }
        match self.size {
            Some(_) if self.rest => faults.add("rest", "`size` and `rest` are both given", "remove either key"),
            None if !self.rest => faults.add("size", "there is no size", "for example `size: 10G`, or `rest: true`"),
            Some(Size(0)) => faults.add("size", "the size is 0", "for example `10G`"),
            Some(_) | None => {}
        }
        for (key, uuid) in [("adopt", &self.adopt), ("overwrite", &self.overwrite)] {
            if let Some(uuid) = uuid.as_ref().filter(|uuid| !is_uuid(uuid)) {
                let what = format!("{uuid:?} is not the UUID of a partition");
                faults.add(key, what, "copy the UUID from the refusal");
            }
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of(Subject::PARTITION, format!("{}: {}", self.disk, self.name))
    }
}
