//! Noticing that others change managed files: hints that make the daemon look, within a moment.
//!
//! inotify tells what happens in the folders of managed files. Our own writes are told from those of others by inode and time
//! of change, once the action that made them has ended. Hints may be lost (a queue that overflows, a limit of watches, a
//! network file system): the kind is checked at intervals besides.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cob_files::{Stamp, TreePath, Wanted};
use cob_types::CobId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;
use tracing::warn;

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(10);
/// What inotify has to tell is taken together: a file that is written is six events.
const LISTEN: Duration = Duration::from_millis(4);
/// Now and then whoever waits looks whether there is still anybody to wait for.
const ANYBODY: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// So many events are taken before others may look at what is known.
const EVENTS: usize = 512;
/// What is told: everything that may make a file another one, and nothing of those who only look, as we do.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);
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
    alarm: Option<Arc<OwnedFd>>,
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

/// A host may have tens of thousands of small trees: paths are shared, and lists have no room for more.
#[derive(Default)]
struct Watched {
    folders: BTreeMap<Arc<Path>, Folder>,
    /// By inotify's numbers; two paths that lead to the same folder have the same.
    watches: BTreeMap<i32, Vec<Arc<Path>>>,
    /// The folders of each change object, with its names in each.
    of: BTreeMap<CobId, Box<[Names]>>,
    pending: BTreeMap<CobId, BTreeSet<PathBuf>>,
    /// What has led to the looks that are to be made, by paths; empty: everything counts.
    hints: BTreeMap<CobId, BTreeSet<PathBuf>>,
    moving: BTreeMap<CobId, usize>,
    ours: BTreeMap<PathBuf, Stamp>,
}

/// The names that a change object has in a folder.
struct Names {
    folder: Arc<Path>,
    names: Box<[Arc<OsStr>]>,
}

/// A folder that is watched.
#[derive(Default)]
struct Folder {
    /// inotify's number; none: it is not watched any more.
    watch: Option<i32>,
    /// Who has which names in it: mostly one each.
    names: BTreeMap<Arc<OsStr>, Box<[CobId]>>,
    /// Whose the whole folder is.
    whole: BTreeSet<CobId>,
}

impl Folder {
    /// Somebody has a name in it; the name as all share it.
    fn add(&mut self, name: &OsStr, cob: &CobId) -> Arc<OsStr> {
        let (name, mut cobs) = match self.names.remove_entry(name) {
            Some((name, cobs)) => (name, cobs.into_vec()),
            None => (name.into(), Vec::new()),
        };
        if !cobs.contains(cob) {
            cobs.reserve_exact(1);
            cobs.push(cob.clone());
        }
        self.names.insert(name.clone(), cobs.into());
        name
    }

