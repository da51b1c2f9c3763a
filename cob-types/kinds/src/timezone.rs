//! The kind `timezone`: the time zone of the host.

use std::path::PathBuf;

use cob_types::CobId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Builtin, Content, Faults, Footprint};

/// The content of `timezone`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timezone {
    /// The zone, as its file below `/usr/share/zoneinfo`: `Europe/Berlin`.
    pub zone: String,
    /// A folder that is to become a host, instead of the host itself.
    pub root: Option<PathBuf>,
}

impl Timezone {
    /// The link to the file of the zone.
    pub const LINK: &'static str = "/etc/localtime";
    /// The file with the name of the zone, on some distributions.
    pub const FILE: &'static str = "/etc/timezone";
    /// The folder of all zones.
    pub const ZONES: &'static str = "/usr/share/zoneinfo";
}

impl Content for Timezone {
    const KIND: Builtin = Builtin::setting("timezone");

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let fits = |c: char| c.is_ascii_alphanumeric() || "_+-".contains(c);
        let is_name = |name: &str| !name.is_empty() && name.chars().all(fits);
        if self.zone.len() > 255 || !self.zone.split('/').all(is_name) {
            let what = format!("{:?} is not the name of a time zone", self.zone);
            faults.add("zone", what, "write it as in Europe/Berlin or Etc/UTC: `timedatectl list-timezones`");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        Footprint::of("time zone in", Self::LINK).with_own([Self::LINK, Self::FILE].map(str::to_owned))
    }
}
