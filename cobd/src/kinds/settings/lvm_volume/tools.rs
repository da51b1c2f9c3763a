//! The programs of LVM: volume groups as they report them, and changes.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::kinds::native::run_bounded;

/// The program that has all commands of LVM.
pub(super) const PROGRAM: &str = "lvm";
/// The device with which programs control the device-mapper of the kernel.
const MAPPER: &str = "/dev/mapper/control";

/// A volume group.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) uuid: String,
    pub(super) tags: Vec<String>,
    /// The length of an extent in bytes.
    pub(super) extent: u64,
    /// The number of extents.
    pub(super) extents: u64,
    pub(super) devices: Vec<Physical>,
    pub(super) volumes: Vec<Logical>,
}

/// A physical volume of a group.
#[derive(Debug, Clone)]
pub(super) struct Physical {
    /// The path without links.
    pub(super) path: PathBuf,
    pub(super) uuid: String,
    /// The number of extents in use.
    pub(super) used: u64,
    /// The device has grown by at least an extent.
    pub(super) is_grown: bool,
}

/// A logical volume.
#[derive(Debug, Clone)]
pub(super) struct Logical {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) size: u64,
    pub(super) tags: Vec<String>,
    pub(super) layout: String,
    pub(super) is_active: bool,
}

impl Group {
    /// The physical volume on a device.
    pub(super) fn physical(&self, path: &std::path::Path) -> Option<&Physical> {
        self.devices.iter().find(|device| device.path == path)
    }

    /// The volume with this name.
    pub(super) fn volume(&self, name: &str) -> Option<&Logical> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    pub(super) fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|one| one == tag)
    }
}

/// A report in JSON; all its values are texts.
#[derive(Deserialize)]
struct Report<T> {
    report: Vec<BTreeMap<String, Vec<T>>>,
}

#[derive(Deserialize)]
struct GroupRow {
    vg_uuid: String,
    vg_tags: String,
    vg_extent_size: String,
    vg_extent_count: String,
}

#[derive(Deserialize)]
struct PhysicalRow {
    pv_name: String,
    pv_uuid: String,
    dev_size: String,
    pe_start: String,
    pv_pe_count: String,
    pv_pe_alloc_count: String,
    pv_mda_count: String,
}

#[derive(Deserialize)]
struct LogicalRow {
    lv_name: String,
    lv_uuid: String,
    lv_size: String,
    lv_tags: String,
    lv_layout: String,
    lv_active: String,
}

/// The group with this name. `None`: it does not exist.
pub(super) fn group(name: &str) -> Result<Option<Group>, String> {
    let rows: Vec<GroupRow> = report("vgs", "vg_uuid,vg_tags,vg_extent_size,vg_extent_count", name)?;
    let row = match rows.as_slice() {
        [] => return Ok(None),
        [row] => row,
        _ => {
            return Err(format!("there are several volume groups with the name {name}: rename others with `vgrename`"));
        }
    };
    let extent = number(&row.vg_extent_size)?;
    let fields = "pv_name,pv_uuid,dev_size,pe_start,pv_pe_count,pv_pe_alloc_count,pv_mda_count";
    let rows_of_devices: Vec<PhysicalRow> = report("pvs", fields, name)?;
    let mut devices = Vec::new();
    for row in rows_of_devices {
        let room = number(&row.dev_size)?.saturating_sub(number(&row.pe_start)?) / extent.max(1);
        // A second area with metadata is at the end of the device.
        let is_grown = row.pv_mda_count == "1" && room > number(&row.pv_pe_count)?;
        let path = PathBuf::from(&row.pv_name);
        let path = path.canonicalize().unwrap_or(path);
        devices.push(Physical { path, uuid: row.pv_uuid, used: number(&row.pv_pe_alloc_count)?, is_grown });
    }
    let fields = "lv_name,lv_uuid,lv_size,lv_tags,lv_layout,lv_active";
    let rows_of_volumes: Vec<LogicalRow> = report("lvs", fields, name)?;
    let volume = |row: LogicalRow| {
        Ok(Logical {
            name: row.lv_name,
            uuid: row.lv_uuid,
            size: number(&row.lv_size)?,
            tags: words(&row.lv_tags),
            layout: row.lv_layout,
            is_active: row.lv_active == "active",
        })
    };
    Ok(Some(Group {
        uuid: row.vg_uuid.clone(),
        tags: words(&row.vg_tags),
        extent,
        extents: number(&row.vg_extent_count)?,
        devices,
        volumes: rows_of_volumes.into_iter().map(volume).collect::<Result<_, String>>()?,
    }))
}

fn report<T: DeserializeOwned>(command: &str, fields: &str, group: &str) -> Result<Vec<T>, String> {
    let select = format!("vg_name={group}");
    let words = ["--reportformat", "json", "--units", "b", "--nosuffix", "--options", fields, "--select", &select];
    let out = lvm(&[&[command], &words[..]].concat())?;
    let report: Report<T> = serde_json::from_str(&out).map_err(|error| format!("lvm {command}: {error}"))?;
    Ok(report.report.into_iter().flat_map(BTreeMap::into_values).flatten().collect())
}

fn number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("lvm reports {text:?}, which is not a number"))
}

fn words(text: &str) -> Vec<String> {
    text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Runs a command of LVM, which can ask nothing: without an answer it stops before it loses data.
pub(super) fn lvm(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(PROGRAM);
    command.args(words).env("LC_ALL", "C.UTF-8").env("LVM_SUPPRESS_FD_WARNINGS", "1");
    let command_name = words.first().copied().unwrap_or_default();
    run_bounded(&mut command, b"")?.ok().map_err(|why| why.replacen(PROGRAM, &format!("lvm {command_name}"), 1))
}

/// Deactivates volumes on a device that is about to go. LVM activates each volume by itself as soon as its devices are
/// there, also if nobody needs it. A volume in use stays active.
pub(in crate::kinds::settings) fn deactivate_unused(holders: &[PathBuf]) {
    for holder in holders {
        let Some(device) = holder.file_name() else { continue };
        let read = |file: &str| fs::read_to_string(Path::new("/sys/class/block").join(device).join("dm").join(file));
        let (Ok(identity), Ok(name)) = (read("uuid"), read("name")) else { continue };
        if identity.starts_with("LVM-") {
            // The caller finds out whether the device is free.
            let _ = lvm(&["lvchange", "--activate", "n", &format!("/dev/mapper/{}", name.trim())]);
        }
    }
}

/// Whether volumes are activated. An administrator can turn that off in `lvm.conf`, with `global/activation`.
pub(super) fn is_activating() -> Result<bool, String> {
    // Without a line of configuration the command fails.
    let out = lvm(&["lvmconfig", "--type", "full", "--config", "log/verbose=0", "global/activation"])?;
    Ok(out.trim() != "activation=0")
}

/// Whether the kernel has a device-mapper. To open its device loads the module.
pub(in crate::kinds::settings) fn has_mapper() -> bool {
    let is_listed = || fs::read_to_string("/proc/misc").is_ok_and(|list| list.contains("device-mapper"));
    is_listed() || OpenOptions::new().read(true).write(true).open(MAPPER).is_ok()
}
