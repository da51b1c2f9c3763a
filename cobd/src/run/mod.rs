//! Actions as processes that outlive the daemon, and the recovery of their results when it returns.
//!
//! A small runner stands between the daemon and its actions: this same program in a separate process, executed before
//! the first job (see `process`). Each action has a job folder, which contains all data needed later.
//!
//! ```text
//!   daemon ── start ──> runner ── own process group ──> action (/bin/sh -c …, or argv)
//!     |                   |                               |
//!     | writes            | writes, durably               | writes
//!     v                   v                               v
//!   JOB/ spec content   result   lock (flock held)      output  exports  saved
//! ```
//!
//! Rules:
//! - The daemon takes the lock before the runner knows of the job, and hands it over with the job. So the lock is never
//!   free while an action runs or is about to run. Actions, and their background processes, do not inherit it.
//! - A runner does many jobs, a thread for each, and outlives its daemon until the last job is done.
//! - The result is in place before the lock is released. A free lock without a result means that the runner was killed.
//!   Then the leftovers of the action are ended before any check, identified by environment and session, never by a
//!   process id alone.
//! - A job with secrets has its own runner, whose memory ends with the job, and a private folder in memory for all
//!   files that may contain the values (see `secrets`); values are removed from all data that moves from there into the
//!   job's folder.
//! - The output of an action is bounded while it runs: its start and its end are kept.
//! - The daemon may stop and start; `systemd` needs `KillMode=process`.

mod alarm;
pub(crate) mod endings;
mod environment;
mod exchange;
mod handover;
mod job;
mod output;
pub mod payload;
mod process;
mod program;
mod redact;
mod runner;
mod secrets;
mod start;
pub(crate) mod supervise;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use cob_processes::JOB_VARIABLE;
pub use environment::base_environment;
pub(crate) use exchange::{Stream, exchange};
pub use job::{Exit, JobId, JobResult, Spec};
pub(crate) use job::{OUTPUT, STDOUT, open_regular, present, read_capped};
pub(crate) use output::{LAST_LINES, OutputFile, Shape, half_character, left_out, tail, whole_line};
pub use output::{escape, last_lines};
pub(crate) use program::{ACT_KIND, CALL_PLUGIN, KEEP_SERVICE, MOVE_CONTAINER, MOVE_SERVICE, RESTORE_SERVICE};
pub use program::{Program, main_if_runner};
pub(crate) use redact::Redactor;
pub(crate) use runner::{is_file, lead_session, sign};
pub(crate) use secrets::{Opened, remove as remove_folder};
pub use secrets::{Opener, Sealed};
pub(crate) use start::kill_action;
pub use start::{Canceller, FoundJob, FoundState, JobStartError, Runner, Started};
