//! The locks of dpkg's database that other programs hold.
//!
//! A program that works on packages leaves them half-done for a while, so the state of the database is valid only while
//! no program works. The locks are only read and never taken: otherwise another program that does not wait would fail.

use std::fs::File;
use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::kinds::native::Host;

/// The lock of programs that call dpkg more than once, and dpkg's own lock.
const LOCKS: [&str; 2] = ["/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"];
/// The lock of programs that fetch lists of packages.
const OF_LISTS: [&str; 1] = ["/var/lib/apt/lists/lock"];
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until no other program works on the packages of a host.
///
/// # Errors
/// The program that still works after the whole time, as text.
pub(in crate::kinds) fn wait_until_free(host: &Host, longest: Duration) -> Result<(), String> {
    wait(host, &LOCKS, longest)
}

/// Waits until no other program fetches lists of packages: apt fails if it can't have its lock at once.
///
/// # Errors
/// The program that still works after the whole time, as text.
pub(in crate::kinds) fn wait_for_lists(host: &Host, longest: Duration) -> Result<(), String> {
    wait(host, &OF_LISTS, longest)
}

fn wait(host: &Host, locks: &[&str], longest: Duration) -> Result<(), String> {
    let limit = Instant::now() + longest;
    let mut is_told = false;
    while let Some(holder) = holder_of(host, locks)? {
        if Instant::now() >= limit {
            return Err(format!("another program has worked on packages for all of {longest:?}: {holder}"));
        }
        if !is_told {
            // Shown in the action's output.
            let _ = writeln!(io::stderr(), "waiting for another program that works on packages: {holder}");
            is_told = true;
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// The holder of a lock, as text. `None`: the locks are free.
pub(super) fn holder(host: &Host) -> Result<Option<String>, String> {
    holder_of(host, &LOCKS)
}

fn holder_of(host: &Host, locks: &[&str]) -> Result<Option<String>, String> {
    for lock in locks {
        let path = host.path(lock);
        let held = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.and_then(|file| Ok(fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))?)),
        };
        if let Some(held) = held.map_err(|error| format!("{}: {error}", path.display()))? {
            // A process in another namespace has no process id here.
            let process = held.pid.map_or("a process".to_owned(), |pid| format!("process {}", pid.as_raw_nonzero()));
            return Ok(Some(format!("{process} holds {}", path.display())));
        }
    }
    Ok(None)
}
