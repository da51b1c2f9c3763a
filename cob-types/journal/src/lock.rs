//! The lock that excludes a second daemon from a folder.

use std::fs::{self, File, TryLockError};
use std::io::Read as _;
use std::path::Path;

use super::error::JournalError;

/// An exclusive lock on a folder, held until it is dropped or the process ends in any way.
///
/// The folder itself is locked: a file in it could be removed, and the next daemon would lock another file. A file in
/// the folder names the holder.
#[derive(Debug)]
pub struct FolderLock {
    _folder: File,
}

impl FolderLock {
    /// Creates the folder if necessary and locks it.
    ///
    /// # Errors
    /// [`JournalError::InUse`] if another process has locked it.
    pub fn take(folder: &Path) -> Result<Self, JournalError> {
        fs::create_dir_all(folder).map_err(JournalError::io(folder, "making the folder"))?;
        let path = folder.join("lock");
        let itself = File::open(folder).map_err(JournalError::io(folder, "opening the folder"))?;
        match itself.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::InUse { folder: folder.to_owned(), holder: holder(&path) });
            }
            Err(TryLockError::Error(source)) => return Err(JournalError::io(folder, "locking")(source)),
        }
        fs::write(&path, format!("{}\n", std::process::id()))
            .map_err(JournalError::io(&path, "writing the process id"))?;
        Ok(Self { _folder: itself })
    }
}

/// The recorded holder of the lock.
fn holder(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse::<u32>().ok().map(|pid| format!(" (process {pid})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lock_has_a_single_holder() {
        let folder = tempfile::tempdir().expect("folder");
        let first = FolderLock::take(folder.path()).expect("free");
        let error = FolderLock::take(folder.path()).expect_err("taken").to_string();
        let pid = std::process::id().to_string();
        assert!(error.contains(&pid), "{error}");
        // Independent of the folder's content.
        fs::remove_file(folder.path().join("lock")).expect("removed");
        for round in 0..2 {
            let error = FolderLock::take(folder.path()).expect_err("taken").to_string();
            assert!(error.contains("in use"), "round {round}: {error}");
            fs::write(folder.path().join("lock"), "").expect("made anew");
        }
        drop(first);
        FolderLock::take(folder.path()).expect("free again");
    }
}
