//! The size of a file system, read from its superblock without a mount.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use cob_kinds::FilesystemType;

/// Any file system leaves so many bytes unused, for example up to a multiple of a page.
const ROUNDING: u64 = 64 << 10;
/// XFS leaves an allocation group unused that would be smaller.
const SMALLEST_XFS_GROUP: u64 = 16 << 20;
/// The place of the superblock of btrfs.
const BTRFS_AT: u64 = 64 << 10;

/// The size of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Its length in bytes.
    pub(super) bytes: u64,
    /// At most so many bytes at the end of a device are left unused.
    pub(super) slack: u64,
    /// The number of the device in a btrfs.
    pub(super) number: u64,
}

impl Extent {
    /// Whether it fills a device of this size.
    pub(super) fn fills(&self, size: u64) -> bool {
        self.bytes.saturating_add(self.slack) >= size
    }
}

/// Reads the superblock. `mounted` is a mount point: the kernel may write a new size of XFS to the device only later.
pub(super) fn extent(kind: FilesystemType, device: &Path, mounted: Option<&Path>) -> Result<Extent, String> {
    let block = read(kind, device)?;
    let extent = match kind {
        FilesystemType::Ext4 => ext4(&block),
        FilesystemType::Xfs => xfs(&block, mounted),
        FilesystemType::Btrfs => btrfs(&block),
    };
    extent.ok_or_else(|| format!("{}: the superblock of {} can't be read", device.display(), kind.name()))
}

/// Whether `mkfs` has ended. It writes the superblock last, or marks it as unfinished.
pub(super) fn is_complete(kind: FilesystemType, device: &Path) -> Result<bool, String> {
    let block = read(kind, device)?;
    Ok(match kind {
        FilesystemType::Ext4 => little::<2>(&block, 0x3a).is_some_and(|state| state & 1 == 1),
        FilesystemType::Xfs => block.get(126) == Some(&0),
        FilesystemType::Btrfs => btrfs(&block).is_some(),
    })
}

fn read(kind: FilesystemType, device: &Path) -> Result<Vec<u8>, String> {
    let mut block = vec![0; 4096];
    let at = match kind {
        FilesystemType::Ext4 => 1024,
        FilesystemType::Xfs => 0,
        FilesystemType::Btrfs => BTRFS_AT,
    };
    let read = File::open(device).and_then(|file| file.read_exact_at(&mut block, at));
    read.map(|()| block).map_err(|error| format!("{}: {error}", device.display()))
}

fn little<const N: usize>(block: &[u8], at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(block.get(at..at + N)?);
    Some(u64::from_le_bytes(bytes))
}

fn big<const N: usize>(block: &[u8], at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[8 - N..].copy_from_slice(block.get(at..at + N)?);
    Some(u64::from_be_bytes(bytes))
}

/// The format of the kernel's `struct ext4_super_block`.
fn ext4(block: &[u8]) -> Option<Extent> {
    if little::<2>(block, 0x38)? != 0xef53 {
        return None;
    }
    let size = 1024_u64.checked_shl(u32::try_from(little::<4>(block, 0x18)?).ok().filter(|log| *log <= 6)?)?;
    let is_large = little::<4>(block, 0x60)? & 0x80 != 0;
    let high = if is_large { little::<4>(block, 0x150)? } else { 0 };
    let blocks = (high << 32) | little::<4>(block, 4)?;
    let in_group = little::<4>(block, 0x20)?.max(1);
    let inodes = little::<4>(block, 0x28)?.saturating_mul(little::<2>(block, 0x58)?).div_ceil(size);
    let descriptor = if is_large { little::<2>(block, 0xfe)?.max(32) } else { 32 };
    // After a growth by one group: the descriptors may need another block.
    let descriptors = (blocks.div_ceil(in_group) + 1).saturating_mul(descriptor).div_ceil(size);
    // A last group with less room than this is not made: see adjust_fs_info of resize2fs.
    let overhead = 3 + inodes + descriptors + little::<2>(block, 0xce)? + 50;
    Some(Extent { bytes: blocks.checked_mul(size)?, slack: overhead.checked_mul(size)? + ROUNDING, number: 0 })
}

/// The format of the kernel's `struct xfs_dsb`.
fn xfs(block: &[u8], mounted: Option<&Path>) -> Option<Extent> {
    if block.get(..4)? != b"XFSB" {
        return None;
    }
    let size = big::<4>(block, 4)?;
    let of_log = if big::<8>(block, 48)? == 0 { 0 } else { big::<4>(block, 96)? };
    let blocks = match mounted.and_then(|path| rustix::fs::statvfs(path).ok()) {
        Some(now) => now.f_blocks.checked_add(of_log)?,
        None => big::<8>(block, 8)?,
    };
    Some(Extent { bytes: blocks.checked_mul(size)?, slack: SMALLEST_XFS_GROUP + ROUNDING, number: 0 })
}

/// The format of the kernel's `struct btrfs_super_block`, with the entry of this device.
fn btrfs(block: &[u8]) -> Option<Extent> {
    if block.get(0x40..0x48)? != b"_BHRfS_M" {
        return None;
    }
    Some(Extent { bytes: little::<8>(block, 0xd1)?, slack: ROUNDING, number: little::<8>(block, 0xc9)? })
}
