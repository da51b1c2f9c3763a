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
        let path = depot.join(file);
        let what = || format!("can't lock {}", path.display());
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(DepotError::io(what()))?;
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if begin.elapsed() < patience => std::thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => return Err(PublishError::Busy { lock: path }),
                Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {
                    return Ok(Self { _file: file });
                }
                Err(TryLockError::Error(error)) => return Err(DepotError::io(what())(error).into()),
            }
        }
    }
}
