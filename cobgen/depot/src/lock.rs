//! Excludes all but one publisher.
//!
//! The lock is an exclusive lock on a file beside git's own files. It ends with its process, so a killed publisher does
//! not lock out others. If the file system has no file locks, the creation of `refs/generations/N` still decides: only
//! one publisher can succeed.

use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{DepotError, PublishError};

const FILE: &str = "cob-publish.lock";
/// The pause between two attempts: short beside the few milliseconds for which a publisher holds the lock.
const PAUSE: Duration = Duration::from_millis(20);

/// The longest wait for a lock that a program with only read permission may hold.
const OTHERS: Duration = Duration::from_secs(2);

const OBJECTS_FILE: &str = "cob-objects.lock";

/// Protects objects that no ref reaches yet: writers share this lock, and pruning takes it exclusively.
pub(crate) struct ObjectsLock {
    _file: File,
}

impl ObjectsLock {
    /// For a writer of objects, shared with other writers.
    pub(crate) fn shared(depot: &Path, patience: Duration) -> Result<Self, PublishError> {
        wait_for(depot, OBJECTS_FILE, patience, File::try_lock_shared).map(|file| Self { _file: file })
    }

    /// For pruning, which deletes objects.
    pub(crate) fn alone(depot: &Path, patience: Duration) -> Result<Self, PublishError> {
        wait_for(depot, OBJECTS_FILE, patience, File::try_lock).map(|file| Self { _file: file })
    }
}

/// The publisher's lock; dropping it releases the lock.
pub(crate) struct PublisherLock {
    _file: File,
}

impl PublisherLock {
    /// Waits for the lock, at most for `patience`.
    pub(crate) fn take(depot: &Path, patience: Duration) -> Result<Self, PublishError> {
        Self::take_file(depot, FILE, patience)
    }

    /// Like [`Self::take`], with a lock file of another name, for data that publishers do not touch.
    pub(crate) fn take_file(depot: &Path, file: &str, patience: Duration) -> Result<Self, PublishError> {
        wait_for(depot, file, patience, File::try_lock).map(|file| Self { _file: file })
    }
}

/// Opens the file and tries to lock it until that succeeds or the patience ends.
///
/// A program that can open a file can lock it. So only users with write permission in the depot may open the lock file;
/// a lock file that was open to other users is replaced, because they may hold the lock.
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
            // Another program has replaced the file in the meantime.
            Ok(()) => continue,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(DepotError::io(what())(error).into()),
        }
        // If the file was open to others, any of them may hold the lock. Older programs hold it briefly.
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

/// The mode of a lock file: users with write permission in the depot may read and write it.
fn mode_in(depot: &Path) -> io::Result<u32> {
    let folder = depot.metadata()?.mode();
    Ok([(0o200, 0o600), (0o020, 0o060), (0o002, 0o006)]
        .iter()
        .filter(|(bit, _)| folder & bit != 0)
        .map(|(_, m)| m)
        .sum())
}

/// Opens or creates a lock file and closes it to other users; returns whether it was open.
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
        // Only the owner can change the mode; other users leave it as it is.
        let _ = file.set_permissions(Permissions::from_mode(mode));
    }
    Ok((file, was_open))
}

/// Whether the open file is still the file at this path.
fn is_at(file: &File, path: &Path) -> bool {
    let inode = |meta: Metadata| (meta.dev(), meta.ino());
    file.metadata().ok().map(inode) == path.symlink_metadata().ok().map(inode)
}

/// Replaces a lock file by a new file.
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
    fn a_reader_of_the_depot_can_not_hold_the_publisher_lock() {
        let depot = tempfile::tempdir().expect("a folder");
        std::fs::set_permissions(depot.path(), Permissions::from_mode(0o755)).expect("readable");
        let path = depot.path().join(FILE);
        drop(PublisherLock::take(depot.path(), Duration::ZERO).expect("free"));
        assert_eq!(others_may(&path), 0, "nobody else can open it");
        // A lock file of an earlier version, which a reader has opened and locked.
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("as it was");
        let reader = File::open(&path).expect("opened");
        reader.lock().expect("locked");
        let held = PublisherLock::take(depot.path(), Duration::from_millis(100)).expect("in spite of that");
        assert_eq!(others_may(&path), 0);
        // The new holder excludes all others.
        PublisherLock::take(depot.path(), Duration::from_millis(100)).map(drop).expect_err("busy");
        drop(held);
        drop(PublisherLock::take(depot.path(), Duration::ZERO).expect("free again"));
        // The depot is shared with a group that may write.
        std::fs::set_permissions(depot.path(), Permissions::from_mode(0o2775)).expect("shared");
        std::fs::remove_file(&path).expect("removed");
        drop(PublisherLock::take(depot.path(), Duration::ZERO).expect("free"));
        assert_eq!(others_may(&path), 0o060);
    }
}
