//! Records of kinds in a change object's own folder, beside the note of the original state.
//!
//! A record of data, such as a file system, is written before the data are made or erased. A later attempt thus tells its
//! own unfinished work from data of others.

use std::fs;
use std::io;
use std::path::Path;

use cob_kinds::OnDeparture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::durable::{self, Sync};

/// How far the making or erasing of data has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    /// The making may have begun.
    Making,
    /// The change object made them.
    Made,
    /// They were there first.
    Found,
    /// The removal may have begun.
    Erasing,
}

impl Stage {
    /// Whether an attempt may have ended half-way.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Making | Self::Erasing)
    }

    /// Whether a departure erases the data.
    pub(super) fn is_erased(self, on_departure: OnDeparture) -> bool {
        match self {
            Self::Making => true,
            Self::Made | Self::Erasing => on_departure == OnDeparture::Erase,
            Self::Found => false,
        }
    }
}

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
