//! The layout of the last successful operation, in the cluster's folder: an operation that fails goes back to it.

use std::fs;
use std::io;
use std::path::Path;

use crate::durable;
use crate::layout::Layout;

const FILE: &str = "layout.json";

/// Reads the layout.
pub(crate) fn read(folder: &Path) -> io::Result<Option<Layout>> {
    match fs::read(folder.join(FILE)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Keeps the layout of an operation that has succeeded.
pub(crate) fn keep(folder: &Path, layout: &Layout) -> io::Result<()> {
    durable::replace_json(&folder.join(FILE), layout)
}
