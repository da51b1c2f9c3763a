//! The data that transitions save for their reverts: `COB_RESULT_OUT` of a transition becomes `COB_RESULT` of its
//! revert.
//!
//! One file per change object and transition is durable before the end of the transition is reported. The journal does
//! not contain the data: it may be long, and only this host needs it. If the end of a transition is not in the journal
//! yet, the daemon finds the job again, which delivers the same data.
//!
//! Rules:
//! - The first attempt that saves data counts, even if it failed: a later attempt may already see its changes.
//! - The arrival in a state deletes the data of all transitions that begin in this state.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cob_types::{CobId, StateName};

use super::backend::{Outcome, TransitionAttempt, folder_name, make_folder};
use crate::durable::{self, Sync};

/// The saved data of one host.
#[derive(Debug, Clone)]
pub(super) struct Saved(PathBuf);

impl Saved {
    /// Creates the store below the daemon's folder.
    pub(super) fn new(state_dir: &Path) -> Self {
        Self(state_dir.join("saved"))
    }

    /// Keeps the data of a transition that has ended. `raw` is the written data, also after a failure.
    pub(super) fn ended(
        &self,
        cob: &CobId,
        attempt: &TransitionAttempt,
        raw: Option<&str>,
        outcome: Outcome,
    ) -> Outcome {
        let kept = match &outcome {
            Outcome::Done { saved, .. } => {
                self.keep(cob, attempt, saved.as_deref()).and_then(|()| self.taken_back(&self.folder(cob), &attempt.to))
            }
            Outcome::Failed { .. } | Outcome::Conflict { .. } | Outcome::Cancelled | Outcome::Lost => {
                self.keep(cob, attempt, raw)
            }
        };
        match kept {
            Ok(()) => outcome,
            Err(error) => Outcome::failed(format!("its saved data for the rollback can't be kept: {error}")),
        }
    }

    fn keep(&self, cob: &CobId, attempt: &TransitionAttempt, text: Option<&str>) -> io::Result<()> {
        let (Some(text), name) = (text, name(&attempt.from, &attempt.to)) else { return Ok(()) };
        if fs::exists(self.folder(cob).join(&name))? { Ok(()) } else { self.write(cob, &name, text) }
    }

    fn write(&self, cob: &CobId, name: &str, text: &str) -> io::Result<()> {
        let folder = self.folder(cob);
        let is_new = !fs::exists(&folder)?;
        make_folder(&folder)?;
        if is_new {
            // The names of the new folder and of its parent must be durable, too.
            durable::sync_folder(&self.0)?;
            self.0.parent().map_or(Ok(()), durable::sync_folder)?;
        }
        durable::write_file(&folder, name, 0o600, text.as_bytes(), Sync::Now)
    }

