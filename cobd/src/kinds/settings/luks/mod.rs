//! The kind back end `luks`: an encrypted block device, or an image of one.
//!
//! Its header is made once, on a device without data, and never over data that the content does not name. A record in
//! the change object's own folder has its UUID before `cryptsetup` runs, so a later attempt tells its own unfinished
//! work from data of others:
//!
//! | record | data on the device | effect |
//! | --- | --- | --- |
//! | none | none | a header is made |
//! | `making`, same size | none, data without a signature, or a header with the recorded UUID | it is made again |
//! | any | a header with the recorded UUID, [marked](is_marked) or adopted, that the key opens | it stays, and is opened |
//! | `erasing` | a header with the recorded UUID that no key opens | it is made again |
//! | `made`, `found` | no header | refused: the header was lost |
//! | any | other data | refused, unless the content names them in `overwrite` |
//!
//! The key is only in its file: no record, command line or message has it.

#[cfg(test)]
mod luks_test;
mod table;
mod tools;

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use cob_kinds::Luks;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::table::CRYPTTAB;
use self::tools::{HEADER, cryptsetup};
use super::device::{Data, Device};
use super::lvm_volume::{deactivate_unused, has_mapper};
use super::marked::{is_marked, marked_uuid};
use super::record::{self, Stage};
use super::{Entry, Spec};
use crate::kinds::native::{NOTE, needs_program};

/// The file with the record.
const RECORD: &str = "luks.json";
/// The type of headers, as `wipefs` names it.
const LUKS: &str = "crypto_LUKS";
/// The keys of a look.
const HEAD: &str = "header";
const KEY: &str = "key";
const OPEN: &str = "open";
const SIZE: &str = "size";
const BOOT: &str = "crypttab";
/// The value of [`SIZE`] if the open device fills its device.
const FULL: &str = "all of the device";

/// The header that was begun, made or found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The path of the device: a later content may name another device.
    device: String,
    /// The size of the device: a replaced device is not taken for this device.
    size: u64,
    stage: Stage,
    uuid: String,
    /// The file with the key that opens it.
    key_file: String,
}

/// The work that is left on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Plan {
    /// The header with this UUID stays.
    Keep(String),
    /// A header is made.
    Make,
}

impl Entry<Luks> {
    fn is_live(&self) -> bool {
        self.host.root().is_none()
    }

    fn device(&self) -> Result<Device, String> {
        let path = &self.content.device;
        let device = Device::find(&self.host, path)?
            .ok_or_else(|| format!("{path} does not exist on this host: attach the device, or correct `device`"))?;
        match device.is_block || !self.is_live() {
            true => Ok(device),
            false => Err(format!("{path} is a file: name a block device, or write `root` for an image")),
        }
    }

    fn record(&self) -> Result<Option<Record>, String> {
        let record: Option<Record> = record::read(&self.own, RECORD)?;
        Ok(record.filter(|record| record.device == self.path()))
    }

    fn path(&self) -> String {
        self.host.path(&self.content.device).display().to_string()
    }

    fn write_record(&self, stage: Stage, uuid: &str, device: &Device) -> Result<(), String> {
        let key_file = self.content.key_file.clone();
        let record = Record { device: self.path(), size: device.size, stage, uuid: uuid.to_owned(), key_file };
        record::write(&self.own, RECORD, &record)
    }

    /// The path of a file with a key, if only root can read it.
    fn key(&self, absolute: &str) -> Result<String, String> {
        let path = self.host.path(absolute);
        let meta = fs::metadata(&path).map_err(|error| {
            format!("the key in {absolute} can't be read ({error}): let the file come first (`requires`)")
        })?;
        let is_mine = meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw();
        if !meta.is_file() || !is_mine || meta.mode() & 0o077 != 0 {
            return Err(format!("others than root can read {absolute}: give it to root, with the mode 0600 or 0400"));
        }
        if meta.len() == 0 {
            return Err(format!("{absolute} is empty, and a key has at least a byte"));
        }
        Ok(path.display().to_string())
    }

    fn opens(&self, device: &Device, key_file: &str) -> Result<bool, String> {
        tools::opens(&device.word(), &self.key(key_file)?)
    }

    /// Whether the device is open under its name, from this header.
    fn is_open(&self, uuid: &str) -> Result<bool, String> {
        let name = &self.content.name;
        match tools::mapping(name).filter(|_| self.is_live()) {
            None => Ok(false),
            Some(mapping) if mapping.uuid.as_deref() == Some(uuid) => Ok(true),
            Some(_) => Err(format!("/dev/mapper/{name} is another device: choose another `name`")),
        }
    }

