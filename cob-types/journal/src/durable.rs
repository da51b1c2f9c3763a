//! Files that are complete or absent: written under a temporary name, made durable, renamed.
//!
//! Used for all files that must survive a crash: journal segments, results of actions, payload files.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::Path;

/// The ending of temporary names. A file with this ending may always be deleted.
pub const TEMP_SUFFIX: &str = ".tmp";

/// Whether [`write_file`] waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// The content and the name survive a power failure once the call returns.
    Now,
    /// The content and the name survive the end of this process; after a power failure the file is old, new or absent,
    /// and on some file systems empty.
    Later,
}

/// Writes `bytes` to `folder/name`: a reader sees either the complete old content or the complete new content. The file
/// has exactly the mode `mode`, regardless of the umask.
///
/// # Errors
/// The error of the file system; the old content is then untouched.
pub fn write_file(folder: &Path, name: &str, mode: u32, bytes: &[u8], sync: Sync) -> io::Result<()> {
    write_file_with(folder, name, mode, sync, |file| file.write_all(bytes))
}

/// Like [`write_file`], with the content that `fill` writes.
///
/// # Errors
/// Like [`write_file`], and the errors of `fill`.
pub fn write_file_with(
    folder: &Path,
    name: &str,
    mode: u32,
    sync: Sync,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let temp = folder.join(format!("{name}{TEMP_SUFFIX}"));
    let written = make(&temp, mode, sync, fill).and_then(|()| fs::rename(&temp, folder.join(name)));
    if let Err(error) = written {
        // The first error counts; a leftover file is deleted later.
        let _ = fs::remove_file(&temp);
        return Err(error);
    }
    match sync {
        Sync::Now => sync_folder(folder),
        Sync::Later => Ok(()),
    }
}

/// Makes the link `folder/name` durably: a reader sees either the old entry or the new link.
///
/// # Errors
/// The error of the file system; the old entry is then untouched.
pub fn link(folder: &Path, name: &str, target: &Path) -> io::Result<()> {
    let temp = folder.join(format!("{name}{TEMP_SUFFIX}"));
    match fs::remove_file(&temp) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let linked = symlink(target, &temp).and_then(|()| fs::rename(&temp, folder.join(name)));
    if let Err(error) = linked {
        let _ = fs::remove_file(&temp);
        return Err(error);
    }
    sync_folder(folder)
}

/// Writes a new file durably at `path` and replaces an existing file. The caller renames or removes it.
///
/// # Errors
/// The error of the file system or of `fill`; then no file is left.
pub fn stage(path: &Path, mode: u32, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    make(path, mode, Sync::Now, fill).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

/// Deletes the leftovers of killed processes in a folder: all files with [`TEMP_SUFFIX`].
pub fn sweep(folder: &Path) {
    let left = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in left.filter(|path| path.to_str().is_some_and(|path| path.ends_with(TEMP_SUFFIX))) {
        // A leftover that can't be deleted is harmless.
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}

fn make(temp: &Path, mode: u32, sync: Sync, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    match fs::remove_file(temp) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // `create_new` does not follow a link that another user may have put there.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(temp)?;
    fill(&mut file)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    match sync {
        // Also makes the mode durable.
        Sync::Now => file.sync_all(),
        Sync::Later => Ok(()),
    }
}

/// Makes the names in a folder durable.
///
/// # Errors
/// The error of the file system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_leaves_no_temp() {
        let folder = tempfile::tempdir().expect("folder");
        fs::write(folder.path().join("x.tmp"), "left over").expect("written");
        for (text, sync) in [("one", Sync::Now), ("two", Sync::Later)] {
            write_file(folder.path(), "x", 0o666, text.as_bytes(), sync).expect("written");
            assert_eq!(fs::read_to_string(folder.path().join("x")).expect("read"), text);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 1);
        let mode = fs::metadata(folder.path().join("x")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o666, "independent of the umask");
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let folder = tempfile::tempdir().expect("folder");
        let outside = folder.path().join("outside");
        fs::write(&outside, "keep").expect("written");
        std::os::unix::fs::symlink(&outside, folder.path().join("x.tmp")).expect("link");
        write_file(folder.path(), "x", 0o600, b"new", Sync::Later).expect("written");
        assert_eq!(fs::read_to_string(&outside).expect("read"), "keep");
    }

    #[test]
    fn a_failure_leaves_the_old_content() {
        let folder = tempfile::tempdir().expect("folder");
        fs::create_dir(folder.path().join("x")).expect("a folder in the way");
        write_file(folder.path(), "x", 0o600, b"new", Sync::Later).expect_err("a file can't replace a folder");
        assert!(folder.path().join("x").is_dir());
        assert!(!folder.path().join("x.tmp").exists());
    }
}
