//! Values that other change objects export, in the process of a native kind.

use std::fs;

use serde_json::Value;

/// The text that a change object exports with this name. `None`: no lock on it is held, or it exports no such text.
///
/// # Errors
/// The reason as text, with the file.
pub(in crate::kinds) fn imported(cob: &str, name: &str) -> Result<Option<String>, String> {
    let Some(file) = std::env::var_os("COB_IMPORTS_FILE") else { return Ok(None) };
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read_to_string(&file).map_err(|error| failed(&error))?;
    let all: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    Ok(all[cob]["values"][name].as_str().map(str::to_owned))
}
