//! Watches managed files for changes from outside: hints make the daemon check at once.
//!
//! inotify reports events in the folders of managed files. After an action has ended, inode and change time tell our
//! own writes from writes by others. Hints may get lost (queue overflow, limit of watches, network file system), so the
//! kind is also checked periodically.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cob_files::{Stamp, TreePath, Wanted};
use cob_types::CobId;
use notify::event::ModifyKind;
use notify::{EventKind, EventKindMask, RecommendedWatcher, RecursiveMode, Watcher as _};
use thin_vec::ThinVec;
use tokio::sync::mpsc;
use tracing::warn;

/// How long events gather in the kernel after the inotify thread was woken. A write to a file causes about five events;
/// to wake the thread for each would slow down the writer.
const REST: Duration = Duration::from_millis(5);
/// An event within this time after the previous event did not wake the thread.
const WAKING: Duration = Duration::from_micros(100);
/// How long changes gather before a common check.
const GATHER: Duration = Duration::from_millis(5);
/// The most remembered paths per change object. Beyond that, the whole tree is checked.
const PATHS: usize = 64;

/// The watches of all file trees.
#[derive(Default)]
pub(super) struct Watch {
    inner: Arc<Inner>,
    /// Lock order: before `Inner::state`, never while it is held.
    watching: Mutex<Watching>,
}

#[derive(Default)]
struct Watching {
    watcher: Option<RecommendedWatcher>,
    /// No watcher is available.
    without: bool,
    /// The warning about the limit of watches was logged.
    told: bool,
}

#[derive(Default)]
struct Inner {
    state: Mutex<Watched>,
    changed: Condvar,
    rest: Rest,
}

/// The rest of the inotify thread. This thread also adds and removes watches; requests for it interrupt the rest.
#[derive(Default)]
struct Rest {
    /// Number of callers that need the thread.
    asking: Mutex<usize>,
    asked: Condvar,
}

impl Rest {
    /// Rests until the time is over or a caller needs the thread.
    fn rest(&self) {
        let nobody = |asking: &mut usize| *asking == 0;
        drop(self.asked.wait_timeout_while(self.asking(), REST, nobody));
    }

    /// Runs an operation that needs the thread.
    fn awake<T>(&self, what: impl FnOnce() -> T) -> T {
        *self.asking() += 1;
        self.asked.notify_all();
        let done = what();
        *self.asking() -= 1;
        done
    }

    fn asking(&self) -> MutexGuard<'_, usize> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Watched {
    folders: BTreeMap<Arc<Path>, Folder>,
    /// The watched spots of each change object.
    of: BTreeMap<CobId, Spots>,
    pending: BTreeMap<CobId, BTreeSet<PathBuf>>,
    /// The changed paths that caused the pending checks, as hints; an empty set means the whole tree.
    hints: BTreeMap<CobId, BTreeSet<PathBuf>>,
    moving: BTreeMap<CobId, usize>,
}

/// The watched spots of a change object. Most have one path, and there are tens of thousands of change objects.
enum Spots {
    One(Spot),
    Some(Box<[Spot]>),
}

impl Spots {
    fn of(mut all: Vec<Spot>) -> Self {
        match (all.pop(), all.is_empty()) {
            (Some(one), true) => Self::One(one),
            (last, _) => Self::Some(all.into_iter().chain(last).collect()),
        }
    }

    fn all(&self) -> &[Spot] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Some(all) => all,
        }
    }
}

/// A name in a folder, or the whole folder.
struct Spot {
    folder: Arc<Path>,
    name: Option<NameKey>,
}

/// The hash of a name in a folder. Names with the same hash are treated as one name, which can only cause needless
/// checks.
type NameKey = NonZeroU64;

fn name_key(name: &OsStr) -> NameKey {
    hashed(name)
}

/// A watched folder.
#[derive(Default)]
struct Folder {
    /// The change objects by watched name.
    names: BTreeMap<NameKey, Named>,
    /// The change objects that own the whole folder.
    whole: BTreeSet<CobId>,
    /// The watch is lost: the folder was removed, moved or replaced.
    lost: bool,
}

