//! Files that killed programs left behind: half-written objects and packs, and git's lock files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::depot::Depot;
use crate::error::DepotError;
use crate::prune::{is_older, names_in};

/// After this time without a change, no program is writing the file any more.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// The maximum depth of the search in the folder of refs.
const DEEPEST: usize = 16;
/// Prefixes of unfinished files in the folder of packs: of this program, the git library, and git.
const UNFINISHED: [&str; 3] = ["tmp_", "pack_git2_", ".tmp"];

impl Depot {
    /// The files that were left behind at least an hour ago.
    ///
    /// # Errors
    /// When a folder can't be read.
    pub(crate) fn leftovers(&self) -> Result<Vec<PathBuf>, DepotError> {
        let (root, objects) = (&self.path, self.path.join("objects"));
        let mut found = Vec::new();
        let mut add = |folder: &Path, is_one: &dyn Fn(&str) -> bool| -> Result<(), DepotError> {
            let names = names_in(folder)?.into_iter().filter(|name| is_one(name));
            found.extend(names.map(|name| folder.join(name)).filter(|path| is_left(path)));
            Ok(())
        };
        // Our own locks belong to their holders; an empty lock file stays for the next holder.
        add(root, &|name| is_lock(name) && !name.starts_with("cob-"))?;
        add(&objects, &|name| name.starts_with("tmp_"))?;
        add(&objects.join("info"), &is_lock)?;
        add(&objects.join("pack"), &|name| is_lock(name) || UNFINISHED.iter().any(|begin| name.starts_with(begin)))?;
        for folder in names_in(&objects)? {
            if folder.len() == 2 && folder.bytes().all(|b| b.is_ascii_hexdigit()) {
                add(&objects.join(folder), &|name| name.starts_with("tmp_"))?;
            }
        }
        let mut folders = vec![(root.join("refs"), 0)];
        while let Some((folder, depth)) = folders.pop() {
            add(&folder, &is_lock)?;
            if depth < DEEPEST {
                let inside = names_in(&folder)?.into_iter().map(|name| folder.join(name));
                let is_folder = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
                folders.extend(inside.filter(is_folder).map(|path| (path, depth + 1)));
            }
        }
        Ok(found)
    }

    /// Removes the leftovers and returns how many files and bytes that were. The caller holds the publisher's lock.
    pub(crate) fn remove_leftovers(&self) -> Result<(u64, u64), DepotError> {
        let (mut count, mut bytes) = (0, 0);
        for path in self.leftovers()? {
            let len = fs::symlink_metadata(&path).map_or(0, |found| found.len());
            match fs::remove_file(&path) {
                Ok(()) => (count, bytes) = (count + 1, bytes + len),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(DepotError::io(format!("can't delete {}", path.display()))(error)),
            }
        }
        Ok((count, bytes))
    }
}

fn is_lock(name: &str) -> bool {
    name.ends_with(".lock")
}

fn is_left(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && is_older(&found, LEFT_BEHIND))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;
    use crate::prune::Rule;
    use crate::testing::{publication, sketch_of};

    #[test]
    fn leftovers_of_killed_publishers_are_counted_and_removed() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("depot");
        let depot = Depot::create_or_open(&path).expect("made");
        depot.publish(&publication(&sketch_of(1, &[("n1", 1)]), "first")).expect("published");
        fs::create_dir_all(path.join("objects/ab")).expect("made");
        let old = [
            "objects/tmp_object_git2_a1b2c3",
            "objects/ab/tmp_obj_x",
            "objects/pack/tmp_pack_Zz9",
            "objects/pack/pack_git2_0aF",
            "objects/pack/pack-0123.idx.lock",
            "refs/generations/2.lock",
            "packed-refs.lock",
        ];
        let then = SystemTime::now() - Duration::from_secs(3700);
        for name in old.iter().chain(&["cob-other.lock"]) {
            fs::write(path.join(name), "half").expect("written");
            File::options().write(true).open(path.join(name)).and_then(|f| f.set_modified(then)).expect("set back");
        }
        let young = path.join("objects/tmp_object_git2_young");
        fs::write(&young, "being written").expect("written");
        let report = depot.fsck(|_, _| true).expect("gone through");
        assert_eq!((report.leftovers, report.faults), (7, vec![]));
        let rule = Rule { grace: Duration::from_secs(900), keep: Some(1), since: None };
        assert_eq!(depot.would_prune(&rule).expect("told").leftovers, 7);
        let pruned = depot.prune(&rule).expect("pruned");
        assert_eq!((pruned.leftovers, pruned.freed), (7, Some(7 * 4)));
        assert!(old.iter().all(|name| !path.join(name).exists()));
        assert!(young.exists() && path.join("cob-other.lock").exists());
        assert_eq!(depot.fsck(|_, _| true).expect("gone through").leftovers, 0);
    }
}
