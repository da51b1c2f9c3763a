//! The end of a job's processes.

use std::io;
use std::path::Path;
use std::time::Duration;

use cob_processes::{Trail, is_marked, mark};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::{Life, life, probe, wait_for_death};

/// Asks the process of the job in this folder to end (SIGTERM). It ends what it has started. Says whether it lives.
///
/// # Errors
///
/// Its lock can't be checked, or the signal can't be sent.
pub fn terminate(folder: &Path) -> io::Result<bool> {
    let Some((_, process)) = living(folder)? else { return Ok(false) };
    signal(&process, Signal::TERM)?;
    // A stopped process can't end.
    signal(&process, Signal::CONT)?;
    Ok(true)
}

/// Kills the process of the job in this folder, its process group, and all processes that have the job's variable in
/// their environment. Returns when none of them lives, and the lock is free.
///
/// # Errors
///
/// The lock can't be checked, or a signal can't be sent.
pub fn kill(folder: &Path) -> io::Result<()> {
    if let Some((pid, process)) = living(folder)? {
        // A stopped process does not end by itself: its number stays its own until the whole group is killed.
        signal(&process, Signal::STOP)?;
        if probe(folder)? == Life::Alive {
            // It leads the group. The group may be gone if another hub kills at the same time.
            let _ = kill_process_group(pid, Signal::KILL);
            signal(&process, Signal::KILL)?;
        }
    }
    trail(folder).kill();
    // A dying process loses its environment before its lock.
    wait_for_death(folder)
}

/// Ends what a dead process of the job in this folder has left behind: asks, waits, kills. Returns the number of
/// processes.
pub fn end_leftovers(folder: &Path, grace: Duration) -> usize {
    trail(folder).end(grace)
}

/// All processes with the job's variable, in whatever session they are. Process ids say nothing after the death of the
/// leader, so its session is not looked for.
fn trail(folder: &Path) -> Trail {
    Trail::new(None, mark(folder)).in_any_session(true)
}

/// The process that holds the lock: its process id, and a handle of exactly this process.
fn living(folder: &Path) -> io::Result<Option<(Pid, OwnedFd)>> {
    let Some(pid) = life::owner(folder)? else { return Ok(None) };
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(None) };
    // The number is that of a former process until the owner of the lock has written its own. So the process has to
    // belong to the job, too.
    let is_owner = is_marked(pid, &mark(folder)) && probe(folder)? == Life::Alive;
    Ok(is_owner.then_some((pid, process)))
}

fn signal(process: &OwnedFd, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(process, signal) {
        // It has ended in the meantime.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
