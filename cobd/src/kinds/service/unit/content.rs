//! The content of a service that is a unit of systemd.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cob_kinds::Time;
use cob_types::{Command, canonical};
use serde::Deserialize;

/// The desired unit.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::kinds::service) struct UnitContent {
    pub(in crate::kinds::service) unit: String,
    #[serde(default)]
    pub(in crate::kinds::service) enabled: Option<bool>,
    #[serde(default)]
    pub(in crate::kinds::service) mask: Option<bool>,
    #[serde(default)]
    unit_file: Option<Text>,
    #[serde(default)]
    drop_ins: BTreeMap<String, Text>,
    #[serde(default)]
    pub(in crate::kinds::service) ready: Option<Command>,
    #[serde(default = "super::super::backend::settle")]
    pub(in crate::kinds::service) settle: Time,
    #[serde(default)]
    pub(in crate::kinds::service) on_change: OnChange,
    #[serde(default)]
    pub(in crate::kinds::service) exports: serde_json::Map<String, serde_json::Value>,
}

/// How an outdated unit gets the new content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::kinds::service) enum OnChange {
    /// It is restarted.
    #[default]
    Restart,
    /// It is reloaded.
    Reload,
}

/// The text of a file: inline, or in a file of the bundle.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Text {
    Itself(String),
    InFile { file: String },
}

/// Files below systemd's folder for administrators, by their name there: `x.service`, `x.service.d/10-y.conf`.
pub(in crate::kinds::service) type UnitFiles = BTreeMap<String, String>;

impl UnitContent {
    /// Reads the content.
    ///
    /// # Errors
    /// The fault of the content, as text.
    pub(in crate::kinds::service) fn read(text: &str) -> Result<Self, String> {
        let content: Self = cob_kinds::parse(text)?;
        let name = content.name();
        let stem = name.rsplit_once('.').map_or("", |(stem, _)| stem);
        let fit = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
        if stem.is_empty() || stem.starts_with('.') || !name.chars().all(fit) || name.len() > 255 {
            return Err(format!("content: {:?} is no name of a unit", content.unit));
        }
        let bad = |name: &&String| {
            !name.ends_with(".conf") || name.starts_with('.') || name.contains(['/', '\0']) || name.len() > 200
        };
        if let Some(name) = content.drop_ins.keys().find(bad) {
            return Err(format!("content: {name:?} is no name of a drop-in; an example is 10-limits.conf"));
        }
        Ok(content)
    }

    /// The unit name, with its suffix.
    pub(in crate::kinds::service) fn name(&self) -> String {
        if self.unit.contains('.') { self.unit.clone() } else { format!("{}.service", self.unit) }
    }

    /// Whether the content has a unit file, which replaces an alias of this name.
    pub(super) fn gives_unit(&self) -> bool {
        self.unit_file.is_some()
    }

    /// The unit file and the drop-ins in the content; `folder` contains the files of the bundle.
    ///
    /// # Errors
    /// The file that can't be read.
    pub(in crate::kinds::service) fn files(&self, folder: &Path) -> Result<UnitFiles, String> {
        let text = |text: &Text| match text {
            Text::Itself(text) => Ok(text.clone()),
            Text::InFile { file } => {
                let path = folder.join(file.strip_prefix("./").unwrap_or(file));
                fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
            }
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
pub(super) fn identity(content: &UnitContent, files: &UnitFiles, rests_on: Option<&str>) -> String {
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
    unit.map(|unit| if unit.contains('.') { unit } else { format!("{unit}.service") })
}
