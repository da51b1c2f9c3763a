//! File locks: change objects of one host that work on the same files work one after the other.
//!
//! The programs that change these files often have a lock, but frequent attempts by many processes get in each other's
//! way, some programs fail instead of waiting, and a file that is read, changed and replaced has no lock.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first pause between two attempts: most holders need less. Later pauses are longer, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The lock files that threads of this process hold or wait for: only one thread at a time tries to lock a file.
static HERE: Mutex<BTreeMap<PathBuf, Queue>> = Mutex::new(BTreeMap::new());

/// The threads of this process at a lock file.
#[derive(Debug, Default)]
struct Queue {
    is_taken: bool,
    waiting: usize,
    /// Wakes one of the waiting threads.
    left: Arc<Condvar>,
}

fn here() -> MutexGuard<'static, BTreeMap<PathBuf, Queue>> {
    // The map is whole after each change.
    HERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file lock (`Turn`), held until it is dropped or its process ends.
#[derive(Debug)]
pub(in crate::kinds) struct Turn {
    // The file is unlocked before another thread of this process tries.
    held: File,
    _place: Place,
}

/// The place of a thread at a lock file, before all other threads of this process.
#[derive(Debug)]
struct Place(PathBuf);

impl Place {
    /// Waits until no other thread of this process has the place. `None`: another thread has it at the limit.
    fn wait(path: PathBuf, limit: Instant) -> Option<Self> {
        let mut here = here();
        loop {
            let queue = here.entry(path.clone()).or_default();
            if !queue.is_taken {
                queue.is_taken = true;
                return Some(Self(path));
            }
            let longest = limit.saturating_duration_since(Instant::now());
            if longest.is_zero() {
                return None;
            }
            queue.waiting += 1;
            let left = queue.left.clone();
            (here, _) = left.wait_timeout(here, longest).unwrap_or_else(PoisonError::into_inner);
            // A queue with waiting threads stays.
            here.entry(path.clone()).or_default().waiting -= 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut here = here();
        let Some(queue) = here.get_mut(&self.0) else { return };
        queue.is_taken = false;
        if queue.waiting > 0 {
            queue.left.notify_one();
        } else {
            here.remove(&self.0);
        }
    }
}

impl Turn {
    /// Waits for the file lock named `what`. The lock file is beside the folders of all change objects.
    ///
    /// # Errors
    /// If others hold the lock for all of `longest`.
    pub(in crate::kinds) fn wait(own: &Path, what: &str, longest: Duration) -> Result<Self, String> {
        let path = path(own, what);
        let late = || format!("other change objects of this host worked on {what} for all of {longest:?}");
        let limit = Instant::now() + longest;
        let place = Place::wait(path.clone(), limit).ok_or_else(late)?;
        let file = open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut pause = FIRST_PAUSE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { held: file, _place: place }),
                Err(TryLockError::WouldBlock) if Instant::now() < limit => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
                Err(TryLockError::WouldBlock) => return Err(late()),
                Err(TryLockError::Error(error)) => return Err(format!("{}: {error}", path.display())),
            }
        }
    }

    /// Takes the file lock, if it is free.
    pub(in crate::kinds) fn take(own: &Path, what: &str) -> Option<Self> {
        let path = path(own, what);
        let place = Place::wait(path.clone(), Instant::now())?;
        let file = open(&path).ok()?;
        file.try_lock().ok()?;
        Some(Self { held: file, _place: place })
    }
}

impl Drop for Turn {
    /// A process that another thread is starting has a copy of the file until its program runs, and with the copy the
    /// lock: closing the file alone would leave the lock for that time.
    fn drop(&mut self) {
        let _ = self.held.unlock();
    }
}

fn path(own: &Path, what: &str) -> PathBuf {
    own.parent().unwrap_or(own).join(format!(".{what}.lock"))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_lock_that_another_thread_holds_is_not_taken_and_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("one");
        let held = Turn::take(&own, "edits").expect("free");
        let others = || {
            let taken = Turn::take(&own, "edits").is_some();
            (taken, Turn::wait(&own, "edits", Duration::ZERO).is_ok(), here().contains_key(&path(&own, "edits")))
        };
        let seen = std::thread::scope(|scope| scope.spawn(others).join().expect("no panic"));
        assert_eq!(seen, (false, false, true));
        drop(held);
        assert!(Turn::take(&own, "edits").is_some());
    }

    #[test]
    fn each_of_many_waiting_threads_gets_the_lock_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("one");
        let (inside, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            for _ in 0..50 {
                let turn = Turn::wait(&own, "lines", Duration::from_secs(60)).expect("in time");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                turns.fetch_add(1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(turn);
                // Threads that give up do not keep the others from their turn.
                let _ = Turn::wait(&own, "lines", Duration::from_micros(50));
            }
        };
        std::thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(turns.into_inner(), 16 * 50);
        assert!(!here().contains_key(&path(&own, "lines")));
    }
}
