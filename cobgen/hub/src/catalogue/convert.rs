//! The program `cobgen`: it checks models and converts entities of other systems.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cob_hub_api::{Definitions, ExportedEntities, Fault};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::files::Files;
use super::{Catalogue, CatalogueError};

/// The answer of `cobgen check --json`.
#[derive(Deserialize)]
struct Checked {
    ok: bool,
    diagnostics: Vec<Diagnostic>,
}

/// The answer of `cobgen import coopr --json`.
#[derive(Deserialize)]
struct Imported {
    model: Definitions,
    diagnostics: Vec<Diagnostic>,
}

/// The answer of `cobgen export coopr --json`.
#[derive(Deserialize)]
struct Exported {
    document: Value,
    diagnostics: Vec<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    severity: String,
    message: String,
    #[serde(default)]
    help: Option<String>,
    #[serde(default)]
    place: Option<Place>,
}

#[derive(Deserialize)]
struct Place {
    file: PathBuf,
    line: u32,
    column: u32,
}

impl Diagnostic {
    fn is_error(&self) -> bool {
        self.severity == "error"
    }

    /// With a place below a folder.
    fn fault(self, folder: &Path) -> Fault {
        Fault {
            place: self.place.map(|place| {
                let file = place.file.strip_prefix(folder).unwrap_or(&place.file);
                format!("{}:{}:{}", file.display(), place.line, place.column)
            }),
            message: self.message,
            help: self.help.into_iter().collect(),
        }
    }
}

impl Catalogue {
    /// The entities of a document in Coopr's form, and what a model can't express.
    ///
    /// # Errors
    ///
    /// The document has no entities of Coopr.
    pub fn of_coopr(&self, document: &Value) -> Result<(Definitions, Vec<Fault>), CatalogueError> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("document.json");
        fs::write(&file, serde_json::to_vec_pretty(document).map_err(std::io::Error::from)?)?;
        let Imported { model, diagnostics } = run(&self.cobgen, &["import", "coopr"], &file)?;
        Ok((model, notes(diagnostics, folder.path())?))
    }

    /// Entities in Coopr's form, with what the form can't express.
    ///
    /// # Errors
    ///
    /// There are no entities, or `cobgen` failed.
    pub fn to_coopr(&self, definitions: &Definitions) -> Result<ExportedEntities, CatalogueError> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("catalogue.json");
        fs::write(&file, serde_json::to_vec_pretty(definitions).map_err(std::io::Error::from)?)?;
        let Exported { document, diagnostics } = run(&self.cobgen, &["export", "coopr"], &file)?;
        Ok(ExportedEntities { document, lost: notes(diagnostics, folder.path())? })
    }
}

/// The warnings.
///
/// # Errors
/// The errors, if there are any.
fn notes(diagnostics: Vec<Diagnostic>, folder: &Path) -> Result<Vec<Fault>, CatalogueError> {
    let (errors, warnings): (Vec<_>, Vec<_>) = diagnostics.into_iter().partition(Diagnostic::is_error);
    let faults = |of: Vec<Diagnostic>| of.into_iter().map(|diagnostic| diagnostic.fault(folder)).collect();
    if errors.is_empty() { Ok(faults(warnings)) } else { Err(CatalogueError::Unreadable(faults(errors))) }
}

/// Checks a catalogue.
///
/// # Errors
/// The model is wrong.
pub(super) fn check(cobgen: &Path, files: &Files) -> Result<(), CatalogueError> {
    if !files.has_model() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    files.write(folder.path())?;
    let Checked { ok, diagnostics } = run(cobgen, &["check"], folder.path())?;
    if ok {
        return Ok(());
    }
    let errors = diagnostics.into_iter().filter(Diagnostic::is_error);
    Err(CatalogueError::Refused(errors.map(|diagnostic| diagnostic.fault(folder.path())).collect()))
}

/// The JSON that a command prints about a model.
fn run<T: DeserializeOwned>(cobgen: &Path, command: &[&str], model: &Path) -> Result<T, CatalogueError> {
    let output = Command::new(cobgen)
        .args(command)
        .arg(model)
        .arg("--json")
        .stderr(Stdio::null())
        .output()
        .map_err(|e| CatalogueError::Unchecked(format!("{}: {e}", cobgen.display())))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|e| CatalogueError::Unchecked(format!("cobgen ended with {}: {e}", output.status)))
}
