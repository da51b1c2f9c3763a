//! The world that a kind may change, at one moment: watched files, and the result of a probe.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cob_types::canonical;

/// The most watched files: more are too slow to read before and after every step.
const MAX_FILES: usize = 20_000;
/// A longer file is compared by length and times only.
const MAX_READ: u64 = 16 << 20;

/// The world at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct World {
    entries: BTreeMap<PathBuf, Entry>,
    probed: String,
}

/// A file, folder or link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    what: What,
    /// Mode with the type, owner, group.
    access: (u32, u32, u32),
    /// Inode and time of the last modification. `None` for a folder: its time changes with its entries.
    identity: Option<(u64, i64, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Folder,
    /// A hash of the file's bytes or of the link's target.
    Bytes(String),
    /// A pipe, a socket, a device or a long file, with its length.
    Other(u64),
}

impl World {
    /// Reads all these paths. A missing path counts as empty.
    pub(super) fn look(paths: &[PathBuf], probed: String) -> io::Result<Self> {
        let mut world = Self { entries: BTreeMap::new(), probed };
        for root in paths {
            // The daemon may create the root folder itself, so only its entries count.
            match fs::symlink_metadata(root) {
                Ok(meta) if meta.is_dir() => world.add_folder(root)?,
                Ok(meta) => world.add(root, &meta)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at(root, error)),
            }
        }
        Ok(world)
    }

    fn add_folder(&mut self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder).map_err(|e| at(folder, e))? {
            let path = entry.map_err(|e| at(folder, e))?.path();
            match fs::symlink_metadata(&path) {
                Ok(meta) => {
                    self.add(&path, &meta)?;
                    if meta.is_dir() {
                        self.add_folder(&path)?;
                    }
                }
                // Deleted since the listing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at(&path, error)),
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, meta: &fs::Metadata) -> io::Result<()> {
        let bytes = |bytes: &[u8]| What::Bytes(canonical::blob_hash(bytes).to_string());
        let what = if meta.is_dir() {
            What::Folder
        } else if meta.is_symlink() {
            bytes(fs::read_link(path).map_err(|e| at(path, e))?.as_os_str().as_bytes())
        } else if meta.is_file() && meta.len() <= MAX_READ {
            match fs::read(path) {
                Ok(read) => bytes(&read),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(at(path, error)),
            }
        } else {
            What::Other(meta.len())
        };
        let identity = (!meta.is_dir()).then(|| (meta.ino(), meta.mtime(), meta.mtime_nsec()));
        self.entries.insert(path.to_owned(), Entry { what, access: (meta.mode(), meta.uid(), meta.gid()), identity });
        if self.entries.len() > MAX_FILES {
            let what = format!("more than {MAX_FILES} files are watched; watch a smaller folder");
            return Err(io::Error::other(what));
        }
        Ok(())
    }

    /// The first difference at a later moment, in content, access, inode or time. `None`: untouched.
    pub(super) fn touched(&self, later: &Self) -> Option<String> {
        self.difference(later, &BTreeSet::new(), |entry| entry.clone())
    }

    /// The first difference at a later moment that a reader can see: inodes and times do not count. `volatile` files
    /// may have any content.
    pub(super) fn differs(&self, later: &Self, volatile: &BTreeSet<PathBuf>) -> Option<String> {
        self.difference(later, volatile, |entry| Entry { identity: None, ..entry.clone() })
    }

    /// Files whose content differs after each run, for example process ids and times.
    pub(super) fn volatile(&self, other: &Self) -> BTreeSet<PathBuf> {
        let both = self.entries.iter().filter_map(|(path, one)| Some((path, one, other.entries.get(path)?)));
        both.filter(|(_, one, two)| one.what != two.what).map(|(path, ..)| path.clone()).collect()
    }

    fn difference(&self, later: &Self, volatile: &BTreeSet<PathBuf>, seen: impl Fn(&Entry) -> Entry) -> Option<String> {
        let paths: BTreeSet<&PathBuf> = self.entries.keys().chain(later.entries.keys()).collect();
        for path in paths {
            let shown = path.display();
            match (self.entries.get(path), later.entries.get(path)) {
                (Some(_), None) => return Some(format!("{shown} is gone")),
                (None, Some(_)) => return Some(format!("{shown} has appeared")),
                (Some(one), Some(two)) if one.access != two.access => {
                    return Some(format!("{shown} has another mode, owner or type"));
                }
                (Some(one), Some(two)) if !volatile.contains(path) && one.what != two.what => {
                    return Some(format!("{shown} has another content"));
                }
                (Some(one), Some(two)) if !volatile.contains(path) && seen(one) != seen(two) => {
                    return Some(format!("{shown} was written, if with the same content"));
                }
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        let probed = self.probed != later.probed;
        probed.then(|| format!("the probe sees {:?} instead of {:?}", later.probed, self.probed))
    }
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
