//! Plans the end of paths: departing paths, remains of an interrupted action, and foreign entries in a folder that is
//! managed as a whole.

use std::collections::{BTreeMap, BTreeSet};

use super::{Plan, Planner, Step};
use crate::attributes::Managed;
use crate::disk::{Found, is_staged};
use crate::error::FilesError;
use crate::path::TreePath;
use crate::sides::{Live, Target, TargetNode, full};
use crate::store::{Blob, HELD, RecordedEntry, RecordedNode};
use crate::wanted::{Entry, Manage, Node};

impl Planner<'_> {
    /// Restores the paths that are not wanted any more.
    pub(super) fn leave(&self, wanted: &BTreeMap<TreePath, Entry>, plan: &mut Plan) -> Result<(), FilesError> {
        let past = self.past;
        let is_whole = |path: &TreePath| {
            let mut above = path.above().filter_map(|above| wanted.get(above));
            above.any(|entry| matches!(entry.node, Node::Folder { whole: true, .. }))
        };
        for (path, kept) in past.applied.iter().filter(|(path, _)| !wanted.contains_key(*path)) {
            let whole = is_whole(path);
            if whole && kept.node == RecordedNode::Absent {
                // Removed when the folder became managed as a whole: it comes back when the folder departs.
                plan.applied.insert(path.clone(), kept.clone());
                continue;
            }
            if self.is_of_another(path, plan)? {
                continue;
            }
            let mut target = self.taken_back(path, kept)?;
            let comes_back = whole && target.node != TargetNode::Absent;
            if comes_back {
                // Until then it has no place there.
                (target.node, target.managed) = (TargetNode::Absent, Managed::default());
            }
            self.settle(path, &target, &self.disk.look(path)?, plan)?;
            if comes_back {
                plan.applied.insert(path.clone(), RecordedEntry::absent());
            } else {
                plan.before.remove(path);
            }
        }
        let begun = past.before.keys().filter(|path| !wanted.contains_key(*path) && !past.applied.contains_key(*path));
        for path in begun.filter(|path| !is_whole(path)) {
            if self.is_of_another(path, plan)? {
                continue;
            }
            // Without an aim, no step was planned there.
            if let Some(aim) = past.begun.aim.get(path) {
                let (target, found) = (self.taken_back(path, aim)?, self.disk.look(path)?);
                if self.has_come_to(path, aim, &target, &found)? {
                    self.settle(path, &target, &found, plan)?;
                }
            }
            plan.before.remove(path);
        }
        Ok(())
    }

    /// Whether another change object has a departing path: it has the earlier entry, and its file is the present entry.
    fn is_of_another(&self, path: &TreePath, plan: &mut Plan) -> Result<bool, FilesError> {
        let has = self.past.before.get(path).is_some_and(|kept| !kept.implied);
        let another = self.store.has_another(path, has)?;
        if another {
            plan.before.remove(path);
            plan.left_to_others = true;
        }
        Ok(another)
    }

    /// Whether an interrupted action has reached a path that was never applied before: then the present entry is its
    /// work, and not a user's edit of the earlier entry. An interrupted retirement counts for all paths.
    fn has_come_to(
        &self,
        path: &TreePath,
        aim: &RecordedEntry,
        back: &Target,
        found: &Found,
    ) -> Result<bool, FilesError> {
        let begun = &self.past.begun;
        let (Some(result), false) = (begun.result.get(path), aim.shared == Some(true)) else { return Ok(true) };
        let live = Live::new(self.disk, path, found);
        let untouched = begun.from.get(path).map_or(Ok(false), |from| live.is(&from.node))?;
        Ok(live.is(&result.node)? || back.is(&aim.node) && untouched)
    }

    /// Finds entries that have no place in a folder that is managed as a whole.
    pub(super) fn strangers(
        &self,
        folder: &TreePath,
        plan: &mut Plan,
        seen: &mut BTreeSet<TreePath>,
    ) -> Result<(), FilesError> {
        let first = !self.same && !self.past.applied.contains_key(folder);
        for (path, live) in self.disk.below(folder)? {
            let leaving = self.past.applied.get(&path).is_some_and(|kept| kept.node != RecordedNode::Absent);
            if self.wanted.entries.contains_key(&path) || leaving || !seen.insert(path.clone()) {
                continue;
            }
            plan.note(&path, &format!("{path} is {} that does not belong there\n", live.word()));
            // A killed action leaves files, links and empty folders; a folder with entries belongs to a user.
            if is_staged(path.name()) && !matches!(live, Found::Folder { .. } | Found::Other) {
                plan.steps.push((path, Step::RemoveStaged));
                continue;
            }
            let step = match &live {
                Found::Folder { .. } => Step::RemoveStranger,
                Found::File { .. } | Found::Link { .. } => Step::Remove,
                Found::Absent => continue,
                Found::Other => {
                    let wanted = "no entry, because its folder is managed as a whole";
                    plan.blocked.push(FilesError::InTheWay { path, found: live.word(), wanted });
                    continue;
                }
            };
            if !self.same {
                plan.begun.aim.insert(path.clone(), RecordedEntry::absent());
                let kept = self.keep(&path, &live, false, plan)?;
                if first && !plan.before.contains_key(&path) {
                    plan.before.insert(path.clone(), kept);
                    plan.before_is_new = true;
                } else {
                    plan.found.insert(path.clone(), kept);
                }
            }
            plan.steps.push((path, step));
        }
        if first {
            // All entries from before the folder was managed as a whole, also if an interrupted action removed some.
            let below = plan.before.keys().filter(|path| path.is_below(folder));
            let others = below.filter(|p| !self.wanted.entries.contains_key(*p) && !self.past.applied.contains_key(*p));
            plan.applied.extend(others.map(|path| (path.clone(), RecordedEntry::absent())));
        }
        Ok(())
    }

    /// The target of a departing path: its earlier entry.
    fn taken_back(&self, path: &TreePath, applied: &RecordedEntry) -> Result<Target, FilesError> {
        let absent = RecordedEntry::absent();
        let before = self.past.before.get(path).unwrap_or(&absent);
        let node = match &before.node {
            // The content could not be kept, because the file was COB's already.
            RecordedNode::Absent | RecordedNode::Secret => TargetNode::Absent,
            RecordedNode::Folder => TargetNode::Folder,
            RecordedNode::Link(target) => TargetNode::Link(target.clone()),
            RecordedNode::File(blob) => self.stored(blob)?,
            RecordedNode::Sealed(blob) => {
                let opened = self.vault.open(&self.store.blob(blob)?);
                TargetNode::File(opened.map_err(|what| FilesError::Vault { path: path.clone(), what })?.into())
            }
        };
        let same_sort = std::mem::discriminant(&before.node) == std::mem::discriminant(&applied.node);
        let managed = match full(&before.managed) {
            // Restore only the attributes that COB set; for an entry of another type, restore all.
            Some(attributes) if same_sort => Managed::taken_back(&applied.managed, &attributes),
            _ => before.managed.clone(),
        };
        // If this was not recorded, take the present content's setting for the path, or for any path.
        let guess = || match self.wanted.entries.get(path) {
            Some(entry) => entry.manage == Manage::Merge,
            None => self.shares_by_default(),
        };
        let shared = applied.shared.unwrap_or_else(guess);
        let secret = matches!(applied.node, RecordedNode::Secret) || matches!(before.node, RecordedNode::Sealed(_));
        Ok(Target { node, managed, shared: shared && !secret, reported: false, secret, implied: applied.implied })
    }

    /// A file in the store; its content is held in memory unless it is large.
    fn stored(&self, blob: &Blob) -> Result<TargetNode, FilesError> {
        if let Blob::Known(id) = blob {
            let size = self.store.size(*id)?;
            if size > HELD {
                return Ok(TargetNode::Stored { id: *id, size });
            }
        }
        self.store.blob(blob).map(TargetNode::File)
    }

    /// Whether a file is shared: then users' changes in departing files count, too.
    fn shares_by_default(&self) -> bool {
        self.wanted.entries.values().any(|e| e.manage == Manage::Merge)
    }
}
