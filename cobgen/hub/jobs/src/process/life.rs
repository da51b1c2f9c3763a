//! The lock file of a job's process, seen from outside.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;
use std::thread;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Pid;

use super::ALIVE;

/// The longest process id in a lock file.
const LONGEST_NUMBER: u64 = 32;
/// The stack of a thread that only waits.
const STACK: usize = 64 << 10;

/// Whether the process of a job lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It holds its lock.
    Alive,
    /// Nobody holds the lock, or the file was never created.
    Dead,
}

/// Asks whether the process of the job in this folder lives. Before its announcement, a process counts as dead.
///
/// # Errors
///
/// The file can't be opened or locked: nothing is known then, so the process must be assumed to live.
pub fn probe(folder: &Path) -> io::Result<Life> {
    let Some(file) = open(folder)? else { return Ok(Life::Dead) };
    // The drop of the file releases the lock again.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Life::Dead),
        Err(Errno::WOULDBLOCK) => Ok(Life::Alive),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the process of the job in this folder is dead. It blocks the thread in the kernel, which wakes it at the
/// moment of the death.
///
/// # Errors
///
/// As for [`probe`].
pub fn wait_for_death(folder: &Path) -> io::Result<()> {
    let Some(file) = open(folder)? else { return Ok(()) };
    Ok(lock(&file, FlockOperation::LockShared)?)
}

/// Waits for the death in a thread of its own, which then calls the function.
///
/// # Errors
///
/// No further thread can be started.
pub fn watch(folder: &Path, then: impl FnOnce(io::Result<()>) + Send + 'static) -> io::Result<()> {
    let folder = folder.to_owned();
    in_thread(move || then(wait_for_death(&folder)))
}

pub(super) fn in_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("job".to_owned()).stack_size(STACK).spawn(work).map(|_| ())
}

/// Locks the file, and waits until it is free. Signals do not end the wait.
pub(super) fn lock(file: &File, operation: FlockOperation) -> rustix::io::Result<()> {
    loop {
        match flock(file, operation) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// The process id in the lock file. It means the owner of the lock as long as the lock is held.
pub(super) fn owner(folder: &Path) -> io::Result<Option<Pid>> {
    let Some(file) = open(folder)? else { return Ok(None) };
    let mut text = String::new();
    file.take(LONGEST_NUMBER).read_to_string(&mut text)?;
    Ok(text.trim().parse().ok().filter(|number| *number > 0).and_then(Pid::from_raw))
}

fn open(folder: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).open(folder.join(ALIVE)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
