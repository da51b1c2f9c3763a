//! Arrays as the kernel and `mdadm` report them, and changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kinds::native::{in_groups, run_bounded};

pub(super) const PROGRAM: &str = "mdadm";
/// The place of the superblock of a device: metadata 1.2.
pub(super) const SUPERBLOCK: (u64, u64) = (4096, 4096);
/// The block devices of the kernel.
const BLOCKS: &str = "/sys/block";
/// Exists if the kernel has arrays.
const ARRAYS: &str = "/proc/mdstat";
/// Where `mdadm` notes that it is making an array: udev gives such an array no name.
const CREATING: &str = "/run/mdadm/creating-";

/// An array of the kernel.
#[derive(Debug, Clone)]
pub(super) struct Array {
    /// Its device, such as `/dev/md127`.
    pub(super) path: PathBuf,
    pub(super) uuid: String,
    /// The name below `/dev/md`.
    pub(super) name: String,
    pub(super) level: Option<u8>,
    /// The number of devices with data.
    pub(super) slots: usize,
    /// It was started.
    pub(super) is_active: bool,
    pub(super) members: Vec<Member>,
}

/// A device of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) path: PathBuf,
    pub(super) role: Role,
}

/// The part of a device in its array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It has data, or gets them now.
    Data,
    Spare,
    Faulty,
}

/// The superblock of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    /// The UUID of the array.
    pub(super) uuid: String,
    /// The UUID of the device.
    pub(super) device: String,
    /// The name of the array, with the host for which it was made.
    pub(super) name: String,
    /// The number of changes of the array until the last that the device has seen.
    pub(super) events: u64,
}

impl Array {
    pub(super) fn member(&self, path: &Path) -> Option<&Member> {
        self.members.iter().find(|member| member.path == path)
    }

    fn with(&self, role: Role) -> usize {
        self.members.iter().filter(|member| member.role == role).count()
    }

    /// The number of devices with data that are missing, and that no spare will replace.
    pub(super) fn missing(&self) -> usize {
        self.slots.saturating_sub(self.with(Role::Data) + self.with(Role::Spare))
    }

    /// The last change of which any member in use knows.
    pub(super) fn events(&self) -> Result<u64, String> {
        let used = self.members.iter().filter(|member| member.role == Role::Data);
        let blocks = used.map(|member| superblock(&member.path)).collect::<Result<Vec<_>, _>>()?;
        Ok(blocks.into_iter().flatten().map(|block| block.events).max().unwrap_or_default())
    }

    /// The array as a word for `mdadm`.
    pub(super) fn word(&self) -> String {
        self.path.display().to_string()
    }
}

/// All arrays of the kernel.
pub(super) fn arrays() -> Result<Vec<Array>, String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(BLOCKS).into_iter().flatten().flatten() {
        let folder = entry.path().join("md");
        let Some(name) = entry.file_name().to_str().map(str::to_owned).filter(|_| folder.is_dir()) else { continue };
        let path = Path::new("/dev").join(&name);
        // An array that was stopped has a device for a moment.
        let Ok(detail) = mdadm(&["--detail", "--export", &path.display().to_string()]) else { continue };
        all.extend(array(&folder, path, &detail));
    }
    Ok(all)
}

/// The array with this UUID. `None`: the kernel does not have it.
pub(super) fn array_of(uuid: &str) -> Result<Option<Array>, String> {
    Ok(arrays()?.into_iter().find(|array| array.uuid == uuid))
}

/// An array from the folder of the kernel and the report of `mdadm`.
pub(super) fn array(folder: &Path, path: PathBuf, detail: &str) -> Option<Array> {
    let detail = fields(detail);
    let read =
        |name: &str| fs::read_to_string(folder.join(name)).map(|text| text.trim().to_owned()).unwrap_or_default();
    let mut members: Vec<Member> = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let of = entry.file_name().to_str().is_some_and(|name| name.starts_with("dev-")).then(|| entry.path());
        let Some(of) = of else { continue };
        let Some(block) = fs::read_link(of.join("block")).ok().and_then(|link| link.file_name().map(PathBuf::from))
        else {
            continue;
        };
        let read = |name: &str| fs::read_to_string(of.join(name)).unwrap_or_default();
        let role = match (read("state").contains("faulty"), read("slot").trim() == "none") {
            (true, _) => Role::Faulty,
            (false, true) => Role::Spare,
            (false, false) => Role::Data,
        };
        members.push(Member { path: Path::new("/dev").join(block), role });
    }
    members.sort_by(|one, other| one.path.cmp(&other.path));
    Some(Array {
        path,
        uuid: dashed(detail.get("MD_UUID")?),
        name: detail.get("MD_DEVNAME").map(|name| (*name).to_owned()).unwrap_or_default(),
        level: read("level").strip_prefix("raid").and_then(|level| level.parse().ok()),
        slots: read("raid_disks").split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default(),
        is_active: !["", "clear", "inactive"].contains(&read("array_state").as_str()),
        members,
    })
}

/// The superblock of a device. `None`: it has none.
pub(super) fn superblock(path: &Path) -> Result<Option<Superblock>, String> {
    let mut command = Command::new(PROGRAM);
    command.args(["--examine", "--export"]).arg(path).env("LC_ALL", "C.UTF-8");
    let ran = run_bounded(&mut command, b"")?;
    Ok(if ran.code == Some(0) { superblock_in(&ran.out) } else { None })
}

pub(super) fn superblock_in(text: &str) -> Option<Superblock> {
    let fields = fields(text);
    Some(Superblock {
        uuid: dashed(fields.get("MD_UUID")?),
        device: fields.get("MD_DEV_UUID").copied().unwrap_or_default().to_owned(),
        name: fields.get("MD_NAME").copied().unwrap_or_default().to_owned(),
        events: fields.get("MD_EVENTS").and_then(|number| number.parse().ok()).unwrap_or_default(),
    })
}

fn fields(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.trim().split_once('=')).collect()
}

/// A UUID as other programs write it: mdadm has colons between four parts.
fn dashed(uuid: &str) -> String {
    in_groups(&uuid.replace(':', ""))
}

/// Runs `mdadm`, which can ask nothing: without an answer it stops before it loses data.
pub(super) fn mdadm(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(PROGRAM);
    command.args(words).env("LC_ALL", "C.UTF-8");
    let name = words.iter().find(|word| word.starts_with("--")).copied().unwrap_or_default();
    run_bounded(&mut command, b"")?.ok().map_err(|why| why.replacen(PROGRAM, &format!("{PROGRAM} {name}"), 1))
}

/// Whether the kernel has arrays. A module is loaded if need be.
pub(super) fn has_arrays() -> bool {
    let is_there = || Path::new(ARRAYS).exists();
    is_there() || (run_bounded(Command::new("modprobe").args(["-q", "md_mod"]), b"").is_ok() && is_there())
}

/// Lets udev give an array its name, also if the program that made it was killed.
pub(super) fn name_again(array: &Array) -> Result<(), String> {
    let name = array.path.file_name().unwrap_or_default().to_string_lossy();
    let _ = fs::remove_file(format!("{CREATING}{name}"));
    let mut command = Command::new("udevadm");
    command.args(["trigger", "--action=change", "--settle", &format!("{BLOCKS}/{name}")]);
    run_bounded(&mut command, b"")?.ok().map(|_| ())
}
