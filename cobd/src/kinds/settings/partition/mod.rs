//! The kind back end `partition`: a GPT partition of a disk or of an image file.
//!
//! It is made once in free space and grows; no partition of others changes. Its UUID is chosen and recorded in the
//! change object's own folder before sfdisk writes, so a later attempt tells its own work from partitions of others. A
//! UUID with the [mark](is_marked) is of a change object, also without a record:
//!
//! | record | partition of the name | effect |
//! | --- | --- | --- |
//! | none, `making`, `erasing` | none | it is made |
//! | `made`, `found` | none | refused: the partition was lost |
//! | any | with the recorded UUID, with the mark, or adopted | it stays, and grows |
//! | any | any other | refused |
//!
//! A record that says `writing` means that the copies of the table may differ: the next attempt writes both.

mod kernel;
#[cfg(test)]
mod partition_test;
mod space;
mod table;

use std::fs::File;

use cob_kinds::Partition;
use cob_types::canonical;
use cob_types::message::Values;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::kernel::Known;
use self::space::Wanted;
use self::table::{Found, Part, Table};
use super::device::{Data, Device};
use super::marked::{is_marked, marked_uuid};
use super::record::{self, Stage};
use super::{Entry, Spec};
use crate::kinds::native::{Host, NOTE, needs_program};

/// The file with the record.
const RECORD: &str = "partition.json";
/// The types of signatures of a GPT, as `wipefs` names them.
const OF_TABLE: [&str; 2] = ["gpt", "PMBR"];
/// The keys of a look.
const PARTITION: &str = "partition";
const TYPE: &str = "type";
const SIZE: &str = "size";
const KERNEL: &str = "kernel";
/// The value of [`KERNEL`] if it has the limits of the table.
const AS_TABLE: &str = "as the table";

/// The partition that was begun, made or found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The path of the disk: a later content may name another disk.
    disk: String,
    /// The size of the disk: a replaced disk is not taken for this disk.
    size: u64,
    name: String,
    uuid: String,
    stage: Stage,
    /// The GUID of the table, if the change object makes it.
    table: Option<String>,
    /// A change of the table may have ended half-way.
    writing: bool,
}

impl Record {
    /// Whether an attempt may have ended half-way.
    fn is_open(&self) -> bool {
        self.writing || !self.has_partition()
    }

    /// Whether the partition was there at the end of an attempt.
    fn has_partition(&self) -> bool {
        matches!(self.stage, Stage::Made | Stage::Found)
    }
}

/// A disk at a moment.
#[derive(Debug)]
struct Disk {
    device: Device,
    sector: u64,
    table: Found,
    known: Vec<Known>,
}

/// The work that is left on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Plan {
    /// The partition stays; so it shall be.
    Keep { is: Part, wanted: Part },
    /// A partition is made, if need be with a table.
    Make,
}

impl Disk {
    fn read(device: Device) -> Result<Self, String> {
        let sector = kernel::sector(&device);
        let (table, known) = (table::read(&device, sector)?, kernel::known(&device)?);
        Ok(Self { device, sector, table, known })
    }

    /// The state after a change.
    fn again(self) -> Result<Self, String> {
        Self::read(self.device)
    }

    /// The partition with this UUID.
    fn part(&self, uuid: &str) -> Option<&Part> {
        self.table.gpt()?.parts.iter().find(|part| part.uuid == uuid)
    }

    fn has_table(&self, id: &str) -> bool {
        self.table.gpt().is_some_and(|table| table.id == id)
    }

    fn known(&self, part: &Part) -> Option<&Known> {
        self.known.iter().find(|known| known.number == part.number)
    }

    /// The places that the kernel has in use beside a partition, perhaps from an earlier table.
    fn used(&self, without: Option<u32>) -> Vec<(u64, u64)> {
        let others = self.known.iter().filter(|known| Some(known.number) != without);
        others.map(|known| known.limits(self.sector)).collect()
    }

