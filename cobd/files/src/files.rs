//! The way in: looking at a tree, bringing it about, taking it back.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::apply::{Progress, carry_out};
use crate::decisions;
use crate::disk::{Disk, Found, Stamp};
use crate::error::{Conflict, FilesError};
use crate::path::TreePath;
use crate::plan::{Aside, Past, Plan, Planner, Tell};
use crate::sides::Live;
use crate::store::{Begun, Current, Frozen, Kept, KeptNode, Listing, Part, Reason, Record, Store};
use crate::wanted::Wanted;

/// Seals what was in files that hold secrets, for this host alone.
pub trait Vault: Send + Sync {
    /// Seals a content.
    ///
    /// # Errors
    /// Why it can't, in words.
    fn seal(&self, content: &[u8]) -> Result<Vec<u8>, String>;

    /// Opens one again.
    ///
    /// # Errors
    /// Why it can't, in words.
    fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, String>;
}

/// For hosts without a key.
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

/// The file trees of a host. Clones share everything.
#[derive(Clone)]
pub struct Files {
    pub(crate) store: Store,
    pub(crate) folder: PathBuf,
    pub(crate) vault: Arc<dyn Vault>,
    /// The names of files for change objects of which something is decided and not carried out.
    pub(crate) decided: Arc<Mutex<BTreeSet<String>>>,
    /// Held by who leaves something that others have, too: whoever is the last of them must see that.
    leaving: Arc<Mutex<()>>,
}

/// What something is done for.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The change object's name.
    pub cob: &'a str,
    /// The generation under which it is done.
    pub generation: u64,
    /// What is wanted.
    pub wanted: &'a Wanted,
    /// Set by whoever wants the end of it.
    pub cancelled: &'a AtomicBool,
}

/// The state of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing is managed.
    Absent,
    /// All is as wanted, but for changes by others that may stay.
    Present,
    /// Something else is there.
    Outdated,
    /// Something else is there, and a person has to decide.
    Conflict,
}

/// What a look has found.
#[derive(Debug)]
pub struct Checked {
    /// The state.
    pub state: State,
    /// In what the disk differs from what is wanted, for people; bounded.
    pub difference: String,
    /// The paths that differ.
    pub paths: Vec<TreePath>,
    /// What excludes each other.
    pub conflicts: Vec<Conflict>,
    /// What is wanted was applied: whatever differs, others have changed.
    pub drifted: bool,
}

