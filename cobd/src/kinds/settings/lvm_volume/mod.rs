//! The kind back end `lvm-volume`: a logical volume of LVM, with its volume group and physical volumes.
//!
//! Each is made once and grows; no device with data, and no group of others, is taken. A record in the change object's
//! own folder has all identities before the programs of LVM run, so a later attempt tells its own unfinished work from
//! data of others:
//!
//! | object | identity | unfinished |
//! | --- | --- | --- |
//! | physical volume | its UUID, for its device | it is in no group, and the record says that it is not ready |
//! | volume group | a tag, the mark of the record; the tag [`TAG`] for all change objects | – |
//! | logical volume | the mark as a tag | the record says `making` |

#[cfg(test)]
mod lvm_volume_test;
mod tools;

use std::collections::BTreeMap;

use cob_kinds::LvmVolume;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::tools::{Group, Logical, Physical, lvm};
pub(super) use self::tools::{deactivate_unused, has_mapper};
use super::device::{Data, Device};
use super::record::{self, Stage};
use super::{Entry, Spec};
use crate::kinds::native::{NOTE, needs_program, random};

/// The file with the record.
const RECORD: &str = "lvm-volume.json";
/// The tag of volume groups that change objects made.
const TAG: &str = "cob";
/// The type of physical volumes, as `wipefs` names it.
const MEMBER: &str = "LVM2_member";
/// The keys of a look.
const VOLUME: &str = "volume";
const SIZE: &str = "size";
const DEVICES: &str = "devices";
const ACTIVE: &str = "active";
/// The value of [`DEVICES`] if no device is missing.
const ALL: &str = "all in the group";

/// The volume that was begun, made or found, and the devices that were prepared for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    group: String,
    name: String,
    stage: Stage,
    /// The tag of the volume and of the group that the change object makes.
    mark: String,
    /// The UUID of the volume.
    volume: Option<String>,
    devices: BTreeMap<String, Prepared>,
}

/// A physical volume of the change object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Prepared {
    uuid: String,
    /// The size of the device: a replaced device is not taken for this device.
    size: u64,
    /// It was in the group.
    is_ready: bool,
}

/// The work that is left.
#[derive(Debug)]
struct Plan {
    group: Option<Group>,
    /// Devices that become physical volumes of the group, by their names in the content.
    new: Vec<(String, Device)>,
    volume: Work,
}

/// The work on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// An unfinished volume is removed, and the volume is made again.
    Again,
    /// It is made.
    Make,
    /// It stays, and grows if it is too small.
    Keep,
}

impl Record {
    fn new(content: &LvmVolume) -> Result<Self, String> {
        let (group, name) = (content.group.clone(), content.name.clone());
        let mark = format!("{TAG}-{}", new_uuid()?);
        Ok(Self { group, name, stage: Stage::Making, mark, volume: None, devices: BTreeMap::new() })
    }

    fn has_made(&self, volume: &Logical) -> bool {
        volume.tags.contains(&self.mark)
    }
}

/// A random UUID in the form of LVM.
fn new_uuid() -> Result<String, String> {
    const LETTERS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let bytes: [u8; 32] = random()?;
    let mut letters = bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    let parts = [6, 4, 4, 4, 4, 4, 6].map(|length| letters.by_ref().take(length).collect::<String>());
    Ok(parts.join("-"))
}

impl Entry<LvmVolume> {
    fn record(&self) -> Result<Option<Record>, String> {
        let record: Option<Record> = record::read(&self.own, RECORD)?;
        let is_about = |record: &Record| record.group == self.content.group && record.name == self.content.name;
        Ok(record.filter(is_about))
    }

    fn write_record(&self, record: &Record) -> Result<(), String> {
        record::write(&self.own, RECORD, record)
    }

    /// The volume for programs of LVM.
    fn full_name(&self) -> String {
        format!("{}/{}", self.content.group, self.content.name)
    }

    fn wanted_extents(&self, group: &Group) -> u64 {
        self.content.size.extents(group.extents, group.extent).max(1)
    }

    /// The work that is left, or the reason why no work may begin.
    fn plan(&self, record: Option<&Record>) -> Result<Plan, String> {
        let group = tools::group(&self.content.group)?;
        match &group {
            Some(group) => self.is_permitted(group, record)?,
            None if self.content.devices.is_empty() => {
                return Err(format!(
                    "there is no volume group {}: name its `devices`, or let the volume come `after` its maker",
                    self.content.group
                ));
            }
            None => {}
        }
        let volume = self.work(group.as_ref(), record)?;
        let mut new: Vec<(String, Device)> = Vec::new();
        for name in &self.content.devices {
            let device = self.device(name)?;
            if group.as_ref().is_some_and(|group| group.physical(&device.path).is_some()) {
                continue;
            }
            if let Some((other, _)) = new.iter().find(|(_, other)| other.path == device.path) {
                return Err(format!("{other} and {name} are the same device: remove one of both names"));
            }
            self.is_empty(name, &device, record)?;
            device.is_free()?;
            new.push((name.clone(), device));
        }
        Ok(Plan { group, new, volume })
    }

