//! Noticing that others change managed files: hints that make the daemon look, within a moment.
//!
//! inotify tells what happens in the folders of managed files. Our own writes are told from those of others by inode and time
//! of change, once the action that made them has ended. Hints may be lost (a queue that overflows, a limit of watches, a
//! network file system): the kind is checked at intervals besides.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cob_files::{Stamp, TreePath, Wanted};
use cob_types::CobId;
use notify::event::ModifyKind;
use notify::{EventKind, EventKindMask, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tracing::warn;

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(10);
/// Paths remembered of one change object; of more, all count.
const PATHS: usize = 64;

/// The watches of all file trees.
#[derive(Default)]
pub(super) struct Watch {
    inner: Arc<Inner>,
    /// Taken before the state, never while it is locked.
    watching: Mutex<Watching>,
}

#[derive(Default)]
struct Watching {
    watcher: Option<RecommendedWatcher>,
    /// There is none to be had.
    without: bool,
    /// That there are no more watches was said.
    told: bool,
}

#[derive(Default)]
struct Inner {
    state: Mutex<Watched>,
    changed: Condvar,
}

#[derive(Default)]
struct Watched {
    folders: BTreeMap<PathBuf, Folder>,
    /// The folders of each change object, with its names in each. Most have one of each: no room is left for more.
    of: BTreeMap<CobId, Box<[Names]>>,
    pending: BTreeMap<CobId, BTreeSet<PathBuf>>,
    /// What has led to the looks that are to be made, by paths; empty: everything counts.
    hints: BTreeMap<CobId, BTreeSet<PathBuf>>,
    moving: BTreeMap<CobId, usize>,
    ours: BTreeMap<PathBuf, Stamp>,
}

/// A folder, and names in it.
type Names = (PathBuf, Vec<OsString>);

/// A folder that is watched.
#[derive(Default)]
struct Folder {
    /// Who has which names in it.
    names: BTreeMap<OsString, Vec<CobId>>,
    /// Whose the whole folder is.
    whole: BTreeSet<CobId>,
    /// What stands there now is not what is watched: it was removed, moved, or put in the place of another.
    lost: bool,
}

/// An action on a change object: what happens meanwhile is looked at when it has ended.
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
        self.inner.changed.notify_all();
    }
}

impl Watch {
    /// Watches the folders of a tree, as far as they are there.
    pub(super) fn cover(&self, cob: &CobId, wanted: &Wanted, drifts: &mpsc::Sender<CobId>) {
        let paths: Vec<PathBuf> = wanted.watched().map(real).collect();
        let whole: Vec<PathBuf> = wanted.whole_folders().map(real).collect();
        let parents = paths.iter().filter_map(|path| path.parent()).map(Path::to_owned);
        let folders: BTreeSet<PathBuf> = parents.chain(whole.iter().cloned()).collect();
        let watched: BTreeSet<PathBuf> = folders.into_iter().filter(|folder| self.watch(folder, drifts)).collect();
        let mut state = self.inner.lock();
        let mut of: Box<[Names]> = watched.iter().map(|w| (w.clone(), Vec::new())).collect();
        for path in &paths {
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { continue };
            // As sorted as they were in the set.
            if let Ok(at) = of.binary_search_by(|(watched, _)| watched.as_path().cmp(folder)) {
                of[at].1.push(name.to_owned());
                let names = &mut state.folders.entry(folder.to_owned()).or_default().names;
                let owners = names.entry(name.to_owned()).or_default();
                if !owners.contains(cob) {
                    owners.reserve_exact(1);
                    owners.push(cob.clone());
                }
            }
        }
        of.iter_mut().for_each(|(_, names)| names.shrink_to_fit());
        for path in whole.into_iter().filter(|path| watched.contains(path)) {
            state.folders.entry(path).or_default().whole.insert(cob.clone());
        }
        state.of.insert(cob.clone(), of);
    }

