//! The daemon's side of a file tree: checks its state and carries out its transitions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cob_files::{
    Applied, Checked, Content, Files, FilesError, Job, NoVault, OnConflict, State, TreePath, Vault, Wanted,
};
use cob_types::api::FilesAnswer;
use cob_types::message::Values;
use cob_types::status::FileDrift;
use cob_types::{Cob, CobId, Kind, StateName, canonical, secret};
use tracing::{info, warn};

use super::query;
use super::validate::Programs;
use super::vault::OwnKey;
use super::watch::{Watch, real};
use super::who;
use crate::clock::wall_s;
use crate::durable::{self, Sync};
use crate::kinds::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work, file_name};
use crate::kinds::known::{KnownSecrets, Looking};
use crate::kinds::pool::{Does, OneAtATime, Pool};
use crate::kinds::queries::FilesQuery;
use crate::run::{Opener, Sealed};

/// All states of the kind.
const STATES: [&str; 4] = ["absent", "outdated", "present", "conflict"];
/// At its start, the daemon deletes older versions of files, except for the newest version of each change object.
const KEPT: Duration = Duration::from_secs(400 * 24 * 3600);
/// From this number of paths a converged tree is remembered, so that a change of one path needs no complete check.
const LARGE: usize = 64;
/// The note beside the journal that a file store exists.
const NOTED: &str = "journal/file-store";
/// The most paths in the exported values.
const NAMED: usize = 10;

/// The back end `file-tree`.
#[derive(Default)]
pub(in crate::kinds) struct FileTree {
    shared: Arc<Shared>,
    pool: Pool,
}

/// The state that all jobs share.
#[derive(Default)]
pub(super) struct Shared {
    files: Mutex<Option<Files>>,
    turns: OneAtATime,
    /// The changes from outside that the last check found.
    drifted: Mutex<BTreeMap<CobId, Vec<FileDrift>>>,
    /// Large trees that were as desired after their last check or transition. Later changes are known by their paths.
    clean: Mutex<BTreeMap<CobId, Arc<Wanted>>>,
    /// Change objects that the last check found in conflict. A conflict may end when another change object takes the
    /// path.
    in_conflict: Mutex<BTreeSet<CobId>>,
    /// Departed change objects whose files stay, as long as the store has not released the files.
    kept: Mutex<BTreeSet<CobId>>,
    watch: Watch,
}

/// The input of a job, moved to its thread.
#[derive(Clone)]
pub(super) struct Need {
    shared: Arc<Shared>,
    cob: CobId,
    generation: u64,
    content: String,
    folder: PathBuf,
    secrets: Sealed,
    /// Observe mode: files made by others count like our own.
    observed: bool,
    /// The change object departs.
    leaving: bool,
    /// It stays in the model, so its tree comes back after a transition to absent.
    stays: bool,
    opener: Option<Opener>,
    known: Arc<KnownSecrets>,
    state_dir: PathBuf,
    drifts: tokio::sync::mpsc::Sender<CobId>,
}

impl FileTree {
    fn need(&self, tools: &Tools, context: &Context) -> Need {
        Need {
            shared: self.shared.clone(),
            cob: context.cob.id.clone(),
            generation: context.generation.0,
            content: context.cob.content.clone(),
            folder: context.folder.clone(),
            secrets: context.secrets.clone(),
            observed: context.cob.observe,
            leaving: context.leaving,
            stays: !context.leaving && context.cob.preferred != *"absent",
            opener: tools.opener().cloned(),
            known: tools.known().clone(),
            state_dir: tools.state_dir().to_owned(),
            drifts: tools.drifts().clone(),
        }
    }

    /// Opens the store in the background. The first check needs it, and a large store takes a while to open.
    fn open_beside(&self, tools: &Tools) {
        let (shared, opener, state_dir) = (self.shared.clone(), tools.opener().cloned(), tools.state_dir().to_owned());
        let opened = self.pool.run(Does::Look, move || shared.files(opener.as_ref(), &state_dir).map(drop));
        // A job that needs the store opens it again and reports the error.
        drop(opened);
    }
}

