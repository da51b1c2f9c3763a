//! The content of a service that is a unit of systemd.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cob_kinds::{Service, UnitText, full_unit_name};
use cob_types::canonical;
use serde::Deserialize;

/// Files below systemd's folder for administrators, by their name there: `x.service`, `x.service.d/10-y.conf`.
pub(in crate::kinds::service) type UnitFiles = BTreeMap<String, String>;

/// A service that is a unit.
pub(in crate::kinds::service) trait UnitService {
    /// The unit name, with its suffix.
    fn name(&self) -> String;

    /// The unit file and the drop-ins in the content; `folder` contains the files of the bundle.
    ///
    /// # Errors
    /// The file that can't be read.
    fn files(&self, folder: &Path) -> Result<UnitFiles, String>;
}

impl UnitService for Service {
    fn name(&self) -> String {
        self.unit_name().unwrap_or_default()
    }

    fn files(&self, folder: &Path) -> Result<UnitFiles, String> {
        let text = |text: &UnitText| match text {
            UnitText::Itself(text) => Ok(text.clone()),
            UnitText::InFile { file } => {
                let path = folder.join(file.strip_prefix("./").unwrap_or(file));
                fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
            }
            UnitText::Other(_) => Err("content: a file of the unit is neither a text nor a file".to_owned()),
        };
        let mut files = UnitFiles::new();
        if let Some(unit_file) = &self.unit_file {
            files.insert(self.name(), text(unit_file)?);
        }
        for (name, drop_in) in &self.drop_ins {
            files.insert(format!("{}.d/{name}", self.name()), text(drop_in)?);
        }
        Ok(files)
    }
}

/// Differs whenever the unit must be restarted or reloaded: for other files or changed dependencies.
pub(super) fn identity(content: &Service, files: &UnitFiles, rests_on: Option<&str>) -> String {
    let name = content.name();
    let mut parts = vec![name.as_bytes()];
    parts.extend(files.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]));
    parts.extend([b"rests on".as_slice(), rests_on.unwrap_or_default().as_bytes()]);
    canonical::fingerprint(&parts).to_string()
}

/// The unit that a content names. `None`: a service of commands.
pub(in crate::kinds::service) fn unit_of(content: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        unit: Option<String>,
    }
    let Named { unit } = serde_json::from_str(content).ok()?;
    unit.as_deref().map(full_unit_name)
}
