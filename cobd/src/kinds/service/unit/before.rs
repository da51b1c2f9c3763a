//! Two notes in the service's folder: the original state before the first change, and the last start from here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use cob_kinds::Service;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::bus::UnitState;
use super::content::UnitService as _;
use super::files::{Found, find, is_mask};
use super::links::{Links, install_section};
use crate::durable::{self, Sync};
use crate::kinds::systemd::Systemd;
use crate::run::read_capped;

const FORMAT: u32 = 1;
const BEFORE: &str = "before";
const STARTED: &str = "started";
const MAX: usize = 64 << 20;

/// The original state of a unit, before the first change.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::kinds::service) struct Before {
    format: u32,
    pub(super) unit: String,
    /// The alias that the content uses; disabling the unit may remove it.
    pub(super) called: Option<String>,
    /// How to reach systemd; the names of `files` are below its `units` folder.
    pub(super) systemd: Systemd,
    /// Systemd's word for its enablement.
    pub(super) file_state: String,
    /// The unit ran.
    pub(super) ran: bool,
    /// Other units that the change object managed earlier, that ran before, and whose other original state is restored.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) others_ran: BTreeSet<String>,
    /// The original content of every place that was written.
    pub(super) files: BTreeMap<String, Found>,
    /// The folder for its drop-ins existed.
    pub(super) had_folder: bool,
    /// The original links. `None`: an earlier program version made the note with `file_state` alone, which then
    /// decides.
    pub(super) links: Option<Links>,
    /// Files and enablement are restored; only its run is missing.
    pub(super) restored: bool,
}

/// The last start or reload from here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    format: u32,
    /// The fingerprint of the content and of the dependencies.
    pub(super) identity: String,
    /// The fingerprint of all files that make the unit.
    pub(super) configuration: String,
    /// The id of the unit's run.
    pub(super) invocation: String,
}

impl Before {
    pub(super) fn new(unit: &str, systemd: &Systemd, file_state: &str, ran: bool) -> Self {
        let had_folder = systemd.units.join(format!("{unit}.d")).is_dir();
        Self {
            format: FORMAT,
            unit: unit.to_owned(),
            called: None,
            systemd: systemd.clone(),
            file_state: file_state.to_owned(),
            ran,
            others_ran: BTreeSet::new(),
            files: BTreeMap::new(),
            had_folder,
            links: Some(Links::default()),
            restored: false,
        }
    }

    /// Reads the note. `None`: no change was made yet.
    ///
    /// # Errors
    /// The note exists, but can't be read. Then the original state is unknown, and no change is allowed.
    pub(in crate::kinds::service) fn read(folder: &Path) -> Result<Option<Self>, String> {
        let path = folder.join(BEFORE);
        let bytes = match read_capped(&path, MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
            Ok(bytes) => bytes,
        };
        let before: Self = serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        if before.format != FORMAT {
            return Err(format!("{}: its format {} is not known here", path.display(), before.format));
        }
        Ok(Some(before))
    }

    /// The note of a unit that an earlier content described and whose original state is not restored. `present` is the
    /// unit of the present content.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(in crate::kinds::service) fn of_former(folder: &Path, present: Option<&str>) -> Result<Option<Self>, String> {
        Ok(Self::read(folder)?.filter(|before| !before.restored && Some(&*before.unit) != present))
    }

    /// The main name of the unit with this name, if it is noted.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn main_name(folder: &Path, name: &str) -> Result<Option<String>, String> {
        let before = Self::read(folder)?.filter(|before| !before.restored);
        let meant = before.filter(|before| before.unit == name || before.called.as_deref() == Some(name));
        Ok(meant.map(|before| before.unit))
    }

    /// The unit of the note.
    pub(in crate::kinds::service) fn unit(&self) -> &str {
        &self.unit
    }

    /// All units that ran before the change object managed them.
    pub(super) fn that_ran(&self) -> BTreeSet<String> {
        let mut all = self.others_ran.clone();
        all.extend(self.ran.then(|| self.unit.clone()));
        all
    }

    /// Another change object will restart this unit. Deletes the note if no other work is left.
    ///
    /// # Errors
    /// The error of the file system.
    pub(super) fn hand_over(mut self, folder: &Path, unit: &str) -> Result<(), String> {
        self.ran &= self.unit != unit;
        self.others_ran.remove(unit);
        if self.restored && self.that_ran().is_empty() { Self::remove(folder) } else { self.write(folder) }
    }

    /// The written places that belong to the content: if it has no file for a place, the original file is restored.
    pub(super) fn once_ours<'a>(&'a self, content: &'a Service) -> impl Iterator<Item = (&'a String, &'a Found)> {
        let own = content.name();
        self.files.iter().filter(move |(name, was)| **name != own || !self.own_place_stays(name, was, content))
    }

    /// Whether the place of the unit file stays as it is: a desired mask, or no file after the original mask was
    /// removed.
    fn own_place_stays(&self, name: &str, was: &Found, content: &Service) -> bool {
        match find(&self.systemd.units.join(name)) {
            Ok(Found::Absent) => is_mask(was),
            Ok(is) => is_mask(&is) && content.mask == Some(true),
            Err(_) => false,
        }
    }

    /// Whether its section `[Install]` has changed since it was enabled from here.
    pub(super) fn is_enabled_otherwise(&self, state: &UnitState) -> bool {
        let with = self.links.as_ref().and_then(|links| links.enabled_with.as_ref());
        state.is_there() && with.is_some_and(|with| *with != install_section(state))
    }

    /// Whether it was enabled.
    pub(super) fn was_enabled(&self) -> bool {
        self.file_state.starts_with("enabled")
    }

    /// Notes the original content of more places, durably.
    ///
    /// # Errors
    /// The error of the file system, with the place.
    pub(super) fn note<'a>(&mut self, folder: &Path, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for name in names.filter(|name| !self.files.contains_key(*name)).collect::<Vec<_>>() {
            let path = self.systemd.units.join(name);
            self.files.insert(name.to_owned(), find(&path).map_err(|e| format!("{}: {e}", path.display()))?);
        }
        self.write(folder)
    }

    /// The places of all noted files.
    pub(super) fn places(&self) -> BTreeSet<String> {
        let paths = self.files.keys().map(|name| self.systemd.units.join(name));
        paths.filter_map(|path| path.to_str().map(str::to_owned)).collect()
    }

    /// Notes the links that an interrupted call changed, if there was one.
    ///
    /// # Errors
    /// The error of the file system, with the place.
    pub(super) fn settle_links(&mut self, folder: &Path) -> Result<(), String> {
        let files = self.places();
        let Some(links) = &mut self.links else { return Ok(()) };
        if links.settle(&self.systemd, &[&self.unit], &files)? { self.write(folder) } else { Ok(()) }
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        let written = durable::write_file(folder, BEFORE, 0o600, &bytes, Sync::Now);
        written.map_err(|e| format!("noting the original state: {}: {e}", folder.display()))
    }

    pub(in crate::kinds::service) fn remove(folder: &Path) -> Result<(), String> {
        match fs::remove_file(folder.join(BEFORE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Started {
    pub(super) fn new(identity: &str, configuration: String, invocation: String) -> Self {
        Self { format: FORMAT, identity: identity.to_owned(), configuration, invocation }
    }

    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&read_capped(&folder.join(STARTED), MAX).ok()?).ok()
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        durable::write_file(folder, STARTED, 0o600, &bytes, Sync::Now).map_err(|e| format!("noting its start: {e}"))
    }

    pub(super) fn remove(folder: &Path) {
        // A leftover file names a run that is over.
        let _ = fs::remove_file(folder.join(STARTED));
    }
}
