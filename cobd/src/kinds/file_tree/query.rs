//! Queries and orders of users about a file tree: differences, versions, and decisions about conflicts.

use cob_files::{Choice, FilesError, TreePath};
use cob_types::api::{FileConflict, FileVersion, FilesAnswer};

use super::backend::Need;
use crate::kinds::queries::FilesQuery;

/// The most versions in an answer.
const MOST: usize = 1000;

/// Answers a query.
pub(super) fn answer(need: &Need, query: FilesQuery) -> Result<FilesAnswer, String> {
    let _looking = need.looking();
    let answer = need.alone(|| try_answer(need, query)).map_err(|e| need.shown(&e.to_string()))?;
    // A text to edit is never redacted: the query fails if it contains a value.
    let hunks = |hunks: Option<String>| hunks.map(|hunks| need.shown(&hunks));
    let shown = |c: FileConflict| FileConflict { hunks: hunks(c.hunks), ..c };
    let conflicts = answer.conflicts.into_iter().map(shown).collect();
    Ok(FilesAnswer { text: need.shown(&answer.text), conflicts, ..answer })
}

/// Rejects a text to edit that contains a value.
fn without_secrets(need: &Need, text: &str) -> Result<(), FilesError> {
    if need.shown(text) == text {
        return Ok(());
    }
    Err(FilesError::NotThere(format!(
        "that text contains the value of a secret, and is neither shown nor kept: choose ours or theirs for {}",
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
            let checked = if written { files.preview(cob, &wanted, retire) } else { files.look(cob, &wanted, retire) }?;
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
                .map_err(|_| FilesError::NotThere(format!("{found} is not UTF-8: choose ours or theirs")))?;
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