    /// Whether the data are the unfinished work of an earlier attempt.
    fn is_unfinished(&self, device: &Device, data: &Data, record: &Record) -> Result<bool, String> {
        if !record.stage.is_open() || record.size != device.size {
            return Ok(false);
        }
        Ok(match data {
            Data::Nothing | Data::Unknown(_) => record.stage == Stage::Making,
            Data::Signatures(_) if data.uuid_of(LUKS) == Some(&record.uuid) => match record.stage {
                // Nobody has used it: it was never complete.
                Stage::Making => true,
                Stage::Made | Stage::Found => false,
                Stage::Erasing => {
                    let is_whole = || tools::is_header(&device.word());
                    let is_usable =
                        self.is_open(&record.uuid)? || (is_whole()? && self.opens(device, &self.content.key_file)?);
                    !is_usable
                }
            },
            Data::Signatures(_) => false,
        })
    }

    /// The work that is left, or the reason why no work may begin.
    fn plan(&self, device: &Device, data: &Data, record: Option<&Record>) -> Result<Plan, String> {
        if let Some(record) = record
            && self.is_unfinished(device, data, record)?
        {
            return Ok(Plan::Make);
        }
        let path = &self.content.device;
        let lost = record.filter(|record| matches!(record.stage, Stage::Made | Stage::Found));
        let name = match (data, lost) {
            (Data::Nothing, None) => return Ok(Plan::Make),
            (Data::Nothing, Some(record)) => record.uuid.clone(),
            (Data::Unknown(_) | Data::Signatures(_), _) => data.name(),
        };
        let found = data.uuid_of(LUKS);
        let is_its_own = |uuid: &&str| {
            let is_recorded = record.is_some_and(|record| record.uuid == **uuid);
            is_recorded || is_marked(uuid) || self.content.adopt.as_deref() == Some(*uuid)
        };
        if let Some(uuid) = found.filter(is_its_own) {
            self.has_key(device, uuid, record)?;
            return Ok(Plan::Keep(uuid.to_owned()));
        }
        if self.content.overwrite.as_ref() == Some(&name) {
            return Ok(Plan::Make);
        }
        let data = data.describe();
        Err(match (found, lost) {
            (Some(uuid), _) => format!(
                "others made the LUKS header on {path} with the UUID {uuid}; it is not overwritten: write \
                 `adopt: \"{uuid}\"` to manage it, or `overwrite: \"{name}\"` to lose its data"
            ),
            (None, Some(record)) => format!(
                "{path} has lost its LUKS header with the UUID {} and has {data}: restore it (`cryptsetup \
                 luksHeaderRestore`), or write `overwrite: \"{name}\"` for a new one",
                record.uuid
            ),
            (None, None) => format!(
                "{path} has {data}, which is not overwritten: name another device, or write `overwrite: \"{name}\"` to \
                 lose it"
            ),
        })
    }

    /// Whether the key opens an existing header, or an earlier key does, with which the key is added.
    fn has_key(&self, device: &Device, uuid: &str, record: Option<&Record>) -> Result<(), String> {
        let (key_file, path) = (&self.content.key_file, &self.content.device);
        let earlier = record.map(|record| &record.key_file);
        if self.is_open(uuid)? && earlier == Some(key_file) {
            return self.key(key_file).map(|_| ());
        }
        if self.opens(device, key_file)? {
            return Ok(());
        }
        if let Some(earlier) = earlier.filter(|earlier| *earlier != key_file)
            && self.opens(device, earlier)?
        {
            return Ok(());
        }
        Err(format!(
            "the key in {key_file} does not open {path}: restore the file, or add the key by hand (`cryptsetup \
                     luksAddKey`)"
        ))
    }

    /// Whether a header may be made on the device: nobody uses it, except for an unfinished attempt.
    fn is_free(&self, device: &Device, record: Option<&Record>) -> Result<(), String> {
        match record.filter(|record| record.stage == Stage::Making) {
            Some(record) if self.is_open(&record.uuid)? => Ok(()),
            Some(_) | None => {
                // Another device of this name is refused.
                self.is_open("")?;
                device.is_free()
            }
        }
    }