impl Checked {
    /// Nothing is managed, and nothing more is to be said.
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

/// What was done.
#[derive(Debug)]
pub struct Applied {
    /// Paths that were written or removed.
    pub changed: usize,
    /// Folders that were to go and have something of others in them.
    pub left: Vec<TreePath>,
    /// What tells our own writes from those of others.
    pub stamps: BTreeMap<TreePath, Stamp>,
}

/// How many paths of a version are told.
const PATHS: usize = 20;
/// A file beside the store that says that there is one.
const IN_USE: &str = "in-use";
/// So often a tree is brought about anew because others have changed what was about to be replaced.
const ATTEMPTS: usize = 10;

/// What is gone of a store that was in use, and what to do about it; none: nothing, as far as that can be told without
/// reading it.
#[must_use]
pub fn missing(folder: &Path) -> Option<String> {
    let store = folder.join("store.git");
    crate::store::missing(&store).map(|what| crate::store::remedy(&what, &store))
}

impl Files {
    /// Opens what is kept in a folder, or makes it. One process at a time may.
    ///
    /// # Errors
    /// When the store can't be opened, or is gone from a folder in which there was one.
    pub fn open(folder: &Path, vault: Arc<dyn Vault>) -> Result<Self, FilesError> {
        let (path, in_use) = (folder.join("store.git"), folder.join(IN_USE));
        let failed = |what: String| FilesError::Store { path: path.display().to_string(), what };
        if in_use.exists() {
            missing(folder).map_or(Ok(()), |what| Err(failed(what)))?;
        }
        let store = Store::open(&path)?;
        if !in_use.exists() {
            // On a full disk the next life writes it: nothing else depends on it.
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

    /// Puts what waits in the log into the repository, and makes one pack of small ones where there are many. It comes to it
    /// by itself, within seconds, and after a kill as well.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn settle(&self) -> Result<(), FilesError> {
        self.store.settle()
    }

    /// Looks; changes nothing.
    ///
    /// # Errors
    /// When the disk or the store can't be read.
    pub fn check(&self, cob: &str, wanted: &Wanted) -> Result<Checked, FilesError> {
        self.look(cob, wanted, false)
    }

    /// Whether anything is managed: else it is [absent](State::Absent), whatever is there.
    #[must_use]
    pub fn is_managed(&self, cob: &str) -> bool {
        self.store.managed(cob).is_some()
    }

    /// The same; of one that leaves, `retire`, in what the disk differs from what was before.
    ///
    /// # Errors
    /// When the disk or the store can't be read.
    pub fn look(&self, cob: &str, wanted: &Wanted, retire: bool) -> Result<Checked, FilesError> {
        self.look_and(Tell::Wanted, cob, wanted, retire)
    }

    /// The same; but of shared files the difference is what would be written over what is there.
    ///
    /// # Errors
    /// When the disk or the store can't be read.
    pub fn foresee(&self, cob: &str, wanted: &Wanted, retire: bool) -> Result<Checked, FilesError> {
        self.look_and(Tell::Written, cob, wanted, retire)
    }

    fn look_and(&self, tell: Tell, cob: &str, wanted: &Wanted, retire: bool) -> Result<Checked, FilesError> {
        let current = self.store.managed(cob);
        if retire && current.is_none() {
            // There is nothing to take back: what is on the disk does not matter, and need not even be readable.
            return Ok(Checked::absent());
        }
        let plan = self.plan(&Disk::new()?, cob, wanted, current.as_ref(), &For::Looking { retire, tell })?;
        let applied = current.as_ref().is_some_and(|c| c.is_of(&wanted.spec));
        // An owner who has left the host since changes nothing about what is there.
        let in_place = plan.steps.is_empty() && plan.blocked.iter().all(|e| matches!(e, FilesError::Unknown { .. }));
        let state = match (&current, plan.conflicts.is_empty()) {
            // When it comes again users' changes of then are in the way.
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

    /// Looks at some paths of a tree, of which nothing else has changed since it was found to be as wanted; changes nothing.
    /// None: that can't be told from these paths alone, and the whole tree has to be looked at.
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

    /// Brings the tree about.
    ///
    /// # Errors
    /// [`FilesError`]; every file is its old content or the new one then.
    pub fn apply(&self, job: &Job<'_>) -> Result<Applied, FilesError> {
        again_while_changed(|progress| self.apply_once(job, progress))
    }

    fn apply_once(&self, job: &Job<'_>, progress: &mut Progress) -> Result<Applied, FilesError> {
        let current = self.store.managed(job.cob);
        let disk = Disk::to_change()?;
        let (mut plan, _alone) = self.plan_to_change(&disk, job, current.as_ref(), &For::Applying(progress))?;
        let aims = self.may_go_on(&plan)?;
        let first = plan.before_is_new || aims || !plan.found.is_empty();
        let kept = first.then(|| self.keep_first(job, &mut plan)).transpose()?;
        let unchanged = current.as_ref().is_some_and(|c| c.is_of(&job.wanted.spec));
        if !unchanged {
            self.keep_way_back(job.cob, &plan.back, plan.goes_on)?;
        }
        let done = carry_out(&disk, &self.store, &plan, job.cancelled, progress)?;
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
        // What was there already is put right: a decision may be for a content that is to come.
        if !unchanged {
            self.undecide(job.cob);
        }
        Ok(done)
    }

    /// Takes the tree back: what was there before is there again, with what others have changed since.
    ///
    /// # Errors
    /// [`FilesError`]; every file is its old content or the new one then.
    pub fn retire(&self, job: &Job<'_>) -> Result<Applied, FilesError> {
        again_while_changed(|progress| self.retire_once(job, false, progress))
    }

    /// Takes the tree back until it is brought about again: what others have changed is set aside, where it is needed then.
    /// What excludes what was there before stays in its place.
    ///
    /// # Errors
    /// [`FilesError`]; every file is its old content or the new one then.
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
        let done = carry_out(&disk, &self.store, &plan, job.cancelled, progress)?;
        let retired = Record {
            before: Part::New(Frozen::default()),
            applied: Part::New(Frozen::default()),
            found: plan.in_place.clone().into(),
            begun: plan.aside.clone().freeze(),
            ..record(job, Reason::Retired, &plan)
        };
        self.store.record_over(kept.as_ref(), self.sealed(job.wanted, &plan, retired)?)?;
        // When it comes again, what was decided about that counts.
        if !off {
            self.forget_choices(job.cob);
        }
        Ok(done)
    }

    /// Lets the tree go as it is: nothing on the disk changes, and what was there before is not put back any more, whatever
    /// this change object manages when it comes again.
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

    /// Refuses what can't be done; whether files are about to change.
    fn may_go_on(&self, plan: &Plan) -> Result<bool, FilesError> {
        if !plan.conflicts.is_empty() {
            return Err(FilesError::Conflict(plan.conflicts.clone()));
        }
        Ok(!plan.begun.aim.is_empty() && !plan.steps.is_empty())
    }

    /// Makes durable what is needed to take back what is about to be done. What was applied as a whole is no longer. Returns
    /// what stands as before from then on.
    fn keep_first(&self, job: &Job<'_>, plan: &mut Plan) -> Result<Frozen, FilesError> {
        let mut before = plan.before.clone();
        if let Some(current) = self.store.managed(job.cob) {
            // What leaves is not forgotten before it has left.
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

    /// A plan that is to be carried out, and what has to be held until that is on record.
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
        // What somebody has decided he may decide otherwise, until it is done.
        let decides = matches!(aim, For::Deciding { .. });
        // Where nothing else is wanted than was applied there is nothing to decide, and nothing to take back.
        let mut choices = if same { BTreeMap::new() } else { self.choices(cob) };
        choices.retain(|id, _| !decides || decisions::is_way_back(id));
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

    /// The conflicts that there are as long as nobody has decided, or where he decides otherwise.
    pub(crate) fn undecided(&self, cob: &str, wanted: &Wanted, retire: bool) -> Result<Vec<Conflict>, FilesError> {
        let current = self.store.managed(cob);
        Ok(self.plan(&Disk::new()?, cob, wanted, current.as_ref(), &For::Deciding { retire })?.conflicts)
    }

    /// What another change object has had until now comes with what was there before it, and with what it has applied.
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
                // It is there only because something of another one is below it.
                None if matches!(found, Found::Folder { .. }) && self.store.was_absent_for_another(path)? => {
                    (Kept::absent(), None)
                }
                None => continue,
            };
            past.before.insert(path.clone(), before);
            past.applied.extend(applied.map(|applied| (path.clone(), applied)));
            past.inherited = true;
        }
        // What stays in its place, and the folders around it, belongs to it also where it is not wanted any more.
        for (path, before) in &aside.aim {
            let is_there = Aside::of(&aside, path).is_none_or(|aside| aside.is_in_place());
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

    /// Takes up what was set aside when the tree went off, or another one that had the path. Whether anything was.
    fn take_up(&self, live: &Live<'_>, cob: &str, own: &Begun, past: &mut Past) -> Result<bool, FilesError> {
        let path = live.path;
        let (aside, before) = match (Aside::of(own, path), own.aim.get(path)) {
            (Some(aside), Some(before)) => (aside, before.clone()),
            _ => match self.aside_of_another(live, cob, &mut past.opened)? {
                Some(of_another) => of_another,
                None => return Ok(false),
            },
        };
        let is_gone = matches!(live.found, Found::Absent) && aside.left.node != KeptNode::Absent;
        // Somebody has brought back what was before.
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

    /// What another one has set aside when it went off, as long as it is what is there.
    fn aside_of_another(
        &self,
        live: &Live<'_>,
        cob: &str,
        opened: &mut BTreeSet<TreePath>,
    ) -> Result<Option<(Aside, Kept)>, FilesError> {
        if !matches!(live.found, Found::File { .. } | Found::Link { .. }) {
            return Ok(None);
        }
        for other in self.store.with_aside().into_iter().filter(|other| **other != *cob) {
            let begun = self.set_aside(&other, opened)?;
            if let (Some(aside), Some(before)) = (Aside::of(&begun, live.path), begun.aim.get(live.path))
                && live.is(&aside.left.node)?
            {
                return Ok(Some((aside, before.clone())));
            }
        }
        Ok(None)
    }
}

/// What a plan is made for.
enum For<'a> {
    /// Telling what differs.
    Looking { retire: bool, tell: Tell },
    /// Bringing the tree about, with what an attempt before has come to.
    Applying(&'a Progress),
    /// Taking it back, likewise, for good or until it comes again.
    Retiring { off: bool, progress: &'a Progress },
    /// Deciding about its conflicts.
    Deciding { retire: bool },
}

/// Tries again, with a new plan, as long as others change what is about to be replaced. Those who never stop are told.
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

/// Shared files of which what is applied is only what the model wants of them, as they are on the host.
fn as_written(plan: &Plan) -> Listing {
    let begun = &plan.begun;
    let mut all = plan.stays.clone();
    for (path, aim) in begun.aim.iter().filter(|(_, aim)| aim.shared == Some(true)) {
        if let (KeptNode::File(wanted), Some(Kept { node: result @ KeptNode::File(written), .. })) =
            (&aim.node, begun.result.get(path))
            && wanted.id() != written.id()
        {
            all.insert(path.clone(), Kept::found(result.clone(), aim.managed.clone()));
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
