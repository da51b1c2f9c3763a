//! One publisher at a time.
//!
//! An exclusive lock on a file beside git's own, which ends with its process, so a publisher that is
//! killed locks nobody out. Where a file system has no such locks, the creation of
//! `refs/generations/N`, which only one can do, still decides.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{DepotError, PublishError};

const FILE: &str = "cob-publish.lock";
/// Between two attempts: short beside the few milliseconds for which the lock is held.
const PAUSE: Duration = Duration::from_millis(20);

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
fn wait_for(
    depot: &Path,
    file: &str,
    patience: Duration,
    lock: fn(&File) -> Result<(), TryLockError>,
) -> Result<File, PublishError> {
    let path = depot.join(file);
    let what = || format!("can't lock {}", path.display());
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(DepotError::io(what()))?;
    let begin = Instant::now();
    loop {
        match lock(&file) {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begin.elapsed() < patience => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => return Err(PublishError::Busy { lock: path }),
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(DepotError::io(what())(error).into()),
        }
    }
}
