//! The note of the original state: written before the first transaction, and read when the change object departs.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Installed;
use super::own::Own;
use crate::kinds::native::{NOTE, note};

/// The state before the change object came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
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
        Self { name: name.to_owned(), before, holds: false }
    }

    /// The note of a package that another change object installed as a companion.
    pub(super) fn brought(name: &str) -> Self {
        Self { name: name.to_owned(), before: Before::Nothing, holds: false }
    }

    /// Reads the note in a folder. `None`: there is no note.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, String> {
        note::read(folder)
    }

    /// Writes the note durably.
    pub(super) fn write(&self, own: &Own) -> Result<(), String> {
        note::write(own.folder(), self)
    }

    /// The name of its file.
    pub(super) const fn file() -> &'static str {
        NOTE
    }
}
