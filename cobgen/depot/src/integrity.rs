//! Files of git's objects, found to be whole before git sees them.
//!
//! The git library compares the hash of an object, but only after it has unpacked it, and takes a pack
//! and its index as they are: bytes that were altered can make it read for ever, or crash it. So every
//! file that it is about to read is gone through here first, with nothing but bounded reads: a loose
//! object against the hash that is its name, everything else against the checksum at its end.
//!
//! Packs and the like are gone through once for an open depot, and for the program once in
//! [`GOOD_FOR`] while their files stay the same: a server opens the depot for every request.

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

/// How long one open depot trusts what it has seen of the folder of packs.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long the program trusts a file that it has gone through.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// A file that was changed so shortly ago may change again and keep its time of change: file systems
/// have coarse clocks.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// What the whole program has gone through, and when: by path, the stamps of a file and of those that
/// belong to it.
static SEEN: Mutex<BTreeMap<PathBuf, (Vec<Stamp>, Instant)>> = Mutex::new(BTreeMap::new());

/// What has been gone through for one open depot.
pub(crate) struct Integrity {
    /// The folder of objects.
    objects: PathBuf,
    /// When the folder of packs was last looked through, and its stamp then.
    looked: Cell<Option<(Instant, Stamp)>>,
    /// Files that were found whole, with their stamps.
    whole: RefCell<BTreeMap<PathBuf, Vec<Stamp>>>,
}

/// What changes with a file.
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

    /// Whether a change from now on would show in it.
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

    /// Goes through everything that git reads when it is asked for an object. One that is not there is
    /// no error here.
    pub(crate) fn check(&self, id: Oid) -> Result<(), DepotError> {
        self.check_packs()?;
        self.check_loose(id)
    }

    /// The same for one who knows what the object is, and says so if its own file is damaged.
    pub(crate) fn check_object(&self, generation: GenerationNumber, what: &str, id: Oid) -> Result<(), DepotError> {
        self.check_packs()?;
        match self.check_loose(id) {
            Err(DepotError::DamagedFile { path, why }) => {
                let why = format!("{}: {why}", path.display());
                Err(DepotError::Damaged { generation, what: what.to_owned(), why })
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

    /// The same in the middle of git's own calls.
    pub(crate) fn check_for_git(&self, id: Oid) -> Result<(), git2::Error> {
        self.check(id)
            .map_err(|error| git2::Error::new(git2::ErrorCode::GenericError, git2::ErrorClass::Odb, error.to_string()))
    }

    /// Goes through the packs, their indexes, and the files by which git finds its way in them.
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
            let why = "a depot has all of its objects itself, and this names other folders for them";
            return Err(DepotError::damaged_file(&alternates, why));
        }
        self.check_sum(&info.join("commit-graph"))?;
        with_ending(&info.join("commit-graphs"), "graph")?.iter().try_for_each(|graph| self.check_sum(graph))
    }

    /// A pack and its index, which ends with the checksum of the pack and its own. An index without a
    /// pack, or the other way round, is nothing to git: one of them is about to come or to go.
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

    /// Another file with a checksum at its end, if it is there.
    fn check_sum(&self, path: &Path) -> Result<(), DepotError> {
        let Some(found) = stat(path)? else { return Ok(()) };
        self.once(path, vec![Stamp::of(&found)], || file::check_sum(path, b"", 1).map(drop))
    }

    /// Does it unless it has been done of these very files.
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

/// What is at a path, if anything.
fn stat(path: &Path) -> Result<Option<Metadata>, DepotError> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DepotError::io(format!("can't read {}", path.display()))(error)),
    }
}

/// The files of a folder whose names end so; none where there is no such folder.
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
