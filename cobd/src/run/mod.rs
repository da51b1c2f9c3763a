//! Actions as processes that outlive the daemon, and what is left of them when it returns.
//!
//! Between the daemon and its actions stands a small runner: this very program, in a process of its own, executed before the
//! first job (see `process`). Each action has a job folder; all that has to be known later is in it.
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
//! - The lock is taken by the daemon before the runner knows of the job and handed over with it,
//!   so there is no moment at which an action runs, or is about to, and the lock is free. The action
//!   does not inherit it: what an action leaves in the background keeps no lock.
//! - A runner does many jobs, a thread for each, and outlives its daemon until the last one is done.
//! - The result is in its place before the lock is let go. Lock free and no result: the runner was
//!   killed. Then what is left of the action is ended before anybody checks anything, found by its
//!   environment and session, never by a process id alone.
//! - A job that has secrets has a runner of its own, whose memory goes with it, and a private folder in memory for all
//!   that may hold their values (see `secrets`); what comes from there into the job's folder was cleaned of them.
//! - What an action prints is bounded while it runs: the head and the tail are kept.
//! - The daemon may come and go; `systemd` must be told `KillMode=process`.

mod alarm;
pub(crate) mod endings;
mod environment;
mod exchange;
mod handover;
mod job;
pub(crate) mod leftovers;
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

pub use environment::base_environment;
pub(crate) use exchange::{Stream, exchange};
pub use job::{Exit, JobId, JobResult, Spec};
pub(crate) use job::{JOB_VARIABLE, open_regular, present, read_capped};
pub(crate) use output::{LAST_LINES, OutputFile, Shape, left_out, tail, whole_line};
pub use output::{escape, last_lines};
pub(crate) use program::{ACT_KIND, CALL_PLUGIN, KEEP_SERVICE, MOVE_SERVICE, RESTORE_SERVICE};
pub use program::{Program, main_if_runner};
pub(crate) use redact::Redactor;
pub(crate) use runner::{is_file, lead_session, now_ns, sign};
pub(crate) use secrets::{Opened, remove as remove_folder};
pub use secrets::{Opener, Sealed};
pub(crate) use start::kill_action;
pub use start::{Canceller, FoundJob, FoundState, Runner, StartError, Started};
