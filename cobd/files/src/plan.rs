//! The way from what is there to what is wanted, path by path: what is written, what excludes each other, what is to be
//! kept first. Nothing is changed here.
//!
//! ```text
//!   base   what was last applied (or what was there before anything was)
//!   live   what is on the disk
//!   target what is wanted; for what leaves: what was there before
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
use crate::store::{Begun, Blob, HELD, Kept, KeptNode, Listing, Spool, Store, Text};
use crate::wanted::{Entry, Manage, Node, OnDrift, Wanted};
use crate::{Choice, Vault};

/// Differences are told up to so many bytes, all paths together.
const MAX_TOLD: usize = 16 << 10;

mod aside;
mod back;
mod keep;
mod leaving;
mod telling;

pub(crate) use aside::Aside;
use aside::Mine;
pub(crate) use telling::Tell;

/// What is to be done, and what there is to say.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<(TreePath, Step)>,
    pub(crate) conflicts: Vec<Conflict>,
    /// What makes it impossible.
    pub(crate) blocked: Vec<FilesError>,
    /// In what the disk differs from what is wanted, for people.
    pub(crate) told: String,
    /// Conflicts that are decided, and how, for people.
    pub(crate) decided: String,
    /// Paths that differ, whether something is done about it or not.
    pub(crate) different: Vec<TreePath>,
    /// What was before, to be kept first.
    pub(crate) before: Listing,
    /// Whether it says more than is kept already.
    pub(crate) before_is_new: bool,
    /// What was applied by who had the paths until now, where something was taken over.
    pub(crate) inherited: Option<Listing>,
    /// Something stays as it is, because it is another change object's now: whoever is the last to leave takes it back.
    pub(crate) left_to_others: bool,
    /// What others have changed, to be kept first.
    pub(crate) found: Listing,
    /// What is applied when all steps are done.
    pub(crate) applied: Listing,
    /// Shared files that stay as they are, though something else is applied: a person has said so.
    pub(crate) stays: Listing,
    /// What is about to be done, so that the next one knows how far this one came.
    pub(crate) begun: Begun,
    /// An earlier attempt had begun something, and was interrupted.
    pub(crate) goes_on: bool,
    /// What users had of files that merging back would not give, by their ways back.
    pub(crate) back: BTreeMap<String, Choice>,
    /// What users have made of a tree that goes off: `from` is that, `base` on what it rests, `result` what is left in its place,
    /// `aim` what was before.
    pub(crate) aside: Begun,
    /// What of it stays in its place.
    pub(crate) in_place: Listing,
    /// Paths of which something was sealed, as [`Past::opened`] has them.
    pub(crate) opened: BTreeSet<TreePath>,
    /// Where something stood before that is named as if it were not in its place yet: nothing of ours stands there.
    pub(crate) places: BTreeSet<TreePath>,
    /// Paths of which what is there now is what was before.
    new_before: BTreeSet<TreePath>,
    /// Large contents that are to be kept.
    pub(crate) spool: Option<Spool>,
    /// Bytes that are held.
    held: u64,
}

/// What is done at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    File {
        content: Text,
        attributes: Attributes,
    },
    /// A file whose content is in the store, and too large to be held.
    Stored {
        id: Oid,
        attributes: Attributes,
    },
    Link(Vec<u8>),
    MakeFolder {
        attributes: Attributes,
        /// It is only on the way to something.
        implied: bool,
    },
    /// The content is as it should be.
    Attributes(Attributes),
    Remove,
    /// If it is empty.
    RemoveFolder,
    /// A folder that has no place there. Everything that was in it goes as well.
    RemoveStranger,
    /// What an action that was killed has left.
    RemoveStaged,
}

/// What is kept of a change object, as far as it is needed.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) before: Listing,
    pub(crate) applied: Listing,
    pub(crate) begun: Begun,
    /// How far an attempt of this very action has come with what is begun.
    pub(crate) progress: Progress,
    /// Some of it is of a change object that had these paths until now.
    pub(crate) inherited: bool,
    /// What users had made of paths when the tree went off, where something else is on the disk since.
    pub(crate) aside: BTreeMap<TreePath, Aside>,
    /// Paths of which something was sealed because the value of a secret stood in it.
    pub(crate) opened: BTreeSet<TreePath>,
}

