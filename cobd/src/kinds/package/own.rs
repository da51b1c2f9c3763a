//! The own folder of a change object: private files for its package manager, and the list of companions.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::note::Note;
use crate::durable::{self, Sync};

/// The list of companions: packages that were installed as dependencies, and are removed with the package.
pub(super) const CAME_ALONG: &str = "came-along";

/// The own folder.
#[derive(Debug)]
pub(super) struct Own(PathBuf);

impl Own {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// The path of an entry.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, mode: u32, text: &str, sync: Sync) -> Result<(), String> {
        durable::write_file(&self.0, name, mode, text.as_bytes(), sync).map_err(|error| self.failed(&error))
    }

    /// The names of the companions.
    pub(super) fn came_along(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(self.join(CAME_ALONG)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Notes packages that are about to be installed, without packages that are installed already.
    pub(super) fn note_coming(&self, coming: BTreeSet<String>, there: &BTreeSet<String>) -> Result<(), String> {
        let mut came_along = self.came_along();
        came_along.extend(coming.into_iter().filter(|name| !there.contains(name)));
        let text: String = came_along.iter().map(|name| format!("{name}\n")).collect();
        self.write(CAME_ALONG, 0o600, &text, Sync::Now)
    }

    /// Whether an installation of this change object has written a list of companions, which may be empty.
    pub(super) fn has_installed(&self) -> bool {
        self.join(CAME_ALONG).exists()
    }

    /// Removes these files, the folder of lists, the list of companions and, as the last file, the note, because a
    /// killed transition needs the note.
    pub(super) fn clear(&self, files: &[&str], lists: &str) -> Result<(), String> {
        let gone = |removed: io::Result<()>| match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(&error)),
            Ok(()) | Err(_) => Ok(()),
        };
        gone(fs::remove_dir_all(self.join(lists)))?;
        for name in files.iter().chain([&CAME_ALONG, &Note::file()]) {
            gone(fs::remove_file(self.join(name)))?;
        }
        Ok(())
    }

    pub(super) fn failed(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.0.display())
    }
}
