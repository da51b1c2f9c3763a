//! Files and folders that survive a crash.

use std::fs;
use std::io;
use std::path::Path;

use cob_journal::durable::{self, Sync};
use serde::Serialize;

/// Replaces a file by a value as JSON: readers see the former or the new content, and the new content is on the disk
/// when the function returns.
///
/// # Errors
///
/// The disk refused; the former content is still there.
pub fn replace_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    replace(path, &text)
}

/// Replaces a file.
///
/// # Errors
///
/// As [`replace_json`].
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidFilename)?;
    durable::write_file(path.parent().unwrap_or(Path::new(".")), name, 0o600, content, Sync::Now)
}

/// Makes the names in a folder durable.
///
/// # Errors
///
/// The disk refused.
pub fn sync(folder: &Path) -> io::Result<()> {
    durable::sync_folder(folder)
}

/// Makes a folder with its parents, and makes their names durable.
///
/// # Errors
///
/// The disk refused, or a name is taken by a file.
pub fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        make_folder(parent)?;
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        return sync(parent);
    }
    fs::create_dir_all(path)
}
