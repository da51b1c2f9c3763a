//! The note of the original state, in a change object's own folder: written before a change, deleted after the restore.

use std::fs;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::NOTE;
use crate::durable;

/// The format of notes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    format: u32,
    #[serde(flatten)]
    note: T,
}

/// Reads the note; absent: there is none.
///
/// # Errors
/// The reason as text, with the file.
pub(in crate::kinds) fn read<T: DeserializeOwned>(own: &Path) -> Result<Option<T>, String> {
    let path = own.join(NOTE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| format!("{}: {error}", path.display()))?,
    };
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let failed = |error: serde_json::Error| format!("{}: {error}", path.display());
    let Format { format } = serde_json::from_str(&text).map_err(failed)?;
    if format != FORMAT {
        return Err(format!("{}: it has format {format}; this program reads {FORMAT}", path.display()));
    }
    let Versioned { note, .. } = serde_json::from_str(&text).map_err(failed)?;
    Ok(Some(note))
}

/// Writes the note durably.
///
/// # Errors
/// The reason as text, with the file.
pub(in crate::kinds) fn write<T: Serialize>(own: &Path, note: &T) -> Result<(), String> {
    let bytes = serde_json::to_vec(&Versioned { format: FORMAT, note }).expect("a note is plain data");
    let written = durable::write_file(own, NOTE, 0o600, &bytes, durable::Sync::Now);
    written.map_err(|error| format!("{}: {error}", own.join(NOTE).display()))
}

/// Deletes the note durably.
///
/// # Errors
/// The reason as text, with the file.
pub(in crate::kinds) fn delete(own: &Path) -> Result<(), String> {
    let deleted = fs::remove_file(own.join(NOTE)).and_then(|()| durable::sync_folder(own));
    deleted.map_err(|error| format!("{}: {error}", own.join(NOTE).display()))
}
