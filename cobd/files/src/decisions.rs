//! Decisions about conflicts: made by people, kept until they are carried out; and what takes them back.
//!
//! A decision is for exactly the conflict that was seen, which its id says; so it can be made before the content that it is
//! about is wanted, and is passed over when either side has changed since.
//!
//! Merged back, a file may not be what its users had before: of what was decided, or was changed on both sides alike, one side
//! is gone. So what they had is kept beside the decisions when a content is applied, under what names this one way back: from
//! the content that is applied and what was made of the file, to the content before. Whoever edits the file since, or goes
//! elsewhere, merges as ever.

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

/// Decisions about one tree take so much room at most: texts of files are among them.
const MAX_CHOICES: u64 = 256 << 20;
/// So many bytes of texts that people have decided for a tree, which are two digits each there, beside what else is kept.
const MAX_TEXTS: usize = 64 << 20;
/// What users had before is kept for ways back up to so many bytes of a tree.
pub(crate) const MAX_BACK: usize = 16 << 20;
/// What the ids of these begin with; those of conflicts don't.
const BACK: &str = "back-";

/// A decision about a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Lines that both sides have changed stay as they are on the host; what can't be merged by lines stays as a whole.
    Ours,
    /// Lines that both sides have changed become what is wanted; what can't be merged by lines does as a whole.
    Theirs,
    /// This is written.
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
    /// Decides the conflicts that there are: in one path, or the one of this id; else all that nobody has decided, or all anew
    /// where there is none of these. How many were decided. It takes effect when the tree is brought about the next time, if
    /// nothing has changed until then.
    ///
    /// # Errors
    /// When there is no such conflict, or the decision can't be written down.
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
        // What is larger would not be read again.
        if choices.values().map(size).sum::<usize>() > MAX_TEXTS {
            return Err(FilesError::NotThere(format!(
                "the texts that were decided for {cob} would have more than {} MiB: call off what they were for",
                MAX_TEXTS >> 20
            )));
        }
        self.write_choices(cob, &choices)?;
        Ok(ids.len())
    }

    /// The conflicts that such a decision would be about, by what names them; nothing is decided.
    ///
    /// # Errors
    /// As [`Files::resolve`], as far as it shows before.
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
                format!("there are conflicts in {} files of {cob}: name the one that the text is for", ids.len());
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
        // What can't be read decides nothing: the conflict is shown again.
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

    /// What was decided is done, or counts no more; what takes it back stays.
    pub fn undecide(&self, cob: &str) {
        let mut choices = self.choices(cob);
        let decided = choices.len();
        choices.retain(|id, _| is_way_back(id));
        if choices.is_empty() {
            self.forget_choices(cob);
        } else if choices.len() < decided {
            // A decision that stays behind is for what may not come again, and can be made otherwise.
            let _ = self.write_choices(cob, &choices);
        }
    }

    /// There is nothing to decide any more, nor to be taken back.
    pub(crate) fn forget_choices(&self, cob: &str) {
        let (name, path) = (self.choices_name(cob), self.choices_path(cob));
        if self.decided.lock().unwrap_or_else(PoisonError::into_inner).remove(&name) {
            // A decision that stays behind is for a conflict that does not come again.
            let _ = fs::remove_file(path);
        }
    }

    /// What takes back exactly what is about to be applied. What took back what was applied before counts no more, unless an
    /// attempt at this was interrupted.
    pub(crate) fn keep_way_back(
        &self,
        cob: &str,
        back: &BTreeMap<String, Choice>,
        interrupted: bool,
    ) -> Result<(), FilesError> {
        let before = self.choices(cob);
        let mut choices = before.clone();
        choices.retain(|id, _| interrupted || !is_way_back(id));
        choices.extend(back.iter().map(|(id, text)| (id.clone(), text.clone())));
        if choices == before { Ok(()) } else { self.write_choices(cob, &choices) }
    }

    fn choices_path(&self, cob: &str) -> PathBuf {
        self.folder.join("choices").join(format!("{}.json", self.choices_name(cob)))
    }

    /// The name of the file, which its ending and that of a file in the making fit behind.
    fn choices_name(&self, cob: &str) -> String {
        const LONGEST: usize = 240;
        let name = cob.replace('/', "+");
        // An earlier version may have named it so.
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

/// The id of a way back of a file: from what is applied, and what was made of it, to another content. None: one of them can't
/// be told by its hash.
pub(crate) fn way_back(path: &TreePath, applied: Oid, live: &[u8], to: &[u8]) -> Option<String> {
    let hash = |bytes| Oid::hash_object(ObjectType::Blob, bytes).ok();
    let (path, live, to) = (path.to_string(), hash(live)?, hash(to)?);
    let parts = [path.as_bytes(), applied.as_bytes(), live.as_bytes(), to.as_bytes()];
    Some(format!("{BACK}{}", canonical::fingerprint(&parts)))
}

/// The bytes of a text that was decided.
pub(crate) fn size(choice: &Choice) -> usize {
    match choice {
        Choice::Edited(text) => text.len(),
        Choice::Ours | Choice::Theirs => 0,
    }
}

pub(crate) fn is_way_back(id: &str) -> bool {
    id.starts_with(BACK)
}

/// The content of a regular file; anything else that somebody may have put there is not waited for.
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