    fn device(&self, path: &str) -> Result<Device, String> {
        let found = Device::find(&self.host, path)?;
        let device = found
            .ok_or_else(|| format!("{path} does not exist on this host: attach the device, or correct `devices`"))?;
        match device.is_block {
            true => Ok(device),
            false => Err(format!("{path} is a file, and LVM takes block devices")),
        }
    }

    /// Whether the volume may be made in an existing group.
    fn is_permitted(&self, group: &Group, record: Option<&Record>) -> Result<(), String> {
        let is_ours = group.has_tag(TAG) || record.is_some_and(|record| group.has_tag(&record.mark));
        if is_ours || self.content.adopt.as_ref() == Some(&group.uuid) {
            return Ok(());
        }
        let (name, uuid) = (&self.content.group, &group.uuid);
        Err(format!(
            "others made the volume group {name} with the UUID {uuid}: name another group, or write `adopt: \"{uuid}\"` to \
             use it"
        ))
    }

    /// Whether a device that is in no group may become a physical volume.
    fn is_empty(&self, path: &str, device: &Device, record: Option<&Record>) -> Result<(), String> {
        let data = device.data()?;
        let prepared = record.and_then(|record| record.devices.get(path)).filter(|one| one.size == device.size);
        let is_empty = match &data {
            Data::Nothing => true,
            Data::Unknown(_) => prepared.is_some_and(|one| !one.is_ready),
            Data::Signatures(_) => prepared.is_some_and(|one| data.uuid_of(MEMBER) == Some(&one.uuid)),
        };
        if is_empty {
            return Ok(());
        }
        let found = data.describe();
        Err(format!(
            "{path} has {found}, which is not overwritten: name another device, or erase it by hand \
             (`wipefs --all {path}` and `blkdiscard --zeroout {path}`)"
        ))
    }

    fn work(&self, group: Option<&Group>, record: Option<&Record>) -> Result<Work, String> {
        let (volume, name) = (group.and_then(|group| group.volume(&self.content.name)), self.full_name());
        let Some(volume) = volume else {
            let lost = record.filter(|record| matches!(record.stage, Stage::Made | Stage::Found));
            let lost = lost.and_then(|record| record.volume.as_ref());
            return match lost.filter(|uuid| self.content.overwrite.as_ref() != Some(uuid)) {
                None => Ok(Work::Make),
                Some(uuid) => Err(format!(
                    "{name} with the UUID {uuid} is lost: restore it with `vgcfgrestore`, or write `overwrite: \
                     \"{uuid}\"` for a new volume"
                )),
            };
        };
        if record.is_some_and(|record| record.stage == Stage::Making && record.has_made(volume)) {
            return Ok(Work::Again);
        }
        match volume.layout.as_str() {
            "linear" | "striped" => Ok(Work::Keep),
            layout => Err(format!("{name} is there as a volume of the type {layout}: name another volume")),
        }
    }

    /// Makes physical volumes, and the group with them or in the group.
    fn extend(&self, plan: &Plan, record: &mut Record) -> Result<(), String> {
        let mut paths = Vec::new();
        for (name, device) in &plan.new {
            let path = device.path.display().to_string();
            let earlier = record.devices.get(name).filter(|one| one.size == device.size);
            let uuid = earlier.map_or_else(new_uuid, |one| Ok(one.uuid.clone()))?;
            let prepared = Prepared { uuid: uuid.clone(), size: device.size, is_ready: false };
            record.devices.insert(name.clone(), prepared);
            self.write_record(record)?;
            if device.data()?.uuid_of(MEMBER) != Some(&uuid) {
                lvm(&["pvcreate", "--uuid", &uuid, "--norestorefile", &path])?;
            }
            paths.push(path);
        }
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let group = self.content.group.as_str();
        match plan.group {
            None => lvm(&[&["vgcreate", "--addtag", TAG, "--addtag", &record.mark, group], &paths[..]].concat())?,
            Some(_) if paths.is_empty() => return Ok(()),
            Some(_) => lvm(&[&["vgextend", group], &paths[..]].concat())?,
        };
        for (name, _) in &plan.new {
            record.devices.entry(name.clone()).and_modify(|one| one.is_ready = true);
        }
        self.write_record(record)
    }