    /// Watches a folder; whether it is watched now. The state is not locked meanwhile: whoever tells of changes needs it, and
    /// is waited for here.
    fn watch(&self, folder: &Path, drifts: &mpsc::Sender<CobId>) -> bool {
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
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
            // One that has gone is not watched any more.
            let _ = watcher.unwatch(folder);
        }
        match watcher.watch(folder, RecursiveMode::NonRecursive) {
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
                // Or it is not there yet, or not any more.
                false
            }
        }
    }

    /// What we have written ourselves.
    pub(super) fn ours(&self, stamps: &BTreeMap<TreePath, Stamp>) {
        let mut state = self.inner.lock();
        state.ours.extend(stamps.iter().map(|(path, stamp)| (real(path), *stamp)));
    }

    /// What a look at a change object was asked for, since the last one; empty: that is not known.
    pub(super) fn take_hint(&self, cob: &CobId) -> BTreeSet<PathBuf> {
        self.inner.lock().hints.remove(cob).unwrap_or_default()
    }

    /// An action begins.
    pub(super) fn moving(&self, cob: &CobId) -> Moving {
        *self.inner.lock().moving.entry(cob.clone()).or_default() += 1;
        Moving { inner: self.inner.clone(), cob: cob.clone() }
    }

    /// It has left, or is about to.
    pub(super) fn forget(&self, cob: &CobId) {
        let mut state = self.inner.lock();
        state.pending.remove(cob);
        state.hints.remove(cob);
        let mut gone = Vec::new();
        for (path, names) in state.of.remove(cob).unwrap_or_default() {
            for name in &names {
                state.ours.remove(&path.join(name));
            }
            let Some(folder) = state.folders.get_mut(&path) else { continue };
            folder.whole.remove(cob);
            for name in &names {
                if let Some(cobs) = folder.names.get_mut(name) {
                    cobs.retain(|other| other != cob);
                    if cobs.is_empty() {
                        folder.names.remove(name);
                    }
                }
            }
            if folder.names.is_empty() && folder.whole.is_empty() {
                state.folders.remove(&path);
                gone.push(path);
            }
        }
        drop(state);
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        for path in gone {
            // One that has gone is not watched any more.
            let _ = watching.watcher.as_mut().map(|w| w.unwatch(&path));
        }
    }

    fn begin(&self, drifts: &mpsc::Sender<CobId>) -> notify::Result<RecommendedWatcher> {
        let inner = Arc::downgrade(&self.inner);
        let handler = move |event: notify::Result<notify::Event>| {
            let Some(inner) = inner.upgrade() else { return };
            inner.happened(event);
        };
        // Not of what is opened: neither our own looks nor what everybody reads is to wake this daemon.
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

    /// What inotify says.
    fn happened(&self, event: notify::Result<notify::Event>) {
        let mut state = self.lock();
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            Ok(_) | Err(_) => {
                // Something was missed: everybody is looked at.
                let all: Vec<CobId> = state.of.keys().cloned().collect();
                state.pending.extend(all.into_iter().map(|cob| (cob, BTreeSet::new())));
                self.changed.notify_all();
                return;
            }
        };
        let is_another =
            matches!(event.kind, EventKind::Create(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)));
        for path in event.paths {
            if let Some(folder) = state.folders.get_mut(&path).filter(|_| is_another) {
                folder.lost = true;
            }
            if state.concerns(&path) {
                self.changed.notify_all();
            }
        }
    }

    /// Waits for change objects that have to be looked at.
    fn next(&self) -> Vec<CobId> {
        let mut state = self.lock();
        let ready = |state: &Watched| state.pending.keys().any(|cob| !state.moving.contains_key(cob));
        // Now and then whoever waits looks whether there is still anybody to wait for.
        let waited = self.changed.wait_timeout_while(state, Duration::from_secs(5), |state| !ready(state));
        drop(waited);
        std::thread::sleep(GATHER);
        state = self.lock();
        let due: Vec<CobId> = state.pending.keys().filter(|cob| !state.moving.contains_key(*cob)).cloned().collect();
        let mut drifted = Vec::new();
        for cob in due {
            let paths = state.pending.remove(&cob).unwrap_or_default();
            let by_others = |path: &PathBuf| stamp(path) != state.ours.get(path).copied();
            if paths.is_empty() || paths.iter().any(by_others) {
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
    /// Notes whom a change of this path concerns; whether anybody.
    fn concerns(&mut self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        if name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".cob-new") {
            return false;
        }
        let mut cobs = BTreeSet::new();
        if let Some(folder) = path.parent().and_then(|parent| self.folders.get(parent)) {
            cobs.extend(folder.names.get(name as &OsStr).into_iter().flatten().cloned());
            cobs.extend(folder.whole.iter().cloned());
        }
        // The folder itself was moved, removed or given other attributes.
        if let Some(folder) = self.folders.get(path) {
            cobs.extend(folder.names.values().flatten().chain(&folder.whole).cloned());
        }
        for cob in &cobs {
            match self.pending.get_mut(cob) {
                // Empty: everything counts.
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

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = path.symlink_metadata().ok()?;
    Some((meta.ino(), meta.ctime(), meta.ctime_nsec(), i64::try_from(meta.size()).unwrap_or(i64::MAX)))
}