    /// Somebody has it no more.
    fn remove(&mut self, name: &OsStr, cob: &CobId) {
        let Some((name, cobs)) = self.names.remove_entry(name) else { return };
        let others: Box<[CobId]> = cobs.into_iter().filter(|other| other != cob).collect();
        if !others.is_empty() {
            self.names.insert(name, others);
        }
    }
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
        let mut named: BTreeMap<&Path, Vec<&OsStr>> = BTreeMap::new();
        for (folder, name) in paths.iter().filter_map(|path| Some((path.parent()?, path.file_name()?))) {
            named.entry(folder).or_default().push(name);
        }
        let mut of = Vec::with_capacity(watched.len());
        for folder in &watched {
            let path = match state.folders.get_key_value(folder.as_path()) {
                Some((path, _)) => path.clone(),
                None => folder.as_path().into(),
            };
            let own = state.folders.entry(path.clone()).or_default();
            let here = named.remove(folder.as_path()).unwrap_or_default();
            let names = here.into_iter().map(|name| own.add(name, cob)).collect();
            of.push(Names { folder: path, names });
        }
        for path in whole.into_iter().filter(|path| watched.contains(path)) {
            state.folders.entry(path.into()).or_default().whole.insert(cob.clone());
        }
        state.of.insert(cob.clone(), of.into());
    }

    /// Watches a folder; whether it is watched now. The state is not locked meanwhile: the folder may be on a disk that does
    /// not answer.
    fn watch(&self, folder: &Path, drifts: &mpsc::Sender<CobId>) -> bool {
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if watching.without {
            return false;
        }
        if self.inner.lock().folders.get(folder).is_some_and(|folder| folder.watch.is_some()) {
            return true;
        }
        if watching.alarm.is_none() {
            match self.begin(drifts) {
                Ok(alarm) => watching.alarm = Some(alarm),
                Err(error) => {
                    warn!(%error, "changes of files are not noticed at once: they are found by the checks at intervals");
                    watching.without = true;
                }
            }
        }
        let Some(alarm) = watching.alarm.as_ref() else { return false };
        match inotify::add_watch(alarm, folder, CHANGES) {
            Ok(number) => {
                self.inner.lock().is_watched(folder, number);
                true
            }
            Err(error) => {
                if error == Errno::NOSPC && !watching.told {
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
        for Names { folder: path, names } in state.of.remove(cob).unwrap_or_default() {
            for name in &names {
                state.ours.remove(&path.join(&**name));
            }
            let Some(folder) = state.folders.get_mut(&path) else { continue };
            folder.whole.remove(cob);
            names.iter().for_each(|name| folder.remove(name, cob));
            if folder.names.is_empty() && folder.whole.is_empty() {
                gone.extend(folder.watch.and_then(|number| state.unwatched(number, &path)));
                state.folders.remove(&path);
            }
        }
        drop(state);
        let watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        for number in gone {
            // One that has gone is not watched any more.
            let _ = watching.alarm.as_ref().map(|alarm| inotify::remove_watch(alarm, number));
        }
    }

    fn begin(&self, drifts: &mpsc::Sender<CobId>) -> std::io::Result<Arc<OwnedFd>> {
        let alarm = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        let (inner, heard) = (Arc::downgrade(&self.inner), alarm.clone());
        std::thread::Builder::new().name("file-watch".to_owned()).spawn(move || listen(&heard, &inner))?;
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
        Ok(alarm)
    }
}

/// Takes what inotify tells, as long as there is anybody who wants to know.
fn listen(alarm: &OwnedFd, inner: &Weak<Inner>) {
    let mut buffer = [MaybeUninit::uninit(); 16 << 10];
    let mut reader = inotify::Reader::new(alarm, &mut buffer);
    loop {
        let mut waits = [PollFd::new(alarm, PollFlags::IN)];
        match poll(&mut waits, Some(&ANYBODY)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => std::thread::sleep(LISTEN),
            Err(error) => {
                warn!(%error, "changes of files are not noticed any more: they are found by the checks at intervals");
                return;
            }
        }
        let Some(inner) = inner.upgrade() else { return };
        while inner.happened(alarm, &mut reader) {}
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes some of what inotify has to tell; whether there may be more.
    fn happened(&self, alarm: &OwnedFd, reader: &mut inotify::Reader<'_, &OwnedFd>) -> bool {
        let mut state = self.lock();
        let (mut concerned, mut more) = (false, true);
        for _ in 0..EVENTS {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    concerned |= state.happened(alarm, event.wd(), event.events(), name);
                }
                Err(Errno::INTR) => {}
                // Nothing is left.
                Err(_) => {
                    more = false;
                    break;
                }
            }
        }
        if concerned {
            self.changed.notify_all();
        }
        more
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
    /// A folder has got this number.
    fn is_watched(&mut self, folder: &Path, number: i32) {
        let path = match self.folders.get_key_value(folder) {
            Some((path, _)) => path.clone(),
            None => folder.into(),
        };
        self.folders.entry(path.clone()).or_default().watch = Some(number);
        let paths = self.watches.entry(number).or_default();
        if !paths.contains(&path) {
            paths.push(path);
        }
    }

    /// A path is not watched any more; its number, if no other has it.
    fn unwatched(&mut self, number: i32, path: &Path) -> Option<i32> {
        let paths = self.watches.get_mut(&number)?;
        paths.retain(|other| **other != *path);
        let last = paths.is_empty();
        if last {
            self.watches.remove(&number);
        }
        last.then_some(number)
    }

    /// What inotify says; whether it concerns anybody.
    fn happened(&mut self, alarm: &OwnedFd, number: i32, what: ReadFlags, name: Option<&OsStr>) -> bool {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Something was missed: everybody is looked at.
            let all: Vec<CobId> = self.of.keys().cloned().collect();
            self.pending.extend(all.into_iter().map(|cob| (cob, BTreeSet::new())));
            return true;
        }
        let Some(folders) = self.watches.get(&number).cloned() else { return false };
        if what.intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF) {
            // What is at this path from here on is another folder, and watched by the next look.
            self.watches.remove(&number);
            for folder in &folders {
                self.folders.entry(folder.clone()).and_modify(|folder| folder.watch = None);
            }
            if what.contains(ReadFlags::MOVE_SELF) {
                let _ = inotify::remove_watch(alarm, number);
            }
        }
        let path = |folder: &Arc<Path>| name.map_or_else(|| folder.to_path_buf(), |name| folder.join(name));
        let mut any = false;
        for folder in &folders {
            any |= self.concerns(&path(folder));
        }
        any
    }

    /// Notes whom a change of this path concerns; whether anybody.
    fn concerns(&mut self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        if name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".cob-new") {
            return false;
        }
        let mut cobs = BTreeSet::new();
        if let Some(folder) = path.parent().and_then(|parent| self.folders.get(parent)) {
            cobs.extend(folder.names.get(name as &OsStr).into_iter().flat_map(|cobs| cobs.iter()).cloned());
            cobs.extend(folder.whole.iter().cloned());
        }
        // The folder itself was moved, removed or given other attributes.
        if let Some(folder) = self.folders.get(path) {
            cobs.extend(folder.names.values().flat_map(|cobs| cobs.iter()).chain(&folder.whole).cloned());
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
