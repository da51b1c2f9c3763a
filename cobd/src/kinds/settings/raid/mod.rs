//! The kind back end `raid`: an array of Linux software RAID.
//!
//! It is made once, on devices without data; missing devices are replaced, and no device of others is taken. The UUID
//! of the array is chosen and recorded in the change object's own folder before `mdadm` runs, so a later attempt tells
//! its own unfinished work from data of others:
//!
//! | record | found | effect |
//! | --- | --- | --- |
//! | none | neither the array nor data on its devices | the array is made |
//! | `making` | superblocks with the recorded UUID, and no data in the array | it is made again |
//! | `erasing` | the array or its superblocks | it stays: the removal has not begun |
//! | `made`, `found` | superblocks, and no array | it is assembled |
//! | `made`, `found` | no superblock | refused: the array was lost |
//!
//! A superblock is the last part of a device that is overwritten, and says to which array the device belongs.

#[cfg(test)]
mod raid_test;
mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_kinds::Raid;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::tools::{Array, Role, SUPERBLOCK, Superblock, mdadm};
use super::device::{Data, Device};
use super::lvm_volume::deactivate_unused;
use super::marked::{is_marked, marked_uuid};
use super::record::{self, Stage};
use super::{Entry, Spec};
use crate::kinds::native::{NOTE, needs_program};

/// The file with the record.
const RECORD: &str = "raid.json";
/// The keys of a look.
const ARRAY: &str = "array";
const DEVICES: &str = "devices";
const NAME: &str = "name";
/// The value of [`DEVICES`] if no device of the content can join the array.
const ALL: &str = "all in the array";

/// The array that was begun, made or found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    name: String,
    uuid: String,
    stage: Stage,
    /// The devices of the change object, each with its UUID once it was in the array.
    devices: BTreeMap<String, Option<String>>,
    /// The UUIDs of devices that could not return.
    faulty: BTreeSet<String>,
}

impl Record {
    fn new(name: &str, uuid: String, stage: Stage) -> Self {
        Self { name: name.to_owned(), uuid, stage, devices: BTreeMap::new(), faulty: BTreeSet::new() }
    }
}

/// A device of the content.
#[derive(Debug)]
struct Named {
    name: String,
    device: Device,
    superblock: Option<Superblock>,
}

/// The work that is left.
#[derive(Debug)]
struct Plan {
    record: Record,
    array: Option<Array>,
    work: Work,
    /// Devices without data that become part of the array.
    new: Vec<Named>,
    /// Devices of the array that are not in it.
    away: Vec<Named>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Leftovers are cleared, and the array is made.
    Make,
    /// It is started from its devices.
    Assemble,
    /// It stays, and gets new devices.
    Keep,
}

impl Entry<Raid> {
    fn record(&self) -> Result<Option<Record>, String> {
        let record: Option<Record> = record::read(&self.own, RECORD)?;
        Ok(record.filter(|record| record.name == self.content.name))
    }

    fn write_record(&self, record: &Record) -> Result<(), String> {
        record::write(&self.own, RECORD, record)
    }

    /// The device of the array.
    fn link(&self) -> String {
        format!("/dev/md/{}", self.content.name)
    }

    /// The devices of the content that exist.
    fn named(&self) -> Result<Vec<Named>, String> {
        let mut all: Vec<Named> = Vec::new();
        for name in self.content.all() {
            let Some(device) = Device::find(&self.host, name)? else { continue };
            if !device.is_block {
                return Err(format!("{name} is a file, and an array takes block devices"));
            }
            if let Some(other) = all.iter().find(|other| other.device.path == device.path) {
                return Err(format!("{} and {name} are the same device: remove one of both names", other.name));
            }
            let superblock = tools::superblock(&device.path)?;
            all.push(Named { name: name.clone(), device, superblock });
        }
        Ok(all)
    }