    fn present_group(&self) -> Result<Group, String> {
        tools::group(&self.content.group)?.ok_or_else(|| format!("the volume group {} disappeared", self.content.group))
    }

    /// The devices of the content that have grown, as paths.
    fn grown(&self, group: &Group) -> Vec<String> {
        let is_ours = |physical: &&Physical| {
            let mut devices = self.content.devices.iter().filter_map(|name| self.device(name).ok());
            physical.is_grown && devices.any(|device| device.path == physical.path)
        };
        group.devices.iter().filter(is_ours).map(|device| device.path.display().to_string()).collect()
    }

    /// Makes the volume, or grows it.
    fn make(&self, work: Work, record: &mut Record) -> Result<(), String> {
        let (group, name) = (self.present_group()?, self.full_name());
        let wanted = self.wanted_extents(&group);
        let extents = wanted.to_string();
        if work == Work::Again {
            lvm(&["lvremove", "--yes", &name])?;
        }
        if work != Work::Keep {
            // Signatures in the extents are of volumes that were there before.
            let wipe = ["--zero", "y", "--wipesignatures", "y"];
            let wipe = if tools::is_activating()? { &wipe[..] } else { &[] };
            let words =
                ["lvcreate", "--yes", "--name", &self.content.name, "--extents", &extents, "--addtag", &record.mark];
            lvm(&[&words, wipe, &[&self.content.group]].concat())?;
            self.clear_new()?;
        }
        let group = self.present_group()?;
        let volume = group.volume(&self.content.name).ok_or_else(|| format!("{name} disappeared"))?;
        if work == Work::Keep && volume.size < wanted.saturating_mul(group.extent) {
            lvm(&["lvextend", "--extents", &extents, &name])?;
        }
        let is_known = record.volume.as_ref() == Some(&volume.uuid);
        let stage = match (work, record.stage) {
            (Work::Again | Work::Make, _) => Stage::Made,
            (Work::Keep, Stage::Made | Stage::Erasing) if is_known => Stage::Made,
            (Work::Keep, _) => Stage::Found,
        };
        if !is_known || stage != record.stage {
            (record.stage, record.volume) = (stage, Some(volume.uuid.clone()));
            self.write_record(record)?;
        }
        Ok(())
    }

    /// Lets a new volume look empty: free extents of a group on an encrypted device have what zeros are through the cipher.
    fn clear_new(&self) -> Result<(), String> {
        if !tools::is_activating()? {
            return Ok(());
        }
        let path = format!("/dev/{}", self.full_name());
        let device = Device::find(&self.host, &path)?.ok_or_else(|| format!("{path} disappeared"))?;
        device.erase()
    }

    /// Deactivates a volume that stays in a group of change objects and that nobody uses, so that the devices of the group
    /// can leave after it.
    fn deactivate(&self) -> Result<(), String> {
        let Some(group) = tools::group(&self.content.group)?.filter(|group| group.has_tag(TAG)) else { return Ok(()) };
        if !group.volume(&self.content.name).is_some_and(|volume| volume.is_active) {
            return Ok(());
        }
        // LVM waits for others that look at the device for a moment.
        let Err(why) = lvm(&["lvchange", "--activate", "n", &self.full_name()]) else { return Ok(()) };
        let device = Device::find(&self.host, &format!("/dev/{}", self.full_name()))?;
        if device.is_some_and(|device| device.is_free().is_ok()) { Err(why) } else { Ok(()) }
    }

    /// Removes the volume that the change object made, and with it a group and devices that nobody else uses.
    fn erase(&self, record: &mut Record) -> Result<(), String> {
        let Some(group) = tools::group(&self.content.group)? else { return Ok(()) };
        if let Some(volume) = group.volume(&self.content.name).filter(|volume| record.has_made(volume)) {
            // From now on the volume is not lost if it is gone.
            record.stage = Stage::Erasing;
            self.write_record(record)?;
            lvm(&["lvremove", "--yes", &self.full_name()]).map_err(|why| {
                format!("{} can't be removed: {why}; stop its use, for example its mount", volume.name)
            })?;
        }
        let group = self.present_group()?;
        let is_made = group.has_tag(&record.mark);
        let is_last = is_made && group.volumes.is_empty();
        if is_made && !is_last {
            return Ok(());
        }
        let ours = |one: &Prepared| group.devices.iter().find(|device| device.uuid == one.uuid && device.used == 0);
        let paths: Vec<String> =
            record.devices.values().filter_map(ours).map(|device| device.path.display().to_string()).collect();
        for one in record.devices.values_mut() {
            one.is_ready &= ours(one).is_none();
        }
        self.write_record(record)?;
        if is_last {
            return lvm(&["vgremove", &self.content.group]).map(|_| ());
        }
        for path in paths.iter().filter(|_| group.devices.len() > paths.len()) {
            lvm(&["vgreduce", &self.content.group, path])?;
        }
        Ok(())
    }

