//! A folder that the package manager of a language fills, for `python-env` and `node-packages`.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::Nodes;
use super::{fetch, place};
use crate::kinds::native::{Host, Ran, inspect, run_bounded};

/// The file in the folder that names its origin. Two folders with the same packages differ by it.
const SOURCE: &str = ".cob-source";
/// The folder for temporary files of the package manager.
const TEMPORARY: &str = ".cob-tmp";

/// Fills a new folder by `install`, which gets a folder for temporary files. Returns the origin, which `source` finds.
pub(super) fn fill(
    folder: &Path,
    source: &dyn Fn() -> Result<String, String>,
    install: &dyn Fn(&Path) -> Result<(), String>,
) -> Result<String, String> {
    let temporary = folder.join(TEMPORARY);
    let made = fs::DirBuilder::new().mode(0o700).create(&temporary);
    made.map_err(|error| format!("{}: {error}", temporary.display()))?;
    let before = source()?;
    install(&temporary)?;
    let after = source()?;
    // Another origin would be recorded than was installed.
    if before != after {
        return Err(format!("the files that name the packages changed during the installation: {before}, now {after}"));
    }
    place::remove_all(&temporary)?;
    let path = folder.join(SOURCE);
    fs::write(&path, &after).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(after)
}

/// Runs a package manager with a folder for temporary files.
pub(super) fn run(command: &mut Command, temporary: &Path) -> Result<Ran, String> {
    run_bounded(command.env("TMPDIR", temporary).env("LC_ALL", "C.UTF-8"), b"")
}

/// The origin of a folder, as the folder names it.
pub(super) fn read_source(folder: &Path, nodes: &mut Nodes) {
    if let Ok(source) = fs::read_to_string(folder.join(SOURCE)) {
        nodes.insert(SOURCE.to_owned(), source);
    }
}

/// The real path of a file of the host, and its checksum.
pub(super) fn file(host: &Host, path: &str) -> Result<(PathBuf, String), String> {
    let real = place::real(host, path)?;
    let sum =
        fetch::sum_of(&real).map_err(|why| format!("{why}; let it come `after` the object that makes the file"))?;
    Ok((real, sum))
}

/// The names in a folder, sorted. A folder that does not exist has none.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, String> {
    if inspect(folder)?.is_none_or(|meta| !meta.is_dir()) {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<_> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}