    /// The work that is left, or the reason why no work may begin.
    fn plan(&self) -> Result<Plan, String> {
        let (arrays, named) = (tools::arrays()?, self.named()?);
        let mut record = match self.record()? {
            Some(record) => record,
            None => self.first_record(&arrays, &named)?,
        };
        let array = arrays.into_iter().find(|array| array.uuid == record.uuid);
        let is_its_own = |one: &Named| one.superblock.as_ref().is_some_and(|block| block.uuid == record.uuid);
        let is_whole = named.iter().any(is_its_own);
        let work = match (&array, record.stage) {
            (Some(array), Stage::Making) if self.is_unused(array)? => Work::Make,
            (Some(array), _) if array.is_active => Work::Keep,
            (Some(_), _) => Work::Assemble,
            (None, Stage::Making) => Work::Make,
            (None, Stage::Made | Stage::Found | Stage::Erasing) if is_whole => Work::Assemble,
            (None, Stage::Made | Stage::Found | Stage::Erasing) => {
                if self.content.overwrite.as_ref() != Some(&record.uuid) {
                    return Err(format!(
                        "{} with the UUID {} is lost: no device of the content belongs to it; attach its devices, or \
                         write `overwrite: \"{}\"` for a new array",
                        self.link(),
                        record.uuid,
                        record.uuid
                    ));
                }
                record = Record::new(&self.content.name, marked_uuid()?, Stage::Making);
                Work::Make
            }
        };
        if let (Work::Keep, Some(level)) = (work, array.as_ref().and_then(|array| array.level))
            && level != self.content.level
        {
            return Err(format!(
                "{} has the level {level}, and an array never changes its level: write `level: {level}`, or make \
                 another array and copy the data",
                self.link()
            ));
        }
        if let Some(missing) = self.content.all().find(|name| !named.iter().any(|one| one.name == **name))
            && work == Work::Make
        {
            return Err(format!("{missing} does not exist on this host: attach the device, or correct `devices`"));
        }
        let (mut new, mut away) = (Vec::new(), Vec::new());
        for one in named {
            if array.as_ref().is_some_and(|array| array.member(&one.device.path).is_some()) && work != Work::Make {
                continue;
            }
            if one.superblock.as_ref().is_some_and(|block| block.uuid == record.uuid) {
                if work == Work::Make {
                    new.push(one)
                } else {
                    away.push(one)
                }
                continue;
            }
            one.is_empty()?;
            if work == Work::Keep && !self.content.is_redundant() {
                return Err(format!("an array of level 0 takes no further device: remove {} from `devices`", one.name));
            }
            new.push(one);
        }
        Ok(Plan { record, array, work, new, away })
    }

    /// The record of a first attempt: of a new array, or of the array that is there.
    fn first_record(&self, arrays: &[Array], named: &[Named]) -> Result<Record, String> {
        let name = &self.content.name;
        let of_name = arrays.iter().find(|array| array.name == *name).map(|array| (array.uuid.clone(), true));
        let on_device = |one: &Named| {
            let block = one.superblock.as_ref()?;
            Some((block.uuid.clone(), block.name.rsplit(':').next() == Some(name)))
        };
        let Some((uuid, is_so_named)) = of_name.or_else(|| named.iter().find_map(on_device)) else {
            return Ok(Record::new(name, marked_uuid()?, Stage::Making));
        };
        if self.content.adopt.as_ref() == Some(&uuid) || (is_marked(&uuid) && is_so_named) {
            return Ok(Record::new(name, uuid, Stage::Found));
        }
        let where_ = named.iter().find(|one| one.superblock.as_ref().is_some_and(|block| block.uuid == uuid));
        let where_ = where_.map(|one| format!(", to which {} belongs", one.name)).unwrap_or_default();
        Err(format!(
            "others made an array with the UUID {uuid}{where_}; it is not overwritten: write \
             `adopt: \"{uuid}\"` to manage it, or choose another name and other devices"
        ))
    }

    /// Whether an array that was begun has neither data nor users.
    fn is_unused(&self, array: &Array) -> Result<bool, String> {
        if !array.is_active {
            return Ok(true);
        }
        let Some(device) = Device::find(&self.host, &array.word())? else { return Ok(true) };
        Ok(device.data()? == Data::Nothing && device.is_free().is_ok())
    }

