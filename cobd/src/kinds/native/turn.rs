//! File locks: change objects of one host that work on the same files work one after the other.
//!
//! The programs that change these files often have a lock, but frequent attempts by many processes get in each other's
//! way, some programs fail instead of waiting, and a file that is read, changed and replaced has no lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The first pause between two attempts: most holders need less. Later pauses are longer, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A file lock (`Turn`), held until it is dropped or its process ends.
#[derive(Debug)]
pub(in crate::kinds) struct Turn {
    _held: File,
}

impl Turn {
    /// Waits for the file lock named `what`. The lock file is beside the folders of all change objects.
    ///
    /// # Errors
    /// If others hold the lock for all of `longest`.
    pub(in crate::kinds) fn wait(own: &Path, what: &str, longest: Duration) -> Result<Self, String> {
        let path = path(own, what);
        let file = open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let limit = Instant::now() + longest;
        let mut pause = FIRST_PAUSE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _held: file }),
                Err(TryLockError::WouldBlock) if Instant::now() < limit => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(format!("other change objects of this host worked on {what} for all of {longest:?}"));
                }
                Err(TryLockError::Error(error)) => return Err(format!("{}: {error}", path.display())),
            }
        }
    }

    /// Takes the file lock, if it is free.
    pub(in crate::kinds) fn take(own: &Path, what: &str) -> Option<Self> {
        let file = open(&path(own, what)).ok()?;
        file.try_lock().ok()?;
        Some(Self { _held: file })
    }
}

fn path(own: &Path, what: &str) -> PathBuf {
    own.parent().unwrap_or(own).join(format!(".{what}.lock"))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}
