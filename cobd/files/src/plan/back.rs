//! Exact rollbacks: users' texts that a merge would not restore ([`crate::decisions`]).

use super::{Plan, Planner, Step};
use crate::Choice;
use crate::decisions::{MAX_BACK, rollback_id, size};
use crate::disk::Found;
use crate::error::FilesError;
use crate::merge::{self, Merged};
use crate::path::TreePath;
use crate::sides::{Base, Live, Target, TargetNode};
use crate::store::{RecordedEntry, RecordedNode};

impl Planner<'_> {
    /// The users' text from when the wanted content was last applied, if the file is unchanged since the present
    /// content was applied. The text stays kept until the rollback is done.
    pub(super) fn as_before(
        &self,
        path: &TreePath,
        target: &Target,
        base: &Base<'_>,
        live: &Live<'_>,
        plan: &mut Plan,
    ) -> Result<Option<&[u8]>, FilesError> {
        let (Base::Recorded(RecordedEntry { node: RecordedNode::File(applied), .. }), TargetNode::File(to)) =
            (base, &target.node)
        else {
            return Ok(None);
        };
        let is_held = matches!(live.found, Found::File { size, .. } if *size <= MAX_BACK as u64);
        if self.choices.is_empty()
            || !is_held
            || !target.shared
            || target.secret
            || !matches!(live.found, Found::File { .. })
        {
            return Ok(None);
        }
        let Some(applied) = applied.id() else { return Ok(None) };
        let Some(id) = rollback_id(path, applied, live.content()?, to) else { return Ok(None) };
        let Some(kept @ Choice::Edited(text)) = self.choices.get(&id) else { return Ok(None) };
        plan.back.insert(id, kept.clone());
        Ok(Some(text))
    }

    /// Keeps the users' present text if a merge back from the content to be applied would not restore it.
    pub(super) fn keep_rollback(
        &self,
        path: &TreePath,
        target: &Target,
        base: &Base<'_>,
        live: &Live<'_>,
        real: &Live<'_>,
        plan: &mut Plan,
    ) -> Result<(), FilesError> {
        let (Base::Recorded(RecordedEntry { node: RecordedNode::File(before), .. }), TargetNode::File(applied)) =
            (base, &target.node)
        else {
            return Ok(());
        };
        let is_shared = target.shared && !target.secret && !self.held_secret(path);
        let are_files = [live, real].iter().all(|live| matches!(live.found, Found::File { .. }));
        if self.same || self.retire || !is_shared || !are_files || target.is(&RecordedNode::File(before.clone())) {
            return Ok(());
        }
        let fits = |live: &Live<'_>| matches!(live.found, Found::File { size, .. } if *size <= MAX_BACK as u64);
        if !fits(live) || !fits(real) || live.is(&RecordedNode::File(before.clone()))? {
            return Ok(());
        }
        let theirs = live.content()?;
        // Decisions are not sealed: for a text with a secret, a merge is the only rollback.
        if self.wanted.holds_secret(theirs) {
            return Ok(());
        }
        let written = match plan.steps.last().filter(|(at, _)| at == path) {
            Some((_, Step::File { content, .. })) => content.clone(),
            Some(_) | None => real.content()?.clone(),
        };
        let before = self.store.blob(before)?;
        let merged = if written == *applied {
            Merged::Clean(before.to_vec())
        } else {
            merge::merge(applied, &written, &before)?
        };
        if matches!(&merged, Merged::Clean(text) if **text == **theirs) {
            return Ok(());
        }
        let held: usize = plan.back.values().map(size).sum();
        if held + theirs.len() > MAX_BACK {
            return Ok(());
        }
        let applied = git2::Oid::hash_object(git2::ObjectType::Blob, applied).ok();
        let id = applied.and_then(|applied| rollback_id(path, applied, &written, &before));
        plan.back.extend(id.map(|id| (id, Choice::Edited(theirs.to_vec()))));
        Ok(())
    }
}