    /// Clears leftovers and makes the array.
    fn make(&self, plan: Plan) -> Result<Record, String> {
        let Plan { mut record, array, new, .. } = plan;
        record.stage = Stage::Making;
        record.devices.extend(new.iter().map(|one| (one.name.clone(), None)));
        self.write_record(&record)?;
        if let Some(array) = array {
            mdadm(&["--stop", &array.word()])?;
        }
        for one in &new {
            if one.superblock.is_some() {
                one.device.erase_upto(SUPERBLOCK)?;
            }
            one.device.is_free()?;
        }
        let Raid { name, level, devices, spares, .. } = &self.content;
        let (level_word, number, spare_number) =
            (level.to_string(), devices.len().to_string(), spares.len().to_string());
        // The word `any` lets every host assemble the array under its name, also under another host name.
        let link = self.link();
        let mut words = vec!["--create", &link, "--run", "--quiet", "--metadata", "1.2", "--homehost", "any"];
        words.extend(["--name", name, "--uuid", &record.uuid, "--level", &level_word, "--raid-devices", &number]);
        if !spares.is_empty() {
            words.extend(["--spare-devices", &spare_number]);
        }
        if self.content.is_redundant() {
            // Only with a bitmap a device that was away comes back without a copy of everything.
            words.extend(["--bitmap", "internal"]);
        }
        let paths: Vec<String> = new.iter().map(|one| one.device.word()).collect();
        words.extend(paths.iter().map(String::as_str));
        mdadm(&words)?;
        for one in &new {
            record.devices.insert(one.name.clone(), tools::superblock(&one.device.path)?.map(|block| block.device));
        }
        record.stage = Stage::Made;
        self.write_record(&record)?;
        Ok(record)
    }

    /// Starts the array with the devices that are there. It does not start without a device that was there before.
    fn assemble(&self, plan: &Plan) -> Result<(), String> {
        let mut paths: Vec<String> = plan.away.iter().map(|one| one.device.word()).collect();
        if let Some(array) = &plan.array {
            paths.extend(array.members.iter().map(|member| member.path.display().to_string()));
            mdadm(&["--stop", &array.word()])?;
        }
        let link = self.link();
        let words = ["--assemble", &link, "--uuid", &plan.record.uuid];
        let tried = mdadm(&[&words[..], &paths.iter().map(String::as_str).collect::<Vec<_>>()].concat());
        let array = tools::array_of(&plan.record.uuid)?;
        match array {
            Some(array) if array.is_active => Ok(()),
            Some(array) => Err(format!(
                "{link} is not started, as devices are missing: attach them, or start it without them by \
                 `mdadm --run {}`",
                array.word()
            )),
            None => Err(format!("{link} can't be started: {}", tried.err().unwrap_or_default())),
        }
    }

