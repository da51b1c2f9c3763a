//! The layout of the last successful operation, in the cluster's folder: an operation that fails goes back to it.

use std::collections::BTreeSet;
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

/// The services of the cluster.
pub(crate) fn services(folder: &Path) -> io::Result<BTreeSet<String>> {
    let layout = read(folder)?.unwrap_or_default();
    Ok(layout.nodes.into_iter().flat_map(|node| node.services).collect())
}

/// Keeps the layout of an operation that has succeeded.
pub(crate) fn keep(folder: &Path, layout: &Layout) -> io::Result<()> {
    durable::replace_json(&folder.join(FILE), layout)
}
