//! Plans the steps to the wanted files, path by path: writes, conflicts, contents to keep first. Changes no file.
//!
//! ```text
//!   base   the last applied entry (or the entry from before the first application)
//!   live   the entry on the disk
//!   target the wanted entry; for a departing path: the earlier entry
//!
//!   copied   live -> target
//!   shared   live == base: target;  target == base: live;  else a merge by lines, or a conflict
//! ```

use std::collections::{BTreeMap, BTreeSet};

use cob_types::canonical;
use git2::Oid;

use crate::apply::Progress;
use crate::attributes::{Attributes, Managed, Sides};
use crate::disk::{Disk, Found, is_staged};
use crate::error::{Conflict, FilesError, MAX_FILE};
use crate::merge::{self, Merged, Side};
use crate::path::TreePath;
use crate::sides::{Base, Content, Excluded, Live, Target, TargetNode, full, in_the_way, kept_size};
use crate::store::{Begun, Blob, HELD, Listing, RecordedEntry, RecordedNode, Spool, Store, Text};
use crate::wanted::{Entry, Manage, Node, OnDrift, Wanted};
use crate::{Choice, Vault};

/// The most bytes of reported differences, all paths together.
const MAX_TOLD: usize = 16 << 10;

mod aside;
mod back;
mod keep;
mod leaving;
mod telling;

use aside::Mine;
pub(crate) use aside::SetAside;
pub(crate) use telling::Tell;

/// The steps to take, and the report about the differences.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<(TreePath, Step)>,
    pub(crate) conflicts: Vec<Conflict>,
    /// Errors that make the change impossible.
    pub(crate) blocked: Vec<FilesError>,
    /// The differences between the disk and the wanted tree, for people.
    pub(crate) told: String,
    /// The decided conflicts with their decisions, for people.
    pub(crate) decided: String,
    /// Paths that differ, with or without a step.
    pub(crate) different: Vec<TreePath>,
    /// The entries from before the first application, to be kept first.
    pub(crate) before: Listing,
    /// Whether `before` has more than the store.
    pub(crate) before_is_new: bool,
    /// The applied entries of change objects from which paths were taken over.
    pub(crate) inherited: Option<Listing>,
    /// Paths stay because another change object has them: the last that departs restores the earlier entries.
    pub(crate) left_to_others: bool,
    /// Changes by others, to be kept first.
    pub(crate) found: Listing,
    /// The applied entries after all steps.
    pub(crate) applied: Listing,
    /// Shared files that stay by a person's decision, although another text counts as applied.
    pub(crate) stays: Listing,
    /// The steps about to be taken, so that the next attempt knows how far this attempt came.
    pub(crate) begun: Begun,
    /// An earlier attempt had begun and was interrupted.
    pub(crate) goes_on: bool,
    /// Users' texts that a merge would not restore, by their rollback ids.
    pub(crate) back: BTreeMap<String, Choice>,
    /// Users' changes of a tree that is put off: `from` has the changed texts, `base` the applied texts under it,
    /// `result` the texts left on the disk, `aim` the earlier texts.
    pub(crate) aside: Begun,
    /// The changes in `aside` that stay in their place.
    pub(crate) in_place: Listing,
    /// Paths with sealed texts, as in [`Past::opened`].
    pub(crate) opened: BTreeSet<TreePath>,
    /// Earlier files of users with the name of a staged file: COB has no staged file there.
    pub(crate) places: BTreeSet<TreePath>,
    /// Paths whose present entry is their earlier entry.
    new_before: BTreeSet<TreePath>,
    /// Large contents to keep.
    pub(crate) spool: Option<Spool>,
    /// The bytes held in memory.
    held: u64,
}

/// The step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    File {
        content: Text,
        attributes: Attributes,
    },
    /// A file in the store, too large to be held in memory.
    Stored {
        id: Oid,
        attributes: Attributes,
    },
    Link(Vec<u8>),
    MakeFolder {
        attributes: Attributes,
        /// Only a parent of a wanted path.
        implied: bool,
    },
    /// Sets attributes; the content is as wanted.
    Attributes(Attributes),
    Remove,
    /// Removes the folder if it is empty.
    RemoveFolder,
    /// Removes a folder that has no place there. Its entries are removed as well.
    RemoveStranger,
    /// Removes a staged file of a killed action.
    RemoveStaged,
}