    /// The devices of the content that can join the array. Others are not worth a transition, in which all that requires
    /// the array has to leave.
    fn joining(&self, array: &Array, record: Option<&Record>) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        for one in self.named()?.into_iter().filter(|one| array.member(&one.device.path).is_none()) {
            let can_join = match one.superblock.as_ref().filter(|block| block.uuid == array.uuid) {
                Some(block) => !record.is_some_and(|record| record.faulty.contains(&block.device)),
                None => one.is_empty().is_ok(),
            };
            if can_join {
                all.push(one.name);
            }
        }
        Ok(all)
    }

    /// Brings devices into the array.
    fn repair(&self, array: &Array, mut record: Record, new: &[Named], away: &[Named]) -> Result<Record, String> {
        let md = array.word();
        let is_named = |path: &Path| {
            let mut named = self.content.all().map(Path::new);
            named.any(|name| name.canonicalize().as_deref().unwrap_or(name) == path)
        };
        for (name, uuid) in record.devices.iter_mut().filter(|(_, uuid)| uuid.is_none()) {
            let path = Path::new(name).canonicalize().unwrap_or_default();
            if array.member(&path).is_some() {
                *uuid = tools::superblock(&path)?.map(|block| block.device);
            }
        }
        for member in array.members.iter().filter(|member| member.role == Role::Faulty && !is_named(&member.path)) {
            mdadm(&[&md, "--remove", &member.path.display().to_string()])?;
        }
        self.write_record(&record)?;
        for one in away {
            let Some(block) = &one.superblock else { continue };
            if record.devices.get(&one.name) == Some(&None) {
                // It was empty before, and an attempt to add it was killed.
                one.device.erase_upto(SUPERBLOCK)?;
                self.add(array, &mut record, one)?;
                continue;
            }
            let has_later = block.events > array.events()?;
            if has_later || mdadm(&[&md, "--re-add", &one.device.word()]).is_err() {
                // It is not tried again.
                record.faulty.insert(block.device.clone());
                self.write_record(&record)?;
            }
        }
        for one in new {
            self.add(array, &mut record, one)?;
        }
        Ok(record)
    }

    /// Adds a device without data.
    fn add(&self, array: &Array, record: &mut Record, one: &Named) -> Result<(), String> {
        record.devices.insert(one.name.clone(), None);
        self.write_record(record)?;
        one.device.is_free()?;
        mdadm(&[&array.word(), "--add", &one.device.word()])?;
        let block = tools::superblock(&one.device.path)?;
        record.devices.insert(one.name.clone(), block.map(|block| block.device));
        self.write_record(record)
    }

    fn present(&self, record: &Record) -> Result<Array, String> {
        let array = tools::array_of(&record.uuid)?;
        array.ok_or_else(|| format!("the array {} disappeared", self.content.name))
    }

    /// Whether the name leads to the array.
    fn leads_to(&self, array: &Array) -> bool {
        Path::new(&self.link()).canonicalize().is_ok_and(|path| path == array.path)
    }

    /// Stops the array, and clears the devices that the change object took for it.
    fn erase(&self, record: &mut Record) -> Result<(), String> {
        let array = tools::array_of(&record.uuid)?;
        let mut paths: Vec<String> = record.devices.keys().cloned().collect();
        if let Some(array) = &array {
            if let Some(device) = Device::find(&self.host, &array.word())?.filter(|_| array.is_active) {
                deactivate_unused(&device.holders());
                device.is_free()?;
            }
            paths.extend(array.members.iter().map(|member| member.path.display().to_string()));
            if record.stage != Stage::Making {
                record.stage = Stage::Erasing;
                self.write_record(record)?;
            }
            mdadm(&["--stop", &array.word()])?;
        }
        record.stage = Stage::Making;
        self.write_record(record)?;
        for path in paths {
            let Some(device) = Device::find(&self.host, &path)? else { continue };
            let Some(block) = tools::superblock(&device.path)?.filter(|block| block.uuid == record.uuid) else {
                continue;
            };
            let is_unfinished = record.devices.get(&path) == Some(&None);
            if is_unfinished || record.devices.values().flatten().any(|one| *one == block.device) {
                device.erase_upto(SUPERBLOCK)?;
            }
        }
        Ok(())
    }
}

impl Named {
    /// Whether a device may become part of the array.
    fn is_empty(&self) -> Result<(), String> {
        let (name, data) = (&self.name, self.device.data()?);
        if data != Data::Nothing {
            return Err(format!(
                "{name} has {}, which is not overwritten: name another device, or erase it by hand (`wipefs \
                 --all {name}` and `blkdiscard --zeroout {name}`)",
                data.describe()
            ));
        }
        self.device.is_free()
    }
}

