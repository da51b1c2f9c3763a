//! Users' changes of a tree that is put off and comes back.
//!
//! ```text
//!   base   the last applied text
//!   mine   the users' text when the tree was put off
//!   left   the text on the disk since: the earlier text, merged with users' changes; or `mine`, if these conflict
//! ```
//! When the tree comes back, `mine` is merged with the model's text, as if the tree had been there all the time. Edits
//! of `left` since then are merged into `mine` first.

use super::{Base, Plan, Planner, Step};
use crate::attributes::{Attributes, Managed};
use crate::disk::Found;
use crate::error::FilesError;
use crate::merge::{self, Merged, Side};
use crate::path::TreePath;
use crate::sides::{Content, Excluded, Live, Target, TargetNode, full};
use crate::store::{Begun, Blob, RecordedEntry, RecordedNode, Text};
use crate::wanted::OnDrift;

/// The texts that were set aside for a path.
#[derive(Debug, Clone)]
pub(crate) struct SetAside {
    pub(crate) base: RecordedEntry,
    pub(crate) mine: RecordedEntry,
    pub(crate) left: RecordedEntry,
}

impl SetAside {
    /// The record of a path. `None`: no text was set aside.
    pub(crate) fn of(begun: &Begun, path: &TreePath) -> Option<Self> {
        let [base, mine, left] = [&begun.base, &begun.from, &begun.result].map(|part| part.get(path).cloned());
        Some(Self { base: base?, mine: mine?, left: left? })
    }

    /// Whether the file was left untouched: users' changes conflict with the earlier text.
    pub(crate) fn is_in_place(&self) -> bool {
        self.mine.node == self.left.node
    }
}

/// The text that is merged in place of the text on the disk.
pub(super) struct Mine {
    pub(super) base: RecordedEntry,
    content: Text,
    found: Found,
    clash: Option<Clash>,
}

/// Edits made while the tree was off conflict with edits made before.
struct Clash {
    left: RecordedEntry,
    excluded: Excluded,
}

impl Mine {
    /// The users' text. `None`: the text on the disk counts.
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
    /// The users' text of a path whose text on the disk is another since the tree was put off.
    pub(super) fn mine(&self, path: &TreePath, target: &Target, real: &Live<'_>) -> Result<Option<Mine>, FilesError> {
        let Some(SetAside { base, mine, left }) = self.set_aside(path, real)? else { return Ok(None) };
        let (RecordedNode::File(blob), Some(attributes)) = (&mine.node, full(&mine.managed)) else { return Ok(None) };
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
            (RecordedNode::File(left), Found::File { .. }) => {
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
        let what = "the same lines were changed here before the tree was switched off, and since then".to_owned();
        let clash = Some(Clash { left, excluded: (what, hunks) });
        Ok(Some(Mine { base, content, found: Found::Absent, clash }))
    }

    /// Merges both edits of users, with `side` for conflicting lines, and then the wanted text. `None`: not files to
    /// merge by lines.
    pub(super) fn decide_clash(
        &self,
        side: Side,
        target: &Target,
        was: &Mine,
        real: &Live<'_>,
    ) -> Result<Option<Content>, FilesError> {
        let (Some(Clash { left, .. }), TargetNode::File(theirs)) = (&was.clash, &target.node) else { return Ok(None) };
        let (RecordedNode::File(left), RecordedNode::File(base)) = (&left.node, &was.base.node) else {
            return Ok(None);
        };
        let both = merge::merge_for(Some(side), &self.store.blob(left)?, real.content()?, &was.content)?;
        let Merged::Clean(both) = both else { return Ok(None) };
        Ok(match merge::merge_for(Some(side), &self.store.blob(base)?, &both, theirs)? {
            Merged::Clean(bytes) => Some(Content::Merged(bytes)),
            Merged::Conflict(_) | Merged::Binary => None,
        })
    }

    /// The texts set aside for a path, also by an interrupted action. Records of actions that set texts aside, or take
    /// them up again, have all attributes of the files they found or wrote.
    fn set_aside(&self, path: &TreePath, real: &Live<'_>) -> Result<Option<SetAside>, FilesError> {
        if self.same {
            return Ok(None);
        }
        let (begun, progress) = (&self.past.begun, self.past.progress.get(path).copied());
        let (Some(aim), Some(SetAside { base, mine, left })) = (begun.aim.get(path), SetAside::of(begun, path)) else {
            return Ok(self.past.aside.get(path).cloned());
        };
        let written = progress.map_or_else(|| real.is(&left.node), Ok)?;
        if full(&left.managed).is_some() {
            // It was about to restore that text: take it as restored.
            return Ok((!written).then(|| SetAside { base: aim.clone(), left: mine, mine: left }));
        }
        let went_off = full(&mine.managed).is_some() && (self.off || !self.retire);
        Ok((went_off && written).then_some(SetAside { base, mine, left }))
    }

    /// Sets aside users' changes of a path of a tree that is put off and is to come back.
    pub(super) fn put_aside(
        &self,
        path: &TreePath,
        target: &Target,
        base: &Base<'_>,
        live: &Live<'_>,
        real: &Live<'_>,
        plan: &mut Plan,
    ) -> Result<(), FilesError> {
        let (Base::Recorded(base), Found::File { .. } | Found::Link { .. }) = (base, live.found) else {
            return Ok(());
        };
        let reported = self.wanted.on_drift == OnDrift::Report;
        if !(target.shared || reported) || target.secret || self.held_secret(path) || base.node == RecordedNode::Secret
        {
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
                RecordedEntry::found(RecordedNode::File(Blob::Known(*id)), Managed::all(attributes))
            }
            Some(Step::Link(to)) => RecordedEntry::found(RecordedNode::Link(to.clone()), Managed::default()),
            Some(Step::Attributes(attributes)) => RecordedEntry { managed: Managed::all(attributes), ..here()? },
            Some(Step::Remove) => RecordedEntry::absent(),
            _ => here()?,
        };
        let mine = self.kept_of(live)?;
        let before = self.past.before.get(path).cloned().unwrap_or_else(RecordedEntry::absent);
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

    /// Folders that were made for a file that stays in its place go together with that file.
    fn keep_folders_of(&self, path: &TreePath, plan: &mut Plan) {
        for above in path.ancestors() {
            if let (Some(before), Some(applied)) = (self.past.before.get(&above), self.past.applied.get(&above)) {
                plan.aside.aim.insert(above.clone(), before.clone());
                plan.aside.base.insert(above, applied.clone());
            }
        }
    }

    fn kept_of(&self, live: &Live<'_>) -> Result<RecordedEntry, FilesError> {
        let attributes = live.found.attributes().map(Managed::all).unwrap_or_default();
        Ok(match live.found {
            Found::File { .. } => of_file(live.content()?.clone(), attributes),
            Found::Link { target } => RecordedEntry::found(RecordedNode::Link(target.clone()), attributes),
            Found::Folder { .. } => RecordedEntry::found(RecordedNode::Folder, attributes),
            Found::Absent | Found::Other => RecordedEntry::absent(),
        })
    }
}

fn of_file(content: Text, managed: Managed) -> RecordedEntry {
    RecordedEntry::found(RecordedNode::File(Blob::New(content)), managed)
}

/// The earlier attributes, except fields that were changed since.
fn of_both(mine: &Attributes, left: &RecordedEntry, found: &Found) -> Attributes {
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