impl Backend for FileTree {
    fn name(&self) -> &'static str {
        "file-tree"
    }

    fn durable(&self) -> bool {
        false
    }

    fn checks_in_turn(&self) -> bool {
        true
    }

    fn accept(&self, kind: &Kind) -> Result<(), String> {
        if let Some(state) = kind.states.iter().find(|s| !STATES.contains(&s.as_str())) {
            return Err(format!("a file tree has no state {state}; it has {}", STATES.join(", ")));
        }
        if let Some(missing) = STATES.iter().find(|s| !kind.states.iter().any(|k| *k == **s)) {
            return Err(format!("a file tree needs the state {missing}"));
        }
        match kind.transitions.iter().find(|t| t.to != *"absent" && t.to != *"present") {
            Some(t) => Err(format!("a file tree has no transition from {} to {}", t.from, t.to)),
            None => Ok(()),
        }
    }

    fn accept_content(&self, text: &str) -> Result<(), String> {
        let content: Content = cob_kinds::parse(text)?;
        Wanted::new(content, "/".as_ref(), "").map(drop).map_err(|e| format!("content: {e}"))
    }

    fn check(&self, tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let (need, states) = (self.need(tools, context), context.kind.states.clone());
        let unknown = |reason: String| CheckOutcome::unknown(reason);
        // A large tree takes longer than the timeout of other kinds, and a repeated check would not be faster.
        self.pool.work(Does::Look, None, unknown, move |_| need.check(&states))
    }

    fn transition(&self, tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        let Some(transition) = context.transition(attempt) else {
            return Work::known(Outcome::failed(format!(
                "a file tree has no transition from {} to {}",
                attempt.from, attempt.to
            )));
        };
        let timeout = Duration::from_millis(transition.timeout_ms);
        let (need, up) = (self.need(tools, context), attempt.to == *"present");
        self.pool.work(Does::Wait, Some(timeout), Outcome::failed, move |cancelled| match need.make(up, cancelled) {
            Ok(done) => {
                if !done.left.is_empty() {
                    info!(cob = need.cob(), folders = ?done.left, "folders with foreign files were left");
                }
                Ok(Outcome::done())
            }
            Err(FilesError::Cancelled) => Ok(Outcome::Cancelled),
            Err(error @ FilesError::Conflict(_)) => Ok(Outcome::Conflict { reason: error.to_string() }),
            Err(error) => Err(error.to_string()),
        })
    }

    fn wake(&self, tools: &Tools) {
        if store(tools.state_dir()).exists() {
            self.open_beside(tools);
        }
    }

    fn watch(&self, tools: &Tools, cobs: &mut dyn Iterator<Item = Arc<Cob>>) {
        if !store(tools.state_dir()).exists() && cobs.next().is_some() {
            self.open_beside(tools);
        }
    }

    fn forget(&self, cob: &CobId) {
        self.shared.watch.forget(cob);
        lock(&self.shared.drifted).remove(cob);
        lock(&self.shared.clean).remove(cob);
        lock(&self.shared.in_conflict).remove(cob);
    }

    fn kept(&self, tools: &Tools, cob: &CobId) {
        if !store(tools.state_dir()).exists() {
            return;
        }
        lock(&self.shared.kept).insert(cob.clone());
        let (shared, opener, state_dir) = (self.shared.clone(), tools.opener().cloned(), tools.state_dir().to_owned());
        let cob = cob.clone();
        let begun = self.pool.run(Does::Look, move || {
            let files = shared.files(opener.as_ref(), &state_dir);
            let done = shared.turns.alone(&cob, || files.and_then(|files| shared.let_go(&cob, &files)));
            // The next job of this change object tries again before its own work.
            let _ = done.inspect_err(|error| warn!(%cob, %error, "the store has not let go of files that stay"));
        });
        drop(begun);
    }

    fn drift(&self, cob: &CobId) -> Vec<FileDrift> {
        lock(&self.shared.drifted).get(cob).cloned().unwrap_or_default()
    }

    fn may_conflict(&self, text: &str) -> bool {
        // A cheap text search first: among many trees, most are copies without these policies. Only the rest is parsed.
        let says = ["merge", "report", "adopt"].iter().any(|word| text.contains(&format!("\"{word}\"")));
        says && cob_kinds::parse::<Content>(text).is_ok_and(|content| content.on_conflict == OnConflict::Ask)
    }

    fn files(&self, tools: &Tools, context: &Context, query: FilesQuery) -> Option<Work<Result<FilesAnswer, String>>> {
        let need = self.need(tools, context);
        Some(self.pool.work(Does::Look, None, Err, move |_| Ok(query::answer(&need, query))))
    }
}

