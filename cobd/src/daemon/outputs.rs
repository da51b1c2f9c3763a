//! What the last action of each change object printed: its last lines.
//!
//! What those printed that failed is beside the journal, too, so that `cobctl explain` and `cobctl output` can show it
//! after a restart of the daemon. The journal does not rest on it: what is lost, or can't be written, is not shown.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cob_types::CobId;
use tracing::warn;

use crate::durable;
use crate::kinds::{folder_name, make_folder, of_folder_name};
use crate::run::{LAST_LINES, tail};

/// The last lines of last actions.
#[derive(Debug)]
pub(super) struct Outputs {
    folder: PathBuf,
    of: BTreeMap<CobId, Last>,
}

#[derive(Debug)]
struct Last {
    lines: String,
    /// They are in a file.
    kept: bool,
}

impl Outputs {
    /// Comes back with what those printed whose failed attempts count; what is kept of others goes.
    pub(super) fn returned(folder: PathBuf, counts: impl Fn(&CobId) -> bool) -> Self {
        let mut outputs = Self { folder, of: BTreeMap::new() };
        let files = fs::read_dir(&outputs.folder).into_iter().flatten().flatten();
        for path in files.map(|file| file.path()) {
            let cob = path.file_name().and_then(|name| of_folder_name(name.to_str()?));
            match cob.filter(&counts) {
                Some(cob) => _ = outputs.of.insert(cob, Last { lines: tail(&path, LAST_LINES), kept: true }),
                None => remove(&path),
            }
        }
        outputs
    }

    /// What its last action printed.
    pub(super) fn of(&self, cob: &CobId) -> Option<&str> {
        self.of.get(cob).map(|last| last.lines.as_str())
    }

    /// Another action begins, or nobody asks any more.
    pub(super) fn forget(&mut self, cob: &CobId) {
        if self.of.remove(cob).is_some_and(|last| last.kept) {
            remove(&self.folder.join(folder_name(cob)));
        }
    }

    /// An action has ended.
    pub(super) fn ended(&mut self, cob: &CobId, lines: String, failed: bool) {
        self.forget(cob);
        if lines.is_empty() {
            return;
        }
        let kept = failed
            && self.keep(cob, &lines).inspect_err(|error| warn!(%cob, %error, "what it printed is not kept")).is_ok();
        self.of.insert(cob.clone(), Last { lines, kept });
    }

    fn keep(&self, cob: &CobId, lines: &str) -> io::Result<()> {
        make_folder(&self.folder)?;
        durable::write_file(&self.folder, &folder_name(cob), 0o600, lines.as_bytes(), durable::Sync::Later)
    }
}

/// What can't be removed is passed over at the next start, too.
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
    fn what_those_printed_that_failed_is_known_after_a_return_and_nothing_else_is() {
        let state = tempfile::tempdir().expect("folder");
        let folder = state.path().join("outputs");
        let mut outputs = Outputs::returned(folder.clone(), |_| true);
        outputs.ended(&id("n1/well"), "all is well\n".to_owned(), false);
        assert!(!folder.exists(), "who never fails writes nothing");
        for (cob, lines) in
            [("n1/a", "no such device\n"), ("n1/b/c", "no room\n"), ("n1/mended", "no\n"), ("n1/mute", "")]
        {
            outputs.ended(&id(cob), lines.to_owned(), true);
        }
        outputs.forget(&id("n1/mended"));
        assert_eq!((outputs.of(&id("n1/well")), outputs.of(&id("n1/mute"))), (Some("all is well\n"), None));
        assert_eq!(names(&folder), ["n1+a", "n1+b+c"]);

        fs::write(folder.join("n1+a.tmp"), "torn").expect("written");
        let returned = Outputs::returned(folder.clone(), |cob| *cob == id("n1/a"));
        assert_eq!(returned.of(&id("n1/a")), Some("no such device\n"));
        assert_eq!((returned.of(&id("n1/b/c")), returned.of(&id("n1/well"))), (None, None));
        assert_eq!(names(&folder), ["n1+a"], "what is of no use goes");
    }

    #[test]
    fn the_last_failure_is_what_is_kept() {
        let state = tempfile::tempdir().expect("folder");
        let mut outputs = Outputs::returned(state.path().to_owned(), |_| true);
        outputs.ended(&id("n1/a"), "first\n".to_owned(), true);
        outputs.ended(&id("n1/a"), "second\n".to_owned(), true);
        assert_eq!(Outputs::returned(state.path().to_owned(), |_| true).of(&id("n1/a")), Some("second\n"));
        outputs.ended(&id("n1/a"), "there\n".to_owned(), false);
        assert_eq!(names(state.path()), Vec::<String>::new());
    }
}