/// The needed records of a change object.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) before: Listing,
    pub(crate) applied: Listing,
    pub(crate) begun: Begun,
    /// How far an earlier attempt of this very action has come.
    pub(crate) progress: Progress,
    /// Some entries were taken over from another change object.
    pub(crate) inherited: bool,
    /// Users' changes that were set aside when the tree was put off, for paths that have another text on the disk
    /// since.
    pub(crate) aside: BTreeMap<TreePath, SetAside>,
    /// Paths whose text was sealed because it held the value of a secret.
    pub(crate) opened: BTreeSet<TreePath>,
}

/// The reason for a write of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// No earlier entry of the path is kept yet.
    First,
    /// The path comes back with changes that were set aside.
    Again,
    /// Any other reason.
    Other,
}

/// Attributes to set, and extended attributes to remove.
struct SetBack {
    to: Managed,
    gone: Vec<String>,
}

/// The inputs of a plan.
pub(crate) struct Planner<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) store: &'a Store,
    pub(crate) vault: &'a dyn Vault,
    pub(crate) wanted: &'a Wanted,
    pub(crate) past: &'a Past,
    /// This content was applied last: the past need not be read.
    pub(crate) same: bool,
    /// The tree departs.
    pub(crate) retire: bool,
    /// The tree is put off: users' changes are set aside, and no conflict needs a decision.
    pub(crate) off: bool,
    /// The plan is to be carried out: keep the contents that it replaces.
    pub(crate) keeps: bool,
    /// Decisions about conflicts, by id.
    pub(crate) choices: &'a BTreeMap<String, Choice>,
    pub(crate) tell: Tell,
}