impl Shared {
    fn files(&self, opener: Option<&Opener>, state_dir: &Path) -> Result<Files, FilesError> {
        let mut files = lock(&self.files);
        if let Some(files) = &*files {
            return Ok(files.clone());
        }
        let vault: Arc<dyn Vault> = match opener {
            Some(opener) => Arc::new(OwnKey::new(opener.identity(), state_dir)),
            None => Arc::new(NoVault),
        };
        if let Some(what) = missing_store(state_dir) {
            return Err(FilesError::Content(what));
        }
        let opened = Files::open(&store(state_dir), vault)?;
        note_store(state_dir);
        let now = wall_s();
        opened.prune_later(now.saturating_sub(KEPT.as_secs()));
        *files = Some(opened.clone());
        Ok(opened)
    }

    /// Releases the files of a departed change object with this name in the store. The caller holds the job lock.
    fn let_go(&self, cob: &CobId, files: &Files) -> Result<(), FilesError> {
        if !lock(&self.kept).contains(cob) {
            return Ok(());
        }
        files.let_go(cob.as_str())?;
        lock(&self.kept).remove(cob);
        Ok(())
    }
}

/// The path of a host's file store.
fn store(state_dir: &Path) -> PathBuf {
    state_dir.join("files")
}

/// Reports a lost part of the store if the journal notes that a store exists. The note survives the loss of the folder.
pub(crate) fn missing_store(state_dir: &Path) -> Option<String> {
    let noted = state_dir.join(NOTED);
    if !noted.exists() {
        return None;
    }
    let what = cob_files::missing(&store(state_dir))?;
    Some(format!(
        "the store of files at {}: {what}; {} says that it was in use and goes with it",
        store(state_dir).display(),
        noted.display()
    ))
}

