//! Decisions about conflicts, kept until they are carried out; and texts for exact rollbacks.
//!
//! A decision holds for exactly the conflict that was seen, named by its id. So a person can decide before the content
//! is wanted, and the decision is ignored if either side has changed since.
//!
//! The merge of a rollback may not give users' earlier text: a decided conflict, or the same change on both sides,
//! loses a side. So when a content is applied, the users' text is kept beside the decisions, under the id of this
//! rollback: from the applied content and the merged file to the earlier content. After a user's edit, or for another
//! content, files are merged as always.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use cob_types::canonical;
use git2::{ObjectType, Oid};

use crate::Files;
use crate::attributes::Bytes;
use crate::error::FilesError;
use crate::path::TreePath;
use crate::wanted::Wanted;

/// The most bytes of a file of decisions about a tree, with the texts in it.
const MAX_CHOICES: u64 = 256 << 20;
/// The most bytes of texts that people decided for a tree: a byte takes two digits in the file, beside other texts.
const MAX_TEXTS: usize = 64 << 20;
/// The most bytes of users' earlier texts that are kept for rollbacks of a tree.
pub(crate) const MAX_BACK: usize = 16 << 20;
/// The prefix of rollback ids; ids of conflicts do not have it.
const BACK: &str = "back-";

/// A decision about a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Lines that both sides changed stay as on the host. A file that can't be merged by lines stays as a whole.
    Ours,
    /// Lines that both sides changed become as wanted. A file that can't be merged by lines is replaced as a whole.
    Theirs,
    /// This text is written.
    Edited(#[serde(with = "hex")] Vec<u8>),
}

mod hex {
    use super::{Bytes, Deserialize as _};

    pub(super) fn serialize<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&Bytes(bytes.to_vec()), serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        Bytes::deserialize(deserializer).map(|bytes| bytes.0)
    }
}

impl Files {
    /// Decides conflicts: of a path, or with an id; otherwise all undecided conflicts, or all again if all are decided.
    /// Returns how many were decided. It takes effect when the tree is next applied, if the files are unchanged until
    /// then.
    ///
    /// # Errors
    /// When the conflict does not exist, or the decision can't be written.
    pub fn resolve(
        &self,
        cob: &str,
        wanted: &Wanted,
        retire: bool,
        path: Option<&TreePath>,
        id: Option<&str>,
        choice: &Choice,
    ) -> Result<usize, FilesError> {
        let ids = self.decided_by(cob, wanted, retire, path, id, choice)?;
        let mut choices = self.choices(cob);
        choices.extend(ids.iter().map(|id| (id.clone(), choice.clone())));
        // A larger file would not be read again.
        if choices.values().map(size).sum::<usize>() > MAX_TEXTS {
            return Err(FilesError::NotThere(format!(
                "the decided texts for {cob} would exceed {} MiB: discard that prepared generation",
                MAX_TEXTS >> 20
            )));
        }
        self.write_choices(cob, &choices)?;
        Ok(ids.len())
    }

    /// The ids of the conflicts that [`Files::resolve`] would decide; decides no conflict.
    ///
    /// # Errors
    /// The errors of [`Files::resolve`] that are known in advance.
    pub fn decided_by(
        &self,
        cob: &str,
        wanted: &Wanted,
        retire: bool,
        path: Option<&TreePath>,
        id: Option<&str>,
        choice: &Choice,
    ) -> Result<Vec<String>, FilesError> {
        let conflicts = self.undecided(cob, wanted, retire)?;
        let there: Vec<_> = conflicts.iter().filter(|c| path.is_none_or(|p| *p == c.path)).collect();
        let mut ids: Vec<_> =
            there.iter().map(|c| &c.id).filter(|its| id.is_none_or(|id| *id == **its)).cloned().collect();
        if path.is_none() && id.is_none() {
            let decided = self.choices(cob);
            if ids.iter().any(|id| !decided.contains_key(id)) {
                ids.retain(|id| !decided.contains_key(id));
            }
        }
        if let (Some(_), [], [other, ..]) = (id, &ids[..], &there[..]) {
            let what = format!("{} was changed since the conflict in it was shown: look at it again", other.path);
            return Err(FilesError::NotThere(what));
        }
        if matches!(choice, Choice::Edited(_)) && ids.len() > 1 {
            let what =
                format!("there are conflicts in {} files of {cob}: name the file that the text is for", ids.len());
            return Err(FilesError::NotThere(what));
        }
        if ids.is_empty() {
            return Err(FilesError::NotThere(format!("{cob} has no conflict there")));
        }
        Ok(ids)
    }

