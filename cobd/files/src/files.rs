//! The entry point: checks, applies and retires a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::apply::{Progress, carry_out};
use crate::decisions;
use crate::disk::{Disk, Found, Stamp};
use crate::error::{Conflict, FilesError};
use crate::path::TreePath;
use crate::plan::{Past, Plan, Planner, SetAside, Step, Tell};
use crate::sides::Live;
use crate::store::{Begun, Blob, Current, Frozen, Listing, Part, Reason, Record, RecordedEntry, RecordedNode, Store};
use crate::wanted::Wanted;

/// Seals earlier contents of files that hold secrets, for this host alone.
pub trait Vault: Send + Sync {
    /// Seals a content.
    /// Seals a content.
    ///
    /// # Errors
    /// The reason, in words.
    fn seal(&self, content: &[u8]) -> Result<Vec<u8>, String>;

    /// Opens a sealed content.
    ///
    /// # Errors
    /// The reason, in words.
    fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, String>;
}

/// The vault of a host that has no key.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoVault;

impl Vault for NoVault {
    fn seal(&self, _content: &[u8]) -> Result<Vec<u8>, String> {
        Err("can't be kept: this host has no key".to_owned())
    }

    fn open(&self, _sealed: &[u8]) -> Result<Vec<u8>, String> {
        Err("can't be opened: this host has no key".to_owned())
    }
}

/// The file trees of a host. Clones share all state.
#[derive(Clone)]
pub struct Files {
    pub(crate) store: Store,
    pub(crate) folder: PathBuf,
    pub(crate) vault: Arc<dyn Vault>,
    /// The file names of the change objects that have decisions which are not carried out yet.
    pub(crate) decided: Arc<Mutex<BTreeSet<String>>>,
    /// Held while a change object gives up shared paths: the last holder of a path must know that it is the last.
    leaving: Arc<Mutex<()>>,
}

/// The arguments of an action.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The change object's name.
    pub cob: &'a str,
    /// The generation of the action.
    pub generation: u64,
    /// The wanted tree.
    pub wanted: &'a Wanted,
    /// Whether the caller has cancelled the action: asked before each batch of files.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

/// The state of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The tree is not managed.
    Absent,
    /// The disk is as wanted, except for changes by others that may stay.
    Present,
    /// The disk differs from the wanted tree.
    Outdated,
    /// The disk differs, and a person has to decide.
    Conflict,
}

/// The result of a check.
#[derive(Debug)]
pub struct Checked {
    /// The state.
    pub state: State,
    /// The differences between the disk and the wanted tree, for people; bounded.
    pub difference: String,
    /// The paths that differ.
    pub paths: Vec<TreePath>,
    /// The conflicts.
    pub conflicts: Vec<Conflict>,
    /// The wanted tree was applied before: all differences are changes by others.
    pub drifted: bool,
}

impl Checked {
    /// The result for a tree that is not managed.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            state: State::Absent,
            difference: String::new(),
            paths: Vec::new(),
            conflicts: Vec::new(),
            drifted: false,
        }
    }
}

/// The result of an action.
#[derive(Debug)]
pub struct Applied {
    /// The number of paths that were written or removed.
    pub changed: usize,
    /// Folders that were to be removed but hold files of others.
    pub left: Vec<TreePath>,
    /// Stamps of the written paths: they tell COB's own writes from writes of others.
    pub stamps: BTreeMap<TreePath, Stamp>,
}

/// How many paths of a version are named in its record.
const PATHS: usize = 20;
/// A marker file beside the store: a store was created here.
const IN_USE: &str = "in-use";
/// How many attempts are made while others keep changing the files to replace.
const ATTEMPTS: usize = 10;

/// The missing part of a store that was in use, and the remedy. `None`: the store looks complete; it is not read.
#[must_use]
pub fn missing(folder: &Path) -> Option<String> {
    let store = folder.join("store.git");
    crate::store::missing(&store).map(|what| crate::store::remedy(&what, &store))
}

