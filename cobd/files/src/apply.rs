//! Carries out a plan: makes folders, stages files, syncs once, moves files into their places, and removes last.

use std::collections::{BTreeMap, BTreeSet};

use crate::attributes::Attributes;
use crate::disk::Disk;
use crate::error::FilesError;
use crate::files::Applied;
use crate::path::TreePath;
use crate::plan::{Plan, Step};
use crate::store::{Blob, Store};

/// The most files that are staged at the same time.
const STAGED: usize = 1000;
/// From this number of files on, the whole file system is synced instead of each file.
const SYNC_ALL_FROM: usize = 64;

/// For each file or link of a plan: whether it is in its place, or removed.
pub(crate) type Progress = BTreeMap<TreePath, bool>;

/// Carries out the steps of a plan, in their order. A path that others changed since the plan was made stays and ends
/// the action ([`FilesError::Changed`]); `progress` then tells the finished steps.
pub(crate) fn carry_out(
    disk: &Disk,
    store: &Store,
    plan: &Plan,
    is_cancelled: &dyn Fn() -> bool,
    progress: &mut Progress,
) -> Result<Applied, FilesError> {
    let steps = &plan.steps;
    disk.keep_free(&plan.places);
    let replaces = |step: &Step| matches!(step, Step::File { .. } | Step::Stored { .. } | Step::Link(_) | Step::Remove);
    progress.extend(steps.iter().filter(|(_, step)| replaces(step)).map(|(path, _)| (path.clone(), false)));
    // Folders may have been exchanged since the plan was made.
    disk.forget();
    let mut touched = BTreeSet::new();
    let mut done = Applied { changed: 0, left: Vec::new(), stamps: BTreeMap::new() };
    let asked = || if is_cancelled() { Err(FilesError::Cancelled) } else { Ok(()) };
    for (path, step) in steps {
        if let Step::MakeFolder { attributes, implied } = step {
            asked()?;
            disk.make_folder(path, attributes, *implied)?;
            touched.insert(path.parent());
        }
    }
    let is_staged = |step: &Step| matches!(step, Step::File { .. } | Step::Stored { .. } | Step::Link(_));
    let staged: Vec<&(TreePath, Step)> = steps.iter().filter(|(_, step)| is_staged(step)).collect();
    for some in staged.chunks(STAGED) {
        asked()?;
        put_in_place(disk, store, some, progress)?;
        touched.extend(some.iter().map(|(path, _)| path.parent()));
    }
    for (path, step) in steps {
        if let Step::Attributes(attributes) = step {
            disk.set_attributes(path, attributes)?;
        }
    }
    asked()?;
    // The entries of a folder are removed before the folder.
    for (path, step) in steps.iter().rev() {
        match step {
            Step::Remove => {
                disk.clear_staged(path)?;
                disk.remove(path)?;
                progress.insert(path.clone(), true);
            }
            Step::RemoveStaged => disk.remove_left(path)?,
            Step::RemoveFolder if disk.remove_folder(path)? => {}
            Step::RemoveFolder => done.left.push(path.clone()),
            Step::RemoveStranger if disk.remove_folder(path)? => {}
            // If it stayed, the folder would count as converged: no other event would come from a watched folder.
            Step::RemoveStranger => return Err(FilesError::Changed { path: path.clone() }),
            Step::File { .. } | Step::Stored { .. } | Step::Link(_) => continue,
            Step::MakeFolder { .. } | Step::Attributes(_) => continue,
        }
        touched.insert(path.parent());
    }
    let folders: BTreeMap<_, _> = steps.iter().map(|(path, _)| (path.parent(), path)).collect();
    let folders: Vec<&TreePath> =
        folders.into_iter().filter(|(folder, _)| touched.contains(folder)).map(|(_, path)| path).collect();
    if folders.len() < SYNC_ALL_FROM {
        folders.iter().try_for_each(|path| disk.sync_folder_of(path))?;
    } else {
        sync(disk, folders.into_iter())?;
    }
    done.changed = steps.len() - done.left.len();
    done.stamps = steps.iter().filter_map(|(path, _)| Some((path.clone(), disk.stamp(path)?))).collect();
    Ok(done)
}

/// Stages some files, syncs, and moves all into their places.
fn put_in_place(
    disk: &Disk,
    store: &Store,
    some: &[&(TreePath, Step)],
    progress: &mut Progress,
) -> Result<(), FilesError> {
    let one_by_one = some.len() < SYNC_ALL_FROM;
    let staged = some.iter().try_for_each(|(path, step)| match step {
        Step::File { content, attributes } => disk.stage_file(path, content, attributes, one_by_one),
        Step::Stored { id, attributes } => {
            disk.stage_file(path, &store.blob(&Blob::Known(*id))?, attributes, one_by_one)
        }
        Step::Link(target) => disk.stage_link(path, target),
        Step::MakeFolder { .. } | Step::Attributes(_) | Step::Remove | Step::RemoveFolder => Ok(()),
        Step::RemoveStranger | Step::RemoveStaged => Ok(()),
    });
    let durable = staged.and_then(|()| if one_by_one { Ok(()) } else { sync(disk, some.iter().map(|(path, _)| path)) });
    let installed = durable.and_then(|()| {
        some.iter().try_for_each(|(path, _)| {
            disk.install(path)?;
            progress.insert(path.clone(), true);
            Ok(())
        })
    });
    if installed.is_err() {
        for (path, _) in some {
            // The first error counts; the next attempt removes remaining staged files.
            let _ = disk.clear_staged(path);
        }
    }
    installed
}

/// Syncs the file systems of these paths, each once.
fn sync<'p>(disk: &Disk, some: impl Iterator<Item = &'p TreePath>) -> Result<(), FilesError> {
    let mut devices = BTreeSet::new();
    for path in some {
        if let Some(device) = disk.device_of(path)?
            && devices.insert(device)
        {
            disk.sync_all_of(path)?;
        }
    }
    Ok(())
}

impl Disk {
    /// Writes a file in the place of the present or removed file, as a user's editor would.
    pub(crate) fn replace(&self, path: &TreePath, content: &[u8], attributes: &Attributes) -> Result<(), FilesError> {
        self.stage_file(path, content, attributes, true)?;
        self.install(path)?;
        self.sync_folder_of(path)
    }

    /// The same for a link.
    pub(crate) fn replace_link(&self, path: &TreePath, target: &[u8]) -> Result<(), FilesError> {
        self.stage_link(path, target)?;
        self.install(path)?;
        self.sync_folder_of(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_new_file_is_left_or_reported_instead_of_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("store")).expect("a store");
        let disk = Disk::to_change().expect("the disk");
        let path = TreePath::new(folder.path().join("d").to_str().expect("text")).expect("a path");
        std::fs::create_dir(folder.path().join("d")).expect("made");
        std::fs::write(folder.path().join("d/new"), "since the plan was made").expect("written");
        let remove = |step: Step| {
            let mut plan = Plan::default();
            plan.steps.push((path.clone(), step));
            carry_out(&disk, &store, &plan, &|| false, &mut Progress::new())
        };
        assert_eq!(remove(Step::RemoveFolder).expect("done").left, std::slice::from_ref(&path));
        let told = remove(Step::RemoveStranger).expect_err("it is still there");
        assert!(matches!(&told, FilesError::Changed { path: changed } if *changed == path), "{told}");
        std::fs::remove_file(folder.path().join("d/new")).expect("removed");
        assert!(remove(Step::RemoveStranger).expect("done").left.is_empty());
        assert!(!folder.path().join("d").exists());
    }
}