    pub(crate) fn choices(&self, cob: &str) -> BTreeMap<String, Choice> {
        if !self.is_decided(cob) {
            return BTreeMap::new();
        }
        // An unreadable file decides no conflict: the conflict is shown again.
        let choices = read_regular(&self.choices_path(cob), MAX_CHOICES).ok();
        choices.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    fn write_choices(&self, cob: &str, choices: &BTreeMap<String, Choice>) -> Result<(), FilesError> {
        let path = self.choices_path(cob);
        let failed = |e: std::io::Error| FilesError::Store { path: path.display().to_string(), what: e.to_string() };
        let bytes = serde_json::to_vec(choices).map_err(|e| failed(e.into()))?;
        fs::create_dir_all(self.folder.join("choices")).map_err(failed)?;
        let new = path.with_extension("new");
        let write = || -> std::io::Result<()> {
            fs::write(&new, &bytes)?;
            fs::File::open(&new)?.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(self.folder.join("choices"))?.sync_all()
        };
        let name = self.choices_name(cob);
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        write().map_err(failed)
    }

    /// Deletes the decisions, which are carried out or obsolete; texts for rollbacks stay.
    pub fn undecide(&self, cob: &str) {
        let mut choices = self.choices(cob);
        let decided = choices.len();
        choices.retain(|id, _| is_rollback_id(id));
        if choices.is_empty() {
            self.forget_choices(cob);
        } else if choices.len() < decided {
            // An obsolete decision is harmless: its conflict may never come again, and can be decided anew.
            let _ = self.write_choices(cob, &choices);
        }
    }

    /// Deletes all decisions and all texts for rollbacks.
    pub(crate) fn forget_choices(&self, cob: &str) {
        let (name, path) = (self.choices_name(cob), self.choices_path(cob));
        if self.decided.lock().unwrap_or_else(PoisonError::into_inner).remove(&name) {
            // An obsolete decision is harmless: its conflict does not come again.
            let _ = fs::remove_file(path);
        }
    }

    /// Keeps the texts for a rollback of the content that is about to be applied. Older texts are deleted, unless an
    /// attempt at this content was interrupted.
    pub(crate) fn keep_rollback(
        &self,
        cob: &str,
        back: &BTreeMap<String, Choice>,
        interrupted: bool,
    ) -> Result<(), FilesError> {
        let before = self.choices(cob);
        let mut choices = before.clone();
        choices.retain(|id, _| interrupted || !is_rollback_id(id));
        choices.extend(back.iter().map(|(id, text)| (id.clone(), text.clone())));
        if choices == before { Ok(()) } else { self.write_choices(cob, &choices) }
    }

    fn choices_path(&self, cob: &str) -> PathBuf {
        self.folder.join("choices").join(format!("{}.json", self.choices_name(cob)))
    }

    /// The file's name, short enough for its suffix and that of a temporary file.
    fn choices_name(&self, cob: &str) -> String {
        const LONGEST: usize = 240;
        let name = cob.replace('/', "+");
        // An earlier version may have used this name.
        if name.len() <= LONGEST || self.decided.lock().unwrap_or_else(PoisonError::into_inner).contains(&name) {
            return name;
        }
        let hash = canonical::fingerprint(&[name.as_bytes()]).to_string();
        format!("{}={hash}", &name[..LONGEST - hash.len() - 1])
    }

    fn is_decided(&self, cob: &str) -> bool {
        let name = self.choices_name(cob);
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).contains(&name)
    }
}

/// The id of a file's rollback: from the applied content and the merged file to another content. `None`: hashing
/// failed.
pub(crate) fn rollback_id(path: &TreePath, applied: Oid, live: &[u8], to: &[u8]) -> Option<String> {
    let hash = |bytes| Oid::hash_object(ObjectType::Blob, bytes).ok();
    let (path, live, to) = (path.to_string(), hash(live)?, hash(to)?);
    let parts = [path.as_bytes(), applied.as_bytes(), live.as_bytes(), to.as_bytes()];
    Some(format!("{BACK}{}", canonical::fingerprint(&parts)))
}

/// The bytes of a decided text.
pub(crate) fn size(choice: &Choice) -> usize {
    match choice {
        Choice::Edited(text) => text.len(),
        Choice::Ours | Choice::Theirs => 0,
    }
}

pub(crate) fn is_rollback_id(id: &str) -> bool {
    id.starts_with(BACK)
}

/// The content of a regular file. Does not block on other types, which another user may have put there.
fn read_regular(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).expect("flags are small numbers");
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
