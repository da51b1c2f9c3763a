//! The configuration of Pacemaker that a host has before it enters a cluster. Of several configurations a cluster takes
//! the newest: one of an earlier cluster would replace the cluster's own.

use std::fs;
use std::path::Path;

use crate::kinds::native::copy;
use crate::kinds::settings::place;

const FOLDER: &str = "/var/lib/pacemaker/cib";
/// The copies in the own folder.
const COPIES: &str = "cib";

/// Copies the files into the own folder.
pub(super) fn keep(own: &Path) -> Result<(), String> {
    let copies = own.join(COPIES);
    place::remove_all(&copies)?;
    let names = names(Path::new(FOLDER))?;
    if !names.is_empty() {
        fs::create_dir(&copies).map_err(|error| format!("{}: {error}", copies.display()))?;
    }
    names.iter().try_for_each(|name| copy(&Path::new(FOLDER).join(name), &copies, name))
}

/// Removes the files.
pub(super) fn clear() -> Result<(), String> {
    names(Path::new(FOLDER))?.iter().try_for_each(|name| place::remove_all(&Path::new(FOLDER).join(name)))
}

/// Puts the copies back. Until [`drop_copies`], this may be repeated.
pub(super) fn restore(own: &Path) -> Result<(), String> {
    clear()?;
    let copies = own.join(COPIES);
    names(&copies)?.iter().try_for_each(|name| copy(&copies.join(name), Path::new(FOLDER), name))
}

/// Removes the copies.
pub(super) fn drop_copies(own: &Path) -> Result<(), String> {
    place::remove_all(&own.join(COPIES))
}

/// The files in a folder.
fn names(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_file() {
            names.push(place::text(Path::new(&entry.file_name()))?.to_owned());
        }
    }
    Ok(names)
}
