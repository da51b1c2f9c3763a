//! What people ask of a file tree besides its state: what differs, what was, and decisions about conflicts.

use cob_files::{Choice, FilesError, TreePath};
use serde::{Deserialize, Serialize};

use super::backend::Need;

/// The most versions that are told at once.
const MOST: usize = 1000;

/// A question, or an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesQuery {
    /// In what the disk differs from what is wanted; of one that leaves, from what was before.
    Diff {
        /// It is about to leave.
        retire: bool,
        /// Of shared files what would be written is told.
        written: bool,
    },
    /// The versions that are kept.
    Log,
    /// A version; with a path, the content of a file in it.
    Show {
        /// Its id, or the beginning of it.
        version: String,
        /// Which file.
        path: Option<String>,
    },
    /// A file that is in conflict, with both sides where they differ.
    Hunks {
        /// Which; none: the first.
        path: Option<String>,
        /// It is about to leave.
        retire: bool,
    },
    /// What others have changed, as a patch for the model.
    Patch,
    /// A decision about conflicts.
    Resolve {
        /// In which file; none: in all.
        path: Option<String>,
        /// About this one, as it was shown, and no other.
        conflict: Option<String>,
        /// The decision.
        choice: Choice,
        /// It is about to leave.
        retire: bool,
    },
    /// What was decided counts no more.
    Undecide,
    /// A file is put back as it was.
    Restore {
        /// In which version.
        version: String,
        /// Which file.
        path: String,
    },
    /// Whether what an order is about is there: nothing is done.
    Would(Box<Self>),
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesAnswer {
    /// In words, or the text asked for.
    pub text: String,
    /// Which file it is about, where that was not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The conflict in it, of a file to be edited: a decision may name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
    /// The state that was found, of a difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Files in conflict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<FileConflict>,
    /// The versions asked for, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<FileVersion>,
}

/// A file in conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileConflict {
    /// Which.
    pub path: String,
    /// What excludes each other.
    pub what: String,
    /// The merge with both sides, of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunks: Option<String>,
    /// What is there is to go.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goes: bool,
}

/// A version of a file tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// Names it in `show` and `restore`.
    pub id: String,
    /// When it was made, in seconds since 1970.
    pub time: u64,
    /// Under which generation.
    pub generation: u64,
    /// Why: `before`, `applied`, `found`, `retired`.
    pub reason: String,
    /// Some of its paths.
    pub paths: Vec<String>,
}

/// Answers it.
pub(super) fn answer(need: &Need, query: FilesQuery) -> Result<FilesAnswer, String> {
    let _looking = need.looking();
    let answer = need.alone(|| try_answer(need, query)).map_err(|e| need.shown(&e.to_string()))?;
    // Of what is to be edited nothing is left out: it is refused where a value stands in it.
    let hunks = |hunks: Option<String>| hunks.map(|hunks| need.shown(&hunks));
    let shown = |c: FileConflict| FileConflict { hunks: hunks(c.hunks), ..c };
    let conflicts = answer.conflicts.into_iter().map(shown).collect();
    Ok(FilesAnswer { text: need.shown(&answer.text), conflicts, ..answer })
}

/// A text that people edit, or have.
fn without_secrets(need: &Need, text: &str) -> Result<(), FilesError> {
    if need.shown(text) == text {
        return Ok(());
    }
    Err(FilesError::NotThere(format!(
        "the value of a secret stands in that text, which is not shown and not kept: take one of the sides of {}",
        need.cob()
    )))
}