/// A watched name in a folder.
struct Named {
    cob: CobId,
    /// The other change objects of a shared file.
    others: ThinVec<CobId>,
    /// The mark of our own last write. `None`: we have not written it.
    ours: Option<Mark>,
}

impl Named {
    fn cobs(&self) -> impl Iterator<Item = &CobId> {
        std::iter::once(&self.cob).chain(&self.others)
    }

    /// Adds a change object.
    fn add(&mut self, cob: &CobId) {
        if self.cobs().all(|other| other != cob) {
            self.others.push(cob.clone());
        }
    }

    /// Removes a change object and the mark of our write. `None`: no change object is left.
    fn without(self, cob: &CobId) -> Option<Self> {
        let mut left = self.cobs().filter(|other| *other != cob).cloned();
        let cob = left.next()?;
        Some(Self { cob, others: left.collect(), ours: None })
    }
}

/// An action on a change object. Events during the action are examined after its end.
pub(super) struct Moving {
    inner: Arc<Inner>,
    cob: CobId,
}

impl Drop for Moving {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        if let Some(count) = state.moving.get_mut(&self.cob) {
            *count -= 1;
            if *count == 0 {
                state.moving.remove(&self.cob);
            }
        }
        if state.pending.contains_key(&self.cob) {
            self.inner.changed.notify_all();
        }
    }
}

impl Watch {
    /// Watches the existing folders of a tree.
    pub(super) fn cover(&self, cob: &CobId, wanted: &Wanted, drifts: &mpsc::Sender<CobId>) {
        let paths: Vec<PathBuf> = wanted.watched().map(real).collect();
        let whole: Vec<PathBuf> = wanted.whole_folders().map(real).collect();
        let parents = paths.iter().filter_map(|path| path.parent()).map(Path::to_owned);
        let folders: BTreeSet<PathBuf> = parents.chain(whole.iter().cloned()).collect();
        // A change object that leaves meanwhile must not end the watch of a folder that this one shares.
        let mut watching = self.watching();
        let watched: BTreeSet<_> =
            folders.into_iter().filter(|folder| self.watch(&mut watching, folder, drifts)).collect();
        let mut state = self.inner.lock();
        let mut of = Vec::new();
        for path in &paths {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { continue };
            if watched.contains(folder) {
                let (folder, in_it) = state.folder(folder);
                let name = name_key(name);
                let new = || Named { cob: cob.clone(), others: ThinVec::new(), ours: None };
                in_it.names.entry(name).or_insert_with(new).add(cob);
                of.push(Spot { folder, name: Some(name) });
            }
        }
        for path in whole.into_iter().filter(|path| watched.contains(path)) {
            let (folder, all_of_it) = state.folder(&path);
            all_of_it.whole.insert(cob.clone());
            of.push(Spot { folder, name: None });
        }
        state.of.insert(cob.clone(), Spots::of(of));
    }

