//! Earlier files: what was at the place of a file that a setting makes as a whole.
//!
//! The earlier file is copied into the own folder before the note is written, and the last step of a departure deletes
//! the copy.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::place;
use crate::durable::TEMP_SUFFIX;
use crate::kinds::native::{Host, copy, inspect};

/// What is at the place, for the note. A file is copied into `own` as `name`.
pub(super) fn note(path: &Path, own: &Path, name: &str) -> Result<Value, String> {
    place::remove_all(&own.join(name))?;
    let missing = place::missing_folder(path).map(place::text).transpose()?;
    let mut before = json!({ "made": missing, "earlier": "nothing" });
    match inspect(path)? {
        None => {}
        Some(meta) if meta.is_file() => {
            copy(path, own, name)?;
            before["earlier"] = json!("file");
        }
        Some(meta) if meta.is_symlink() => {
            let target = fs::read_link(path).map_err(|error| format!("{}: {error}", path.display()))?;
            before["earlier"] = json!("link");
            before["link"] = json!(place::text(&target)?);
        }
        Some(_) => return Err(format!("{}: it is a folder, and no file: move it away", path.display())),
    }
    Ok(before)
}

/// Restores what was at the place. Empty folders that the setting made go.
pub(super) fn restore(host: &Host, absolute: &str, own: &Path, name: &str, before: &Value) -> Result<(), String> {
    let path = place::real(host, absolute)?;
    let (folder, file) = parts(&path)?;
    let copied = own.join(name);
    match before["earlier"].as_str() {
        // Without the copy, an interrupted departure has put the file back already.
        Some("file") if copied.exists() => {
            place::make_folders(&path)?;
            copy(&copied, folder, file)?;
        }
        Some("file") => {}
        Some("link") => {
            place::make_folders(&path)?;
            host.link(absolute, before["link"].as_str().unwrap_or_default())?;
        }
        Some(_) | None => {
            host.remove(absolute)?;
            place::remove_all(&folder.join(format!("{file}{TEMP_SUFFIX}")))?;
        }
    }
    if let Some(first) = before["made"].as_str() {
        place::remove_folders(&path, first);
    }
    place::remove_all(&copied)
}

/// The folder and the name of a file.
pub(super) fn parts(path: &Path) -> Result<(&Path, &str), String> {
    let name = path.file_name().and_then(|name| name.to_str());
    path.parent().zip(name).ok_or_else(|| format!("{}: no file can be there", path.display()))
}
