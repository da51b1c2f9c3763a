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
        if is_named(&path) && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file of this name, in the folder of a model, is part of it.
#[must_use]
pub fn is_named(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let ending = path.extension().and_then(|ending| ending.to_str());
    !hidden && ending.is_some_and(|ending| ENDINGS.contains(&ending))
}

/// Makes a new file, durably. A file or a link of this name stays.
///
/// # Errors
/// The name exists, or the folder can't be written.
pub fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    if let Err(error) = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()) {
        fs::remove_file(path)?;
        return Err(error);
    }
    sync_folder(path.parent().unwrap_or(Path::new("/")))
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
