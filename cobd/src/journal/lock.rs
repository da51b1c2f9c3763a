//! The lock that excludes a second daemon from a folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::Path;

use super::error::JournalError;

/// An exclusive lock on a folder, held until it is dropped or the process ends in any way.
///
/// The folder itself is locked: a file in it could be removed, and the next daemon would lock another file. The file
/// names the holder, and excludes daemons of earlier versions, which lock only the file.
#[derive(Debug)]
pub struct FolderLock {
    _folder: File,
    _file: File,
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
        if !try_lock(&itself, folder)? {
            let holder = File::open(&path).ok().and_then(|file| holder(&file));
            return Err(JournalError::InUse { folder: folder.to_owned(), holder });
        }
        // Not truncated: the content names the holder.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(JournalError::io(&path, "opening the lock"))?;
        if !try_lock(&file, &path)? {
            return Err(JournalError::InUse { folder: folder.to_owned(), holder: holder(&file) });
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(JournalError::io(&path, "writing the process id"))?;
        Ok(Self { _folder: itself, _file: file })
    }
}

/// Whether this process has the lock now.
fn try_lock(file: &File, path: &Path) -> Result<bool, JournalError> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(JournalError::io(path, "locking")(source)),
    }
}

/// The recorded holder of the lock.
fn holder(file: &File) -> Option<String> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse::<u32>().ok().map(|pid| format!(" (process {pid})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_holder() {
        let folder = tempfile::tempdir().expect("folder");
        let first = FolderLock::take(folder.path()).expect("free");
        let error = FolderLock::take(folder.path()).expect_err("taken").to_string();
        let pid = std::process::id().to_string();
        assert!(error.contains(&pid) && error.contains("state_dir"), "{error}");
        // Independent of the folder's content.
        fs::remove_file(folder.path().join("lock")).expect("removed");
        for round in 0..2 {
            let error = FolderLock::take(folder.path()).expect_err("taken").to_string();
            assert!(error.contains("in use"), "round {round}: {error}");
            fs::write(folder.path().join("lock"), "").expect("made anew");
        }
        drop(first);
        FolderLock::take(folder.path()).expect("free again");
        // A daemon of an earlier version locks only the file.
        let file = File::options().write(true).open(folder.path().join("lock")).expect("opened");
        file.try_lock().expect("free");
        FolderLock::take(folder.path()).expect_err("taken");
    }
}