    /// Makes the header with a UUID that is recorded first, and opens the device to clear it: zeros that were there look
    /// like data through the cipher.
    fn make(&self, device: &Device, data: &Data, record: Option<&Record>) -> Result<String, String> {
        if let Some(record) = record.filter(|record| record.stage == Stage::Making && self.is_live()) {
            self.close(&record.uuid)?;
        }
        device.is_free()?;
        let key = self.key(&self.content.key_file)?;
        let uuid = match record.filter(|record| record.stage == Stage::Making) {
            Some(record) => record.uuid.clone(),
            None => marked_uuid()?,
        };
        self.write_record(Stage::Making, &uuid, device)?;
        if matches!(data, Data::Signatures(_)) {
            device.wipe()?;
        }
        let (path, options) = (device.word(), self.content.words()?);
        let mut words = vec!["luksFormat", "--type", "luks2", "--uuid", &uuid, "--key-file", &key];
        words.extend(options.iter().map(String::as_str));
        words.push(&path);
        cryptsetup(&words)?;
        device.sync()?;
        if device.data()?.uuid_of(LUKS) != Some(&uuid) {
            return Err(format!("cryptsetup ended, and {path} has no LUKS header with the UUID {uuid}"));
        }
        if self.is_live() {
            self.open(device)?;
            let opened = format!("/dev/mapper/{}", self.content.name);
            let opened = Device::find(&self.host, &opened)?.ok_or_else(|| format!("{opened} disappeared"))?;
            opened.erase()?;
        }
        self.write_record(Stage::Made, &uuid, device)?;
        Ok(uuid)
    }

    fn open(&self, device: &Device) -> Result<(), String> {
        let (key, path) = (self.key(&self.content.key_file)?, device.word());
        cryptsetup(&["open", "--type", "luks", "--key-file", &key, &path, &self.content.name]).map(|_| ())
    }

    /// Adds the key of the content with an earlier key.
    fn add_key(&self, device: &Device, earlier: &str) -> Result<(), String> {
        if self.opens(device, &self.content.key_file)? {
            return Ok(());
        }
        let (earlier, key) = (self.key(earlier)?, self.key(&self.content.key_file)?);
        cryptsetup(&["luksAddKey", "--key-file", &earlier, &device.word(), &key]).map(|_| ())
    }

    /// The bytes of the device that the open device does not use.
    fn unused(&self, device: &Device) -> Result<u64, String> {
        let name = &self.content.name;
        let Some(mapping) = tools::mapping(name) else { return Ok(0) };
        // The open device has whole sectors of up to 4096 bytes.
        Ok(device.size.saturating_sub(mapping.size + tools::offset(name)?) & !4095)
    }

    /// Closes the open device.
    fn close(&self, uuid: &str) -> Result<(), String> {
        let name = &self.content.name;
        let Some(mapping) = tools::mapping(name).filter(|mapping| mapping.uuid.as_deref() == Some(uuid)) else {
            return Ok(());
        };
        deactivate_unused(&mapping.users);
        cryptsetup(&["close", name]).map(|_| ()).map_err(|why| {
            let users = mapping.users.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            let by = if users.is_empty() { String::new() } else { format!(" by {users}") };
            format!(
                "/dev/mapper/{name} can't be closed, as it is in use{by}: stop its use, for example its mount ({why})"
            )
        })
    }
}