    /// Watches a folder and returns whether it is watched. The state lock must be free meanwhile: the event handler
    /// needs it, and this call waits for the handler.
    fn watch(&self, watching: &mut Watching, folder: &Path, drifts: &mpsc::Sender<CobId>) -> bool {
        if watching.without {
            return false;
        }
        let lost = self.inner.lock().folders.get(folder).map(|folder| folder.lost);
        if lost == Some(false) {
            return true;
        }
        if watching.watcher.is_none() {
            match self.begin(drifts) {
                Ok(watcher) => watching.watcher = Some(watcher),
                Err(error) => {
                    warn!(%error, "changes of files are not noticed at once: they are found by the checks at intervals");
                    watching.without = true;
                }
            }
        }
        let Some(watcher) = watching.watcher.as_mut() else { return false };
        if lost == Some(true) {
            // A removed folder is not watched any more.
            let _ = self.inner.rest.awake(|| watcher.unwatch(folder));
        }
        match self.inner.rest.awake(|| watcher.watch(folder, RecursiveMode::NonRecursive)) {
            Ok(()) => {
                if let Some(folder) = self.inner.lock().folders.get_mut(folder) {
                    folder.lost = false;
                }
                true
            }
            Err(error) => {
                if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) && !watching.told {
                    watching.told = true;
                    warn!(
                        folder = %folder.display(),
                        "there are no more watches (fs.inotify.max_user_watches): changes of further files are found by \
                         the checks at intervals"
                    );
                }
                // Or the folder does not exist.
                false
            }
        }
    }

    /// Records our own writes.
    pub(super) fn ours(&self, stamps: &BTreeMap<TreePath, Stamp>) {
        let mut state = self.inner.lock();
        for (path, stamp) in stamps {
            // In a shared file, our write may differ from the content that other change objects want.
            if let Some(named) = state.named(&real(path)).filter(|named| named.others.is_empty()) {
                named.ours = Some(mark(*stamp));
            }
        }
    }

    /// Takes the changed paths that caused a check. An empty set: unknown.
    pub(super) fn take_hint(&self, cob: &CobId) -> BTreeSet<PathBuf> {
        self.inner.lock().hints.remove(cob).unwrap_or_default()
    }

    /// An action starts.
    pub(super) fn moving(&self, cob: &CobId) -> Moving {
        *self.inner.lock().moving.entry(cob.clone()).or_default() += 1;
        Moving { inner: self.inner.clone(), cob: cob.clone() }
    }

    /// The change object has departed, or is about to depart.
    pub(super) fn forget(&self, cob: &CobId) {
        let mut watching = self.watching();
        let mut state = self.inner.lock();
        state.pending.remove(cob);
        state.hints.remove(cob);
        let mut gone = Vec::new();
        let spots = state.of.remove(cob);
        for Spot { folder: path, name } in spots.iter().flat_map(Spots::all) {
            let Some(folder) = state.folders.get_mut(path) else { continue };
            match name {
                None => drop(folder.whole.remove(cob)),
                Some(name) => {
                    if let Some(left) = folder.names.remove(name).and_then(|named| named.without(cob)) {
                        folder.names.insert(*name, left);
                    }
                }
            }
            if folder.names.is_empty() && folder.whole.is_empty() {
                state.folders.remove(path);
                gone.push(path.clone());
            }
        }
        drop(state);
        for path in gone {
            // A removed folder is not watched any more.
            let _ = watching.watcher.as_mut().map(|w| self.inner.rest.awake(|| w.unwatch(&path)));
        }
    }

    /// This lock is taken before the lock of the state.
    fn watching(&self) -> MutexGuard<'_, Watching> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, drifts: &mpsc::Sender<CobId>) -> notify::Result<RecommendedWatcher> {
        let inner = Arc::downgrade(&self.inner);
        let mut last = Instant::now();
        let handler = move |event: notify::Result<notify::Event>| {
            let Some(inner) = inner.upgrade() else { return };
            if last.elapsed() > WAKING {
                inner.rest.rest();
            }
            inner.happened(event);
            last = Instant::now();
        };
        // Reads and opens are ignored: they would wake the daemon for our own checks and every reader.
        let only_changes =
            notify::Config::default().with_event_kinds(EventKindMask::CORE | EventKindMask::ACCESS_CLOSE);
        let watcher = RecommendedWatcher::new(handler, only_changes)?;
        let (inner, drifts) = (Arc::downgrade(&self.inner), drifts.clone());
        std::thread::Builder::new().name("file-drift".to_owned()).spawn(move || {
            while let Some(cobs) = inner.upgrade().map(|inner| inner.next()) {
                for cob in cobs {
                    if drifts.blocking_send(cob).is_err() {
                        return;
                    }
                }
            }
        })?;
        Ok(watcher)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles an inotify event.
    fn happened(&self, event: notify::Result<notify::Event>) {
        let mut state = self.lock();
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            Ok(_) | Err(_) => {
                // Events were lost, so all change objects are checked.
                let all: Vec<CobId> = state.of.keys().cloned().collect();
                state.pending.extend(all.into_iter().map(|cob| (cob, BTreeSet::new())));
                self.changed.notify_all();
                return;
            }
        };
        let is_another =
            matches!(event.kind, EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)));
        for path in event.paths {
            if let Some(folder) = state.folders.get_mut(path.as_path()).filter(|_| is_another) {
                folder.lost = true;
            }
            if state.concerns(&path) {
                self.changed.notify_all();
            }
        }
    }

    /// Waits for change objects that need a check.
    fn next(&self) -> Vec<CobId> {
        let mut state = self.lock();
        let ready = |state: &Watched| state.pending.keys().any(|cob| !state.moving.contains_key(cob));
        // Wakes up now and then, to end if the watch was dropped.
        let waited = self.changed.wait_timeout_while(state, Duration::from_secs(5), |state| !ready(state));
        drop(waited);
        std::thread::sleep(GATHER);
        state = self.lock();
        let due: Vec<CobId> = state.pending.keys().filter(|cob| !state.moving.contains_key(*cob)).cloned().collect();
        let mut drifted = Vec::new();
        for cob in due {
            let paths = state.pending.remove(&cob).unwrap_or_default();
            if paths.is_empty()
                || paths.iter().any(|path| present(path) != state.named(path).and_then(|named| named.ours))
            {
                match state.hints.get_mut(&cob) {
                    Some(hints) if hints.is_empty() || paths.is_empty() => hints.clear(),
                    Some(hints) => hints.extend(paths),
                    None => drop(state.hints.insert(cob.clone(), paths)),
                }
                drifted.push(cob);
            }
        }
        drifted
    }
}

