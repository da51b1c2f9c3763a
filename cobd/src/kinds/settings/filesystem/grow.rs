//! The growth of a file system, by the kernel while it is mounted: a kill leaves the old or the new size.
//!
//! The mount is in a namespace of its own, which ends with its processes.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use cob_kinds::FilesystemType;

use super::super::device::Device;
use super::superblock::Extent;
use crate::kinds::native::run_bounded;

/// Mounts `$1` at `$2` with the type `$3` and the options `$4`, and grows it with the command `$5`.
const GROW: &str = r#"mount -t "$3" -o "$4" -- "$1" "$2" || exit
on=$2 source=$(findmnt --noheadings --output SOURCE --mountpoint "$2") && eval "$5"
result=$?
umount -- "$2"
exit $result"#;

/// The program that grows a file system.
pub(super) fn program(kind: FilesystemType) -> &'static str {
    match kind {
        FilesystemType::Ext4 => "resize2fs",
        FilesystemType::Xfs => "xfs_growfs",
        FilesystemType::Btrfs => "btrfs",
    }
}

/// Grows the file system to the end of its device.
pub(super) fn grow(kind: FilesystemType, device: &Device, extent: Extent, own: &Path) -> Result<(), String> {
    // A loop device has the size that its file had before.
    for path in device.loops() {
        run_bounded(Command::new("losetup").arg("--set-capacity").arg(&path), b"")?.ok()?;
    }
    let command = match kind {
        FilesystemType::Ext4 => r#"resize2fs "$source""#.to_owned(),
        FilesystemType::Xfs => r#"xfs_growfs -d "$on""#.to_owned(),
        FilesystemType::Btrfs => {
            format!(r#"btrfs filesystem resize {}:max "$on" && btrfs filesystem sync "$on""#, extent.number)
        }
    };
    let options = if device.is_block { "nodev,nosuid,noexec" } else { "nodev,nosuid,noexec,loop" };
    let folder = own.join("mount");
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "--", "sh", "-c", GROW, "sh"]).arg(&device.path).arg(&folder);
    shell.args([kind.name(), options, &command]).env("LC_ALL", "C.UTF-8");
    let grown = run_bounded(&mut shell, b"")?.ok();
    fs::remove_dir(&folder).map_err(failed)?;
    grown.map(|_| ()).map_err(|why| format!("{} can't be grown: {why}", device.path.display()))
}
