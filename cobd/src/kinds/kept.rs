//! Folders that change objects leave on the host when they leave the model (`on_remove: keep`): no other kind removes them.
//!
//! The scripts of a package may delete its data when its configuration is purged, long after the change object of the data
//! has left. So the daemon writes the paths down as soon as the model says that they stay.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cob_types::Cob;
use serde_json::Value;

use super::backend::make_folder;
use crate::durable::{self, Sync};

/// The list, beside the folders of change objects.
const FILE: &str = ".kept-folders";
/// So many are written down at most.
const MOST: usize = 10_000;
/// What a package manager works in itself.
const IN_USE: [&str; 8] =
    ["/etc", "/usr", "/run", "/tmp", "/var/cache/apt", "/var/lib/apt", "/var/lib/dpkg", "/var/log"];

/// The kinds whose folders are kept.
pub(super) const BACKENDS: [&str; 2] = ["file-tree", "mount"];

/// Adds the folders of these change objects that stay when they leave. One that another of them manages, and does not keep,
/// is no longer kept.
pub(super) fn note(cobs: &Path, all: impl Iterator<Item = impl AsRef<Cob>>) -> io::Result<()> {
    let (mut kept, mut managed) = (BTreeSet::new(), BTreeSet::new());
    for cob in all {
        let cob = cob.as_ref();
        let folders = folders(&cob.content);
        if cob.keep { kept.extend(folders) } else { managed.extend(folders) }
    }
    let before = list(cobs);
    let mut now: BTreeSet<PathBuf> = before.iter().filter(|path| path.exists()).cloned().collect();
    now.retain(|path| !managed.contains(path));
    now.extend(kept);
    if now == before {
        return Ok(());
    }
    make_folder(cobs)?;
    let text: Vec<&str> = now.iter().take(MOST).filter_map(|path| path.to_str()).collect();
    durable::write_file(cobs, FILE, 0o600, Value::from(text).to_string().as_bytes(), Sync::Now)
}

fn folders(content: &str) -> Vec<PathBuf> {
    let content: Value = serde_json::from_str(content).unwrap_or_default();
    let is_folder = |entry: &Value| ["folder", "whole"].iter().any(|key| entry[key] == Value::Bool(true));
    let files = content["files"].as_object().into_iter().flatten();
    let files = files.filter(|(_, entry)| is_folder(entry)).map(|(path, _)| path.as_str());
    let root = content["root"].as_str().unwrap_or_default();
    let mounted = content["path"].as_str().filter(|_| root.is_empty());
    files.chain(mounted).map(PathBuf::from).collect()
}

fn list(cobs: &Path) -> BTreeSet<PathBuf> {
    let text = fs::read_to_string(cobs.join(FILE)).unwrap_or_default();
    let paths: Vec<PathBuf> = serde_json::from_str(&text).unwrap_or_default();
    paths.into_iter().collect()
}

/// The kept folders that are there, without those in others, as a change object with this own folder finds them; of
/// those below a folder that is to become a host, where that is given.
pub(super) fn folders_beside(own: &Path, root: Option<&Path>) -> Vec<PathBuf> {
    let all = own.parent().map(list).unwrap_or_default();
    let mut found: Vec<PathBuf> = Vec::new();
    let base = root.unwrap_or(Path::new("/"));
    for path in all.into_iter().filter(|path| path.starts_with(base) && path.is_dir()) {
        let is_in_use = IN_USE.iter().any(|used| base.join(used.trim_start_matches('/')).starts_with(&path));
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
    fn folders_that_stay_are_known_after_their_change_object_has_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cobs, data) = (folder.path().join("cobs"), folder.path().join("data"));
        fs::create_dir_all(data.join("below")).expect("made");
        let cob = |content: String, keep: bool| {
            let kind = crate::kinds::testing::plain_kind("file-tree");
            let cob = crate::kinds::contract::Case::new(kind, &content).cob;
            std::sync::Arc::new(Cob { keep, ..cob })
        };
        let tree = |keep| {
            let files = format!(
                r#"{{"files":{{{:?}:{{"folder":true}},{:?}:{{"folder":true}},"/etc/x":{{}}}}}}"#,
                data,
                data.join("below")
            );
            cob(files, keep)
        };
        let kept = || folders_beside(&cobs.join("n1+a"), None);
        note(&cobs, [tree(false)].into_iter()).expect("noted");
        assert!(kept().is_empty() && !cobs.exists(), "nothing is kept");
        let mount = cob(r#"{"path":"/srv/nowhere","source":"x","type":"ext4"}"#.to_owned(), true);
        let system = cob(r#"{"files":{"/etc":{"folder":true},"/var":{"whole":true}}}"#.to_owned(), true);
        note(&cobs, [tree(true), mount, system].into_iter()).expect("noted");
        assert_eq!(kept(), std::slice::from_ref(&data));
        note(&cobs, std::iter::empty::<std::sync::Arc<Cob>>()).expect("noted");
        assert_eq!(kept(), std::slice::from_ref(&data), "it has left");
        assert!(folders_beside(&cobs.join("n1+a"), Some(Path::new("/srv"))).is_empty());
        note(&cobs, [tree(false)].into_iter()).expect("noted");
        assert!(kept().is_empty(), "it is managed again");
    }
}
