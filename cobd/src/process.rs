//! Protection of the daemon's process: open descriptors of its parent, file modes, and its memory.
//!
//! Called once, at the start of `cobd run`, while there is a single thread.

use std::{fs, io};

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};
use tokio::signal::unix::{SignalKind, signal};

/// The first file descriptor beyond the three standard descriptors.
const FIRST_OTHER: i32 = 3;

/// Protects the process:
///
/// - files that it makes are private to its user by default (mask 077; actions get 022);
/// - actions do not inherit descriptors that the parent process had left open;
/// - it leaves no core dump, and no other process of its user may read its memory: the memory contains keys and
///   secrets. Actions also start without core dumps, and may enable core dumps (`ulimit -c`) within the limit that the
///   daemon itself had.
///
/// # Errors
/// If the system refuses a step; then the daemon must not continue.
pub fn close_to_others() -> io::Result<()> {
    umask(Mode::RWXG | Mode::RWXO);
    close_fds::set_fds_cloexec_threadsafe(FIRST_OTHER, &[]);
    keep_memory_private()
}

/// Prevents core dumps of this process, and access to its memory by other processes of its user. A program that it
/// executes is accessible again, but leaves no core file unless it enables core dumps.
///
/// # Errors
/// If the system refuses.
pub(crate) fn keep_memory_private() -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let limited = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
    // The limit alone does not apply if cores are piped into a program (core(5)).
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(limited?)
}

/// Prevents that processes inherit ignored signals from the daemon.
///
/// Signals that the daemon's parent had ignored (`nohup`, `&` in a script) would also be ignored in every action and
/// service: a service would not reread its configuration on SIGHUP. `execve` resets a handled signal to its default. So
/// each ignored signal gets a handler without effect, and the daemon still ignores it. Must be called in a runtime.
///
/// # Errors
/// If the system does not list the signals, or refuses a handler.
pub fn pass_no_ignored_signals_on() -> io::Result<()> {
    for number in ignored(&fs::read_to_string("/proc/self/status")?) {
        // The handler stays after the drop.
        drop(signal(SignalKind::from_raw(number))?);
    }
    Ok(())
}

/// The ignored signals in `/proc/PID/status` that can be handled.
fn ignored(status: &str) -> impl Iterator<Item = i32> {
    /// Signals that can't be handled, and SIGPIPE, which this program ignores itself and does not pass on.
    const OTHERS: [i32; 6] = [4, 8, 9, 11, 13, 19];
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let mask = mask.unwrap_or_default();
    (1..=31).filter(move |number| mask >> (number - 1) & 1 == 1 && !OTHERS.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ignored_signals_that_can_be_handled_are_listed() {
        // HUP, INT, QUIT; KILL, SEGV and PIPE; a real-time signal.
        let all = |status: &str| ignored(status).collect::<Vec<_>>();
        assert_eq!(all("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000200001507\n"), [1, 2, 3]);
        assert!(all("SigIgn:\t0000000000001000\n").is_empty());
        assert!(all("Name:\tx\n").is_empty());
    }
}
