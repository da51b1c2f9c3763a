//! What users have made of a tree that goes off and comes again.
//!
//! ```text
//!   base   what was applied last
//!   mine   what users had made of it when the tree went off
//!   left   what is in its place since: what was before, with users' changes merged; or `mine`, where these exclude each other
//! ```
//! When the tree comes again, `mine` is what is merged with the model's text, as if it had never been away. What users have made
//! of `left` meanwhile is merged into it first.

use super::{Base, Plan, Planner, Step};
use crate::attributes::{Attributes, Managed};
use crate::disk::Found;
use crate::error::FilesError;
use crate::merge::{self, Merged, Side};
use crate::path::TreePath;
use crate::sides::{Content, Excluded, Live, Target, TargetNode, full};
use crate::store::{Begun, Blob, Kept, KeptNode, Text};
use crate::wanted::OnDrift;

/// What was set aside of a path.
#[derive(Debug, Clone)]
pub(crate) struct Aside {
    pub(crate) base: Kept,
    pub(crate) mine: Kept,
    pub(crate) left: Kept,
}

impl Aside {
    /// What is recorded of a path; none: nothing was set aside there.
    pub(crate) fn of(begun: &Begun, path: &TreePath) -> Option<Self> {
        let [base, mine, left] = [&begun.base, &begun.from, &begun.result].map(|part| part.get(path).cloned());
        Some(Self { base: base?, mine: mine?, left: left? })
    }

    /// It was not touched: users' changes and what was before exclude each other.
    pub(crate) fn is_in_place(&self) -> bool {
        self.mine.node == self.left.node
    }
}

/// What is merged in the place of what is on the disk.
pub(super) struct Mine {
    pub(super) base: Kept,
    content: Text,
    found: Found,
    clash: Option<Clash>,
}

/// What was made of a file while its tree was off excludes what was made of it before.
struct Clash {
    left: Kept,
    excluded: Excluded,
}

impl Mine {
    /// What users had made of it; none: what is on the disk counts.
    pub(super) fn live<'l>(&'l self, real: &Live<'l>) -> Option<Live<'l>> {
        let content = std::cell::OnceCell::from(self.content.clone());
        self.clash.is_none().then_some(Live { disk: real.disk, path: real.path, found: &self.found, content })
    }

    pub(super) fn clash(&self) -> Option<Excluded> {
        self.clash.as_ref().map(|clash| clash.excluded.clone())
    }

    pub(super) fn content(&self) -> Vec<u8> {
        self.content.to_vec()
    }
}