fn try_answer(need: &Need, query: FilesQuery) -> Result<FilesAnswer, FilesError> {
    let files = need.files()?;
    let plain = |text: String| FilesAnswer { text, ..FilesAnswer::default() };
    let path = |text: &Option<String>| text.as_deref().map(TreePath::new).transpose();
    Ok(match query {
        FilesQuery::Diff { retire, written } => {
            let (cob, wanted) = (need.cob(), need.wanted()?);
            let checked = if written { files.foresee(cob, &wanted, retire) } else { files.look(cob, &wanted, retire) }?;
            let conflicts = checked.conflicts.into_iter().map(|c| FileConflict {
                path: c.path.to_string(),
                what: c.what,
                hunks: c.hunks.map(|h| String::from_utf8_lossy(&h).into_owned()),
                goes: c.goes,
            });
            let state = format!("{:?}", checked.state).to_lowercase();
            FilesAnswer { state: Some(state), conflicts: conflicts.collect(), ..plain(checked.difference) }
        }
        FilesQuery::Log => {
            let versions = files.log(need.cob(), MOST)?.into_iter().map(|v| FileVersion {
                id: v.id,
                time: v.info.time,
                generation: v.info.generation,
                reason: format!("{:?}", v.info.reason).to_lowercase(),
                paths: v.info.paths,
            });
            FilesAnswer { versions: versions.collect(), ..plain(String::new()) }
        }
        FilesQuery::Show { version, path: None } => plain(files.show(need.cob(), &version)?),
        FilesQuery::Show { version, path: Some(path) } => {
            let content = files.content(need.cob(), &version, &TreePath::new(&path)?)?;
            plain(String::from_utf8_lossy(&content).into_owned())
        }
        FilesQuery::Hunks { path: which, retire } => {
            let (found, hunks, conflict) = files.hunks(need.cob(), &need.wanted()?, retire, path(&which)?.as_ref())?;
            let text = String::from_utf8(hunks)
                .map_err(|_| FilesError::NotThere(format!("{found} is not UTF-8: take one of its sides")))?;
            without_secrets(need, &text)?;
            FilesAnswer { path: Some(found.to_string()), conflict: Some(conflict), ..plain(text) }
        }
        FilesQuery::Patch => {
            let wanted = need.wanted()?;
            let checked = files.check(need.cob(), &wanted)?;
            let path = wanted.adopts().then(|| need.patch_path().display().to_string());
            let patch = if checked.drifted { files.patch(&wanted, &checked.paths)? } else { String::new() };
            FilesAnswer { path, ..plain(patch) }
        }
        FilesQuery::Resolve { path: which, conflict, choice, retire } => {
            let (which, wanted) = (path(&which)?, need.wanted()?);
            if let Choice::Edited(text) = &choice {
                without_secrets(need, &String::from_utf8_lossy(text))?;
            }
            let count = files.resolve(need.cob(), &wanted, retire, which.as_ref(), conflict.as_deref(), &choice)?;
            need.look_again();
            plain(cob_types::words::count(count, "conflict") + " decided")
        }
        FilesQuery::Undecide => {
            files.undecide(need.cob());
            plain(String::new())
        }
        FilesQuery::Restore { version, path } => {
            let at = TreePath::new(&path)?;
            files.restore(need.cob(), &version, &at)?;
            let version: String = version.chars().take(12).collect();
            let stays = !need.wanted().is_ok_and(|wanted| wanted.heals(&at));
            let hint =
                if stays { "" } else { "; but the file is the model's (`on_drift: heal`), which is put back at once" };
            plain(format!("{path} is as it was in version {version}{hint}"))
        }
        FilesQuery::Would(order) => {
            match *order {
                FilesQuery::Resolve { path: which, conflict, choice, retire } => {
                    let (which, wanted) = (path(&which)?, need.wanted()?);
                    files.decided_by(need.cob(), &wanted, retire, which.as_ref(), conflict.as_deref(), &choice)?;
                }
                FilesQuery::Restore { version, path } => {
                    files.content(need.cob(), &version, &TreePath::new(&path)?)?;
                }
                FilesQuery::Diff { .. }
                | FilesQuery::Log
                | FilesQuery::Show { .. }
                | FilesQuery::Hunks { .. }
                | FilesQuery::Patch
                | FilesQuery::Undecide
                | FilesQuery::Would(_) => {}
            }
            plain(String::new())
        }
    })
}
