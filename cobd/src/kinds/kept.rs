//! Paths that a departing package must not delete: files of change objects that stay on the host after the departure
//! (`on_remove: keep`), and the folders of change objects that are still in the model.
//!
//! A purge runs the package's scripts, which may delete its data long after the change object of the data has departed.
//! Therefore the daemon records the paths as soon as the model marks them as kept.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cob_types::Cob;
use serde_json::Value;

use super::backend::make_folder;
use crate::durable::{self, Sync};

/// The file that lists kept paths, beside the folders of change objects.
const KEPT: &str = ".kept-folders";
/// The file that lists folders which the model manages and which may contain data of others.
const MANAGED: &str = ".managed-folders";
/// The longest list.
const MOST: usize = 10_000;
/// The package manager's own folders.
const IN_USE: [&str; 8] =
    ["/etc", "/usr", "/run", "/tmp", "/var/cache/apt", "/var/lib/apt", "/var/lib/dpkg", "/var/log"];

/// The kinds with files and folders that can be kept.
pub(super) const BACKENDS: [&str; 2] = ["file-tree", "mount"];

/// Adds the paths that these change objects keep when they depart, and records their folders. A path is no longer kept
/// if another change object manages it without `keep`.
pub(super) fn note(cobs: &Path, all: impl Iterator<Item = impl AsRef<Cob>>) -> io::Result<()> {
    let (mut kept, mut managed, mut folders) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for cob in all {
        let cob = cob.as_ref();
        for (path, is_folder) in paths(&cob.content) {
            if cob.keep {
                kept.insert(path);
                continue;
            }
            if is_folder {
                folders.insert(path.clone());
            }
            managed.insert(path);
        }
    }
    let before = list(cobs, KEPT);
    let mut now: BTreeSet<PathBuf> = before.iter().filter(|path| path.exists()).cloned().collect();
    now.retain(|path| !managed.contains(path));
    now.extend(kept);
    write(cobs, KEPT, &before, &now)?;
    write(cobs, MANAGED, &list(cobs, MANAGED), &folders)
}

/// The paths in a content, and whether each is a folder.
fn paths(content: &str) -> Vec<(PathBuf, bool)> {
    let content: Value = serde_json::from_str(content).unwrap_or_default();
    let is_folder = |entry: &Value| ["folder", "whole"].iter().any(|key| entry[key] == Value::Bool(true));
    let files = content["files"].as_object().into_iter().flatten();
    let files = files.map(|(path, entry)| (path.as_str(), is_folder(entry)));
    let root = content["root"].as_str().unwrap_or_default();
    let mounted = content["path"].as_str().filter(|_| root.is_empty()).map(|path| (path, true));
    files.chain(mounted).map(|(path, is_folder)| (PathBuf::from(path), is_folder)).collect()
}

fn list(cobs: &Path, name: &str) -> BTreeSet<PathBuf> {
    let text = fs::read_to_string(cobs.join(name)).unwrap_or_default();
    let paths: Vec<PathBuf> = serde_json::from_str(&text).unwrap_or_default();
    paths.into_iter().collect()
}

fn write(cobs: &Path, name: &str, before: &BTreeSet<PathBuf>, now: &BTreeSet<PathBuf>) -> io::Result<()> {
    if now == before {
        return Ok(());
    }
    make_folder(cobs)?;
    let text: Vec<&str> = now.iter().take(MOST).filter_map(|path| path.to_str()).collect();
    durable::write_file(cobs, name, 0o600, Value::from(text).to_string().as_bytes(), Sync::Now)
}

/// The existing paths to protect, without paths below another listed folder. `own` is the own folder of the asking
/// change object. With `root`, a folder that becomes a host, the answer is limited to paths below it.
pub(super) fn paths_beside(own: &Path, root: Option<&Path>) -> Vec<PathBuf> {
    let base = root.unwrap_or(Path::new("/"));
    let in_use = IN_USE.map(|used| base.join(used.trim_start_matches('/')));
    let of = |name: &str| own.parent().map(|cobs| list(cobs, name)).unwrap_or_default();
    // Packages own the data in these folders, except for kept paths.
    let managed = of(MANAGED).into_iter().filter(|path| !in_use.iter().any(|used| path.starts_with(used)));
    let all: BTreeSet<PathBuf> = of(KEPT).into_iter().chain(managed).collect();
    // Links are left out: to hide a link would hide its target.
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let mut found: Vec<PathBuf> = Vec::new();
    for path in all.into_iter().filter(|path| path.starts_with(base) && (path.is_dir() || is_file(path))) {
        let is_in_use = in_use.iter().any(|used| used.starts_with(&path));
        if !is_in_use && !found.iter().any(|above| path.starts_with(above)) {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_paths_are_known_after_their_change_object_has_departed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cobs, data) = (folder.path().join("cobs"), folder.path().join("data"));
        let (etc, var) = (folder.path().join("etc"), folder.path().join("var"));
        for made in [data.join("below"), etc.join("x"), var.clone()] {
            fs::create_dir_all(made).expect("made");
        }
        fs::write(folder.path().join("file"), "data").expect("written");
        let cob = |content: String, keep: bool| {
            let kind = crate::kinds::testing::plain_kind("file-tree");
            let cob = crate::kinds::contract::Case::new(kind, &content).cob;
            std::sync::Arc::new(Cob { keep, ..cob })
        };
        let tree = |keep| {
            let files = format!(
                r#"{{"files":{{{:?}:{{"folder":true}},{:?}:{{"folder":true}},{:?}:{{"folder":true}},{:?}:{{}}}}}}"#,
                data,
                data.join("below"),
                etc.join("x"),
                folder.path().join("file")
            );
            cob(files, keep)
        };
        let kept = || paths_beside(&cobs.join("n1+a"), Some(folder.path()));
        note(&cobs, [tree(false)].into_iter()).expect("noted");
        assert_eq!(kept(), std::slice::from_ref(&data), "it is managed, and /etc holds no data");
        note(&cobs, std::iter::empty::<std::sync::Arc<Cob>>()).expect("noted");
        assert!(kept().is_empty(), "no folder is kept");
        let mount = cob(r#"{"path":"/srv/nowhere","source":"x","type":"ext4"}"#.to_owned(), true);
        let system = format!(r#"{{"files":{{{etc:?}:{{"folder":true}},{var:?}:{{"whole":true}}}}}}"#);
        let system = cob(system, true);
        note(&cobs, [tree(true), mount, system].into_iter()).expect("noted");
        let all = [data.clone(), etc.join("x"), folder.path().join("file")];
        assert_eq!(kept(), all);
        note(&cobs, std::iter::empty::<std::sync::Arc<Cob>>()).expect("noted");
        assert_eq!(kept(), all, "it has left");
        assert!(paths_beside(&cobs.join("n1+a"), Some(Path::new("/srv"))).is_empty());
        note(&cobs, [tree(false)].into_iter()).expect("noted");
        note(&cobs, std::iter::empty::<std::sync::Arc<Cob>>()).expect("noted");
        assert!(kept().is_empty(), "it was managed again");
    }
}
