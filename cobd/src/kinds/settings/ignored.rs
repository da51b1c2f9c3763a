//! Files in a checkout that git ignores.
//!
//! Users may write the configuration of the checkout, so `git` reads another repository, which is empty, and only the
//! files `.gitignore` of the checkout.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::tree::Nodes;
use crate::kinds::native::run_bounded;

/// The empty repository, in the own folder.
const EMPTY: &str = "empty.git";
/// The most paths for one run of `git`: its output is bounded.
const CHUNK: usize = 200;

/// The paths of a checkout that are not of its commit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Paths {
    /// Those that git ignores; of a folder only the folder itself.
    pub(super) ignored: BTreeSet<String>,
    /// Other files and links.
    pub(super) others: BTreeSet<String>,
}

/// Sorts the paths that are not in the record.
pub(super) fn paths(root: &Path, own: &Path, record: &Nodes, nodes: &Nodes) -> Result<Paths, String> {
    let is_new = |path: &str| !record.contains_key(path);
    let above = |path: &str| path.rsplit_once('/').map_or(String::new(), |(above, _)| above.to_owned());
    let new: Vec<&String> = nodes.keys().filter(|path| is_new(path)).collect();
    let tops: Vec<&String> = new.iter().copied().filter(|path| !is_new(&above(path))).collect();
    let mut ignored = ask(root, own, &tops)?;
    let is_below = |path: &str, folders: &BTreeSet<String>| {
        Path::new(path).ancestors().skip(1).filter_map(Path::to_str).any(|above| folders.contains(above))
    };
    let is_file = |path: &&String| !nodes.get(*path).is_some_and(|node| node.starts_with("folder"));
    let rest: Vec<&String> =
        new.into_iter().filter(|path| !ignored.contains(*path) && !is_below(path, &ignored)).filter(is_file).collect();
    let more = ask(root, own, &rest)?;
    let others = rest.into_iter().filter(|path| !more.contains(*path)).cloned().collect();
    ignored.extend(more);
    Ok(Paths { ignored, others })
}

/// The paths that git ignores.
fn ask(root: &Path, own: &Path, paths: &[&String]) -> Result<BTreeSet<String>, String> {
    let mut ignored = BTreeSet::new();
    for chunk in paths.chunks(CHUNK) {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(own.join(EMPTY)).arg("--work-tree").arg(root);
        command
            .args([
                "-c",
                "core.fsmonitor=false",
                "-c",
                "core.bare=false",
                "check-ignore",
                "--no-index",
                "--stdin",
                "-z",
            ])
            .current_dir(root);
        let input: String = chunk.iter().map(|path| format!("{path}\0")).collect();
        let ran = run_bounded(&mut command, input.as_bytes())?;
        // The status 1 says that it ignores none.
        let out = if ran.code == Some(1) { String::new() } else { ran.ok()? };
        ignored.extend(out.split('\0').filter(|path| !path.is_empty()).map(str::to_owned));
    }
    Ok(ignored)
}

/// Makes the empty repository. A killed attempt may have left one with a lock file, which git refuses.
pub(super) fn prepare(own: &Path) -> Result<(), String> {
    clear(own)?;
    let mut command = Command::new("git");
    run_bounded(command.args(["init", "--quiet", "--bare", "--template="]).arg(own.join(EMPTY)), b"")?.ok().map(|_| ())
}

/// Removes the empty repository.
pub(super) fn clear(own: &Path) -> Result<(), String> {
    super::place::remove_all(&own.join(EMPTY))
}
