//! What was found before the first change, and what was started from here: two files in the service's folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::bus::{Systemd, UnitState};
use super::content::UnitContent;
use super::files::{Found, find, is_mask};
use super::links::{Links, install_section};
use crate::durable::{self, Sync};
use crate::run::read_capped;

const FORMAT: u32 = 1;
const BEFORE: &str = "before";
const STARTED: &str = "started";
const MAX: usize = 64 << 20;

/// A unit as it was found before the first change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::kinds::service) struct Before {
    format: u32,
    pub(super) unit: String,
    /// The alias by which the content named it: that may go with its enablement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) called: Option<String>,
    /// Where systemd is; the names of `files` are below its folder.
    pub(super) systemd: Systemd,
    /// Whether it was enabled, in systemd's word.
    pub(super) file_state: String,
    /// It ran.
    pub(super) ran: bool,
    /// So did these, which the change object was about at other times, and which are put back but for that.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) others_ran: BTreeSet<String>,
    /// What was in every place that was ever written.
    pub(super) files: BTreeMap<String, Found>,
    /// The folder for its drop-ins was there.
    pub(super) had_folder: bool,
    /// What was changed of links. None where a daemon began that went by `file_state` alone: that ends as it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) links: Option<Links>,
    /// Files and enablement are as they were; only its run is missing.
    pub(super) restored: bool,
}

/// With what it was started, or reloaded, from here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    format: u32,
    /// Of the content, and of what it rests on.
    pub(super) identity: String,
    /// Of all files that make the unit.
    pub(super) configuration: String,
    /// Which run of the unit that was.
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

    /// None: nothing was changed yet.
    ///
    /// # Errors
    /// It is there, but can't be read: then nobody knows what it was like, and nothing may be changed.
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

    /// What is noted of a unit that an earlier content was about and that is not put back yet. `present`: the unit that the
    /// content is about now.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(in crate::kinds::service) fn of_former(folder: &Path, present: Option<&str>) -> Result<Option<Self>, String> {
        Ok(Self::read(folder)?.filter(|before| !before.restored && Some(&*before.unit) != present))
    }

    /// The unit that is meant by this name, where it is noted.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn main_name(folder: &Path, name: &str) -> Result<Option<String>, String> {
        let before = Self::read(folder)?.filter(|before| !before.restored);
        let meant = before.filter(|before| before.unit == name || before.called.as_deref() == Some(name));
        Ok(meant.map(|before| before.unit))
    }

    /// Which unit it is about.
    pub(in crate::kinds::service) fn unit(&self) -> &str {
        &self.unit
    }

    /// All units that ran before the change object came to be about them.
    pub(super) fn that_ran(&self) -> BTreeSet<String> {
        let mut all = self.others_ran.clone();
        all.extend(self.ran.then(|| self.unit.clone()));
        all
    }

    /// Somebody else sees to it that this one runs again. Gone when there is nothing else to be put back.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn hand_over(mut self, folder: &Path, unit: &str) -> Result<(), String> {
        self.ran &= self.unit != unit;
        self.others_ran.remove(unit);
        if self.restored && self.that_ran().is_empty() { Self::remove(folder) } else { self.write(folder) }
    }

    /// The places that were written, and that are the content's to write: where it wants nothing there, what was found is put
    /// back.
    pub(super) fn once_ours<'a>(&'a self, content: &'a UnitContent) -> impl Iterator<Item = (&'a String, &'a Found)> {
        let own = content.name();
        self.files.iter().filter(move |(name, was)| **name != own || !self.own_place_stays(name, was, content))
    }

    /// In the place of the unit file: a mask that is wanted, or none where one was found that was to be taken away.
    fn own_place_stays(&self, name: &str, was: &Found, content: &UnitContent) -> bool {
        match find(&self.systemd.units.join(name)) {
            Ok(Found::Absent) => is_mask(was),
            Ok(is) => is_mask(&is) && content.mask == Some(true),
            Err(_) => false,
        }
    }

    /// Its files say otherwise how it is enabled than when it was enabled from here.
    pub(super) fn is_enabled_otherwise(&self, state: &UnitState) -> bool {
        let with = self.links.as_ref().and_then(|links| links.enabled_with.as_ref());
        state.is_there() && with.is_some_and(|with| *with != install_section(state))
    }

    /// It was enabled, in systemd's word.
    pub(super) fn was_enabled(&self) -> bool {
        self.file_state.starts_with("enabled")
    }

    /// Notes what is in further places, and makes all of it durable.
    ///
    /// # Errors
    /// What the file system says, with the place.
    pub(super) fn note<'a>(&mut self, folder: &Path, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for name in names.filter(|name| !self.files.contains_key(*name)).collect::<Vec<_>>() {
            let path = self.systemd.units.join(name);
            self.files.insert(name.to_owned(), find(&path).map_err(|e| format!("{}: {e}", path.display()))?);
        }
        self.write(folder)
    }

    /// The places of all files that are noted.
    pub(super) fn places(&self) -> BTreeSet<String> {
        let paths = self.files.keys().map(|name| self.systemd.units.join(name));
        paths.filter_map(|path| path.to_str().map(str::to_owned)).collect()
    }

    /// Notes what was changed of links by a call that was cut short, if there was one.
    ///
    /// # Errors
    /// What the file system says, with the place.
    pub(super) fn settle_links(&mut self, folder: &Path) -> Result<(), String> {
        let files = self.places();
        let Some(links) = &mut self.links else { return Ok(()) };
        if links.settle(&self.systemd, &[&self.unit], &files)? { self.write(folder) } else { Ok(()) }
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), String> {
        let bytes = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        let written = durable::write_file(folder, BEFORE, 0o600, &bytes, Sync::Now);
        written.map_err(|e| format!("noting what was there before: {}: {e}", folder.display()))
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
        // One that is left over names a run that is past.
        let _ = fs::remove_file(folder.join(STARTED));
    }
}
