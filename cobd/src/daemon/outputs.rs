//! The last lines of output of each change object's last action.
//!
//! The output of failed actions is also kept on disk, so that `cobctl explain` and `cobctl output` can show it after a
//! restart of the daemon. The journal does not depend on it: lost or unwritable output is not shown.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cob_types::CobId;
use tracing::warn;

use crate::durable;
use crate::kinds::{file_name, make_folder};
use crate::run::{LAST_LINES, tail};

/// The last lines of the last actions.
#[derive(Debug)]
pub(super) struct Outputs {
    folder: PathBuf,
    of: BTreeMap<CobId, Last>,
}

#[derive(Debug)]
struct Last {
    lines: String,
    /// The lines are in a file.
    kept: bool,
}

impl Outputs {
    /// Reads the output of change objects with failed attempts, and removes other files.
    pub(super) fn returned<'c>(folder: PathBuf, count: impl Iterator<Item = &'c CobId>) -> Self {
        let mut outputs = Self { folder, of: BTreeMap::new() };
        let files = fs::read_dir(&outputs.folder).into_iter().flatten().flatten();
        let mut files: BTreeSet<OsString> = files.map(|file| file.file_name()).collect();
        if files.is_empty() {
            return outputs;
        }
        for cob in count {
            let name = file_name(cob);
            if files.remove(OsStr::new(&name)) {
                let lines = tail(&outputs.folder.join(name), LAST_LINES);
                outputs.of.insert(cob.clone(), Last { lines, kept: true });
            }
        }
        files.iter().for_each(|name| remove(&outputs.folder.join(name)));
        outputs
    }

    /// The output of a change object's last action.
    pub(super) fn of(&self, cob: &CobId) -> Option<&str> {
        self.of.get(cob).map(|last| last.lines.as_str())
    }

    /// Forgets the output: another action starts, or the change object has departed.
    pub(super) fn forget(&mut self, cob: &CobId) {
        if self.of.remove(cob).is_some_and(|last| last.kept) {
            remove(&self.folder.join(file_name(cob)));
        }
    }

    /// Notes the output of an action that has ended.
    pub(super) fn ended(&mut self, cob: &CobId, lines: String, failed: bool) {
        self.forget(cob);
        if lines.is_empty() {
            return;
        }
        let kept =
            failed && self.keep(cob, &lines).inspect_err(|error| warn!(%cob, %error, "its output is not kept")).is_ok();
        self.of.insert(cob.clone(), Last { lines, kept });
    }

    fn keep(&self, cob: &CobId, lines: &str) -> io::Result<()> {
        make_folder(&self.folder)?;
        durable::write_file(&self.folder, &file_name(cob), 0o600, lines.as_bytes(), durable::Sync::Later)
    }
}

/// Removes a file; a failure is harmless, because the next start ignores the file.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> CobId {
        CobId::new(text).expect("an id")
    }

    fn names(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = all.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_the_output_of_failed_actions_survives_a_restart() {
        let state = tempfile::tempdir().expect("folder");
        let folder = state.path().join("outputs");
        let mut outputs = Outputs::returned(folder.clone(), [].iter());
        outputs.ended(&id("n1/well"), "all is well\n".to_owned(), false);
        assert!(!folder.exists(), "an action that never fails writes no file");
        for (cob, lines) in
            [("n1/a", "no such device\n"), ("n1/b/c", "no room\n"), ("n1/mended", "no\n"), ("n1/mute", "")]
        {
            outputs.ended(&id(cob), lines.to_owned(), true);
        }
        outputs.forget(&id("n1/mended"));
        assert_eq!((outputs.of(&id("n1/well")), outputs.of(&id("n1/mute"))), (Some("all is well\n"), None));
        assert_eq!(names(&folder), ["n1+a", "n1+b+c"]);

        fs::write(folder.join("n1+a.tmp"), "torn").expect("written");
        let returned = Outputs::returned(folder.clone(), [id("n1/a"), id("n1/none")].iter());
        assert_eq!(returned.of(&id("n1/a")), Some("no such device\n"));
        assert_eq!((returned.of(&id("n1/b/c")), returned.of(&id("n1/well"))), (None, None));
        assert_eq!(names(&folder), ["n1+a"], "unused output is deleted");
    }

    #[test]
    fn the_output_of_the_last_failure_is_kept() {
        let state = tempfile::tempdir().expect("folder");
        let mut outputs = Outputs::returned(state.path().to_owned(), [].iter());
        outputs.ended(&id("n1/a"), "first\n".to_owned(), true);
        outputs.ended(&id("n1/a"), "second\n".to_owned(), true);
        assert_eq!(Outputs::returned(state.path().to_owned(), [id("n1/a")].iter()).of(&id("n1/a")), Some("second\n"));
        outputs.ended(&id("n1/a"), "there\n".to_owned(), false);
        assert_eq!(names(state.path()), Vec::<String>::new());
    }

    #[test]
    fn the_output_of_change_objects_with_the_longest_ids_is_kept() {
        let state = tempfile::tempdir().expect("folder");
        let folder = state.path().join("outputs");
        let long = |n: usize, end: &str| id(&format!("n1/{}{end}", "x".repeat(n - 3 - end.len())));
        let all = [long(239, "a"), long(241, "a"), long(250, "a"), long(255, "a"), long(255, "b")];
        let mut outputs = Outputs::returned(folder.clone(), [].iter());
        for cob in &all {
            outputs.ended(cob, format!("{} failed\n", cob.as_str().len()), true);
        }
        let returned = Outputs::returned(folder.clone(), all.iter());
        for cob in &all {
            assert_eq!(returned.of(cob), Some(format!("{} failed\n", cob.as_str().len()).as_str()));
        }
        assert_eq!(names(&folder).len(), all.len());
    }
}