impl Files {
    /// Opens the store in a folder, or creates it. Only a single process may have it open.
    ///
    /// # Errors
    /// When the store can't be opened, or is gone from a folder where it was.
    pub fn open(folder: &Path, vault: Arc<dyn Vault>) -> Result<Self, FilesError> {
        let (path, in_use) = (folder.join("store.git"), folder.join(IN_USE));
        let failed = |what: String| FilesError::Store { path: path.display().to_string(), what };
        if in_use.exists() {
            missing(folder).map_or(Ok(()), |what| Err(failed(what)))?;
        }
        let store = Store::open(&path)?;
        if !in_use.exists() {
            // If the disk is full, the next start writes the marker: no other step depends on it.
            let _ = fs::write(&in_use, "");
        }
        let decisions = fs::read_dir(folder.join("choices")).into_iter().flatten().flatten();
        let named = |name: OsString| Some(name.to_str()?.strip_suffix(".json")?.to_owned());
        let decided = decisions.filter_map(|entry| named(entry.file_name())).collect();
        Ok(Self {
            store,
            folder: folder.to_owned(),
            vault,
            decided: Arc::new(Mutex::new(decided)),
            leaving: Arc::default(),
        })
    }

    /// Moves the records of the log into the repository, and merges small packs when there are many. The store does so
    /// by itself within seconds, also after a kill.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn settle(&self) -> Result<(), FilesError> {
        self.store.settle()
    }

    /// Checks the tree; changes no file.
    ///
    /// # Errors
    /// When the disk or the store can't be read.
    pub fn check(&self, cob: &str, wanted: &Wanted) -> Result<Checked, FilesError> {
        self.look(cob, wanted, false)
    }

    /// Whether the tree is managed: if not, it is [absent](State::Absent), no matter which files exist.
    #[must_use]
    pub fn is_managed(&self, cob: &str) -> bool {
        self.store.managed(cob).is_some()
    }

    /// Like [`Files::check`]. With `retire`, it compares the disk with the earlier files.
    ///
    /// # Errors
    /// When the disk or the store can't be read.
    pub fn look(&self, cob: &str, wanted: &Wanted, retire: bool) -> Result<Checked, FilesError> {
        self.look_and(Tell::Wanted, cob, wanted, retire)
    }

    /// Like [`Files::look`], but for shared files the difference is against the text that would be written.
    ///
    /// # Errors
    /// When the disk or the store can't be read.
    pub fn preview(&self, cob: &str, wanted: &Wanted, retire: bool) -> Result<Checked, FilesError> {
        self.look_and(Tell::Written, cob, wanted, retire)
    }

    fn look_and(&self, tell: Tell, cob: &str, wanted: &Wanted, retire: bool) -> Result<Checked, FilesError> {
        let current = self.store.managed(cob);
        if retire && current.is_none() {
            // The tree is not managed: the files on the disk do not matter, and need not even be readable.
            return Ok(Checked::absent());
        }
        let plan = self.plan(&Disk::new()?, cob, wanted, current.as_ref(), &For::Looking { retire, tell })?;
        let applied = current.as_ref().is_some_and(|c| c.is_of(&wanted.spec));
        // If the owner was deleted from the host since, the files in place are still right.
        let in_place = plan.steps.is_empty() && plan.blocked.iter().all(|e| matches!(e, FilesError::Unknown { .. }));
        let state = match (&current, plan.conflicts.is_empty()) {
            // When the tree comes back, the users' changes that were set aside conflict with it.
            (None, false) if self.store.set_aside(cob)?.is_some() => State::Conflict,
            (None, _) => State::Absent,
            (Some(_), false) => State::Conflict,
            (Some(_), true) if applied && in_place => State::Present,
            (Some(_), true) => State::Outdated,
        };
        let mut difference = plan.told;
        for error in &plan.blocked {
            difference.push_str(&format!("{error}\n"));
        }
        for conflict in &plan.conflicts {
            difference.push_str(&format!("conflict in {}: {}\n", conflict.path, conflict.what));
        }
        difference.push_str(&plan.decided);
        Ok(Checked {
            state,
            difference,
            drifted: applied && !plan.different.is_empty(),
            paths: plan.different,
            conflicts: plan.conflicts,
        })
    }

    /// Checks some paths of a tree whose other paths are unchanged since they were found as wanted; changes no file.
    /// `None`: these paths do not suffice, and the whole tree has to be checked.
    ///
    /// # Errors
    /// When the disk or the store can't be read.
    pub fn check_only<'p>(
        &self,
        cob: &str,
        wanted: &Wanted,
        paths: impl IntoIterator<Item = &'p Path>,
    ) -> Result<Option<Checked>, FilesError> {
        let current = self.store.managed(cob);
        if current.is_none_or(|c| !c.is_of(&wanted.spec)) {
            return Ok(None);
        }
        wanted.only(paths).map(|some| self.check(cob, &some)).transpose()
    }

    /// Applies the wanted tree.
    ///
    /// # Errors
    /// [`FilesError`]; every file then has its old or its new content, whole.
    pub fn apply(&self, job: &Job<'_>) -> Result<Applied, FilesError> {
        again_while_changed(|progress| self.apply_once(job, progress))
    }

    fn apply_once(&self, job: &Job<'_>, progress: &mut Progress) -> Result<Applied, FilesError> {
        let current = self.store.managed(job.cob);
        let disk = Disk::to_change()?;
        let (mut plan, _alone) = self.plan_to_change(&disk, job, current.as_ref(), &For::Applying(progress))?;
        let aims = self.may_go_on(&plan)?;
        self.validate(job, &plan)?;
        let first = plan.before_is_new || aims || !plan.found.is_empty();
        let kept = first.then(|| self.keep_first(job, &mut plan)).transpose()?;
        let unchanged = current.as_ref().is_some_and(|c| c.is_of(&job.wanted.spec));
        if !unchanged {
            self.keep_rollback(job.cob, &plan.back, plan.goes_on)?;
        }
        let done = carry_out(&disk, &self.store, &plan, job.is_cancelled, progress)?;
        if !unchanged || !plan.steps.is_empty() || plan.before_is_new {
            let applied = Record {
                spec: Some(job.wanted.spec.clone()),
                before: Part::New(plan.before.clone().into()),
                applied: Part::New(plan.applied.clone().into()),
                found: as_written(&plan).into(),
                ..record(job, Reason::Applied, &plan)
            };
            self.store.record_over(kept.as_ref(), self.sealed(job.wanted, &plan, applied)?)?;
        }
        // If the content was applied before, this only repairs drift: a decision may be for a future content.
        if !unchanged {
            self.undecide(job.cob);
        }
        Ok(done)
    }

    /// Retires the tree: restores the earlier files, merged with the changes that others made since.
    ///
    /// # Errors
    /// [`FilesError`]; every file then has its old or its new content, whole.
    pub fn retire(&self, job: &Job<'_>) -> Result<Applied, FilesError> {
        again_while_changed(|progress| self.retire_once(job, false, progress))
    }

    /// Retires the tree until it is applied again: changes by others are set aside and come back with it. A file whose
    /// changes exclude the earlier content stays in its place.
    ///
    /// # Errors
    /// [`FilesError`]; every file then has its old or its new content, whole.
    pub fn put_off(&self, job: &Job<'_>) -> Result<Applied, FilesError> {
        again_while_changed(|progress| self.retire_once(job, true, progress))
    }

    fn retire_once(&self, job: &Job<'_>, off: bool, progress: &mut Progress) -> Result<Applied, FilesError> {
        let Some(current) = self.store.managed(job.cob) else {
            return Ok(Applied { changed: 0, left: Vec::new(), stamps: BTreeMap::new() });
        };
        let disk = Disk::to_change()?;
        let (mut plan, _alone) = self.plan_to_change(&disk, job, Some(&current), &For::Retiring { off, progress })?;
        let aims = self.may_go_on(&plan)?;
        let first = aims || !plan.found.is_empty() || current.spec.is_some() && !plan.steps.is_empty();
        let kept = first.then(|| self.keep_first(job, &mut plan)).transpose()?;
        let done = carry_out(&disk, &self.store, &plan, job.is_cancelled, progress)?;
        let retired = Record {
            before: Part::New(Frozen::default()),
            applied: Part::New(Frozen::default()),
            found: plan.in_place.clone().into(),
            begun: plan.aside.clone().freeze(),
            ..record(job, Reason::Retired, &plan)
        };
        self.store.record_over(kept.as_ref(), self.sealed(job.wanted, &plan, retired)?)?;
        // When the tree comes back, decisions about its conflicts still count.
        if !off {
            self.forget_choices(job.cob);
        }
        Ok(done)
    }

    /// Stops managing the tree: the disk does not change, and the earlier files are never restored.
    ///
    /// # Errors
    /// When the store can't be read or written.
    pub fn let_go(&self, cob: &str) -> Result<(), FilesError> {
        let Some(current) = self.store.managed(cob) else { return Ok(()) };
        let _alone = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stays = self.store.listing(&current.before)?;
        stays.extend(self.store.listing(&current.applied)?);
        self.store.record(Record {
            cob: cob.to_owned(),
            generation: current.generation,
            reason: Reason::Retired,
            spec: None,
            paths: Vec::new(),
            before: Part::New(Frozen::default()),
            applied: Part::New(Frozen::default()),
            found: stays.into(),
            begun: Begun::default().freeze(),
        })?;
        self.forget_choices(cob);
        Ok(())
    }

    /// Refuses a plan that has conflicts. Returns whether the plan changes files.
    fn may_go_on(&self, plan: &Plan) -> Result<bool, FilesError> {
        if !plan.conflicts.is_empty() {
            return Err(FilesError::Conflict(plan.conflicts.clone()));
        }
        Ok(!plan.begun.aim.is_empty() && !plan.steps.is_empty())
    }

    /// Refuses a plan with a text that the command of its path does not accept.
    fn validate(&self, job: &Job<'_>, plan: &Plan) -> Result<(), FilesError> {
        plan.steps.iter().try_for_each(|(path, step)| match step {
            Step::File { content, .. } => job.wanted.validate(path, content, job.is_cancelled),
            Step::Stored { id, .. } => {
                job.wanted.validate(path, &self.store.blob(&Blob::Known(*id))?, job.is_cancelled)
            }
            Step::Link(_) | Step::MakeFolder { .. } | Step::Attributes(_) | Step::Remove => Ok(()),
            Step::RemoveFolder | Step::RemoveStranger | Step::RemoveStaged => Ok(()),
        })
    }

    /// Records durably the earlier contents that a rollback of this action needs. Until the action ends, the tree does
    /// not count as applied. Returns the new listing of the files from before.
    fn keep_first(&self, job: &Job<'_>, plan: &mut Plan) -> Result<Frozen, FilesError> {
        let mut before = plan.before.clone();
        if let Some(current) = self.store.managed(job.cob) {
            // An earlier content is kept until its path has departed.
            for (path, kept) in self.store.listing(&current.before)? {
                before.entry(path).or_insert(kept);
            }
        }
        let reason = if plan.before_is_new { Reason::Before } else { Reason::Found };
        let before = Frozen::from(before);
        let first = Record {
            before: Part::New(before.clone()),
            applied: plan.inherited.clone().map_or(Part::Same, |applied| Part::New(applied.into())),
            found: plan.found.clone().into(),
            begun: plan.begun.clone().freeze(),
            ..record(job, reason, plan)
        };
        let first = self.sealed(job.wanted, plan, first)?;
        self.store.record_with(plan.spool.take(), first)?;
        Ok(before)
    }

    /// Plans a change. The returned lock must be held until the change is recorded.
    fn plan_to_change(
        &self,
        disk: &Disk,
        job: &Job<'_>,
        current: Option<&Current>,
        aim: &For<'_>,
    ) -> Result<(Plan, Option<MutexGuard<'_, ()>>), FilesError> {
        let plan = self.plan(disk, job.cob, job.wanted, current, aim)?;
        if !plan.left_to_others {
            return Ok((plan, None));
        }
        let alone = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((self.plan(disk, job.cob, job.wanted, current, aim)?, Some(alone)))
    }

    fn plan(
        &self,
        disk: &Disk,
        cob: &str,
        wanted: &Wanted,
        current: Option<&Current>,
        aim: &For<'_>,
    ) -> Result<Plan, FilesError> {
        let (look, retire) = match aim {
            For::Looking { retire, .. } => (true, *retire),
            For::Applying(_) => (false, false),
            For::Retiring { .. } => (false, true),
            For::Deciding { retire } => (false, *retire),
        };
        let off = matches!(aim, For::Retiring { off: true, .. });
        let same = look && !retire && current.is_some_and(|c| c.is_of(&wanted.spec));
        let mut past = Past::default();
        if let (Some(current), false) = (current, same) {
            past = Past {
                before: self.store.listing(&current.before)?,
                applied: self.store.listing(&current.applied)?,
                begun: self.store.begun(current)?,
                ..Past::default()
            };
            self.open_sealed(&mut past.begun, &mut past.opened)?;
        }
        if !same && !retire {
            self.inherit(disk, cob, wanted, &mut past)?;
        }
        if let For::Applying(progress) | For::Retiring { progress, .. } = aim {
            past.progress = (*progress).clone();
        }
        // A person may replace an earlier decision until it is carried out.
        let decides = matches!(aim, For::Deciding { .. });
        // If the same content was applied last, no conflict can occur, and no earlier content is restored.
        let mut choices = if same { BTreeMap::new() } else { self.choices(cob) };
        choices.retain(|id, _| !decides || decisions::is_rollback_id(id));
        let tell = if let For::Looking { tell, .. } = aim { *tell } else { Tell::Nothing };
        let (store, vault) = (&self.store, &*self.vault);
        let keeps = matches!(aim, For::Applying(_) | For::Retiring { .. });
        let (past, choices) = (&mut past, &choices);
        let planner = Planner { disk, store, vault, wanted, past, same, retire, off, keeps, choices, tell };
        let mut plan = planner.plan()?;
        plan.opened.append(&mut past.opened);
        plan.inherited = past.inherited.then(|| std::mem::take(&mut past.applied));
        if !look && let Some(error) = plan.blocked.drain(..).next() {
            return Err(error);
        }
        Ok(plan)
    }

    /// The conflicts without the decisions of people: these decisions are not made yet, or may be replaced.
    pub(crate) fn undecided(&self, cob: &str, wanted: &Wanted, retire: bool) -> Result<Vec<Conflict>, FilesError> {
        let current = self.store.managed(cob);
        Ok(self.plan(&Disk::new()?, cob, wanted, current.as_ref(), &For::Deciding { retire })?.conflicts)
    }

    /// Takes over the earlier and the applied files of another change object that had wanted paths until now.
    fn inherit(&self, disk: &Disk, cob: &str, wanted: &Wanted, past: &mut Past) -> Result<(), FilesError> {
        let aside = self.set_aside(cob, &mut past.opened)?;
        for (path, _) in wanted.entries.iter().filter(|(_, entry)| !entry.is_implied()) {
            if past.before.contains_key(path) {
                continue;
            }
            let found = disk.look(path)?;
            let of_another = match found {
                Found::Absent => None,
                Found::File { .. } | Found::Folder { .. } | Found::Link { .. } | Found::Other => {
                    self.store.of_another(cob, path)?
                }
            };
            if of_another.is_none() && self.take_up(&Live::new(disk, path, &found), cob, &aside, past)? {
                continue;
            }
            if matches!(found, Found::Absent) {
                continue;
            }
            let (before, applied) = match of_another {
                Some(of_another) => of_another,
                // The folder exists only because another change object has a path below it.
                None if matches!(found, Found::Folder { .. }) && self.store.was_absent_for_another(path)? => {
                    (RecordedEntry::absent(), None)
                }
                None => continue,
            };
            past.before.insert(path.clone(), before);
            past.applied.extend(applied.map(|applied| (path.clone(), applied)));
            past.inherited = true;
        }
        // A file that stayed in its place, and the folders around it, belong to this change object even if not wanted
        // any more.
        for (path, before) in &aside.aim {
            let is_there = SetAside::of(&aside, path).is_none_or(|aside| aside.is_in_place());
            if let (Some(applied), true) = (aside.base.get(path), is_there)
                && !past.before.contains_key(path)
                && wanted.entries.get(path).is_none_or(|entry| entry.is_implied())
                && !self.store.has_another(path, false)?
            {
                past.before.insert(path.clone(), before.clone());
                past.applied.insert(path.clone(), applied.clone());
                past.inherited = true;
            }
        }
        Ok(())
    }

    /// Takes up a change that was set aside when this or another tree was put off. Returns whether it did.
    fn take_up(&self, live: &Live<'_>, cob: &str, own: &Begun, past: &mut Past) -> Result<bool, FilesError> {
        let path = live.path;
        let (aside, before) = match (SetAside::of(own, path), own.aim.get(path)) {
            (Some(aside), Some(before)) => (aside, before.clone()),
            _ => match self.aside_of_another(live, cob, &mut past.opened)? {
                Some(of_another) => of_another,
                None => return Ok(false),
            },
        };
        let is_gone = matches!(live.found, Found::Absent) && aside.left.node != RecordedNode::Absent;
        // A user has restored the earlier content.
        let is_back = aside.is_in_place() && live.is(&before.node)? && !live.is(&aside.left.node)?;
        if is_back || is_gone && !aside.is_in_place() {
            return Ok(false);
        }
        past.before.insert(path.clone(), before);
        past.applied.insert(path.clone(), aside.base.clone());
        if !aside.is_in_place() {
            past.aside.insert(path.clone(), aside);
        }
        past.inherited = true;
        Ok(true)
    }

    /// A change that another change object set aside when it was put off, if the disk still has the file that it left.
    fn aside_of_another(
        &self,
        live: &Live<'_>,
        cob: &str,
        opened: &mut BTreeSet<TreePath>,
    ) -> Result<Option<(SetAside, RecordedEntry)>, FilesError> {
        if !matches!(live.found, Found::File { .. } | Found::Link { .. }) {
            return Ok(None);
        }
        for other in self.store.with_aside().into_iter().filter(|other| **other != *cob) {
            let begun = self.set_aside(&other, opened)?;
            if let (Some(aside), Some(before)) = (SetAside::of(&begun, live.path), begun.aim.get(live.path))
                && live.is(&aside.left.node)?
            {
                return Ok(Some((aside, before.clone())));
            }
        }
        Ok(None)
    }
}

