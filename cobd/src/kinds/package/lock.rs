//! The locks of dpkg's database, as other programs hold them.
//!
//! Whoever works on packages leaves them half-done in between, so the database can be judged only while nobody does.
//! The locks are looked at and never taken: a program that comes meanwhile and does not wait is not turned away.

use std::fs::File;
use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Flock, FlockType, fcntl_getlk};

use crate::kinds::native::Host;

/// That of a program that calls dpkg more than once, and dpkg's own.
const LOCKS: [&str; 2] = ["/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"];
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until nobody else works on the packages of a host.
///
/// # Errors
/// Who did for all of the time, in words.
pub(super) fn wait_until_free(host: &Host, longest: Duration) -> Result<(), String> {
    let limit = Instant::now() + longest;
    let mut is_told = false;
    while let Some(holder) = holder(host)? {
        if Instant::now() >= limit {
            return Err(format!("another program has worked on packages for all of {longest:?}: {holder}"));
        }
        if !is_told {
            // For those who look at the action's output.
            let _ = writeln!(io::stderr(), "waiting for another program that works on packages: {holder}");
            is_told = true;
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Who holds one of the locks, in words; none: nobody.
pub(super) fn holder(host: &Host) -> Result<Option<String>, String> {
    for lock in LOCKS {
        let path = host.path(lock);
        let held = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.and_then(|file| Ok(fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))?)),
        };
        if let Some(held) = held.map_err(|error| format!("{}: {error}", path.display()))? {
            // One in another namespace has no number here.
            let process = held.pid.map_or("a process".to_owned(), |pid| format!("process {}", pid.as_raw_nonzero()));
            return Ok(Some(format!("{process} holds {}", path.display())));
        }
    }
    Ok(None)
}
