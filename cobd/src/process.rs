//! What the daemon's process gives up before it does anything: what others left open for it, and
//! what it could leave lying about.
//!
//! Called once, at the very beginning of `cobd run`, while there is one thread.

use std::io;

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};

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