impl Planner<'_> {
    pub(crate) fn plan(&self) -> Result<Plan, FilesError> {
        let mut plan = Plan::default();
        let none = BTreeMap::new();
        let wanted = if self.retire { &none } else { &self.wanted.entries };
        plan.before = self.past.before.clone();
        plan.before_is_new = self.past.inherited;
        plan.goes_on = !self.past.begun.aim.is_empty();
        let mut strangers = BTreeSet::new();
        for (path, entry) in wanted {
            if matches!(entry.node, Node::Folder { whole: true, .. }) {
                self.strangers(path, &mut plan, &mut strangers)?;
            }
        }
        let on_the_way = self.folders_on_the_way(wanted);
        for (path, entry) in wanted {
            let (target, unknown) = self.target(path, entry)?;
            for error in unknown {
                plan.blocked.push(error);
            }
            let only_there = target.implied && !plan.before.contains_key(path);
            let live = if only_there && on_the_way.contains(path) { None } else { Some(self.disk.look(path)?) };
            if only_there && matches!(live, None | Some(Found::Folder { .. })) {
                if self.same || !self.store.was_absent_for_another(path)? {
                    continue;
                }
                // Another change object made it and may depart before this tree: the last that departs removes it.
                plan.before.insert(path.clone(), RecordedEntry { implied: true, ..RecordedEntry::absent() });
                plan.before_is_new = true;
            }
            let live = live.map_or_else(|| self.disk.look(path), Ok)?;
            self.settle(path, &target, &live, &mut plan)?;
            let node = match &target.node {
                TargetNode::File(_) if target.secret => RecordedNode::Secret,
                TargetNode::File(bytes) => RecordedNode::File(Blob::New(bytes.clone())),
                TargetNode::Stored { id, .. } => RecordedNode::File(Blob::Known(*id)),
                TargetNode::Link(to) => RecordedNode::Link(to.clone()),
                TargetNode::Folder => RecordedNode::Folder,
                TargetNode::Absent => RecordedNode::Absent,
            };
            let Target { managed, implied, shared, .. } = target;
            let kept = RecordedEntry { node, managed, implied, shared: Some(shared) };
            plan.hold(path, kept_size(&kept))?;
            plan.applied.insert(path.clone(), kept);
        }
        self.leave(wanted, &mut plan)?;
        // Entries with these names from before the folder was managed as a whole come back later.
        let before = self.past.before.keys().chain(plan.before.keys());
        plan.places = before.filter(|path| is_staged(path.name())).cloned().collect();
        let left = self.disk.left_beside(self.past.begun.aim.keys())?;
        let left = left.into_iter().filter(|path| !plan.places.contains(path));
        plan.steps.extend(left.map(|path| (path, Step::RemoveStaged)));
        // Paths of an interrupted action that need no step now are noted for the next attempt, too.
        let (ours, last) = (&mut plan.begun, &self.past.begun);
        for (path, aim) in last.aim.iter().filter(|(path, _)| !ours.aim.contains_key(*path)).collect::<Vec<_>>() {
            ours.aim.insert(path.clone(), aim.clone());
            for (to, from) in
                [(&mut ours.from, &last.from), (&mut ours.base, &last.base), (&mut ours.result, &last.result)]
            {
                to.extend(from.get_key_value(path).map(|(path, kept)| (path.clone(), kept.clone())));
            }
        }
        Ok(plan)
    }

    /// Parent folders that exist and need no lookup: an implied folder that leads to a wanted path was opened already.
    fn folders_on_the_way(&self, wanted: &BTreeMap<TreePath, Entry>) -> BTreeSet<TreePath> {
        let mut there = BTreeSet::new();
        for parent in wanted.iter().filter(|(_, e)| !e.is_implied()).filter_map(|(path, _)| path.parent()) {
            if there.contains(&parent) || !wanted.get(&parent).is_some_and(Entry::is_implied) {
                continue;
            }
            // An obstacle is found when the path itself is looked up.
            if self.disk.leads_to(&parent) {
                there.extend(parent.ancestors());
                there.insert(parent);
            }
        }
        there
    }

    /// The model's entry of a path.
    fn target(&self, path: &TreePath, entry: &Entry) -> Result<(Target, Vec<FilesError>), FilesError> {
        let node = match &entry.node {
            Node::File(source) => TargetNode::File(source.read(path)?),
            Node::Link(target) => TargetNode::Link(target.clone()),
            Node::Folder { .. } => TargetNode::Folder,
        };
        if let TargetNode::File(bytes) = &node
            && bytes.len() as u64 > MAX_FILE
        {
            return Err(FilesError::TooLarge { path: path.clone(), size: bytes.len() as u64 });
        }
        let (managed, unknown) = entry.managed(path);
        let target = Target {
            node,
            managed,
            shared: entry.manage == Manage::Merge,
            reported: self.wanted.on_drift == OnDrift::Report && !entry.secret,
            secret: entry.secret,
            implied: entry.is_implied(),
        };
        Ok((target, unknown))
    }

    /// The last applied entry of a path. An interrupted action may have applied its own already.
    fn base(&self, path: &TreePath, live: &Live<'_>) -> Result<(Base<'_>, bool), FilesError> {
        if self.same {
            return Ok((Base::Same, false));
        }
        let past = self.past;
        let last = past.applied.get(path).or_else(|| past.before.get(path));
        let last = last.map_or(Base::None, Base::Recorded);
        let begun = &past.begun;
        let (Some(aim), Some(result)) = (begun.aim.get(path), begun.result.get(path)) else { return Ok((last, false)) };
        match past.progress.get(path) {
            Some(true) => return Ok((Base::Recorded(aim), false)),
            Some(false) => return Ok((begun.base.get(path).map_or(last, Base::Recorded), false)),
            None => {}
        }
        if live.is(&result.node)? {
            return Ok((Base::Recorded(aim), false));
        }
        let untouched = begun.from.get(path).map_or(Ok(true), |from| live.is(&from.node))?;
        Ok((begun.base.get(path).map_or(last, Base::Recorded), !untouched))
    }

    fn settle(&self, path: &TreePath, target: &Target, found: &Found, plan: &mut Plan) -> Result<(), FilesError> {
        let real = Live::new(self.disk, path, found);
        if let Some(error) = in_the_way(path, target, found) {
            plan.note(path, &format!("{path} is {}, but the model wants {}\n", found.word(), target.word()));
            plan.blocked.push(error);
            return Ok(());
        }
        let was = self.mine(path, target, &real)?;
        let (base, interrupted) = match &was {
            Some(was) => (Base::Recorded(&was.base), false),
            None => self.base(path, &real)?,
        };
        let mine = was.as_ref().and_then(|was| was.live(&real));
        let live = mine.as_ref().unwrap_or(&real);
        let is_target = live.is_target(&target.node)?;
        let written = self.tells_written(path, target);
        if !written && !real.is_target(&target.node)? && !target.implied {
            self.tell(path, target, &real, plan)?;
        }
        let first = !self.retire && !self.same && !plan.before.contains_key(path);
        if first {
            let kept = self.keep(path, found, target.secret, plan)?;
            plan.before.insert(path.clone(), RecordedEntry { implied: target.implied, ..kept });
            plan.new_before.insert(path.clone());
            plan.before_is_new = true;
        }
        // A folder has no content to merge; its entries have paths of their own.
        let folder = matches!(found, Found::Folder { .. }) || target.node == TargetNode::Folder;
        let as_before = if interrupted { None } else { self.as_before(path, target, &base, live, plan)? };
        let content = if let Some(clash) = was.as_ref().and_then(Mine::clash) {
            Err(clash)
        } else if is_target || folder {
            Ok(Content::Target)
        } else if let Some(text) = as_before {
            Ok(Content::Merged(text.to_vec()))
        } else {
            self.merge_content(target, &base, interrupted, live)?
        };
        let shared = target.shared || target.reported && base.manages(&target.managed);
        let set = self.set_back(path, target, live.found);
        let (attributes, conflicts) = self.sides(path, target, &set, &base, live.found, shared).merge();
        if !folder || !target.implied {
            let differences =
                found.attributes().map(|live| target.managed.differences(live, folder)).unwrap_or_default();
            if !differences.is_empty() && target.node != TargetNode::Absent {
                plan.note(path, &format!("{path}: {}\n", differences.join(", ")));
            }
        }
        let is_decided = !conflicts.is_empty() || content.is_err() || as_before.is_some();
        let (content, attributes) = if conflicts.is_empty() && content.is_ok() {
            (content.unwrap_or(Content::Live), attributes)
        } else {
            let id = self.conflict_id(path, target, &base, live)?;
            // Fields that only a single side changed are merged as always.
            let wanted = || match conflicts.is_empty() {
                true => attributes.clone(),
                false => self.sides(path, target, &set, &base, live.found, false).merge().0,
            };
            let decided = |excluded: Excluded, side| match excluded {
                (_, Some(_)) => match &was {
                    Some(was) if was.clash().is_some() => self.decide_clash(side, target, was, &real),
                    _ => self.merge_for(side, target, &base, live),
                },
                (_, None) => Ok(None),
            };
            // When a tree is put off, users' changes are set aside, even against the decision of the model.
            let by_model = self.wanted.decides().filter(|_| !self.off);
            let by_person = self.choices.get(&id);
            let choice = by_person.or(by_model);
            if let Some(choice) = choice {
                let what = content.as_ref().err().map_or_else(|| conflicts.join(", "), |(what, _)| what.clone());
                self.tell_decided(path, &what, choice, by_person.is_none(), plan);
            }
            match (content, choice) {
                // A field that both sides changed stays as it is here, unless a person decides otherwise.
                (Ok(content), Some(Choice::Ours)) => (content, attributes),
                (Ok(content), Some(Choice::Theirs)) => (content, wanted()),
                (Err(e), Some(Choice::Ours)) => (decided(e, Side::Ours)?.unwrap_or(Content::Live), attributes),
                (Err(e), Some(Choice::Theirs)) => (decided(e, Side::Theirs)?.unwrap_or(Content::Target), wanted()),
                (Ok(content), Some(Choice::Edited(_))) => (content, wanted()),
                (Err(_), Some(Choice::Edited(bytes))) => (Content::Merged(bytes.clone()), wanted()),
                (_, None) if self.off => return self.put_aside(path, target, &base, live, &real, plan),
                (content, None) => {
                    let (what, hunks) = content.err().unwrap_or_else(|| (conflicts.join(", "), None));
                    let goes = target.node == TargetNode::Absent;
                    plan.conflicts.push(Conflict { path: path.clone(), what, hunks, goes, id });
                    return Ok(());
                }
            }
        };
        let content = match (content, &was) {
            (Content::Live, Some(was)) if mine.is_some() => Content::Merged(was.content()),
            (content, _) => content,
        };
        if written {
            self.tell_written(path, target, &real, &content, plan)?;
        }
        let before = plan.steps.len();
        self.add_step(path, target, &real, content, attributes, plan)?;
        let changes = plan.steps.len() > before;
        if self.off {
            self.put_aside(path, target, &base, live, &real, plan)?;
        }
        if as_before.is_none() {
            self.keep_rollback(path, target, &base, live, &real, plan)?;
        }
        if changes {
            let comes = match (first, &was) {
                (true, _) => Comes::First,
                (false, Some(_)) => Comes::Again,
                (false, None) => Comes::Other,
            };
            self.keep_what_goes(path, target, &real, &base, comes, plan)?;
        } else if is_decided && !is_target && !target.secret && matches!(target.node, TargetNode::File(_)) {
            let kept = self.keep(path, found, false, plan)?;
            plan.stays.insert(path.clone(), kept);
        }
        Ok(())
    }

    fn merge_content(
        &self,
        target: &Target,
        base: &Base<'_>,
        interrupted: bool,
        live: &Live<'_>,
    ) -> Result<Result<Content, Excluded>, FilesError> {
        let kept = match base {
            Base::None => return Ok(Ok(Content::Target)),
            Base::Same => None,
            Base::Recorded(kept) => Some(*kept),
        };
        let same_as_base = kept.is_none_or(|kept| target.is(&kept.node));
        if !target.shared {
            return Ok(Ok(if target.reported && same_as_base { Content::Live } else { Content::Target }));
        }
        // A removed file is written again: a removal is no edit.
        if matches!(live.found, Found::Absent) {
            return Ok(Ok(Content::Target));
        }
        let Some(kept) = kept else { return Ok(Ok(Content::Live)) };
        // The file was not shared then, and its earlier text is not known.
        if kept.node == RecordedNode::Secret {
            return Ok(Ok(Content::Target));
        }
        let conflict = |what: &str, hunks| Ok(Err((what.to_owned(), hunks)));
        if interrupted {
            return conflict("it was changed after an action on it was interrupted", None);
        }
        if same_as_base {
            return Ok(Ok(Content::Live));
        }
        if live.is(&kept.node)? {
            return Ok(Ok(Content::Target));
        }
        match (&kept.node, live.found, &target.node) {
            (RecordedNode::File(blob), Found::File { .. }, TargetNode::File(theirs)) => {
                let base = self.store.blob(blob)?;
                match merge::merge(&base, live.content()?, theirs)? {
                    Merged::Clean(bytes) => Ok(Ok(Content::Merged(bytes))),
                    Merged::Conflict(hunks) => {
                        conflict("the same lines were changed here and in the model", Some(hunks))
                    }
                    Merged::Binary => {
                        conflict("it is binary or too large to be merged, and was changed here and in the model", None)
                    }
                }
            }
            (_, _, TargetNode::Absent) => conflict("a user has changed it, and the model removes it", None),
            _ => conflict("it was changed here and in the model", None),
        }
    }

    /// A merge in which `side` wins conflicting lines; all other changes of both sides are kept.
    fn merge_for(
        &self,
        side: Side,
        target: &Target,
        base: &Base<'_>,
        live: &Live<'_>,
    ) -> Result<Option<Content>, FilesError> {
        let Base::Recorded(RecordedEntry { node: RecordedNode::File(base), .. }) = base else { return Ok(None) };
        let TargetNode::File(theirs) = &target.node else { return Ok(None) };
        Ok(match merge::merge_for(Some(side), &self.store.blob(base)?, live.content()?, theirs)? {
            Merged::Clean(bytes) => Some(Content::Merged(bytes)),
            Merged::Conflict(_) | Merged::Binary => None,
        })
    }

    fn sides<'s>(
        &self,
        path: &TreePath,
        target: &'s Target,
        set: &'s SetBack,
        base: &'s Base<'_>,
        found: &'s Found,
        keep_changes: bool,
    ) -> Sides<'s> {
        let base = match base {
            Base::Same => Some(&target.managed),
            Base::Recorded(kept) => Some(&kept.managed),
            Base::None => None,
        };
        let folder = target.node == TargetNode::Folder;
        let alike = |kept: &&RecordedEntry| matches!(kept.node, RecordedNode::Folder) == folder;
        // A new or restored entry gets the attributes of the earlier entry: others may not have had the right to read
        // it.
        let before = self.past.before.get(path).filter(alike).and_then(|kept| full(&kept.managed));
        let default = before.unwrap_or_else(|| Attributes {
            mode: if folder { 0o755 } else { 0o644 },
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            xattrs: BTreeMap::new(),
        });
        Sides { base, live: found.attributes(), theirs: &set.to, gone: &set.gone, keep_changes, folder, default }
    }

    /// The attributes to set: the wanted attributes, and the earlier values of attributes that only the previous
    /// content set, if unchanged since.
    fn set_back(&self, path: &TreePath, target: &Target, found: &Found) -> SetBack {
        let (mut to, mut gone) = (target.managed.clone(), Vec::new());
        let past = self.past;
        let ours = past.applied.get(path).or_else(|| past.begun.aim.get(path)).map(|kept| &kept.managed);
        if let (Some(ours), Some(live)) = (ours, found.attributes()) {
            let before = past.before.get(path).and_then(|kept| full(&kept.managed));
            gone = to.set_back_dropped(ours, live, before.as_ref());
        }
        SetBack { to, gone }
    }

    fn add_step(
        &self,
        path: &TreePath,
        target: &Target,
        live: &Live<'_>,
        content: Content,
        attributes: Attributes,
        plan: &mut Plan,
    ) -> Result<(), FilesError> {
        let node = match (content, &target.node) {
            (Content::Live, _) => None,
            (Content::Merged(bytes), _) => Some(TargetNode::File(bytes.into())),
            (Content::Target, TargetNode::File(bytes)) => Some(TargetNode::File(bytes.clone())),
            (Content::Target, TargetNode::Stored { id, size }) => Some(TargetNode::Stored { id: *id, size: *size }),
            (Content::Target, TargetNode::Link(to)) => Some(TargetNode::Link(to.clone())),
            (Content::Target, TargetNode::Folder) => Some(TargetNode::Folder),
            (Content::Target, TargetNode::Absent) => Some(TargetNode::Absent),
        };
        let step = match (node, live.found) {
            (Some(TargetNode::Absent), Found::Absent) => None,
            (Some(TargetNode::Absent), Found::Folder { .. }) => Some(Step::RemoveFolder),
            (Some(TargetNode::Absent), _) => Some(Step::Remove),
            (Some(TargetNode::Folder), Found::Absent) => {
                Some(Step::MakeFolder { attributes: attributes.clone(), implied: target.implied })
            }
            (Some(TargetNode::Link(to)), found) if !matches!(found, Found::Link { target } if *target == to) => {
                Some(Step::Link(to))
            }
            (Some(TargetNode::File(bytes)), _) if !live.is_target(&TargetNode::File(bytes.clone()))? => {
                plan.hold(path, bytes.len() as u64)?;
                Some(Step::File { content: bytes, attributes: attributes.clone().of_new_content(&target.managed) })
            }
            (Some(stored @ TargetNode::Stored { id, .. }), _) if !live.is_target(&stored)? => {
                Some(Step::Stored { id, attributes: attributes.clone() })
            }
            _ => None,
        };
        let only = live.found.attributes().is_some_and(|live| *live != attributes) && !target.implied;
        let step = match (step, only) {
            (None, true) => Some(self.attributes_step(path, live, attributes, plan)?),
            (step, _) => step,
        };
        plan.steps.extend(step.map(|step| (path.clone(), step)));
        Ok(())
    }

    /// An id that changes with every side of the conflict.
    fn conflict_id(
        &self,
        path: &TreePath,
        target: &Target,
        base: &Base<'_>,
        live: &Live<'_>,
    ) -> Result<String, FilesError> {
        let theirs = format!("{:?}", target.managed);
        let ours = format!("{:?}", live.found);
        let base = match base {
            Base::Recorded(kept) => format!("{:?}", kept.managed),
            Base::Same | Base::None => String::new(),
        };
        let content: &[u8] = match &target.node {
            TargetNode::File(bytes) => bytes,
            TargetNode::Stored { id, .. } => id.as_bytes(),
            TargetNode::Link(bytes) => bytes,
            TargetNode::Absent | TargetNode::Folder => b"",
        };
        let large = if let Found::File { size, .. } = live.found { *size > HELD } else { false };
        let id = if large { live.id()? } else { None };
        let here: &[u8] = match (&id, live.found) {
            (Some(id), _) => id.as_bytes(),
            (None, Found::File { .. }) if !large => live.content()?,
            _ => b"",
        };
        let (path, sort) = (path.to_string(), target.word());
        let sides = [theirs.as_bytes(), ours.as_bytes(), base.as_bytes()];
        let parts = [path.as_bytes(), sort.as_bytes(), sides[0], sides[1], sides[2], content, here];
        Ok(canonical::fingerprint(&parts).to_string())
    }
}

impl Plan {
    fn note(&mut self, path: &TreePath, text: &str) {
        if self.different.last() != Some(path) {
            self.different.push(path.clone());
        }
        if self.told.len() < MAX_TOLD {
            self.told.push_str(text);
        }
    }
}
