//! The kind back end `filesystem`: a file system on a block device or an image file.
//!
//! It is made once, grows with its device, and is never made over data that the content does not name.
//!
//! A record in the change object's own folder says which file system was begun or made there. Its UUID is chosen before
//! `mkfs` runs, so a later attempt tells its own unfinished work from data of others:
//!
//! | record | data on the device | effect |
//! | --- | --- | --- |
//! | none | nothing | a file system is made |
//! | `making`, `erasing` | nothing or unknown data, or half a superblock with the recorded UUID; the device has the same size | it is made again |
//! | any | a file system of the type | it stays, and grows |
//! | `made`, `found` | nothing | refused: the file system was lost |
//! | any | other data | refused, unless the content names them in `overwrite` |

#[cfg(test)]
mod filesystem_test;
mod grow;
mod superblock;

use std::path::PathBuf;

use cob_kinds::{Filesystem, FilesystemType, OnDeparture};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::superblock::Extent;
use super::device::{Data, Device};
use super::record::{self, Stage};
use super::{Entry, Spec};
use crate::kinds::native::{NOTE, needs_program, new_uuid, random, run_bounded};

/// The file with the record.
const RECORD: &str = "filesystem.json";
/// The key of the file system in a look.
const SYSTEM: &str = "file system";
/// The key of the size in a look.
const SIZE: &str = "size";
/// The value of [`SIZE`] if the file system fills its device.
const FULL: &str = "all of the device";

/// The file system that was begun, made or found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The path of the device: a later content may name another device.
    device: String,
    /// The size of the device: a replaced device is not taken for this device.
    size: u64,
    stage: Stage,
    uuid: String,
}

/// The work that is left on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Plan {
    /// The file system with this UUID stays.
    Keep(String),
    /// A file system is made.
    Make,
}

impl Entry<Filesystem> {
    fn kind(&self) -> FilesystemType {
        self.content.kind
    }

    fn device(&self) -> Result<Device, String> {
        Device::find(&self.host, &self.content.device)?.ok_or_else(|| {
            let device = &self.content.device;
            format!("{device} does not exist on this host: attach the device, or correct `device`")
        })
    }

    fn record(&self) -> Result<Option<Record>, String> {
        let record: Option<Record> = record::read(&self.own, RECORD)?;
        Ok(record.filter(|record| record.device == self.path()))
    }

    fn path(&self) -> String {
        self.host.path(&self.content.device).display().to_string()
    }

    fn write_record(&self, stage: Stage, uuid: &str, size: u64) -> Result<(), String> {
        let record = Record { device: self.path(), size, stage, uuid: uuid.to_owned() };
        record::write(&self.own, RECORD, &record)
    }

    /// Whether the data are the unfinished work of an earlier attempt, and no file system.
    fn is_unfinished(&self, device: &Device, data: &Data, record: Option<&Record>) -> Result<bool, String> {
        let Some(record) = record.filter(|record| record.stage.is_open() && record.size == device.size) else {
            return Ok(false);
        };
        match data {
            Data::Nothing | Data::Unknown(_) => Ok(true),
            Data::Signatures(_) if data.uuid_of(self.kind().name()) == Some(&record.uuid) => {
                superblock::is_complete(self.kind(), &device.path).map(|is_complete| !is_complete)
            }
            Data::Signatures(_) => Ok(false),
        }
    }

    /// The work that is left, or the reason why no work may begin.
    fn plan(&self, device: &Device, data: &Data, record: Option<&Record>) -> Result<Plan, String> {
        if self.is_unfinished(device, data, record)? {
            return Ok(Plan::Make);
        }
        let lost = record.filter(|record| matches!(record.stage, Stage::Made | Stage::Found));
        let name = match data {
            Data::Nothing => match lost {
                None => return Ok(Plan::Make),
                Some(record) => record.uuid.clone(),
            },
            Data::Unknown(_) | Data::Signatures(_) => data.name(),
        };
        let uuid = data.uuid_of(self.kind().name());
        let is_wanted = |uuid: &&str| self.content.uuid.as_ref().is_none_or(|wanted| wanted == uuid);
        if let Some(uuid) = uuid.filter(is_wanted) {
            return Ok(Plan::Keep(uuid.to_owned()));
        }
        if self.content.overwrite.as_ref() == Some(&name) {
            return Ok(Plan::Make);
        }
        // A status shows only the beginning of a long reason.
        let (path, wanted, found) = (&self.content.device, self.kind().name(), data.describe());
        Err(match (data, lost) {
            (Data::Nothing | Data::Unknown(_), Some(record)) => format!(
                "{path} has lost its {wanted} with the UUID {} and has {found}: repair it, or write \
                 `overwrite: \"{name}\"` for a new one",
                record.uuid
            ),
            _ => format!(
                "{path} has {found}, which is not overwritten: name another device, or write `overwrite: \"{name}\"` to \
                 lose it"
            ),
        })
    }

    /// The size of the file system. `None`: there is no such file system.
    fn extent(&self, device: &Device, data: &Data) -> Result<Option<Extent>, String> {
        if data.uuid_of(self.kind().name()).is_none() {
            return Ok(None);
        }
        let mounts = device.mounts()?;
        // The cache of a loop device may be ahead of its file.
        let read = device.loops().into_iter().find(|path| path.exists()).unwrap_or_else(|| device.path.clone());
        superblock::extent(self.kind(), &read, mounts.first().map(PathBuf::as_path)).map(Some)
    }

