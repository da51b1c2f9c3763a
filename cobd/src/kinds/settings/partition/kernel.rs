//! The partitions that the kernel knows of a disk, and the users of the disk.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::device::Device;
use super::super::mounted;
use super::table::{Part, Table};
use crate::kinds::native::{has_program, run_bounded};

/// The length of the kernel's sectors.
const SECTOR: u64 = 512;
/// udev listens here.
const UDEV: &str = "/run/udev/control";

/// A partition that the kernel knows; its place and length are in sectors of [`SECTOR`] bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) number: u32,
    /// The name of its node below `/dev`.
    name: String,
    start: u64,
    size: u64,
}

impl Known {
    /// Its device.
    pub(super) fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// Its limits in sectors of a table.
    pub(super) fn limits(&self, sector: u64) -> (u64, u64) {
        let end = (self.start + self.size) * SECTOR;
        (self.start * SECTOR / sector, end.div_ceil(sector))
    }

    /// Whether it is as the table says.
    pub(super) fn is_as(&self, part: &Part, table: &Table) -> bool {
        let parts = table.sector / SECTOR;
        (self.number, self.start, self.size) == (part.number, part.start * parts, part.size * parts)
    }
}

fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The partitions of a disk; none of an image file.
pub(super) fn known(device: &Device) -> Result<Vec<Known>, String> {
    if !device.is_block {
        return Ok(Vec::new());
    }
    let folder = device.folder();
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let read = |entry: fs::DirEntry| {
        let path = entry.path();
        let (start, size) = (number(&path.join("start"))?, number(&path.join("size"))?);
        let name = entry.file_name().to_str()?.replace('!', "/");
        Some(Known { number: number(&path.join("partition"))?, name, start, size })
    };
    let mut known: Vec<Known> = entries.flatten().filter_map(read).collect();
    known.sort_by_key(|one| one.number);
    Ok(known)
}

/// The length of a sector in bytes.
pub(super) fn sector(device: &Device) -> u64 {
    let length = device.is_block.then(|| number(&device.folder().join("queue/logical_block_size"))).flatten();
    length.filter(|length| *length >= SECTOR).unwrap_or(SECTOR)
}

/// Whether a device is a partition itself.
pub(super) fn is_partition(device: &Device) -> bool {
    device.is_block && device.folder().join("partition").exists()
}

/// The user of a whole disk, besides its partitions.
pub(super) fn user(device: &Device) -> Result<Option<String>, String> {
    if let [first, ..] = device.loops().as_slice() {
        return Ok(Some(first.display().to_string()));
    }
    if let [first, ..] = device.mounts()?.as_slice() {
        return Ok(Some(format!("a mount on {}", first.display())));
    }
    if !device.is_block {
        return Ok(None);
    }
    if let [first, ..] = device.holders().as_slice() {
        return Ok(Some(first.display().to_string()));
    }
    Ok(mounted::swap_priority(&device.path).map(|_| "swap".to_owned()))
}

/// Tells the kernel the limits of a partition. Other partitions stay as the kernel knows them.
pub(super) fn tell(device: &Device, table: &Table, part: &Part) -> Result<(), String> {
    let (path, nr) = (&device.path, part.number.to_string());
    let known = known(device)?;
    let known = known.iter().find(|known| known.number == part.number);
    if !device.is_block || known.is_some_and(|known| known.is_as(part, table)) {
        return Ok(());
    }
    let begins = |known: &Known| known.start == part.start * (table.sector / SECTOR);
    let told = match known {
        Some(known) if begins(known) => {
            let size = (part.size * (table.sector / SECTOR)).to_string();
            run_bounded(Command::new("resizepart").arg(path).args([&nr, &size]), b"")?
        }
        known => {
            if known.is_some() {
                forget(device, part.number)?;
            }
            run_bounded(Command::new("partx").args(["--add", "--nr", &nr, "--"]).arg(path), b"")?
        }
    };
    told.ok().map_err(|why| {
        format!(
            "the kernel does not take the partition {nr} of {}: {why}; `partx --show {}` shows its partitions",
            path.display(),
            path.display()
        )
    })?;
    Ok(())
}

/// Lets the kernel forget a partition without users.
pub(super) fn forget(device: &Device, number: u32) -> Result<(), String> {
    if known(device)?.iter().all(|known| known.number != number) {
        return Ok(());
    }
    let (path, nr) = (&device.path, number.to_string());
    let told = run_bounded(Command::new("partx").args(["--delete", "--nr", &nr, "--"]).arg(path), b"")?.ok();
    told.map(|_| ()).map_err(|why| format!("the partition {nr} of {} is in use: {why}; stop its use", path.display()))
}

/// Waits until udev has made the link of a partition. A host without udev has no links.
pub(super) fn settle(name: &str) {
    if Path::new(UDEV).exists() && has_program("udevadm") {
        let until = format!("--exit-if-exists=/dev/disk/by-partlabel/{name}");
        // A link that is late is no failure of the partition.
        let _ = run_bounded(Command::new("udevadm").args(["settle", "--timeout=10", &until]), b"");
    }
}