    /// Clears the devices that were prepared, and are in no group.
    fn clear(&self, record: &Record) -> Result<(), String> {
        let group = tools::group(&self.content.group)?;
        for (path, one) in record.devices.iter().filter(|(_, one)| !one.is_ready) {
            let Some(device) = Device::find(&self.host, path)?.filter(|device| device.size == one.size) else {
                continue;
            };
            let data = device.data()?;
            let is_member = data.uuid_of(MEMBER) == Some(&one.uuid);
            let is_used = group.as_ref().is_some_and(|group| group.physical(&device.path).is_some());
            if is_used || !(is_member || matches!(data, Data::Unknown(_))) {
                continue;
            }
            device.is_free()?;
            if is_member {
                lvm(&["pvremove", &device.path.display().to_string()])?;
            }
            device.erase()?;
        }
        Ok(())
    }
}

impl Spec for Entry<LvmVolume> {
    fn notes() -> &'static [&'static str] {
        &[NOTE, RECORD]
    }

    fn target(&self) -> String {
        self.full_name()
    }

    fn turn(&self) -> Option<&'static str> {
        Some("lvm")
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let group = tools::group(&self.content.group)?;
        let Some((group, volume)) = group.as_ref().and_then(|group| Some((group, group.volume(&self.content.name)?)))
        else {
            let what = if group.is_some() { "not in the group" } else { "there is no group" };
            return Ok(Some(json!({ VOLUME: format!("{what} {}", self.content.group) })));
        };
        if self.record()?.is_some_and(|record| record.stage.is_open() && record.has_made(volume)) {
            return Ok(Some(json!({ VOLUME: "unfinished" })));
        }
        let mut found = self.wanted();
        let least = self.wanted_extents(group).saturating_mul(group.extent);
        if volume.size < least {
            found[SIZE] = json!(format!("{} of {least} bytes", volume.size));
        }
        let is_missing = |name: &&String| {
            let device = Device::find(&self.host, name).ok().flatten();
            device.is_none_or(|device| group.physical(&device.path).is_none())
        };
        let missing: Vec<&String> = self.content.devices.iter().filter(is_missing).collect();
        let grown = self.grown(group);
        if !missing.is_empty() || !grown.is_empty() {
            found[DEVICES] = json!({ "not in the group": missing, "larger than in the group": grown });
        }
        if let Some(active) = found.get_mut(ACTIVE) {
            *active = json!(volume.is_active);
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        Ok(Some(json!({ "found": self.look(None)? })))
    }

    fn wanted(&self) -> Value {
        let size = format!("at least {}", self.content.size);
        let mut wanted = json!({ VOLUME: format!("in the group {}", self.content.group), SIZE: size, DEVICES: ALL });
        if tools::is_activating().unwrap_or(true) {
            wanted[ACTIVE] = json!(true);
        }
        wanted
    }

    fn of_use(&self) -> Result<(), String> {
        for (program, package) in [(tools::PROGRAM, "lvm2"), ("wipefs", "util-linux")] {
            needs_program(program, package)?;
        }
        if tools::is_activating()? && !has_mapper() {
            return Err(
                "the kernel of this host has no device-mapper, without which a volume has no device: load the \
                        module dm_mod, or use another kernel"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn hindered(&self) -> Result<(), String> {
        self.of_use()?;
        self.plan(self.record()?.as_ref()).map(|_| ())
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let record = self.record()?;
        let plan = self.plan(record.as_ref())?;
        let mut record = match record {
            Some(record) => record,
            None => Record::new(&self.content)?,
        };
        if plan.volume != Work::Keep {
            (record.stage, record.volume) = (Stage::Making, None);
        }
        self.write_record(&record)?;
        self.extend(&plan, &mut record)?;
        for path in self.grown(&self.present_group()?) {
            lvm(&["pvresize", &path])?;
        }
        self.make(plan.volume, &mut record)?;
        let group = self.present_group()?;
        let is_active = group.volume(&self.content.name).is_some_and(|volume| volume.is_active);
        if !is_active && tools::is_activating()? {
            lvm(&["lvchange", "--activate", "y", &self.full_name()])?;
        }
        Ok(())
    }

    fn restore(&self, _before: Option<&Value>) -> Result<(), String> {
        if let Some(mut record) = self.record()? {
            let is_erased = record.stage.is_erased(self.content.on_departure);
            if is_erased {
                self.erase(&mut record)?;
            }
            self.clear(&record)?;
            self.deactivate()?;
        }
        record::delete(&self.own, RECORD)
    }
}
