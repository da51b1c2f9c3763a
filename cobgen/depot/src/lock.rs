//! One publisher at a time.
//!
//! An exclusive lock on a file beside git's own, which ends with its process, so a publisher that is
//! killed locks nobody out. Where a file system has no such locks, the creation of
//! `refs/generations/N`, which only one can do, still decides.

use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{DepotError, PublishError};

const FILE: &str = "cob-publish.lock";
/// Between two attempts: short beside the few milliseconds for which the lock is held.
const PAUSE: Duration = Duration::from_millis(20);

/// So long one waits for a lock that may be held by somebody who may only read.
const OTHERS: Duration = Duration::from_secs(2);

const OBJECTS_FILE: &str = "cob-objects.lock";

/// Objects that no ref leads to yet are safe as long as somebody shares it: who prunes wants it alone.
pub(crate) struct ObjectsLock {
    _file: File,
}

impl ObjectsLock {
    /// For who writes objects, beside others who do.
    pub(crate) fn shared(depot: &Path, patience: Duration) -> Result<Self, PublishError> {
        wait_for(depot, OBJECTS_FILE, patience, File::try_lock_shared).map(|file| Self { _file: file })
    }

    /// For who deletes them.
    pub(crate) fn alone(depot: &Path, patience: Duration) -> Result<Self, PublishError> {
        wait_for(depot, OBJECTS_FILE, patience, File::try_lock).map(|file| Self { _file: file })
    }
}

/// Held as long as it lives.
pub(crate) struct PublisherLock {
    _file: File,
}

impl PublisherLock {
    /// Waits for the lock, at most this long.
    pub(crate) fn take(depot: &Path, patience: Duration) -> Result<Self, PublishError> {
        Self::take_file(depot, FILE, patience)
    }

    /// The same with a lock of another name, for what does not concern publishers.
    pub(crate) fn take_file(depot: &Path, file: &str, patience: Duration) -> Result<Self, PublishError> {
        wait_for(depot, file, patience, File::try_lock).map(|file| Self { _file: file })
    }
}

/// Opens the file and tries to lock it, until it is or the patience has an end.
///
/// Whoever can open a file can lock it. So it is for those who may write in the depot and for nobody else, and it is put in the
/// place of one that others could open and have locked.
fn wait_for(
    depot: &Path,
    file: &str,
    patience: Duration,
    lock: fn(&File) -> Result<(), TryLockError>,
) -> Result<File, PublishError> {
    let path = depot.join(file);
    let what = || format!("can't lock {}", path.display());
    let (begin, mut replaced) = (Instant::now(), false);
    loop {
        let (file, was_open) = open_private(depot, &path).map_err(DepotError::io(what()))?;
        match lock(&file) {
            Ok(()) if is_at(&file, &path) => return Ok(file),
            // Somebody has put another one there meanwhile.
            Ok(()) => continue,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(DepotError::io(what())(error).into()),
        }
        // One that was open to others may be held by any of them. A publisher of an earlier version holds it for moments.
        replaced |= was_open;
        if replaced && begin.elapsed() >= patience.min(OTHERS) {
            replace(depot, &path).map_err(DepotError::io(what()))?;
            replaced = false;
        } else if begin.elapsed() >= patience {
            return Err(PublishError::Busy { lock: path });
        } else {
            std::thread::sleep(PAUSE);
        }
    }
}

/// The mode of a lock: whoever may write in the depot may read and write it.
fn mode_in(depot: &Path) -> io::Result<u32> {
    let folder = depot.metadata()?.mode();
    Ok([(0o200, 0o600), (0o020, 0o060), (0o002, 0o006)]
        .iter()
        .filter(|(bit, _)| folder & bit != 0)
        .map(|(_, m)| m)
        .sum())
}

/// Opens or makes a lock, and closes it to others; whether it was open to them.
fn open_private(depot: &Path, path: &Path) -> io::Result<(File, bool)> {
    let mode = mode_in(depot)?;
    let mut options = File::options();
    options.write(true).mode(mode);
    let file = match options.clone().create_new(true).open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(mode))?;
            return Ok((file, false));
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create(true).truncate(false).open(path)?
        }
        Err(error) => return Err(error),
    };
    let was_open = file.metadata()?.mode() & 0o777 & !mode != 0;
    if was_open {
        // Who does not own it leaves that to the owner.
        let _ = file.set_permissions(Permissions::from_mode(mode));
    }
    Ok((file, was_open))
}

/// Whether that is the file that stands there.
fn is_at(file: &File, path: &Path) -> bool {
    let inode = |meta: Metadata| (meta.dev(), meta.ino());
    file.metadata().ok().map(inode) == path.symlink_metadata().ok().map(inode)
}

/// Puts a new lock in the place of one.
fn replace(depot: &Path, path: &Path) -> io::Result<()> {
    let new = tempfile::Builder::new().prefix(".cob-lock-").tempfile_in(depot)?;
    new.as_file().set_permissions(Permissions::from_mode(mode_in(depot)?))?;
    new.persist(path).map(drop).map_err(|e| e.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others_may(path: &Path) -> u32 {
        path.metadata().expect("there").mode() & 0o077
    }

    #[test]
    fn whoever_can_read_a_depot_can_not_hold_its_locks() {
        let depot = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(depot.path(), Permissions::from_mode(0o755)).expect("readable");
        let path = depot.path().join(FILE);
        drop(PublisherLock::take(depot.path(), Duration::ZERO).expect("free"));
        assert_eq!(others_may(&path), 0, "nobody else can open it");
        // One of an earlier version, which a reader has opened and locked.
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("as it was");
        let reader = File::open(&path).expect("opened");
        reader.lock().expect("locked");
        let held = PublisherLock::take(depot.path(), Duration::from_millis(100)).expect("in spite of that");
        assert_eq!(others_may(&path), 0);
        // Who holds it now holds it for all.
        PublisherLock::take(depot.path(), Duration::from_millis(100)).map(drop).expect_err("busy");
        drop(held);
        drop(PublisherLock::take(depot.path(), Duration::ZERO).expect("free again"));
        // Shared with a group that may write.
        std::fs::set_permissions(depot.path(), Permissions::from_mode(0o2775)).expect("shared");
        std::fs::remove_file(&path).expect("removed");
        drop(PublisherLock::take(depot.path(), Duration::ZERO).expect("free"));
        assert_eq!(others_may(&path), 0o060);
    }
}