impl Spec for Entry<Luks> {
    fn notes() -> &'static [&'static str] {
        &[NOTE, RECORD, CRYPTTAB.unread]
    }

    fn target(&self) -> String {
        format!("{} as {}", self.content.device, self.content.name)
    }

    fn turn(&self) -> Option<&'static str> {
        // The derivation of a key takes up to a gigabyte of memory.
        Some(tools::PROGRAM)
    }

    fn shared(&self) -> Option<&str> {
        Some(CRYPTTAB.path)
    }

    fn edit_turn(&self) -> Option<&'static str> {
        Some(CRYPTTAB.turn)
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(device) = Device::find(&self.host, &self.content.device)? else {
            return Ok(Some(json!({ HEAD: format!("{} does not exist", self.content.device) })));
        };
        let (data, record) = (device.data()?, self.record()?);
        if record.as_ref().is_some_and(|record| record.stage.is_open()) {
            return Ok(Some(json!({ HEAD: format!("unfinished: {}", data.describe()) })));
        }
        let uuid = data.uuid_of(LUKS).filter(|uuid| record.as_ref().is_none_or(|record| record.uuid == *uuid));
        let Some(uuid) = uuid else { return Ok(Some(json!({ HEAD: data.describe() }))) };
        let mut found = self.wanted();
        if let Some(record) = &record {
            found[KEY] = json!(record.key_file);
        }
        if self.content.open_at_boot {
            let lines = self.table_lines()?;
            if lines != [self.line(uuid)] {
                found[BOOT] = json!(lines);
            }
        } else if self.table_lines()?.contains(&self.line(uuid)) {
            found[BOOT] = json!("opened at boot");
        }
        if CRYPTTAB.is_unread(&self.own) {
            found[BOOT] = json!(format!("systemd has not read {} again", CRYPTTAB.path));
        }
        if self.is_live() {
            let mapping = tools::mapping(&self.content.name);
            let is_open = mapping.as_ref().is_some_and(|mapping| mapping.uuid.as_deref() == Some(uuid));
            found[OPEN] = match mapping {
                Some(_) if !is_open => json!("another device"),
                _ => json!(is_open),
            };
            let unused = if is_open { self.unused(&device)? } else { 0 };
            if unused > 0 {
                found[SIZE] = json!(format!("{unused} bytes less than the device"));
            }
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let name = &self.content.name;
        let lines = self.table_lines()?;
        if let Some(line) = lines.first().filter(|_| self.content.open_at_boot && !self.own.join(NOTE).exists()) {
            return Err(format!(
                "{} has a line about {name} already ({line}): remove it, or choose another name",
                CRYPTTAB.path
            ));
        }
        let is_open = self.is_live() && tools::mapping(name).is_some();
        Ok(Some(json!({ "open": is_open, "table": table::CRYPTTAB.is_of_others(&self.host)? })))
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({ HEAD: LUKS, KEY: self.content.key_file });
        if self.content.open_at_boot {
            wanted[BOOT] = json!("opened at boot");
        }
        if self.is_live() {
            wanted[OPEN] = json!(true);
            wanted[SIZE] = json!(FULL);
        }
        wanted
    }

    fn of_use(&self) -> Result<(), String> {
        for (program, package) in [(tools::PROGRAM, "cryptsetup"), ("wipefs", "util-linux")] {
            needs_program(program, package)?;
        }
        if self.is_live() && !has_mapper() {
            return Err(
                "the kernel of this host has no device-mapper, without which a device can't be opened: load the \
                        module dm_mod, or use another kernel"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn hindered(&self) -> Result<(), String> {
        self.of_use()?;
        let device = self.device()?;
        let data = device.data()?;
        let record = self.record()?;
        match self.plan(&device, &data, record.as_ref())? {
            Plan::Make => {
                self.key(&self.content.key_file)?;
                self.is_free(&device, record.as_ref())
            }
            Plan::Keep(uuid) => self.is_open(&uuid).map(|_| ()),
        }
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let device = self.device()?;
        let (data, record) = (device.data()?, self.record()?);
        let uuid = match self.plan(&device, &data, record.as_ref())? {
            Plan::Make => self.make(&device, &data, record.as_ref())?,
            Plan::Keep(uuid) => {
                let stage = match &record {
                    Some(record) if record.uuid == uuid && record.stage != Stage::Found => Stage::Made,
                    Some(_) | None => Stage::Found,
                };
                if let Some(earlier) = record.filter(|record| record.key_file != self.content.key_file) {
                    self.add_key(&device, &earlier.key_file)?;
                }
                self.write_record(stage, &uuid, &device)?;
                uuid
            }
        };
        if self.is_live() {
            if !self.is_open(&uuid)? {
                self.open(&device)?;
            }
            if self.unused(&device)? > 0 {
                let key = self.key(&self.content.key_file)?;
                cryptsetup(&["resize", "--key-file", &key, &self.content.name])?;
            }
        }
        let is_kept = before.is_some_and(|before| before["table"] == json!(true));
        let line = self.content.open_at_boot.then(|| self.line(&uuid));
        if line.is_some() || self.table_lines()?.iter().any(|one| *one == self.line(&uuid)) {
            self.set_table(line.as_deref(), is_kept)?;
        }
        Ok(())
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(record) = self.record()? else { return record::delete(&self.own, RECORD) };
        let was = |key: &str| before.is_some_and(|before| before[key] == json!(true));
        if self.is_live() && !was("open") {
            self.close(&record.uuid)?;
        }
        self.set_table(None, was("table"))?;
        let is_erased = record.stage.is_erased(self.content.on_departure);
        if let Some(device) = Device::find(&self.host, &self.content.device)?.filter(|_| is_erased) {
            let data = device.data()?;
            let is_its_own = data.uuid_of(LUKS) == Some(&record.uuid);
            let is_rest =
                record.stage == Stage::Making && record.size == device.size && matches!(data, Data::Unknown(_));
            if is_its_own || is_rest {
                device.is_free()?;
            }
            if is_its_own {
                self.write_record(Stage::Erasing, &record.uuid, &device)?;
                let path = device.word();
                if tools::is_header(&path)? {
                    // Without its keys nobody can read the data, wherever copies of them are.
                    cryptsetup(&["luksErase", &path])?;
                }
                device.erase_upto(HEADER)?;
            } else if is_rest {
                device.erase()?;
            }
        }
        record::delete(&self.own, RECORD)
    }
}