/// Writes the note that a store exists into the journal's folder.
fn note_store(state_dir: &Path) {
    let noted = state_dir.join(NOTED);
    if let (Some(folder), Some(name), false) = (noted.parent(), noted.file_name(), noted.exists())
        && folder.exists()
    {
        // After a failure, for example a full disk, the daemon's next start writes the note.
        let _ = durable::write_file(folder, &name.to_string_lossy(), 0o600, b"", Sync::Now);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Need {
    pub(super) fn cob(&self) -> &str {
        self.cob.as_str()
    }

    /// The store of this host. The first call opens it.
    pub(super) fn files(&self) -> Result<Files, FilesError> {
        self.shared.files(self.opener.as_ref(), &self.state_dir)
    }

    /// The store. Files that an earlier change object of this name left on the host are released first.
    fn files_alone(&self) -> Result<Files, FilesError> {
        let files = self.files()?;
        self.shared.let_go(&self.cob, &files)?;
        Ok(files)
    }

    /// The desired tree, with the values of secrets.
    pub(super) fn wanted(&self) -> Result<Wanted, FilesError> {
        let mut content: Content = cob_kinds::parse(&self.content).map_err(FilesError::Content)?;
        let marked = |text: &String| secret::marks(text).next().is_some();
        if content.files.values().any(|item| item.content.as_ref().is_some_and(marked)) {
            let opener = self.opener.as_ref().ok_or("it has secrets, and this host has no key".to_owned());
            let opened = opener.and_then(|o| o.open(self.secrets.iter().map(|(id, sealed)| (id, sealed.as_slice()))));
            let opened = opened.map_err(FilesError::Content)?;
            for item in content.files.values_mut() {
                if let Some(text) = item.content.as_mut().filter(|text| marked(text)) {
                    *text = opened.put_into_text(text).map_err(FilesError::Content)?;
                    item.secret = true;
                }
            }
        }
        let wanted = Wanted::new(content, &self.folder, &self.spec())?;
        let folder = self.state_dir.join("validate").join(file_name(&self.cob));
        let wanted = wanted.with_validator(Arc::new(Programs { folder, known: self.known.clone() }));
        Ok(if self.known.are_there() { wanted.with_secrets(self.known.clone()) } else { wanted })
    }

    /// The right to search for values of secrets.
    pub(super) fn looking(&self) -> Option<Looking> {
        self.known.look()
    }

    /// A text for users, with the values redacted: anyone may have copied a value into a file.
    pub(super) fn shown(&self, text: &str) -> String {
        self.known.look().map_or_else(|| text.to_owned(), |known| known.text(text))
    }

    /// A text that differs for every content and folder of files.
    fn spec(&self) -> String {
        let files = self.folder.file_name().unwrap_or_default().as_encoded_bytes();
        canonical::fingerprint(&[self.content.as_bytes(), files]).to_string()
    }

    /// The desired tree, if it is large and matched the disk after the last check or transition. The match is forgotten
    /// until the next [`Self::is_clean`].
    fn take_clean(&self) -> Option<Arc<Wanted>> {
        let clean = lock(&self.shared.clean).remove(&self.cob)?;
        (clean.spec() == self.spec()).then_some(clean)
    }

    /// Remembers that the tree matches the disk.
    fn is_clean(&self, wanted: Arc<Wanted>) {
        // Values of secrets are not kept in memory, and a patch for the model needs all paths.
        if wanted.size() >= LARGE && !wanted.has_secrets() && !wanted.adopts() && !self.observed {
            lock(&self.shared.clean).insert(self.cob.clone(), wanted);
        }
    }

    /// Makes the daemon check again.
    pub(super) fn look_again(&self) {
        // If the queue is full, the periodic check finds the change; `cobctl resolve` checks, too.
        let _ = self.drifts.try_send(self.cob.clone());
    }

    /// Runs only one job of this change object at a time.
    pub(super) fn alone<T>(&self, job: impl FnOnce() -> T) -> T {
        self.shared.turns.alone(&self.cob, || {
            let _looking = self.known.look();
            job()
        })
    }

    fn check(&self, states: &[StateName]) -> Result<CheckOutcome, String> {
        let look = || {
            let files = self.files_alone()?;
            if self.leaving && !files.is_managed(self.cob()) {
                // A departing change object that never managed files has no files to give back, so its desired content
                // is irrelevant.
                self.shared.watch.forget(&self.cob);
                lock(&self.shared.drifted).remove(&self.cob);
                return Ok(judge(states, Checked::absent(), false));
            }
            let (hint, clean) = (self.shared.watch.take_hint(&self.cob), self.take_clean());
            if let Some(wanted) = clean.filter(|_| !hint.is_empty())
                && let Some(mut checked) = files.check_only(self.cob(), &wanted, hint.iter().map(PathBuf::as_path))?
            {
                // Reports the changes at the known paths at once. A complete check follows, unless a transition brings
                // it.
                if checked.state == State::Present {
                    self.look_again();
                }
                self.note_drift(&wanted, &mut checked);
                return Ok(judge(states, self.told(checked), wanted.tolerates()));
            }
            let wanted = Arc::new(self.wanted()?);
            let mut checked = files.check(self.cob(), &wanted)?;
            let as_wanted = checked.difference.is_empty() && checked.paths.is_empty() && checked.conflicts.is_empty();
            if as_wanted && checked.state == State::Present {
                self.is_clean(wanted.clone());
            }
            if self.observed && checked.state == State::Absent && as_wanted {
                checked.state = State::Present;
            }
            if checked.state != State::Absent || self.observed {
                self.shared.watch.cover(&self.cob, &wanted, &self.drifts);
            }
            self.note_drift(&wanted, &mut checked);
            match checked.state {
                State::Conflict => lock(&self.shared.in_conflict).insert(self.cob.clone()),
                State::Absent | State::Outdated | State::Present => lock(&self.shared.in_conflict).remove(&self.cob),
            };
            self.keep_patch(&files, &wanted, &checked)?;
            Ok(judge(states, self.told(checked), wanted.tolerates()))
        };
        self.alone(look).map_err(|e: FilesError| e.to_string())
    }

    /// The result for users, with the values of secrets redacted.
    fn told(&self, checked: Checked) -> Checked {
        Checked { difference: self.shown(&checked.difference), ..checked }
    }

    /// Records changes by users for the status and, with the known evidence, for the history.
    fn note_drift(&self, wanted: &Wanted, checked: &mut Checked) {
        // In shared files, changes by users are as legitimate as changes of the model.
        let counts = checked.drifted && (checked.state != State::Present || wanted.tells());
        let paths = if counts { checked.paths.as_slice() } else { &[] };
        let drift: Vec<_> = paths.iter().take(NAMED).map(|path| who::evidence("/".as_ref(), &real(path))).collect();
        checked.difference.extend(drift.iter().map(who::line));
        let mut drifted = lock(&self.shared.drifted);
        if drift.is_empty() {
            drifted.remove(&self.cob);
        } else {
            drifted.insert(self.cob.clone(), drift);
        }
    }

    /// With `adopt`, keeps the changes by users as a patch for the model.
    fn keep_patch(&self, files: &Files, wanted: &Wanted, checked: &Checked) -> Result<(), FilesError> {
        if !wanted.adopts() {
            return Ok(());
        }
        let path = self.patch_path();
        let failed = |e: std::io::Error| FilesError::Content(format!("{}: {e}", path.display()));
        let patch = if checked.drifted { files.patch(wanted, &checked.paths)? } else { String::new() };
        if patch.is_empty() {
            return self.forget_patch();
        }
        if fs::read(&path).is_ok_and(|kept| kept == patch.as_bytes()) {
            return Ok(());
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            return Ok(());
        };
        fs::create_dir_all(folder).map_err(failed)?;
        durable::write_file(folder, name, 0o600, patch.as_bytes(), Sync::Later).map_err(failed)
    }

    /// Deletes the patch after the difference has gone.
    fn forget_patch(&self) -> Result<(), FilesError> {
        let path = self.patch_path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(FilesError::Content(format!("{}: {error}", path.display())))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The file with the patch of this change object.
    pub(super) fn patch_path(&self) -> PathBuf {
        self.patches().join(format!("{}.patch", file_name(&self.cob)))
    }

    fn patches(&self) -> PathBuf {
        store(&self.state_dir).join("patches")
    }

    fn make(&self, up: bool, cancelled: &AtomicBool) -> Result<Applied, FilesError> {
        self.alone(|| {
            let (wanted, files) = (Arc::new(self.wanted()?), self.files_alone()?);
            drop(self.take_clean());
            let is_cancelled = &|| cancelled.load(Ordering::Relaxed);
            let job = Job { cob: self.cob(), generation: self.generation, wanted: &wanted, is_cancelled };
            let _moving = self.shared.watch.moving(&self.cob);
            lock(&self.shared.drifted).remove(&self.cob);
            if !up {
                self.shared.watch.forget(&self.cob);
                let done = if self.stays { files.put_off(&job) } else { files.retire(&job) }?;
                self.forget_patch()?;
                return Ok(done);
            }
            let done = files.apply(&job)?;
            for other in lock(&self.shared.in_conflict).iter().filter(|other| **other != self.cob) {
                let _ = self.drifts.try_send(other.clone());
            }
            // Changes by users stay in the reports as long as they differ.
            if wanted.tells()
                && let Ok(mut left) = files.check(self.cob(), &wanted)
            {
                self.note_drift(&wanted, &mut left);
            }
            self.shared.watch.cover(&self.cob, &wanted, &self.drifts);
            self.shared.watch.ours(&done.stamps);
            if !wanted.tolerates() && done.left.is_empty() {
                self.is_clean(wanted);
            }
            Ok(done)
        })
    }
}

/// The result of a check, with the drift as export if the policy tolerates it.
fn judge(states: &[StateName], checked: Checked, tolerates: bool) -> CheckOutcome {
    let name = match checked.state {
        State::Absent => "absent",
        State::Present => "present",
        State::Outdated => "outdated",
        State::Conflict => "conflict",
    };
    let Some(state) = states.iter().find(|s| **s == *name).cloned() else {
        return CheckOutcome::unknown(format!("its kind has no state {name}"));
    };
    let present = checked.state == State::Present && tolerates;
    let exports = if present { exports(&checked.paths) } else { Values::new() };
    CheckOutcome { state: Ok(state), difference: checked.difference, exports, fresh: false }
}

/// Exports the paths that differ from the model and are left as they are.
fn exports(paths: &[TreePath]) -> Values {
    let named: Vec<_> = paths.iter().take(NAMED).map(ToString::to_string).collect();
    Values::from([("drift".to_owned(), canonical::json(&serde_json::json!(named)))])
}
