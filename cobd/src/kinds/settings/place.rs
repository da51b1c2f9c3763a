//! The place of a file or folder that a setting makes as a whole: its real path, and the folders above it.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::durable;
use crate::kinds::native::{Host, inspect};

/// The real path of a file or folder: links above it stand for their targets, and may not lead out of the root.
pub(super) fn real(host: &Host, absolute: &str) -> Result<PathBuf, String> {
    let path = host.path(absolute);
    let mut missing = Vec::new();
    let mut at: &Path = &path;
    while let (Some(above), Some(name)) = (at.parent(), at.file_name()) {
        missing.push(name);
        match above.canonicalize() {
            Ok(mut real) => {
                real.extend(missing.into_iter().rev());
                host.is_inside(absolute, &real)?;
                return Ok(real);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => at = above,
            Err(error) => return Err(format!("{}: {error}", above.display())),
        }
    }
    Err(format!("{absolute}: no file or folder can be there"))
}

/// The uppermost folder above the place that does not exist.
pub(super) fn missing_folder(real: &Path) -> Option<&Path> {
    real.ancestors().skip(1).take_while(|above| fs::symlink_metadata(above).is_err()).last()
}

/// Makes the folders above the place.
pub(super) fn make_folders(real: &Path) -> Result<(), String> {
    let Some(folder) = real.parent() else { return Ok(()) };
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|error| format!("{}: {error}", folder.display()))
}

/// Removes the folders above the place, up to `first`, as long as they are empty.
pub(super) fn remove_folders(real: &Path, first: &str) {
    let first = Path::new(first);
    for above in real.ancestors().skip(1).take_while(|above| above.starts_with(first)) {
        // The folder has files of others.
        if fs::remove_dir(above).is_err() && above.exists() {
            return;
        }
        if let Some(folder) = above.parent() {
            let _ = durable::sync_folder(folder);
        }
    }
}

/// Removes a file, link or folder with its content, if it exists.
pub(super) fn remove_all(path: &Path) -> Result<(), String> {
    let removed = match inspect(path)? {
        None => return Ok(()),
        Some(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Some(_) => fs::remove_file(path),
    };
    let removed = removed.and_then(|()| path.parent().map_or(Ok(()), durable::sync_folder));
    removed.map_err(|error| format!("{}: {error}", path.display()))
}

/// The path in a note or a message. JSON has no other paths than text.
pub(super) fn text(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{}: the path is not UTF-8", path.display()))
}
