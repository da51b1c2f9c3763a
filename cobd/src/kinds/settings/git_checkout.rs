//! The kind back end `git-checkout`: a folder with the files of a git repository. [`Tree`] exchanges the folder.
//!
//! The program `git` runs only in new folders. Users may write the configuration of the checkout, which names programs
//! that `git` would run; therefore checks compare files with the record of the checkout instead.

use std::path::Path;
use std::process::Command;

use cob_kinds::GitCheckout;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tree::{NEW_RECORD, RECORD, Rules, Tree};
use super::{Entry, Spec, ignored, place, record};
use crate::kinds::native::{NOTE, needs_program, run_bounded};

/// The commit of the last checkout.
const COMMIT: &str = "commit.json";

/// The commit that a branch or tag had.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    repo: String,
    reference: String,
    submodules: bool,
    commit: String,
}

impl Entry<GitCheckout> {
    fn tree(&self) -> Result<Tree, String> {
        let place = place::real(&self.host, &self.content.path)?;
        Ok(Tree { place, own: self.own.to_owned(), rules: Rules { owner: false, git: true, packages: None } })
    }

    /// The origin of the folder, if the commit is known.
    fn source(&self) -> Option<String> {
        let known: Known = record::read(&self.own, COMMIT).ok()??;
        let wanted = (&self.content.repo, &self.content.reference, self.content.submodules);
        ((&known.repo, &known.reference, known.submodules) == wanted).then(|| self.source_of(&known.commit))
    }

    fn source_of(&self, commit: &str) -> String {
        let modules = if self.content.submodules { " with submodules" } else { "" };
        format!("{commit} of {}{modules}", self.content.repo)
    }

    fn git(&self, folder: &Path, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("git");
        command.arg("-C").arg(folder).args(["-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false"]);
        // No process may work on after the exchange, and no log has times of a first attempt.
        command.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.logAllRefUpdates=false"]);
        command.args(arguments);
        // No question may wait for an answer, and a submodule may not name a program.
        command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes");
        command.env("GIT_ALLOW_PROTOCOL", "https:ssh:file").env("LC_ALL", "C.UTF-8");
        run_bounded(&mut command, b"")?.ok()
    }

    /// Fills a new folder. Returns its origin.
    fn fill(&self, folder: &Path) -> Result<String, String> {
        let content = &self.content;
        let repo = match content.repo.starts_with('/') {
            true => place::text(&place::real(&self.host, &content.repo)?)?.to_owned(),
            false => content.repo.clone(),
        };
        ignored::prepare(&self.own)?;
        let git = |arguments: &[&str]| self.git(folder, arguments);
        git(&["init", "--quiet", "--template="])?;
        git(&["remote", "add", "origin", &repo])?;
        git(&["fetch", "--quiet", "--tags", "--force", "origin", "+refs/heads/*:refs/remotes/origin/*"])?;
        let name = &content.reference;
        let is_commit = [40, 64].contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let verify = |name: &str| git(&["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")]).ok();
        let named = || verify(&format!("refs/tags/{name}")).or_else(|| verify(&format!("refs/remotes/origin/{name}")));
        let commit = match named() {
            Some(commit) => Some(commit),
            // The commit may be on no branch.
            None if is_commit => {
                verify(name).or_else(|| git(&["fetch", "--quiet", "origin", name]).ok().and_then(|_| verify(name)))
            }
            None => None,
        };
        let Some(commit) = commit.map(|commit| commit.trim().to_owned()) else {
            return Err(format!("{} has no branch, tag or commit {name}", content.repo));
        };
        git(&["checkout", "--quiet", "--detach", &commit])?;
        if content.submodules {
            git(&["submodule", "update", "--quiet", "--init", "--recursive"])?;
        }
        let known = Known {
            repo: content.repo.clone(),
            reference: name.clone(),
            submodules: content.submodules,
            commit: commit.clone(),
        };
        record::write(&self.own, COMMIT, &known)?;
        Ok(self.source_of(&commit))
    }
}

impl Spec for Entry<GitCheckout> {
    fn notes() -> &'static [&'static str] {
        &[NOTE, RECORD, NEW_RECORD, COMMIT]
    }

    fn target(&self) -> String {
        self.content.path.clone()
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        self.tree()?.look("commit", before)
    }

    fn before(&self) -> Result<Option<Value>, String> {
        self.tree()?.before()
    }

    fn wanted(&self) -> Value {
        json!({ "commit": self.source().unwrap_or_else(|| "not checked out yet".to_owned()), "changes": [] })
    }

    fn of_use(&self) -> Result<(), String> {
        needs_program("git", "git")
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let tree = self.tree()?;
        let state = tree.state(before)?;
        if state.source.is_some() && !state.changes.is_empty() {
            return Err(format!(
                "{} has local changes, which COB does not overwrite: {}; undo the changes, or commit, push and move the folder away",
                self.content.path,
                state.changes.join(", ")
            ));
        }
        tree.make(before, self.source().as_deref(), &|folder| self.fill(folder))
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        self.tree()?.restore(before)?;
        ignored::clear(&self.own)?;
        place::remove_all(&self.own.join(COMMIT))
    }
}

#[cfg(test)]
#[path = "git_checkout_test.rs"]
mod tests;