    /// Makes the file system with a UUID that is recorded first.
    fn make(&self, device: &Device, data: &Data, record: Option<&Record>) -> Result<(), String> {
        device.is_free()?;
        let uuid = match (&self.content.uuid, record.filter(|record| record.stage == Stage::Making)) {
            (Some(uuid), _) => uuid.clone(),
            (None, Some(record)) => record.uuid.clone(),
            (None, None) => new_uuid(4, random()?),
        };
        self.write_record(Stage::Making, &uuid, device.size)?;
        if matches!(data, Data::Signatures(_)) {
            device.wipe()?;
        }
        let name = self.kind().name();
        let mut command = std::process::Command::new(format!("mkfs.{name}"));
        match self.kind() {
            FilesystemType::Ext4 => command.args(["-q", "-F", "-U", &uuid]),
            FilesystemType::Xfs => command.args(["-q", "-m", &format!("uuid={uuid}")]),
            FilesystemType::Btrfs => command.args(["-q", "-U", &uuid]),
        };
        if let Some(label) = &self.content.label {
            command.args(["-L", label]);
        }
        command.args(self.content.words()?).arg("--").arg(&device.path).env("LC_ALL", "C.UTF-8");
        run_bounded(&mut command, b"")?.ok()?;
        device.sync()?;
        match device.data()?.uuid_of(name) {
            Some(found) if found == uuid => self.write_record(Stage::Made, &uuid, device.size),
            _ => Err(format!("mkfs.{name} ended, and {} has no {name} with the UUID {uuid}", device.path.display())),
        }
    }
}

impl Spec for Entry<Filesystem> {
    fn notes() -> &'static [&'static str] {
        &[NOTE, RECORD]
    }

    fn target(&self) -> String {
        self.content.device.clone()
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(device) = Device::find(&self.host, &self.content.device)? else {
            return Ok(Some(json!({ SYSTEM: format!("{} does not exist", self.content.device) })));
        };
        let data = device.data()?;
        let record = self.record()?;
        if record.as_ref().is_some_and(|record| record.stage.is_open()) {
            return Ok(Some(json!({ SYSTEM: format!("unfinished: {}", data.describe()) })));
        }
        let mut found = match self.plan(&device, &data, record.as_ref()) {
            Ok(Plan::Keep(_)) => json!({ SYSTEM: self.wanted()[SYSTEM] }),
            Ok(Plan::Make) | Err(_) => return Ok(Some(json!({ SYSTEM: data.describe() }))),
        };
        if let Some(extent) = self.extent(&device, &data)?.filter(|_| self.content.grow) {
            found[SIZE] = match extent.fills(device.size) && extent.bytes <= device.size {
                true => json!(FULL),
                false => json!(format!("{} of {} bytes", extent.bytes, device.size)),
            };
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let device = self.device()?;
        let data = device.data()?;
        // From now on it counts as lost when it is no longer there.
        if let (Some(uuid), None) = (data.uuid_of(self.kind().name()), self.record()?) {
            self.write_record(Stage::Found, uuid, device.size)?;
        }
        Ok(Some(json!({ "found": data.describe() })))
    }

    fn wanted(&self) -> Value {
        let name = self.kind().name();
        let uuid = self.content.uuid.as_ref().map(|uuid| format!(" with the UUID {uuid}")).unwrap_or_default();
        let mut wanted = json!({ SYSTEM: format!("{name}{uuid}") });
        if self.content.grow {
            wanted[SIZE] = json!(FULL);
        }
        wanted
    }

    fn of_use(&self) -> Result<(), String> {
        let make = format!("mkfs.{}", self.kind().name());
        let grow = grow::program(self.kind());
        let util =
            ["wipefs", "mount", "umount", "findmnt", "losetup", "unshare"].map(|program| (program, "util-linux"));
        let own = [make.as_str(), grow].map(|program| (program, self.kind().package()));
        util.into_iter().chain(own).try_for_each(|(program, package)| needs_program(program, package))
    }

    fn hindered(&self) -> Result<(), String> {
        self.of_use()?;
        let device = self.device()?;
        let data = device.data()?;
        match self.plan(&device, &data, self.record()?.as_ref())? {
            Plan::Make => device.is_free(),
            Plan::Keep(_) => Ok(()),
        }
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let device = self.device()?;
        let (data, record) = (device.data()?, self.record()?);
        match self.plan(&device, &data, record.as_ref())? {
            Plan::Make => self.make(&device, &data, record.as_ref())?,
            Plan::Keep(uuid) => match record {
                // An attempt was killed after `mkfs`.
                Some(record) if record.uuid == uuid && record.stage.is_open() => {
                    self.write_record(Stage::Made, &uuid, device.size)?;
                }
                Some(record) if record.uuid == uuid => {}
                Some(_) | None => self.write_record(Stage::Found, &uuid, device.size)?,
            },
        }
        let Some(extent) = self.extent(&device, &device.data()?)? else { return Ok(()) };
        if extent.bytes > device.size {
            return Err(format!(
                "the file system on {} has {} bytes, and the device only {}: it was cut; make the device as large again",
                self.content.device, extent.bytes, device.size
            ));
        }
        if self.content.grow && !extent.fills(device.size) {
            grow::grow(self.kind(), &device, extent, &self.own)?;
        }
        Ok(())
    }

    fn restore(&self, _before: Option<&Value>) -> Result<(), String> {
        let record = self.record()?.filter(|record| record.stage != Stage::Found);
        if let (Some(record), Some(device)) = (record, Device::find(&self.host, &self.content.device)?) {
            let data = device.data()?;
            let is_its_own = data.uuid_of(self.kind().name()) == Some(&record.uuid);
            let is_unfinished = self.is_unfinished(&device, &data, Some(&record))?;
            if is_unfinished || (is_its_own && self.content.on_departure == OnDeparture::Erase) {
                device.is_free()?;
                self.write_record(Stage::Erasing, &record.uuid, device.size)?;
                device.erase()?;
            }
        }
        record::delete(&self.own, RECORD)
    }
}