impl Planner<'_> {
    /// What users had made of a path that is another one on the disk since its tree went off.
    pub(super) fn mine(&self, path: &TreePath, target: &Target, real: &Live<'_>) -> Result<Option<Mine>, FilesError> {
        let Some(Aside { base, mine, left }) = self.set_aside(path, real)? else { return Ok(None) };
        let (KeptNode::File(blob), Some(attributes)) = (&mine.node, full(&mine.managed)) else { return Ok(None) };
        let content = self.store.blob(blob)?;
        let same = real.is(&left.node)?;
        if !same && (!target.shared || matches!(real.found, Found::Absent)) {
            return Ok(None);
        }
        let file = |content: Text, attributes| {
            let found = Found::File { size: content.len() as u64, attributes };
            (content, found)
        };
        let attributes = of_both(&attributes, &left, real.found);
        if same {
            let (content, found) = file(content, attributes);
            return Ok(Some(Mine { base, content, found, clash: None }));
        }
        let merged = match (&left.node, real.found) {
            (KeptNode::File(left), Found::File { .. }) => {
                merge::merge(&self.store.blob(left)?, real.content()?, &content)?
            }
            _ => Merged::Binary,
        };
        let hunks = match merged {
            Merged::Clean(bytes) => {
                let (content, found) = file(bytes.into(), attributes);
                return Ok(Some(Mine { base, content, found, clash: None }));
            }
            Merged::Conflict(hunks) => Some(hunks),
            Merged::Binary => None,
        };
        let what = "the same was changed here before the tree went off, and since".to_owned();
        let clash = Some(Clash { left, excluded: (what, hunks) });
        Ok(Some(Mine { base, content, found: Found::Absent, clash }))
    }

    /// Both that users have made of a file, with this side of what excludes each other, merged with what is wanted. None:
    /// that is not about lines.
    pub(super) fn decide_clash(
        &self,
        side: Side,
        target: &Target,
        was: &Mine,
        real: &Live<'_>,
    ) -> Result<Option<Content>, FilesError> {
        let (Some(Clash { left, .. }), TargetNode::File(theirs)) = (&was.clash, &target.node) else { return Ok(None) };
        let (KeptNode::File(left), KeptNode::File(base)) = (&left.node, &was.base.node) else { return Ok(None) };
        let both = merge::merge_for(Some(side), &self.store.blob(left)?, real.content()?, &was.content)?;
        let Merged::Clean(both) = both else { return Ok(None) };
        Ok(match merge::merge_for(Some(side), &self.store.blob(base)?, &both, theirs)? {
            Merged::Clean(bytes) => Some(Content::Merged(bytes)),
            Merged::Conflict(_) | Merged::Binary => None,
        })
    }

    /// What was set aside of a path, also by an action that was interrupted. The records of those that set aside, or take up
    /// what was, have all attributes of what they found, or wrote.
    fn set_aside(&self, path: &TreePath, real: &Live<'_>) -> Result<Option<Aside>, FilesError> {
        if self.same {
            return Ok(None);
        }
        let (begun, progress) = (&self.past.begun, self.past.progress.get(path).copied());
        let (Some(aim), Some(Aside { base, mine, left })) = (begun.aim.get(path), Aside::of(begun, path)) else {
            return Ok(self.past.aside.get(path).cloned());
        };
        let written = progress.map_or_else(|| real.is(&left.node), Ok)?;
        if full(&left.managed).is_some() {
            // It was about to bring that back: as if it had.
            return Ok((!written).then(|| Aside { base: aim.clone(), left: mine, mine: left }));
        }
        let went_off = full(&mine.managed).is_some() && (self.off || !self.retire);
        Ok((went_off && written).then_some(Aside { base, mine, left }))
    }

    /// Sets aside what users have made of a path of a tree that goes off, and is to come again.
    pub(super) fn put_aside(
        &self,
        path: &TreePath,
        target: &Target,
        base: &Base<'_>,
        live: &Live<'_>,
        real: &Live<'_>,
        plan: &mut Plan,
    ) -> Result<(), FilesError> {
        let (Base::Kept(base), Found::File { .. } | Found::Link { .. }) = (base, live.found) else { return Ok(()) };
        let reported = self.wanted.on_drift == OnDrift::Report;
        if !(target.shared || reported) || target.secret || self.held_secret(path) || base.node == KeptNode::Secret {
            return Ok(());
        }
        let differs = live.found.attributes().is_some_and(|live| !base.managed.differences(live, false).is_empty());
        if live.is(&base.node)? && !differs {
            return Ok(());
        }
        let step = plan.steps.last().filter(|(its, _)| its == path).map(|(_, step)| step);
        let here = || self.kept_of(real);
        let left = match step {
            Some(Step::File { content, attributes }) => of_file(content.clone(), Managed::all(attributes)),
            Some(Step::Stored { id, attributes }) => {
                Kept::found(KeptNode::File(Blob::Known(*id)), Managed::all(attributes))
            }
            Some(Step::Link(to)) => Kept::found(KeptNode::Link(to.clone()), Managed::default()),
            Some(Step::Attributes(attributes)) => Kept { managed: Managed::all(attributes), ..here()? },
            Some(Step::Remove) => Kept::absent(),
            _ => here()?,
        };
        let mine = self.kept_of(live)?;
        let before = self.past.before.get(path).cloned().unwrap_or_else(Kept::absent);
        if mine.node == left.node {
            plan.in_place.insert(path.clone(), mine.clone());
            self.keep_folders_of(path, plan);
        }
        let aside = &mut plan.aside;
        aside.base.insert(path.clone(), (*base).clone());
        aside.from.insert(path.clone(), mine);
        aside.result.insert(path.clone(), left);
        aside.aim.insert(path.clone(), before);
        Ok(())
    }

    /// The folders that were made for what stays in its place go with it, when it does.
    fn keep_folders_of(&self, path: &TreePath, plan: &mut Plan) {
        for above in path.ancestors() {
            if let (Some(before), Some(applied)) = (self.past.before.get(&above), self.past.applied.get(&above)) {
                plan.aside.aim.insert(above.clone(), before.clone());
                plan.aside.base.insert(above, applied.clone());
            }
        }
    }

    fn kept_of(&self, live: &Live<'_>) -> Result<Kept, FilesError> {
        let attributes = live.found.attributes().map(Managed::all).unwrap_or_default();
        Ok(match live.found {
            Found::File { .. } => of_file(live.content()?.clone(), attributes),
            Found::Link { target } => Kept::found(KeptNode::Link(target.clone()), attributes),
            Found::Folder { .. } => Kept::found(KeptNode::Folder, attributes),
            Found::Absent | Found::Other => Kept::absent(),
        })
    }
}

fn of_file(content: Text, managed: Managed) -> Kept {
    Kept::found(KeptNode::File(Blob::New(content)), managed)
}

/// Attributes as they were; and those that were set since as they are.
fn of_both(mine: &Attributes, left: &Kept, found: &Found) -> Attributes {
    let (Some(left), Some(now)) = (full(&left.managed), found.attributes()) else { return mine.clone() };
    let field = |mine, left, now| if now == left { mine } else { now };
    let mut xattrs = mine.xattrs.clone();
    for (name, value) in now.xattrs.iter().filter(|(name, value)| left.xattrs.get(*name) != Some(value)) {
        xattrs.insert(name.clone(), value.clone());
    }
    Attributes {
        mode: field(mine.mode, left.mode, now.mode),
        uid: field(mine.uid, left.uid, now.uid),
        gid: field(mine.gid, left.gid, now.gid),
        xattrs,
    }
}
