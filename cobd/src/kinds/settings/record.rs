//! Records of kinds in a change object's own folder, beside the note of the original state.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable::{self, Sync};

/// Reads a record. `None`: there is no record.
pub(super) fn read<T: DeserializeOwned>(own: &Path, name: &str) -> Result<Option<T>, String> {
    let path = own.join(name);
    match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// Writes a record durably.
pub(super) fn write<T: Serialize>(own: &Path, name: &str, record: &T) -> Result<(), String> {
    let failed = |why: String| format!("{}: {why}", own.join(name).display());
    let bytes = serde_json::to_vec(record).map_err(|error| failed(error.to_string()))?;
    durable::write_file(own, name, 0o600, &bytes, Sync::Now).map_err(|error| failed(error.to_string()))
}

/// Deletes a record durably, if there is one.
pub(super) fn delete(own: &Path, name: &str) -> Result<(), String> {
    let path = own.join(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(format!("{}: {error}", path.display())),
        _ => durable::sync_folder(own).map_err(|error| format!("{}: {error}", own.display())),
    }
}