    /// Whether a partition has no users and no data.
    fn is_empty(&self, part: &Part, host: &Host) -> Result<bool, String> {
        if !self.device.is_block {
            let (start, length) = (part.start * self.sector, part.size * self.sector);
            return Ok(self.device.loops().is_empty() && self.device.is_zero(start, length)?);
        }
        // The disk's own cache may be older than the data of the partition.
        let known = self.known(part).filter(|known| self.table.gpt().is_some_and(|table| known.is_as(part, table)));
        let Some(known) = known else { return Ok(false) };
        let Some(device) = Device::find(host, &known.path())? else { return Ok(false) };
        Ok(device.is_free().is_ok() && device.data()? == Data::Nothing)
    }

    /// Removes a table without partitions that a change object made, or its rest.
    fn clear(&self, id: &str, size: u64) -> Result<(), String> {
        let is_its_own = match &self.table {
            Found::Gpt(table) => table.id == id && table.parts.is_empty(),
            Found::Other(_) => false,
            Found::None => is_rest_of_table(&self.device.data()?) && size == self.device.size,
        };
        if !is_its_own || !self.known.is_empty() {
            return Ok(());
        }
        self.device.is_free()?;
        // Without the first sector there is no table, whatever is left of it.
        let (head, tail) = (2 * self.sector + table::ENTRIES, table::ENTRIES + self.sector);
        self.device.write_zeros(&[(0, self.sector)])?;
        self.device.write_zeros(&[(self.sector, head - self.sector), (self.device.size - tail, tail)])
    }
}

/// Whether there are no data but signatures of a GPT.
fn is_rest_of_table(data: &Data) -> bool {
    matches!(data, Data::Signatures(all) if all.iter().all(|one| OF_TABLE.contains(&one.kind.as_str())))
}

/// A number of bytes as a content writes it.
fn as_size(bytes: u64) -> String {
    let unit = [(30, "G"), (20, "M")].into_iter().find(|(bits, _)| bytes.is_multiple_of(1 << bits));
    unit.map_or_else(|| bytes.to_string(), |(bits, unit)| format!("{}{unit}", bytes >> bits))
}

impl Entry<Partition> {
    fn device(&self) -> Result<Option<Device>, String> {
        Device::find(&self.host, &self.content.disk)
    }

    fn disk(&self) -> Result<Disk, String> {
        let disk = &self.content.disk;
        let device = self
            .device()?
            .ok_or_else(|| format!("{disk} does not exist on this host: attach the disk, or correct `disk`"))?;
        Disk::read(device)
    }

    fn path(&self) -> String {
        self.host.path(&self.content.disk).display().to_string()
    }

    fn record(&self) -> Result<Option<Record>, String> {
        let record: Option<Record> = record::read(&self.own, RECORD)?;
        Ok(record.filter(|record| record.disk == self.path() && record.name == self.content.name))
    }

    fn write_record(&self, record: &Record) -> Result<(), String> {
        record::write(&self.own, RECORD, record)
    }

    fn wanted_size(&self) -> Wanted {
        self.content.size.filter(|_| !self.content.rest).map_or(Wanted::Rest, |size| Wanted::Bytes(size.0))
    }

