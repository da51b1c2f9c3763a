//! The note of the original state: written before the first transaction, and read when the change object departs.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Installed;
use super::own::Own;
use crate::durable::Sync;
use crate::kinds::native::NOTE;

/// The format of the note.
const FORMAT: u32 = 1;

/// The state before the change object came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    format: u32,
    /// The name of the package.
    pub(super) name: String,
    /// The original state of the package.
    pub(super) before: Before,
    /// This change object set the present hold.
    #[serde(default)]
    pub(super) holds: bool,
}

/// The original state of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Before {
    /// Not installed.
    Nothing,
    /// Only configuration files.
    Configuration,
    /// Installed.
    Package {
        /// On hold.
        held: bool,
        /// Installed because another package needed it.
        automatic: bool,
    },
}

impl Note {
    /// The note of a change object that just started to manage a package.
    pub(super) fn new(name: &str, installed: &Installed, automatic: bool) -> Self {
        let before = match installed {
            // A half-done package was started by this change object, or has been repaired.
            Installed::No | Installed::Half(_) => Before::Nothing,
            Installed::Configuration => Before::Configuration,
            Installed::Yes { held, .. } => Before::Package { held: *held, automatic },
        };
        Self { format: FORMAT, name: name.to_owned(), before, holds: false }
    }

    /// The note of a package that another change object installed as a companion.
    pub(super) fn brought(name: &str) -> Self {
        Self { format: FORMAT, name: name.to_owned(), before: Before::Nothing, holds: false }
    }

    /// Reads the note in a folder. `None`: there is no note.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, String> {
        let path = folder.join(NOTE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| format!("{}: {error}", path.display()))?,
        };
        let note: Self = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        match note.format {
            FORMAT => Ok(Some(note)),
            other => Err(format!("{}: it has format {other}; this program reads {FORMAT}", path.display())),
        }
    }

    /// Writes the note durably.
    pub(super) fn write(&self, own: &Own) -> Result<(), String> {
        let text = serde_json::to_string(self).expect("a note is plain data");
        own.write(NOTE, 0o600, &text, Sync::Now)
    }

    /// The name of its file.
    pub(super) const fn file() -> &'static str {
        NOTE
    }
}