    /// Deletes the data of transitions that begin in this state.
    fn taken_back(&self, folder: &Path, state: &StateName) -> io::Result<()> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let begins = format!("{state}+");
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&begins) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Adds the saved data of the reverted transition to the environment of its revert.
    pub(super) fn give(&self, cob: &CobId, attempt: &TransitionAttempt, environment: &mut BTreeMap<String, String>) {
        let path = self.folder(cob).join(name(&attempt.to, &attempt.from));
        let Ok(text) = fs::read_to_string(&path) else { return };
        // A variable can't contain a NUL byte, but the file can.
        if !text.contains('\0') {
            environment.insert("COB_RESULT".to_owned(), text);
        }
        environment.insert("COB_RESULT_FILE".to_owned(), path.display().to_string());
    }

    /// Deletes all data of a departed change object.
    pub(super) fn forget(&self, cob: &CobId) -> io::Result<()> {
        match fs::remove_dir_all(self.folder(cob)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn folder(&self, cob: &CobId) -> PathBuf {
        self.0.join(folder_name(cob))
    }
}

/// Names of states contain no `+`.
fn name(from: &StateName, to: &StateName) -> String {
    format!("{from}+{to}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::{cob_id, state};

    fn attempt(from: &str, to: &str) -> TransitionAttempt {
        TransitionAttempt { from: state(from), to: state(to), attempt: 1 }
    }

    fn done(text: &str) -> Outcome {
        Outcome::Done { exports: BTreeMap::new(), saved: (!text.is_empty()).then(|| text.to_owned()) }
    }

    /// The data that a transition gets.
    fn given(saved: &Saved, from: &str, to: &str) -> Option<String> {
        let mut environment = BTreeMap::new();
        saved.give(&cob_id("n1/a"), &attempt(from, to), &mut environment);
        let text = environment.get("COB_RESULT").cloned();
        assert_eq!(text, environment.get("COB_RESULT_FILE").map(|f| fs::read_to_string(f).expect("read")));
        text
    }

    #[test]
    fn saved_data_is_given_to_the_revert_until_the_revert_succeeds() {
        let folder = tempfile::tempdir().expect("folder");
        let (saved, cob) = (Saved::new(folder.path()), cob_id("n1/a"));
        assert_eq!(given(&saved, "up", "down"), None);
        saved.ended(&cob, &attempt("down", "half"), None, done("one"));
        saved.ended(&cob, &attempt("half", "up"), None, done("two"));
        assert_eq!(
            (given(&saved, "up", "half").as_deref(), given(&saved, "half", "down").as_deref()),
            (Some("two"), Some("one"))
        );
        assert_eq!((given(&saved, "up", "down"), given(&saved, "half", "up")), (None, None));
        // A revert that fails reverts nothing.
        saved.ended(&cob, &attempt("up", "half"), None, Outcome::failed("no"));
        assert_eq!(given(&saved, "up", "half").as_deref(), Some("two"));
        saved.ended(&cob, &attempt("up", "half"), None, done(""));
        assert_eq!((given(&saved, "up", "half"), given(&saved, "half", "down").as_deref()), (None, Some("one")));
        saved.ended(&cob, &attempt("half", "down"), None, done(""));
        assert_eq!(given(&saved, "half", "down"), None);
        saved.ended(&cob, &attempt("down", "up"), None, done("three"));
        saved.forget(&cob).expect("forgotten");
        saved.forget(&cob).expect("no entry to forget");
        assert_eq!(given(&saved, "up", "down"), None);
    }

    #[test]
    fn the_data_recorded_by_the_first_of_several_attempts_is_kept() {
        let folder = tempfile::tempdir().expect("folder");
        let (saved, cob) = (Saved::new(folder.path()), cob_id("n1/a"));
        saved.ended(&cob, &attempt("down", "up"), None, Outcome::Lost);
        assert_eq!(given(&saved, "up", "down"), None);
        saved.ended(&cob, &attempt("down", "up"), Some("before"), Outcome::Lost);
        assert_eq!(given(&saved, "up", "down").as_deref(), Some("before"));
        saved.ended(&cob, &attempt("down", "up"), Some("half changed"), Outcome::failed("no"));
        saved.ended(&cob, &attempt("down", "up"), Some("changed"), done("changed"));
        saved.ended(&cob, &attempt("down", "up"), Some("changed"), done("changed"));
        assert_eq!(given(&saved, "up", "down").as_deref(), Some("before"));
        saved.ended(&cob, &attempt("up", "down"), None, done(""));
        saved.ended(&cob, &attempt("down", "up"), Some("mine"), done("mine"));
        assert_eq!(given(&saved, "up", "down").as_deref(), Some("mine"));
    }

    #[test]
    fn a_transition_whose_result_cannot_be_stored_fails() {
        let folder = tempfile::tempdir().expect("folder");
        fs::write(folder.path().join("saved"), "in the way").expect("written");
        let saved = Saved::new(folder.path());
        let outcome = saved.ended(&cob_id("n1/a"), &attempt("down", "up"), None, done("one"));
        assert!(matches!(&outcome, Outcome::Failed { reason } if reason.contains("can't be kept")), "{outcome:?}");
    }
}
