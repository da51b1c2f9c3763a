//! The files of a data model on the disk, for the programs that read and edit them.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::depot::sync_folder;

const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// The files of the model in a folder, by name: visible files with the ending of a model's file.
///
/// # Errors
/// The folder can't be read.
pub fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
        let ending = path.extension().and_then(|e| e.to_str()).is_some_and(|e| ENDINGS.contains(&e));
        if ending && !hidden && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Replaces a file as a whole, durably, with its mode; a link stays a link.
///
/// # Errors
/// The file is missing, or its folder can't be written.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize()?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new().prefix(".cob-model-").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::metadata(&path)?.permissions())?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    sync_folder(folder)
}
