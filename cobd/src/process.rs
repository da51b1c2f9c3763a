//! What the daemon's process gives up before it does anything: what others left open for it, and
//! what it could leave lying about.
//!
//! Called once, at the very beginning of `cobd run`, while there is one thread.

use std::{fs, io};

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};
use tokio::signal::unix::{SignalKind, signal};

/// The first file descriptor beyond the three standard ones.
const FIRST_OTHER: i32 = 3;

/// Closes the process to others:
///
/// - files that it makes are its user's alone, unless it says otherwise (mask 077; actions get 022);
/// - descriptors that whoever started it had left open reach no action;
/// - it leaves no core dump, and no other process of its user may read its memory: there are keys and
///   secrets in it. Actions begin without core dumps too, and may ask for them (`ulimit -c`) within the
///   limit that the daemon itself was given.
///
/// # Errors
/// When the system refuses one of them; a daemon does not go on then.
pub fn close_to_others() -> io::Result<()> {
    umask(Mode::RWXG | Mode::RWXO);
    close_fds::set_fds_cloexec_threadsafe(FIRST_OTHER, &[]);
    keep_memory_private()
}

/// From here on this process leaves no picture of its memory behind, and others of its user can't look
/// into it. What it executes can be looked into again, but leaves no core file unless it asks for that.
///
/// # Errors
/// When the system refuses.
pub(crate) fn keep_memory_private() -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let limited = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
    // The limit alone does not hold where cores are piped into a program (core(5)).
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(limited?)
}

/// Sees to it that nothing that the daemon starts has signals ignored.
///
/// Those that whoever started the daemon had ignored (`nohup`, `&` in a script) would be so in every action and
/// service too, however they are begun: a service that is told by SIGHUP to look at its configuration again would
/// be deaf. A signal that is handled is set back to its default by `execve`. So each of them gets a handler here that
/// does nothing, and the daemon itself heeds them as little as before. To be called in a runtime.
///
/// # Errors
/// When the system refuses to tell, or to set a handler.
pub fn pass_no_ignored_signals_on() -> io::Result<()> {
    for number in ignored(&fs::read_to_string("/proc/self/status")?) {
        // The handler outlives this.
        drop(signal(SignalKind::from_raw(number))?);
    }
    Ok(())
}

/// The ignored signals in `/proc/PID/status` that can be handled.
fn ignored(status: &str) -> impl Iterator<Item = i32> {
    /// Those that nothing may handle, and SIGPIPE, which this program ignores for itself and gives nobody.
    const OTHERS: [i32; 6] = [4, 8, 9, 11, 13, 19];
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let mask = mask.unwrap_or_default();
    (1..=31).filter(move |number| mask >> (number - 1) & 1 == 1 && !OTHERS.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_those_of_the_mask_that_can_be_handled() {
        // HUP, INT, QUIT; KILL, SEGV and PIPE; a real-time signal.
        let all = |status: &str| ignored(status).collect::<Vec<_>>();
        assert_eq!(all("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000200001507\n"), [1, 2, 3]);
        assert!(all("SigIgn:\t0000000000001000\n").is_empty());
        assert!(all("Name:\tx\n").is_empty());
    }
}
