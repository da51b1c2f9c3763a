//! A block device or an image file: its size, its users, and the data on it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use cob_types::BlobHash;
use rustix::fs::{OFlags, major, minor};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::mounted;
use crate::kinds::native::{Host, run_bounded};

/// The length of the first and of the last part that is read in a search for unknown data.
const END: u64 = 1 << 20;
/// The number of samples between both ends.
const SAMPLES: u64 = 64;
/// The length of a sample.
const SAMPLE: u64 = 4096;
/// How often a device that is busy without a mount is looked at again.
const LOOKS: u32 = 5;
/// The time between these looks.
const LOOK: Duration = Duration::from_millis(40);

/// A block device or an image file.
#[derive(Debug)]
pub(super) struct Device {
    /// The path without links.
    pub(super) path: PathBuf,
    pub(super) is_block: bool,
    pub(super) size: u64,
    /// The number of a block device.
    pub(super) number: u64,
}

/// The data on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Data {
    /// No signature, and zeros wherever it was read.
    Nothing,
    /// No signature, and data; with their checksum as a name.
    Unknown(String),
    /// Signatures of file systems, partition tables or other formats.
    Signatures(Vec<Signature>),
}

/// A signature that wipefs(8) finds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Signature {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) uuid: Option<String>,
}

#[derive(Deserialize)]
struct Listing {
    signatures: Vec<Signature>,
}

impl Data {
    /// The name with which a content allows to overwrite the data.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Unknown(sum) => sum.clone(),
            Self::Signatures(all) => {
                let mut names: Vec<&str> = all.iter().map(|one| one.uuid.as_deref().unwrap_or(&one.kind)).collect();
                names.sort_unstable();
                names.dedup();
                names.join("+")
            }
        }
    }

    /// The data in words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Unknown(_) => "data without a signature".to_owned(),
            Self::Signatures(all) => {
                let mut each: Vec<String> = all.iter().map(Signature::describe).collect();
                each.dedup();
                each.join(", ")
            }
        }
    }

    /// The UUID of the file system, if there are only signatures of this type.
    pub(super) fn uuid_of(&self, kind: &str) -> Option<&str> {
        match self {
            Self::Signatures(all) if all.iter().all(|one| one.kind == kind) => {
                all.iter().find_map(|one| one.uuid.as_deref())
            }
            Self::Nothing | Self::Unknown(_) | Self::Signatures(_) => None,
        }
    }
}

impl Signature {
    fn describe(&self) -> String {
        let uuid = self.uuid.as_ref().map(|uuid| format!(" with the UUID {uuid}")).unwrap_or_default();
        format!("{}{uuid}", self.kind)
    }
}