    /// The partitions with the name.
    fn named<'d>(&self, disk: &'d Disk) -> Vec<&'d Part> {
        let parts = disk.table.gpt().map_or(&[][..], |table| &table.parts);
        parts.iter().filter(|part| part.name == self.content.name).collect()
    }

    /// The work that is left, or the reason why no work may begin.
    fn plan(&self, disk: &Disk, record: Option<&Record>) -> Result<Plan, String> {
        let (path, name) = (&self.content.disk, &self.content.name);
        if kernel::is_partition(&disk.device) {
            return Err(format!("{path} is a partition: name the whole disk"));
        }
        if let Found::Other(kind) = &disk.table {
            return Err(format!(
                "{path} has a partition table of the type {kind}, which stays: name another disk, or convert the table by \
                 hand (`sgdisk --mbrtogpt`)"
            ));
        }
        let table = disk.table.gpt();
        let parts = table.map_or(&[][..], |table| &table.parts);
        let named = self.named(disk);
        match (named.as_slice(), table) {
            ([part], Some(table)) => {
                self.is_permitted(part, record)?;
                return self.kept(disk, table, part);
            }
            ([_, _, ..], _) => {
                return Err(format!(
                    "{path} has {} partitions with the name {name}: rename others (`sfdisk --part-label {path} NUMBER NAME`)",
                    named.len()
                ));
            }
            ([], _) | (_, None) => {}
        }
        if let Some(record) = record.filter(|record| record.has_partition()) {
            self.is_not_lost(parts, record)?;
        }
        if let Some(user) = kernel::user(&disk.device)? {
            return Err(format!("{path} is in use by {user}, so its table stays; stop the use, or name another disk"));
        }
        let blank;
        let table = match table {
            Some(table) => {
                let data = disk.device.data()?;
                if !is_rest_of_table(&data) {
                    let found = data.describe();
                    return Err(format!("{path} has {found}, more than a partition table: name another disk"));
                }
                table
            }
            None => {
                self.is_blank(disk, record)?;
                blank = Table::empty(&disk.device, disk.sector);
                &blank
            }
        };
        match space::place(table, &disk.used(None), self.wanted_size()) {
            Ok(_) => Ok(Plan::Make),
            Err(largest) => Err(self.no_room(largest)),
        }
    }

    fn no_room(&self, largest: u64) -> String {
        let (path, name) = (&self.content.disk, &self.content.name);
        let wanted = self.content.size.map_or_else(|| "1 MiB".to_owned(), |size| size.to_string());
        let largest = cob_kinds::Size(largest);
        format!("{path} has no {wanted} for {name}: its largest free space has {largest}; free more, or reduce `size`")
    }

    /// Whether a partition of the name may be managed.
    fn is_permitted(&self, part: &Part, record: Option<&Record>) -> Result<(), String> {
        let is_known = record.is_some_and(|record| record.uuid == part.uuid);
        if is_known || is_marked(&part.uuid) || self.content.adopt.as_ref() == Some(&part.uuid) {
            return Ok(());
        }
        let (path, name, uuid) = (&self.content.disk, &self.content.name, &part.uuid);
        Err(format!(
            "others made the partition {name} of {path} with the UUID {uuid}: choose another name, or write `adopt: \
             \"{uuid}\"` to manage it"
        ))
    }

    /// The partition as it shall be.
    fn kept(&self, disk: &Disk, table: &Table, part: &Part) -> Result<Plan, String> {
        let (path, name, wanted) = (&self.content.disk, &self.content.name, self.wanted_size());
        let bytes = part.size.saturating_mul(table.sector);
        if space::is_too_large(table, part, wanted) {
            return Err(format!(
                "the partition {name} of {path} has {}, and no partition becomes smaller: write `size: {}`",
                cob_kinds::Size(bytes),
                as_size(bytes)
            ));
        }
        let size = space::grown(table, part, &disk.used(Some(part.number)), wanted).map_err(|most| {
            format!(
                "the partition {name} of {path} has {}, and can't have more than {}, for the space behind it ends there: \
                 free the space, or reduce `size`",
                cob_kinds::Size(bytes),
                cob_kinds::Size(most)
            )
        })?;
        let wanted = Part { size, kind: self.content.kind.guid().to_owned(), ..part.clone() };
        if let ([first, ..], true) = (disk.device.loops().as_slice(), wanted != *part) {
            return Err(format!("{path} is in use by {}, so its table stays; name that disk", first.display()));
        }
        Ok(Plan::Keep { is: part.clone(), wanted })
    }

    /// The look at a disk with this plan.
    fn found(&self, disk: &Disk, plan: Result<Plan, String>) -> Value {
        let (is, wanted) = match plan {
            Err(why) => return json!({ PARTITION: why }),
            Ok(Plan::Make) => return json!({ PARTITION: "none" }),
            Ok(Plan::Keep { is, wanted }) => (is, wanted),
        };
        let mut found = self.wanted();
        if is.kind != wanted.kind {
            found[TYPE] = json!(is.kind);
        }
        if is.size != wanted.size {
            let (is, wanted) = (is.size * disk.sector, wanted.size * disk.sector);
            found[SIZE] = json!(format!("{is} of {wanted} bytes"));
        }
        let is_known = |table: &Table| disk.known(&is).is_some_and(|known| known.is_as(&is, table));
        if disk.device.is_block && !disk.table.gpt().is_some_and(is_known) {
            found[KERNEL] = json!(disk.known(&is).map_or("no partition", |_| "other limits than the table"));
        }
        found
    }

    /// Whether a partition that is not there may be made again.
    fn is_not_lost(&self, parts: &[Part], record: &Record) -> Result<(), String> {
        let (path, name, uuid) = (&self.content.disk, &self.content.name, &record.uuid);
        if let Some(part) = parts.iter().find(|part| part.uuid == *uuid) {
            let (number, other) = (part.number, &part.name);
            return Err(format!(
                "the partition {name} of {path} has the name {other} now: rename it (`sfdisk --part-label {path} {number} \
                 {name}`), or correct `name`"
            ));
        }
        if self.content.overwrite.as_ref() == Some(uuid) {
            return Ok(());
        }
        Err(format!(
            "{path} has lost its partition {name} with the UUID {uuid}: restore the table, or write `overwrite: \"{uuid}\"` \
             for a new partition"
        ))
    }

    /// Whether a disk without a table may get one.
    fn is_blank(&self, disk: &Disk, record: Option<&Record>) -> Result<(), String> {
        let (path, data) = (&self.content.disk, disk.device.data()?);
        let is_begun = |record: &Record| {
            !record.has_partition()
                && record.table.is_some()
                && record.size == disk.device.size
                && is_rest_of_table(&data)
        };
        if data != Data::Nothing && !record.is_some_and(is_begun) {
            let found = data.describe();
            return Err(format!(
                "{path} has {found} and no partition table, which is not overwritten: name another disk, or erase it by hand \
                 (`wipefs --all {path}` and `blkdiscard --zeroout {path}`)"
            ));
        }
        if !disk.known.is_empty() {
            return Err(format!(
                "{path} has no partition table, and the kernel still has partitions of it: remove these (`partx \
                 --delete {path}`)"
            ));
        }
        disk.device.is_free()
    }

    /// Makes the partition, if need be with a table. The identities of both are recorded first.
    fn make(&self, mut disk: Disk, record: Option<Record>) -> Result<(Disk, Record), String> {
        let size = disk.device.size;
        let mut record = match record {
            Some(record) if record.stage == Stage::Making => Record { size, writing: true, ..record },
            earlier => Record {
                disk: self.path(),
                size,
                name: self.content.name.clone(),
                uuid: marked_uuid()?,
                stage: Stage::Making,
                table: earlier.and_then(|record| record.table).filter(|id| disk.has_table(id)),
                writing: true,
            },
        };
        if disk.table == Found::None {
            let id = marked_uuid()?;
            record.table = Some(id.clone());
            self.write_record(&record)?;
            table::make(&disk.device, &id)?;
            disk = disk.again()?;
        } else {
            self.write_record(&record)?;
        }
        disk = self.lengthened(disk)?;
        let table = disk.table.gpt().ok_or_else(|| format!("{} has no table after a change", self.content.disk))?;
        let (start, size) =
            space::place(table, &disk.used(None), self.wanted_size()).map_err(|largest| self.no_room(largest))?;
        let kind = self.content.kind.guid().to_owned();
        let part = Part { number: 0, start, size, kind, uuid: record.uuid.clone(), name: record.name.clone() };
        table::add(&disk.device, &part)?;
        Ok((disk.again()?, record))
    }

    /// Moves the second copy of the table to the end of a disk that has grown.
    fn lengthened(&self, disk: Disk) -> Result<Disk, String> {
        match disk.table.gpt() {
            Some(table) if table.is_short => {
                table::complete(&disk.device, table)?;
                disk.again()
            }
            Some(_) | None => Ok(disk),
        }
    }

    /// Gives a partition its size and type, and completes a change that was killed.
    fn keep(&self, mut disk: Disk, record: Option<Record>, plan: (&Part, &Part)) -> Result<(Disk, Record), String> {
        let (is, wanted) = plan;
        let mut record = match record.filter(|record| record.uuid == is.uuid) {
            Some(record) if record.stage == Stage::Found => record,
            Some(record) => Record { stage: Stage::Made, ..record },
            None => Record {
                disk: self.path(),
                size: disk.device.size,
                name: self.content.name.clone(),
                uuid: is.uuid.clone(),
                stage: Stage::Found,
                table: None,
                writing: false,
            },
        };
        if is == wanted && !record.writing {
            return Ok((disk, record));
        }
        record.writing = true;
        self.write_record(&record)?;
        disk = self.lengthened(disk)?;
        let Plan::Keep { is, wanted } = self.plan(&disk, Some(&record))? else {
            return Err(format!("the partition {} disappeared", record.name));
        };
        match disk.table.gpt() {
            Some(table) if is == wanted => table::complete(&disk.device, table)?,
            Some(_) | None => table::change(&disk.device, &wanted)?,
        }
        Ok((disk.again()?, record))
    }

    /// Takes back what the change object made: the partition, and a table without partitions.
    fn erase(&self, mut disk: Disk, record: &mut Record) -> Result<(), String> {
        if let Some(part) = disk.part(&record.uuid).cloned() {
            // A removal goes on when the kernel has forgotten the partition.
            let is_going = match record.stage {
                Stage::Making => true,
                Stage::Erasing => disk.device.is_block && disk.known(&part).is_none(),
                Stage::Made | Stage::Found => false,
            };
            if !is_going && !disk.is_empty(&part, &self.host)? {
                return self.complete(&disk, record);
            }
            if let ([first, ..], false) = (disk.device.loops().as_slice(), disk.device.is_block) {
                return Err(format!("{} is in use by {}; stop the use", self.content.disk, first.display()));
            }
            (record.stage, record.writing) = (Stage::Erasing, true);
            self.write_record(record)?;
            kernel::forget(&disk.device, part.number)?;
            table::delete(&disk.device, part.number)?;
            disk = disk.again()?;
        } else {
            self.complete(&disk, record)?;
            // It was lost, and so the table stays.
            if record.has_partition() {
                return Ok(());
            }
        }
        let Some(id) = record.table.clone() else { return Ok(()) };
        (record.stage, record.writing) = (Stage::Erasing, true);
        self.write_record(record)?;
        disk.clear(&id, record.size)
    }

    /// Completes both copies of the table after a kill, and tells the kernel.
    fn complete(&self, disk: &Disk, record: &Record) -> Result<(), String> {
        let Some(table) = disk.table.gpt().filter(|_| record.writing) else { return Ok(()) };
        table::complete(&disk.device, table)?;
        match disk.part(&record.uuid) {
            Some(part) => kernel::tell(&disk.device, table, part),
            None => Ok(()),
        }
    }

    /// Keeps udev and other programs that respect the lock from the disk while its table changes.
    fn locked(&self, device: &Device) -> Result<File, String> {
        let locked = File::open(&device.path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| format!("{}: {error}", device.path.display()))
    }
}