impl Spec for Entry<Raid> {
    fn notes() -> &'static [&'static str] {
        &[NOTE, RECORD]
    }

    fn target(&self) -> String {
        self.content.name.clone()
    }

    fn turn(&self) -> Option<&'static str> {
        Some(tools::PROGRAM)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let record = self.record()?;
        if record.as_ref().is_some_and(|record| record.stage.is_open()) {
            return Ok(Some(json!({ ARRAY: "unfinished" })));
        }
        let is_it = |array: &Array| match &record {
            Some(record) => array.uuid == record.uuid,
            None => array.name == self.content.name,
        };
        let Some(array) = tools::arrays()?.into_iter().find(is_it) else {
            return Ok(Some(json!({ ARRAY: "not there" })));
        };
        let mut found = self.wanted();
        if !array.is_active || array.level != Some(self.content.level) {
            let level = array.level.map(|level| format!(", level {level}")).unwrap_or_default();
            found[ARRAY] = json!(format!("{}{level}", if array.is_active { "started" } else { "not started" }));
        }
        if !self.leads_to(&array) {
            found[NAME] = json!(format!("another than {}", array.word()));
        }
        let joining = self.joining(&array, record.as_ref())?;
        if !joining.is_empty() {
            found[DEVICES] = json!({ "not in the array": joining });
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        Ok(Some(json!({ "found": self.look(None)? })))
    }

    fn wanted(&self) -> Value {
        json!({ ARRAY: format!("started, level {}", self.content.level), DEVICES: ALL, NAME: self.link() })
    }

    fn of_use(&self) -> Result<(), String> {
        for (program, package) in [(tools::PROGRAM, "mdadm"), ("wipefs", "util-linux"), ("udevadm", "udev")] {
            needs_program(program, package)?;
        }
        if tools::has_arrays() {
            return Ok(());
        }
        Err("the kernel of this host has no software RAID: load the module md_mod, or use another kernel".to_owned())
    }

    fn hindered(&self) -> Result<(), String> {
        self.of_use()?;
        self.plan().map(|_| ())
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let mut plan = self.plan()?;
        let record = if plan.work == Work::Make {
            self.make(plan)?
        } else {
            // What was begun is complete.
            let is_its_own = !plan.record.devices.is_empty();
            plan.record.stage = match plan.record.stage {
                Stage::Making | Stage::Erasing if is_its_own => Stage::Made,
                Stage::Making | Stage::Erasing => Stage::Found,
                stage @ (Stage::Made | Stage::Found) => stage,
            };
            self.write_record(&plan.record)?;
            if plan.work == Work::Assemble {
                self.assemble(&plan)?;
                plan = self.plan()?;
            }
            let array = self.present(&plan.record)?;
            self.repair(&array, plan.record, &plan.new, &plan.away)?
        };
        let array = self.present(&record)?;
        if self.leads_to(&array) {
            return Ok(());
        }
        tools::name_again(&array)?;
        if self.leads_to(&array) {
            return Ok(());
        }
        let name = &array.name;
        Err(format!(
            "{} has the name {name:?} and not {}: write its name, or rename it",
            array.word(),
            self.content.name
        ))
    }

    fn remark(&self) -> Result<Option<String>, String> {
        let array = self.record()?.map(|record| tools::array_of(&record.uuid)).transpose()?.flatten();
        let Some(array) = array else { return Ok(None) };
        let faulty = array.members.iter().filter(|member| member.role == Role::Faulty);
        let mut all: Vec<String> = faulty
            .map(|member| format!("{} is faulty: name another device in its place", member.path.display()))
            .collect();
        for name in self.content.all() {
            match Device::find(&self.host, name)?.map(|device| array.member(&device.path).is_some()) {
                Some(true) => {}
                Some(false) => all.push(format!(
                    "{name} can't join the array, as it has other data (`wipefs {name}`) or did not return (`mdadm {} --add \
                     {name}` tries it again): erase it, or name another device",
                    array.word()
                )),
                None => all.push(format!("{name} does not exist: attach it, or name another device in its place")),
            }
        }
        if array.missing() > 0 {
            all.push(format!("{} of {} devices are missing", array.missing(), array.slots));
        }
        Ok((!all.is_empty()).then(|| all.join("; ")))
    }

    fn restore(&self, _before: Option<&Value>) -> Result<(), String> {
        if let Some(mut record) = self.record()? {
            let is_erased = record.stage.is_erased(self.content.on_departure);
            if is_erased {
                self.erase(&mut record)?;
            }
        }
        record::delete(&self.own, RECORD)
    }
}