/// How a path comes to be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// Nothing is kept of it.
    First,
    /// With what was set aside when its tree went off.
    Again,
    /// In any other way.
    Other,
}

/// Attributes to be set, and extended ones to be taken away.
struct SetBack {
    to: Managed,
    gone: Vec<String>,
}

/// What a plan is made with.
pub(crate) struct Planner<'a> {
    pub(crate) disk: &'a Disk,
    pub(crate) store: &'a Store,
    pub(crate) vault: &'a dyn Vault,
    pub(crate) wanted: &'a Wanted,
    pub(crate) past: &'a Past,
    /// Exactly this was applied last: the past need not be looked into.
    pub(crate) same: bool,
    /// It leaves.
    pub(crate) retire: bool,
    /// It does so for a while: nothing that users have made is lost, and there is nothing to decide.
    pub(crate) off: bool,
    /// It is to be carried out: what goes is kept.
    pub(crate) keeps: bool,
    /// Decisions about conflicts, by their ids.
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
                // Another one has made it, and may leave before this one: who leaves last removes it.
                plan.before.insert(path.clone(), Kept { implied: true, ..Kept::absent() });
                plan.before_is_new = true;
            }
            let live = live.map_or_else(|| self.disk.look(path), Ok)?;
            self.settle(path, &target, &live, &mut plan)?;
            let node = match &target.node {
                TargetNode::File(_) if target.secret => KeptNode::Secret,
                TargetNode::File(bytes) => KeptNode::File(Blob::New(bytes.clone())),
                TargetNode::Stored { id, .. } => KeptNode::File(Blob::Known(*id)),
                TargetNode::Link(to) => KeptNode::Link(to.clone()),
                TargetNode::Folder => KeptNode::Folder,
                TargetNode::Absent => KeptNode::Absent,
            };
            let Target { managed, implied, shared, .. } = target;
            let kept = Kept { node, managed, implied, shared: Some(shared) };
            plan.hold(path, kept_size(&kept))?;
            plan.applied.insert(path.clone(), kept);
        }
        self.leave(wanted, &mut plan)?;
        // What stands in such a folder before it is ours as a whole; it comes back.
        let before = self.past.before.keys().chain(plan.before.keys());
        plan.places = before.filter(|path| is_staged(path.name())).cloned().collect();
        let left = self.disk.left_beside(self.past.begun.aim.keys())?;
        let left = left.into_iter().filter(|path| !plan.places.contains(path));
        plan.steps.extend(left.map(|path| (path, Step::RemoveStaged)));
        // Of an action that was interrupted and came as far as a path that needs nothing: the next one has to know, too.
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

    /// Folders that are there, and of which nothing more is to be known: something is wanted below them, and they were
    /// walked through to its folder.
    fn folders_on_the_way(&self, wanted: &BTreeMap<TreePath, Entry>) -> BTreeSet<TreePath> {
        let mut there = BTreeSet::new();
        for parent in wanted.iter().filter(|(_, e)| !e.is_implied()).filter_map(|(path, _)| path.parent()) {
            if there.contains(&parent) || !wanted.get(&parent).is_some_and(Entry::is_implied) {
                continue;
            }
            // What is in the way is found when the path itself is looked at.
            if self.disk.leads_to(&parent) {
                there.extend(parent.ancestors());
                there.insert(parent);
            }
        }
        there
    }

    /// What the model wants at a path.
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

    /// What was last applied at a path. An action that was interrupted may have applied its own already.
    fn base(&self, path: &TreePath, live: &Live<'_>) -> Result<(Base<'_>, bool), FilesError> {
        if self.same {
            return Ok((Base::Same, false));
        }
        let past = self.past;
        let last = past.applied.get(path).or_else(|| past.before.get(path));
        let last = last.map_or(Base::None, Base::Kept);
        let begun = &past.begun;
        let (Some(aim), Some(result)) = (begun.aim.get(path), begun.result.get(path)) else { return Ok((last, false)) };
        match past.progress.get(path) {
            Some(true) => return Ok((Base::Kept(aim), false)),
            Some(false) => return Ok((begun.base.get(path).map_or(last, Base::Kept), false)),
            None => {}
        }
        if live.is(&result.node)? {
            return Ok((Base::Kept(aim), false));
        }
        let untouched = begun.from.get(path).map_or(Ok(true), |from| live.is(&from.node))?;
        Ok((begun.base.get(path).map_or(last, Base::Kept), !untouched))
    }

    fn settle(&self, path: &TreePath, target: &Target, found: &Found, plan: &mut Plan) -> Result<(), FilesError> {
        let real = Live::new(self.disk, path, found);
        if let Some(error) = in_the_way(path, target, found) {
            plan.note(path, &format!("{path} is {}, {} is wanted\n", found.word(), target.word()));
            plan.blocked.push(error);
            return Ok(());
        }
        let was = self.mine(path, target, &real)?;
        let (base, interrupted) = match &was {
            Some(was) => (Base::Kept(&was.base), false),
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
            plan.before.insert(path.clone(), Kept { implied: target.implied, ..kept });
            plan.new_before.insert(path.clone());
            plan.before_is_new = true;
        }
        // A folder has no content that could be merged; what is in it has paths of its own.
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
            // What only one side has changed is merged as ever.
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
            // Of a tree that goes off nothing is lost, whoever would decide.
            let by_model = self.wanted.decides().filter(|_| !self.off);
            let by_person = self.choices.get(&id);
            let choice = by_person.or(by_model);
            if let Some(choice) = choice {
                let what = content.as_ref().err().map_or_else(|| conflicts.join(", "), |(what, _)| what.clone());
                self.tell_decided(path, &what, choice, by_person.is_none(), plan);
            }
            match (content, choice) {
                // A field that was changed on both sides is as it is here, unless somebody says otherwise.
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
            self.keep_way_back(path, target, &base, live, &real, plan)?;
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
            Base::Kept(kept) => Some(*kept),
        };
        let same_as_base = kept.is_none_or(|kept| target.is(&kept.node));
        if !target.shared {
            return Ok(Ok(if target.reported && same_as_base { Content::Live } else { Content::Target }));
        }
        // What is wanted is there: who removes it has not changed it.
        if matches!(live.found, Found::Absent) {
            return Ok(Ok(Content::Target));
        }
        let Some(kept) = kept else { return Ok(Ok(Content::Live)) };
        // It was not shared then, and what it was is not known.
        if kept.node == KeptNode::Secret {
            return Ok(Ok(Content::Target));
        }
        let conflict = |what: &str, hunks| Ok(Err((what.to_owned(), hunks)));
        if interrupted {
            return conflict("it was changed while an action on it was interrupted", None);
        }
        if same_as_base {
            return Ok(Ok(Content::Live));
        }
        if live.is(&kept.node)? {
            return Ok(Ok(Content::Target));
        }
        match (&kept.node, live.found, &target.node) {
            (KeptNode::File(blob), Found::File { .. }, TargetNode::File(theirs)) => {
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
            (_, _, TargetNode::Absent) => conflict("it was changed here, and is to go", None),
            _ => conflict("it was changed here and in the model", None),
        }
    }

    /// What both have changed as this side has it, and what only one of them has changed as that one has it.
    fn merge_for(
        &self,
        side: Side,
        target: &Target,
        base: &Base<'_>,
        live: &Live<'_>,
    ) -> Result<Option<Content>, FilesError> {
        let Base::Kept(Kept { node: KeptNode::File(base), .. }) = base else { return Ok(None) };
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
            Base::Kept(kept) => Some(&kept.managed),
            Base::None => None,
        };
        let folder = target.node == TargetNode::Folder;
        let alike = |kept: &&Kept| matches!(kept.node, KeptNode::Folder) == folder;
        // What is made again, or given back, is as the one before, which others may not have been meant to read.
        let before = self.past.before.get(path).filter(alike).and_then(|kept| full(&kept.managed));
        let default = before.unwrap_or_else(|| Attributes {
            mode: if folder { 0o755 } else { 0o644 },
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            xattrs: BTreeMap::new(),
        });
        Sides { base, live: found.attributes(), theirs: &set.to, gone: &set.gone, keep_changes, folder, default }
    }

    /// What is set: what is wanted; and what an earlier content has set and this one says nothing of, as it was before, where
    /// nobody else has changed it since.
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

    /// Changes with every side of a conflict.
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
            Base::Kept(kept) => format!("{:?}", kept.managed),
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