impl Spec for Entry<Partition> {
    fn notes() -> &'static [&'static str] {
        &[NOTE, RECORD]
    }

    fn target(&self) -> String {
        format!("the partition {} of {}", self.content.name, self.content.disk)
    }

    fn turn(&self) -> Option<&'static str> {
        Some("partitions")
    }

    fn look(&self, _before: Option<&Value>) -> Result<Option<Value>, String> {
        let Some(device) = self.device()? else {
            return Ok(Some(json!({ PARTITION: format!("{} does not exist", self.content.disk) })));
        };
        let (disk, record) = (Disk::read(device)?, self.record()?);
        let plan = self.plan(&disk, record.as_ref());
        if record.is_some_and(|record| record.is_open()) {
            return Ok(Some(json!({ PARTITION: "unfinished" })));
        }
        Ok(Some(self.found(&disk, plan)))
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        let Some(device) = self.device()? else { return Ok(None) };
        let disk = Disk::read(device)?;
        let plan = match (disk.table.gpt(), self.named(&disk).as_slice()) {
            (Some(table), [part]) => self.kept(&disk, table, part),
            _ => self.plan(&disk, None),
        };
        Ok(Some(self.found(&disk, plan)))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let disk = self.disk()?;
        let found: Vec<&String> = self.named(&disk).into_iter().map(|part| &part.uuid).collect();
        Ok(Some(json!({ "found": found })))
    }

    fn wanted(&self) -> Value {
        let size = self.content.size.map_or_else(|| "the rest".to_owned(), |size| size.to_string());
        json!({ PARTITION: self.content.name, TYPE: self.content.kind.guid(), SIZE: size, KERNEL: AS_TABLE })
    }

    fn of_use(&self) -> Result<(), String> {
        needs_program(table::PROGRAM, "fdisk")?;
        ["wipefs", "partx", "resizepart"].into_iter().try_for_each(|program| needs_program(program, "util-linux"))
    }

    fn hindered(&self) -> Result<(), String> {
        self.of_use()?;
        self.plan(&self.disk()?, self.record()?.as_ref()).map(|_| ())
    }

    fn apply(&self, _before: Option<&Value>) -> Result<(), String> {
        let (disk, record) = (self.disk()?, self.record()?);
        let locked = self.locked(&disk.device)?;
        let (disk, mut record) = match self.plan(&disk, record.as_ref())? {
            Plan::Make => self.make(disk, record)?,
            Plan::Keep { is, wanted } => self.keep(disk, record, (&is, &wanted))?,
        };
        let (Some(table), Some(part)) = (disk.table.gpt(), disk.part(&record.uuid)) else {
            return Err(format!("sfdisk ended, and {} has no partition {}", self.content.disk, record.name));
        };
        kernel::tell(&disk.device, table, part)?;
        if record.stage == Stage::Making {
            record.stage = Stage::Made;
        }
        record.writing = false;
        self.write_record(&record)?;
        // udev waits for the lock.
        drop(locked);
        if disk.device.is_block {
            kernel::settle(&record.name);
        }
        Ok(())
    }

    fn restore(&self, _before: Option<&Value>) -> Result<(), String> {
        if let (Some(mut record), Some(device)) = (self.record()?, self.device()?) {
            let disk = Disk::read(device)?;
            let _locked = self.locked(&disk.device)?;
            let is_erased = record.stage.is_erased(self.content.on_departure);
            match is_erased {
                true => self.erase(disk, &mut record)?,
                false => self.complete(&disk, &record)?,
            }
        }
        record::delete(&self.own, RECORD)
    }

    fn exports(&self) -> Result<Values, String> {
        let disk = self.disk()?;
        let named = self.named(&disk);
        let [part] = named.as_slice() else { return Ok(Values::new()) };
        let device = disk.known(part).map(|known| ("device".to_owned(), json!(known.path())));
        let all = [("uuid".to_owned(), json!(part.uuid))].into_iter().chain(device);
        Ok(all.map(|(name, value)| (name, canonical::json(&value))).collect())
    }
}
