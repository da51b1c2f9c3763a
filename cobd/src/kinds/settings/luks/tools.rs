//! Headers and mappings as `cryptsetup` and the kernel report them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::kinds::native::{Ran, in_groups, run_bounded};
use crate::kinds::settings::device::holders;

pub(super) const PROGRAM: &str = "cryptsetup";
/// The place of the first header of a device. Without it, `wipefs` and `cryptsetup` find no header.
pub(super) const HEADER: (u64, u64) = (0, 4096);
/// The block devices of the kernel.
const BLOCKS: &str = "/sys/block";
/// The exit statuses of `cryptsetup` for a header without keys and for a wrong key.
const NO_KEY: [i32; 2] = [1, 2];
/// The length of the sectors in which `cryptsetup` counts.
const SECTOR: u64 = 512;

/// An open device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The UUID of the header. `None`: it is no open LUKS.
    pub(super) uuid: Option<String>,
    /// The size of the open device.
    pub(super) size: u64,
    /// Programs, mounts and volumes that use it.
    pub(super) users: Vec<PathBuf>,
}

/// The mapping with this name. `None`: there is none.
pub(super) fn mapping(name: &str) -> Option<Mapping> {
    for entry in fs::read_dir(BLOCKS).into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default().trim().to_owned();
        if read("dm/name") == name {
            return Some(Mapping {
                uuid: uuid_in(&read("dm/uuid")),
                size: read("size").parse::<u64>().unwrap_or_default() * SECTOR,
                users: holders(&entry.path()),
            });
        }
    }
    None
}

/// The UUID of a header in the identity of a mapping, such as `CRYPT-LUKS2-6d1f7a3c…-vault`.
pub(super) fn uuid_in(identity: &str) -> Option<String> {
    let hex = identity.strip_prefix("CRYPT-LUKS")?.split('-').nth(1)?;
    (hex.len() == 32).then(|| in_groups(hex))
}

/// The place of the data behind the header, as `cryptsetup status` reports it.
pub(super) fn offset(name: &str) -> Result<u64, String> {
    let report = cryptsetup(&["status", name])?;
    let sectors =
        report.lines().find_map(|line| line.trim().strip_prefix("offset:")?.trim().split(' ').next()?.parse().ok());
    sectors.map(|sectors: u64| sectors * SECTOR).ok_or_else(|| format!("cryptsetup status reports no offset of {name}"))
}

/// Whether the key in a file opens a device.
pub(super) fn opens(device: &str, key_file: &str) -> Result<bool, String> {
    let ran = run(&["open", "--type", "luks", "--test-passphrase", "--key-file", key_file, device])?;
    match ran.code {
        Some(code) if NO_KEY.contains(&code) => Ok(false),
        Some(_) | None => ran.ok().map(|_| true),
    }
}

/// Whether a device has a header without damage.
pub(super) fn is_header(device: &str) -> Result<bool, String> {
    Ok(run(&["isLuks", device])?.code == Some(0))
}

/// Runs `cryptsetup`, which can ask nothing. A key is only in a file, never among the words.
pub(super) fn cryptsetup(words: &[&str]) -> Result<String, String> {
    let name = words.first().copied().unwrap_or_default();
    run(words)?.ok().map_err(|why| why.replacen(PROGRAM, &format!("{PROGRAM} {name}"), 1))
}

fn run(words: &[&str]) -> Result<Ran, String> {
    let mut command = Command::new(PROGRAM);
    command.arg("--batch-mode").args(words).env("LC_ALL", "C.UTF-8");
    run_bounded(&mut command, b"")
}
