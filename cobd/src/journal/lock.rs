//! The lock that keeps a second daemon out of a folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::Path;

use super::error::JournalError;

/// An exclusive lock on a folder, held until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Makes the folder if need be and takes it.
    ///
    /// # Errors
    /// [`JournalError::InUse`] when another process has it.
    pub fn take(folder: &Path) -> Result<Self, JournalError> {
        fs::create_dir_all(folder).map_err(JournalError::io(folder, "making the folder"))?;
        let path = folder.join("lock");
        // Not truncated: the content says who holds it.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(JournalError::io(&path, "opening the lock"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let read = file.take(20).read_to_string(&mut text);
                let holder = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
                return Err(JournalError::InUse {
                    folder: folder.to_owned(),
                    holder: holder.map(|pid| format!(" (process {pid})")),
                });
            }
            Err(TryLockError::Error(source)) => return Err(JournalError::io(&path, "locking")(source)),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(JournalError::io(&path, "writing the process id"))?;
        Ok(Self { _file: file })
    }
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
        drop(first);
        FolderLock::take(folder.path()).expect("free again");
    }
}