/// The purpose of a plan.
enum For<'a> {
    /// Report the differences.
    Looking { retire: bool, tell: Tell },
    /// Apply the tree, with the progress of an earlier attempt.
    Applying(&'a Progress),
    /// Retire the tree, with the progress of an earlier attempt: for good, or until it comes back.
    Retiring { off: bool, progress: &'a Progress },
    /// Decide its conflicts.
    Deciding { retire: bool },
}

/// Tries again, with a new plan, while others change the files to replace. If they do not stop, returns the last error.
fn again_while_changed(
    mut attempt: impl FnMut(&mut Progress) -> Result<Applied, FilesError>,
) -> Result<Applied, FilesError> {
    let mut progress = Progress::new();
    for _ in 1..ATTEMPTS {
        match attempt(&mut progress) {
            Err(FilesError::Changed { .. }) => {}
            ended => return ended,
        }
    }
    attempt(&mut progress)
}

/// Shared files whose text on the host differs from the applied text of the model, as they are on the host.
fn as_written(plan: &Plan) -> Listing {
    let begun = &plan.begun;
    let mut all = plan.stays.clone();
    for (path, aim) in begun.aim.iter().filter(|(_, aim)| aim.shared == Some(true)) {
        if let (RecordedNode::File(wanted), Some(RecordedEntry { node: result @ RecordedNode::File(written), .. })) =
            (&aim.node, begun.result.get(path))
            && wanted.id() != written.id()
        {
            all.insert(path.clone(), RecordedEntry::found(result.clone(), aim.managed.clone()));
        }
    }
    all
}

fn record(job: &Job<'_>, reason: Reason, plan: &Plan) -> Record {
    let mut paths: Vec<String> = plan.steps.iter().take(PATHS).map(|(path, _)| path.to_string()).collect();
    if plan.steps.len() > PATHS {
        paths.push(format!("and {} more", plan.steps.len() - PATHS));
    }
    Record {
        cob: job.cob.to_owned(),
        generation: job.generation,
        reason,
        spec: None,
        paths,
        before: Part::Same,
        applied: Part::Same,
        found: Frozen::default(),
        begun: Begun::default().freeze(),
    }
}
