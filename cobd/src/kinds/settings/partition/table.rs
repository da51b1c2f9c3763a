//! Partition tables, read and written by sfdisk.
//!
//! A GPT has two copies, at both ends of the disk. For each change sfdisk writes and flushes the second copy first
//! (entries, then the header with their checksum), then the first copy, then the protective MBR. A kill between two
//! writes, or inside of one, leaves at least one whole copy: the former table or the new. Readers take the first copy,
//! and the second if the checksums of the first are wrong. Without the protective MBR there is no table.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::super::device::Device;
use crate::kinds::native::{Ran, run_bounded};

/// The program.
pub(super) const PROGRAM: &str = "sfdisk";
/// The bytes of the entries of a table with the usual number of entries.
pub(super) const ENTRIES: u64 = 128 * ENTRY;
/// The bytes of an entry.
const ENTRY: u64 = 128;

/// The table on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Gpt(Table),
    /// A table of this type.
    Other(String),
    /// None that sfdisk reads.
    None,
}

/// A GPT. All places and lengths are numbers of sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) id: String,
    /// The bytes of a sector.
    pub(super) sector: u64,
    /// The first and the last sector that a partition may have.
    pub(super) first: u64,
    pub(super) last: u64,
    /// The second copy is not at the end of the disk, which has grown.
    pub(super) is_short: bool,
    pub(super) parts: Vec<Part>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) number: u32,
    pub(super) start: u64,
    pub(super) size: u64,
    /// The type, as a GUID in small letters.
    pub(super) kind: String,
    /// In small letters.
    pub(super) uuid: String,
    pub(super) name: String,
}

#[derive(Deserialize)]
struct Report {
    partitiontable: Listing,
}

#[derive(Deserialize)]
struct Listing {
    label: String,
    #[serde(default)]
    id: String,
    device: String,
    #[serde(default)]
    firstlba: u64,
    #[serde(default)]
    lastlba: u64,
    #[serde(rename = "table-length")]
    length: Option<String>,
    #[serde(default)]
    partitions: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    node: String,
    start: u64,
    size: u64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    uuid: String,
    #[serde(default)]
    name: String,
}

impl Part {
    /// The first sector behind it.
    pub(super) fn end(&self) -> u64 {
        self.start + self.size
    }
}

impl Found {
    /// The table, if it is a GPT.
    pub(super) fn gpt(&self) -> Option<&Table> {
        match self {
            Self::Gpt(table) => Some(table),
            Self::Other(_) | Self::None => None,
        }
    }
}

impl Table {
    /// A table without partitions, as sfdisk makes it on a disk.
    pub(super) fn empty(device: &Device, sector: u64) -> Self {
        let (id, first) = (String::new(), (1 << 20) / sector);
        let last = last_sector(device.size, sector, ENTRIES);
        Self { id, sector, first, last, is_short: false, parts: Vec::new() }
    }
}

/// The last sector that a partition may have, before the entries and the header of the second copy.
fn last_sector(size: u64, sector: u64, entries: u64) -> u64 {
    (size / sector).saturating_sub(2 + entries.div_ceil(sector))
}

/// The table on a disk with sectors of this length.
pub(super) fn read(device: &Device, sector: u64) -> Result<Found, String> {
    let ran = run(&device.path, &["--json"], &[], "")?;
    // Damage and a disk without a table have the same status. Nothing is made on a disk that is not blank.
    if ran.code == Some(1) {
        return Ok(Found::None);
    }
    let failed = |what: &dyn std::fmt::Display| format!("{PROGRAM} --json {}: {what}", device.path.display());
    let report: Report = serde_json::from_str(&ran.ok()?).map_err(|error| failed(&error))?;
    let listing = report.partitiontable;
    if listing.label != "gpt" {
        return Ok(Found::Other(listing.label));
    }
    let number = |row: &Row| {
        let digits =
            row.node.strip_prefix(&listing.device).map(|rest| rest.trim_start_matches(|c: char| !c.is_ascii_digit()));
        digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| failed(&format!("{:?} has no number", row.node)))
    };
    let part = |row: Row| {
        let (kind, uuid) = (row.kind.to_ascii_lowercase(), row.uuid.to_ascii_lowercase());
        Ok(Part { number: number(&row)?, start: row.start, size: row.size, kind, uuid, name: row.name })
    };
    let entries = listing.length.as_ref().and_then(|length| length.parse::<u64>().ok()).unwrap_or(128) * ENTRY;
    let is_short = second_copy(device, sector)?.is_some_and(|at| at + 1 < device.size / sector);
    let last = if is_short { last_sector(device.size, sector, entries) } else { listing.lastlba };
    Ok(Found::Gpt(Table {
        id: listing.id.to_ascii_lowercase(),
        sector,
        first: listing.firstlba,
        last: last.max(listing.lastlba),
        is_short,
        parts: listing.partitions.into_iter().map(part).collect::<Result<_, String>>()?,
    }))
}

/// The place of the second copy, according to the first. `None`: the first copy has no header.
fn second_copy(device: &Device, sector: u64) -> Result<Option<u64>, String> {
    let mut header = [0; 40];
    let read = File::open(&device.path).and_then(|file| file.read_exact_at(&mut header, sector));
    read.map_err(|error| format!("{}: {error}", device.path.display()))?;
    let place = header.last_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
    Ok(place.filter(|_| header.starts_with(b"EFI PART")))
}

/// Makes a table without partitions. Its identity is known before.
pub(super) fn make(device: &Device, id: &str) -> Result<(), String> {
    write(device, &[], &[], &format!("label: gpt\nlabel-id: {id}\n"))
}

/// Adds a partition; its number does not count.
pub(super) fn add(device: &Device, part: &Part) -> Result<(), String> {
    let Part { start, size, kind, uuid, name, .. } = part;
    write(device, &["--append"], &[], &format!("start={start},size={size},type={kind},uuid={uuid},name=\"{name}\"\n"))
}

/// Gives a partition this size and type.
pub(super) fn change(device: &Device, part: &Part) -> Result<(), String> {
    let Part { number, start, size, kind, .. } = part;
    write(device, &["-N", &number.to_string()], &[], &format!("start={start},size={size},type={kind}\n"))
}

/// Deletes a partition.
pub(super) fn delete(device: &Device, number: u32) -> Result<(), String> {
    write(device, &["--delete"], &[&number.to_string()], "")
}

/// Writes both copies as they are read, the second at the end of the disk.
pub(super) fn complete(device: &Device, table: &Table) -> Result<(), String> {
    write(device, &["--disk-id"], &[&table.id], "")
}

fn write(device: &Device, words: &[&str], more: &[&str], script: &str) -> Result<(), String> {
    // The kernel learns only the change: a new reading of the table fails if any partition is in use. Signatures in the
    // partitions stay.
    let quietly = ["--quiet", "--no-reread", "--no-tell-kernel", "--wipe", "never", "--wipe-partitions", "never"];
    run(&device.path, &[&quietly, words].concat(), more, script)?.ok()?;
    device.sync()
}

fn run(path: &Path, words: &[&str], more: &[&str], script: &str) -> Result<Ran, String> {
    let mut command = Command::new(PROGRAM);
    command.args(words).arg("--").arg(path).args(more).env("LC_ALL", "C.UTF-8").env_remove("LOCK_BLOCK_DEVICE");
    run_bounded(&mut command, script.as_bytes())
}