impl Device {
    /// The device with this path. `None`: it does not exist.
    pub(super) fn find(host: &Host, absolute: &str) -> Result<Option<Self>, String> {
        let path = host.path(absolute);
        let path = match path.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            real => real.map_err(|error| format!("{}: {error}", path.display()))?,
        };
        host.is_inside(absolute, &path)?;
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let meta = fs::metadata(&path).map_err(failed)?;
        let is_block = meta.file_type().is_block_device();
        if !is_block && !meta.is_file() {
            return Err(format!("{absolute} is neither a block device nor a file"));
        }
        let size = match is_block {
            true => File::open(&path).and_then(|mut file| file.seek(SeekFrom::End(0))).map_err(failed)?,
            false => meta.len(),
        };
        Ok(Some(Self { path, is_block, size, number: meta.rdev() }))
    }

    /// The path as a word for programs.
    pub(super) fn word(&self) -> String {
        self.path.display().to_string()
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }

    /// The data on the device.
    pub(super) fn data(&self) -> Result<Data, String> {
        let mut command = Command::new("wipefs");
        command.args(["--json", "--output", "TYPE,UUID", "--"]).arg(&self.path).env("LC_ALL", "C.UTF-8");
        let out = run_bounded(&mut command, b"")?.ok()?;
        // wipefs prints no object for a device without signatures in some versions.
        let listing: Listing = match out.trim() {
            "" => Listing { signatures: Vec::new() },
            out => serde_json::from_str(out).map_err(|error| format!("wipefs: {error}"))?,
        };
        if !listing.signatures.is_empty() {
            return Ok(Data::Signatures(listing.signatures));
        }
        let mut sum = Sha256::new();
        let mut is_zero = true;
        self.probe(0, self.size, &mut |bytes| {
            is_zero &= bytes.iter().all(|byte| *byte == 0);
            sum.update(bytes);
        })?;
        let sum = BlobHash(sum.finalize().into());
        Ok(if is_zero { Data::Nothing } else { Data::Unknown(format!("data-{}", sum.short())) })
    }

    /// Whether a part of the device has zeros wherever it is read.
    pub(super) fn is_zero(&self, start: u64, length: u64) -> Result<bool, String> {
        let mut is_zero = true;
        self.probe(start, length, &mut |bytes| is_zero &= bytes.iter().all(|byte| *byte == 0))?;
        Ok(is_zero)
    }

    /// Reads the probes of a part of the device.
    fn probe(&self, start: u64, length: u64, each: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let mut file = File::open(&self.path).map_err(|error| self.failed(&error))?;
        for (at, length) in probes(length) {
            let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
            let read = file.seek(SeekFrom::Start(start + at)).and_then(|_| file.read_exact(&mut bytes));
            read.map_err(|error| self.failed(&error))?;
            each(&bytes);
        }
        Ok(())
    }

    /// Writes zeros to the parts that a search for data reads, the signatures among them. Made again after a kill, it
    /// ends the same.
    pub(super) fn erase(&self) -> Result<(), String> {
        self.wipe()?;
        self.write_zeros(&probes(self.size))
    }

    /// The same for a device with a single header that names it: this part is overwritten last, so that the device is
    /// known until it is clear. Nobody else can take the device meanwhile.
    pub(super) fn erase_upto(&self, header: (u64, u64)) -> Result<(), String> {
        let (start, end) = (header.0, (header.0 + header.1).min(self.size));
        let around = |(at, length): (u64, u64)| {
            let before = (at, start.min(at + length).saturating_sub(at));
            let from = end.max(at);
            [before, (from, (at + length).saturating_sub(from))]
        };
        let rest: Vec<(u64, u64)> = probes(self.size).into_iter().flat_map(around).filter(|part| part.1 > 0).collect();
        let mut options = OpenOptions::new();
        options.write(true);
        if self.is_block {
            options.custom_flags(exclusive());
        }
        let file = options.open(&self.path).map_err(|error| self.failed(&error))?;
        let written = zero(&file, &rest).and_then(|()| zero(&file, &[(start, end.saturating_sub(start))]));
        written.map_err(|error| self.failed(&error))
    }

    /// Writes zeros to parts of the device, and waits until the device has them.
    pub(super) fn write_zeros(&self, parts: &[(u64, u64)]) -> Result<(), String> {
        let file = OpenOptions::new().write(true).open(&self.path);
        file.and_then(|file| zero(&file, parts)).map_err(|error| self.failed(&error))
    }

    /// Removes all signatures.
    pub(super) fn wipe(&self) -> Result<(), String> {
        let mut command = Command::new("wipefs");
        command.args(["--all", "--quiet", "--"]).arg(&self.path).env("LC_ALL", "C.UTF-8");
        run_bounded(&mut command, b"")?.ok()?;
        self.sync()
    }

    /// Waits until the device has all that was written.
    pub(super) fn sync(&self) -> Result<(), String> {
        File::open(&self.path).and_then(|file| file.sync_all()).map_err(|error| self.failed(&error))
    }

    /// The devices of the kernel that are made of this one: volumes, arrays, open vaults.
    pub(super) fn holders(&self) -> Vec<PathBuf> {
        if !self.is_block {
            return Vec::new();
        }
        holders(&self.folder())
    }

    /// The folder of the kernel about a block device.
    pub(super) fn folder(&self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", major(self.number), minor(self.number)))
    }

    /// Whether no mount, swap, volume or partition uses the device.
    pub(super) fn is_free(&self) -> Result<(), String> {
        let in_use = |by: &str| {
            let path = self.path.display();
            Err(format!("{path} is in use by {by}, so nothing is written there; stop the use, or name another device"))
        };
        if let [first, ..] = self.loops().as_slice() {
            return in_use(&first.display().to_string());
        }
        if !self.is_block {
            return Ok(());
        }
        for look in 0.. {
            let opened = OpenOptions::new().read(true).custom_flags(exclusive()).open(&self.path);
            let Err(error) = opened else { break };
            if error.kind() != io::ErrorKind::ResourceBusy {
                return Err(self.failed(&error));
            }
            if let [first, ..] = self.mounts()?.as_slice() {
                return in_use(&format!("a mount on {}", first.display()));
            }
            if look == LOOKS {
                return in_use("the kernel (a mount, swap, a volume or a partition)");
            }
            // The check of another change object opens it in the same way, for a moment.
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The loop devices that use an image file.
    pub(super) fn loops(&self) -> Vec<PathBuf> {
        if self.is_block {
            return Vec::new();
        }
        let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let paths = names.filter_map(|entry| Some(format!("/dev/{}", entry.file_name().to_str()?)));
        let uses = |path: &String| mounted::backing_file(path).is_some_and(|file| file == self.path);
        let mut loops: Vec<PathBuf> = paths.filter(uses).map(PathBuf::from).collect();
        loops.sort();
        loops
    }

    /// The mount points of the file system in this process's namespace.
    pub(super) fn mounts(&self) -> Result<Vec<PathBuf>, String> {
        let loops = self.loops().into_iter();
        let mut devices: Vec<(PathBuf, u64)> =
            loops.filter_map(|path| fs::metadata(&path).ok().map(|meta| (path, meta.rdev()))).collect();
        if self.is_block {
            devices.push((self.path.clone(), self.number));
        }
        mounted::of_devices(&devices)
    }
}

/// The flag with which only one program, and no user in the kernel, has a block device open.
fn exclusive() -> i32 {
    i32::try_from(OFlags::EXCL.bits()).unwrap_or_default()
}

/// Writes zeros to parts of a file, and waits until its device has them.
fn zero(mut file: &File, parts: &[(u64, u64)]) -> io::Result<()> {
    for (at, length) in parts {
        file.seek(SeekFrom::Start(*at))?;
        file.write_all(&vec![0; usize::try_from(*length).unwrap_or_default()])?;
    }
    file.sync_all()
}

/// The parts that are read in a search for unknown data: both ends, and samples between them.
fn probes(size: u64) -> Vec<(u64, u64)> {
    let end = END.min(size);
    let between = size.saturating_sub(2 * end);
    let samples = (1..=SAMPLES).map(|number| (end + between / (SAMPLES + 1) * number, SAMPLE));
    let fits = |(at, length): &(u64, u64)| at + length + end <= size;
    let ends = [(0, end), (size - end, end)];
    ends.into_iter().chain(samples.filter(fits)).collect()
}
/// The devices that are made of the device with this folder of the kernel.
pub(super) fn holders(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder.join("holders")).into_iter().flatten().flatten();
    names.map(|holder| Path::new("/dev").join(holder.file_name())).collect()
}
