//! Wakes the thread that supervises an action as soon as a file appears in its job's folder: the request to cancel.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// A single inotify instance for all jobs of a runner: a user may have few of them (`fs.inotify.max_user_instances`).
#[derive(Debug)]
pub(super) struct Alarms {
    /// `None` if the system has no free instance: then the threads have to poll.
    watch: Option<OwnedFd>,
    /// By the system's number for a watched folder.
    waiting: Mutex<BTreeMap<i32, Arc<OwnedFd>>>,
}

/// The alarm of a job.
#[derive(Debug)]
pub(super) struct Alarm<'a> {
    of: &'a Alarms,
    folder: i32,
    wakes: Arc<OwnedFd>,
}

impl Alarms {
    /// Listens in a separate thread, for as long as this process runs.
    pub(super) fn new() -> Arc<Self> {
        let watch = inotify::init(CreateFlags::CLOEXEC).ok();
        let alarms = Arc::new(Self { watch, waiting: Mutex::new(BTreeMap::new()) });
        let its = alarms.clone();
        // Without the thread no alarm would ever fire, so no job may rely on alarms.
        let begun = thread::Builder::new().stack_size(64 << 10).spawn(move || its.listen());
        begun.map_or_else(|_| Arc::new(Self { watch: None, waiting: Mutex::new(BTreeMap::new()) }), |_| alarms)
    }

    /// An alarm for this folder; `None` if the system has no free watch.
    pub(super) fn watch(&self, folder: &Path) -> Option<Alarm<'_>> {
        let watch = self.watch.as_ref()?;
        let wakes = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?);
        // Held over both steps, so that the listener does not search for a folder before it is in the map.
        let mut waiting = self.waiting();
        let folder = inotify::add_watch(watch, folder, WatchFlags::CREATE | WatchFlags::MOVED_TO).ok()?;
        waiting.insert(folder, wakes.clone());
        drop(waiting);
        Some(Alarm { of: self, folder, wakes })
    }

    fn listen(&self) {
        let Some(watch) = &self.watch else { return };
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(watch, &mut space);
        loop {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    self.waiting().values().for_each(|wakes| wake(wakes));
                }
                Ok(event) => {
                    self.waiting().get(&event.wd()).inspect(|wakes| wake(wakes));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<OwnedFd>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alarm<'_> {
    /// Becomes readable after a file has appeared in the folder.
    pub(super) fn wakes(&self) -> &OwnedFd {
        &self.wakes
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.of.waiting().remove(&self.folder);
        if let Some(watch) = &self.of.watch {
            // The folder may be gone.
            let _ = inotify::remove_watch(watch, self.folder);
        }
    }
}

fn wake(wakes: &OwnedFd) {
    // Fails only after four thousand million wake-ups without a read.
    let _ = rustix::io::write(wakes, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::testing::wait_for;
    use super::*;

    /// Whether it has fired since the last check.
    fn is_awake(alarm: &Alarm<'_>) -> bool {
        rustix::io::read(alarm.wakes(), &mut [0; 8]).is_ok()
    }

    #[test]
    fn an_alarm_is_woken_only_by_its_own_folder() {
        let root = tempfile::tempdir().expect("folder");
        let folder = |name: &str| root.path().join(name);
        for name in ["a", "b"] {
            fs::create_dir(folder(name)).expect("made");
        }
        let alarms = Alarms::new();
        assert!(alarms.watch(&folder("c")).is_none(), "not there");
        let (a, b) = (alarms.watch(&folder("a")).expect("watched"), alarms.watch(&folder("b")).expect("watched"));
        fs::write(folder("a").join("cancel"), "").expect("made");
        wait_for("it is woken", || is_awake(&a));
        assert!(!is_awake(&b));
        // Dropping an alarm ends it, even if its folder still exists.
        drop(a);
        fs::write(folder("a").join("more"), "").expect("made");
        fs::rename(folder("a").join("more"), folder("b").join("cancel")).expect("moved");
        wait_for("it is woken", || is_awake(&b));
        assert_eq!(alarms.waiting().len(), 1);
    }
}