impl Watched {
    /// A watched folder, and its shared path.
    fn folder(&mut self, path: &Path) -> (Arc<Path>, &mut Folder) {
        let path = match self.folders.get_key_value(path) {
            Some((path, _)) => path.clone(),
            None => path.into(),
        };
        let folder = self.folders.entry(path.clone()).or_default();
        (path, folder)
    }

    /// The entry of a watched path.
    fn named(&mut self, path: &Path) -> Option<&mut Named> {
        self.folders.get_mut(path.parent()?)?.names.get_mut(&name_key(path.file_name()?))
    }

    /// Records the change objects that a changed path affects, and returns whether there are any.
    fn concerns(&mut self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        if name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".cob-new") {
            return false;
        }
        let mut cobs = BTreeSet::new();
        if let Some(folder) = path.parent().and_then(|parent| self.folders.get(parent)) {
            cobs.extend(folder.names.get(&name_key(name)).into_iter().flat_map(|named| named.cobs()).cloned());
            cobs.extend(folder.whole.iter().cloned());
        }
        // The folder itself was moved, removed or got other attributes.
        if let Some(folder) = self.folders.get(path) {
            cobs.extend(folder.names.values().flat_map(|named| named.cobs()).chain(&folder.whole).cloned());
        }
        for cob in &cobs {
            match self.pending.get_mut(cob) {
                // Empty: the whole tree.
                Some(paths) if paths.is_empty() => {}
                Some(paths) if paths.len() >= PATHS => paths.clear(),
                Some(paths) => drop(paths.insert(path.to_owned())),
                None => drop(self.pending.insert(cob.clone(), BTreeSet::from([path.to_owned()]))),
            }
        }
        !cobs.is_empty()
    }
}

pub(super) fn real(path: &TreePath) -> PathBuf {
    let bytes: &[u8] = std::borrow::Borrow::borrow(path);
    Path::new("/").join(OsStr::from_bytes(bytes))
}

fn present(path: &Path) -> Option<Mark> {
    let meta = path.symlink_metadata().ok()?;
    Some(mark((meta.ino(), meta.ctime(), meta.ctime_nsec(), i64::try_from(meta.size()).unwrap_or(i64::MAX))))
}

/// A short hash of a file's stamp, which tells our write from later writes; there are very many marks.
type Mark = NonZeroU64;

fn mark(stamp: Stamp) -> Mark {
    hashed(stamp)
}

fn hashed(what: impl Hash) -> NonZeroU64 {
    NonZeroU64::MIN | BuildHasherDefault::<DefaultHasher>::default().hash_one(what)
}
