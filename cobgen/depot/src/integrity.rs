//! Checks git's object files before git reads them.
//!
//! The git library verifies the hash of an object only after unpacking it, and does not verify a pack or its index at
//! all: altered bytes can make it loop forever or crash. So this module first checks every file that the library is
//! about to read, with bounded reads only: a loose object against the hash that is its name, all other files against
//! the checksum at their end.
//!
//! An open depot checks packs and similar files once. The whole program checks them once per [`GOOD_FOR`] while the
//! files stay the same: a server opens the depot for every request.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use cob_types::GenerationNumber;
use git2::Oid;

use crate::error::DepotError;

mod file;
#[cfg(test)]
mod tests;

/// How long an open depot trusts its last listing of the pack folder.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long the program trusts a file that it has checked.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// A file that was changed this recently may change again and keep its modification time, because file systems have
/// coarse clocks.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The checked files of the whole program with the time of the check: by path, the stamps of a file and of the files
/// that belong to it.
static SEEN: Mutex<BTreeMap<PathBuf, (Vec<Stamp>, Instant)>> = Mutex::new(BTreeMap::new());

/// The checks of an open depot.
pub(crate) struct Integrity {
    /// The folder of objects.
    objects: PathBuf,
    /// The time and the stamp of the pack folder at its last listing.
    looked: Cell<Option<(Instant, Stamp)>>,
    /// Files that were found whole, with their stamps.
    whole: RefCell<BTreeMap<PathBuf, Vec<Stamp>>>,
}

/// Metadata that changes when a file changes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            len: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// Whether the stamp would differ after a change from now on.
    fn settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(self.changed.0).is_ok_and(|changed| now >= Duration::from_secs(changed) + SETTLED_AFTER)
    }
}

impl Integrity {
    pub(crate) fn of(repo: &git2::Repository) -> Self {
        let objects = repo.commondir().join("objects");
        Self { objects, looked: Cell::new(None), whole: RefCell::new(BTreeMap::new()) }
    }

    /// Checks all files that git reads when it looks up an object. A missing object is no error here.
    pub(crate) fn check(&self, id: Oid) -> Result<(), DepotError> {
        self.check_packs()?;
        self.check_loose(id)
    }

    /// Like [`Self::check`], for a caller that knows the object's role: the error names it if the object's own file is
    /// damaged.
    pub(crate) fn check_object(&self, generation: GenerationNumber, what: &str, id: Oid) -> Result<(), DepotError> {
        self.check_packs()?;
        match self.check_loose(id) {
            Err(DepotError::DamagedFile { path, why }) => {
                Err(DepotError::damaged(generation, what, format!("{}: {why}", path.display())))
            }
            checked => checked,
        }
    }

    fn check_loose(&self, id: Oid) -> Result<(), DepotError> {
        let name = id.to_string();
        let (folder, rest) = name.split_at(2);
        let path = self.objects.join(folder).join(rest);
        match stat(&path)? {
            Some(_) => file::check_loose(&path, &name),
            None => Ok(()),
        }
    }

    /// Like [`Self::check`], with git's error type, for use within git's calls.
    pub(crate) fn check_for_git(&self, id: Oid) -> Result<(), git2::Error> {
        self.check(id)
            .map_err(|error| git2::Error::new(git2::ErrorCode::GenericError, git2::ErrorClass::Odb, error.to_string()))
    }

    /// Checks the packs, their indexes, and git's search files.
    fn check_packs(&self) -> Result<(), DepotError> {
        let folder = self.objects.join("pack");
        let now = Instant::now();
        let stamp = stat(&folder)?.map(|found| Stamp::of(&found));
        if let (Some((at, seen)), Some(stamp)) = (self.looked.get(), stamp)
            && seen == stamp
            && stamp.settled()
            && now.duration_since(at) < LOOK_AGAIN
        {
            return Ok(());
        }
        self.check_info()?;
        for index in with_ending(&folder, "idx")? {
            self.check_pack(&index)?;
        }
        self.check_sum(&folder.join("multi-pack-index"))?;
        self.looked.set(stamp.map(|stamp| (now, stamp)));
        Ok(())
    }

    fn check_info(&self) -> Result<(), DepotError> {
        let info = self.objects.join("info");
        let alternates = info.join("alternates");
        if stat(&alternates)?.is_some() {
            let why = "a depot contains all its objects, but this file names other folders for objects";
            return Err(DepotError::damaged_file(&alternates, why));
        }
        self.check_sum(&info.join("commit-graph"))?;
        with_ending(&info.join("commit-graphs"), "graph")?.iter().try_for_each(|graph| self.check_sum(graph))
    }

    /// Checks a pack and its index, which ends with the checksum of the pack and its own checksum. Git ignores an index
    /// without a pack and a pack without an index: another process is just adding or removing the pair.
    fn check_pack(&self, index: &Path) -> Result<(), DepotError> {
        let pack = index.with_extension("pack");
        let (Some(of_index), Some(of_pack)) = (stat(index)?, stat(&pack)?) else { return Ok(()) };
        self.once(index, vec![Stamp::of(&of_index), Stamp::of(&of_pack)], || {
            let ends = (file::check_sum(index, b"\xfftOc", 2)?, file::check_sum(&pack, b"PACK", 1)?);
            let (Some(index_ends), Some(pack_ends)) = ends else { return Ok(()) };
            if index_ends[..file::SUM] != pack_ends {
                let why = format!("it is the index of another pack than {}", pack.display());
                return Err(DepotError::damaged_file(index, why));
            }
            Ok(())
        })
    }

    /// Checks another file that ends with a checksum, if it exists.
    fn check_sum(&self, path: &Path) -> Result<(), DepotError> {
        let Some(found) = stat(path)? else { return Ok(()) };
        self.once(path, vec![Stamp::of(&found)], || file::check_sum(path, b"", 1).map(drop))
    }

    /// Runs the check unless these same files have passed it before.
    fn once(
        &self,
        path: &Path,
        stamps: Vec<Stamp>,
        check: impl FnOnce() -> Result<(), DepotError>,
    ) -> Result<(), DepotError> {
        if self.whole.borrow().get(path) == Some(&stamps) {
            return Ok(());
        }
        let seen = || SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen().get(path).is_some_and(|(of, at)| *of == stamps && at.elapsed() < GOOD_FOR);
        if !known {
            let settled = stamps.iter().all(Stamp::settled);
            check()?;
            let mut seen = seen();
            seen.retain(|_, (_, at)| at.elapsed() < GOOD_FOR);
            if settled {
                seen.insert(path.to_owned(), (stamps.clone(), Instant::now()));
            }
        }
        self.whole.borrow_mut().insert(path.to_owned(), stamps);
        Ok(())
    }
}

/// The metadata of a path; `None` if nothing exists there.
fn stat(path: &Path) -> Result<Option<Metadata>, DepotError> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DepotError::io(format!("can't read {}", path.display()))(error)),
    }
}

/// The files of a folder with this name ending; empty if the folder does not exist.
fn with_ending(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, DepotError> {
    let unreadable = || DepotError::io(format!("can't read {}", folder.display()));
    let files = match fs::read_dir(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable()(error)),
    };
    let mut found = Vec::new();
    for file in files {
        let path = file.map_err(unreadable())?.path();
        if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    Ok(found)
}
