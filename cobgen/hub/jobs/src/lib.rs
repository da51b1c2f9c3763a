//! Jobs of a hub: a queue, a scheduler, and the processes that run jobs.
//!
//! Each operation on a cluster is a job. The semantics are those of Ganeti's job queue (LuxiD); the differences are
//! listed below.
//!
//! [`Queue`] is pure: an event changes the value and returns [`Effect`]s. The caller makes the changed jobs
//! ([`Queue::take_changed`]) durable before it performs the effects.
//!
//! ```text
//! submit ── queued ⇄ waiting (for locks) ── starting ── running ── succeeded, failed
//!              │         │                     └─ canceling ─┘
//!              └─────────┴─ failed, canceled         └── canceled (or what the job reports)
//! ```
//!
//! # Order
//!
//! - The more important job starts first: the smaller [`Priority`]. Among equals, the job that was submitted first
//!   starts first. (Ganeti takes the owner with the smaller name.)
//! - A job that waits becomes one step more important after each [`Limits::aging`], up to -20. Therefore a stream of
//!   important jobs delays another job, but not for ever. (Ganeti ages only requests for locks.)
//! - Jobs of one cluster run one after the other, in the order of their submission, whatever their priorities are. A job
//!   of a cluster has the best priority of all waiting jobs of this cluster, so that a less important job does not hold
//!   back a more important one behind it.
//! - A job waits for all jobs that it depends on. Dependencies refer to earlier jobs only, so they form no cycle.
//! - [Rules](Rule) pause, reject or limit jobs. A [drained](Drain) queue refuses new jobs; the jobs in it go on.
//! - A waiting job takes no place: neither of the running jobs nor of a limit. It obtains all its locks when it starts.
//! - Later jobs may overtake a job that waits for locks, but only [`Limits::patience`] times. From then on no job starts
//!   that wants a conflicting lock, and the job comes before all others; of several such jobs, the first submitted
//!   one. (Ganeti raises its priority after minutes.)
//!
//! # Starts and deaths
//!
//! A process announces itself ([`Queue::started`]) and works only after its confirmation ([`Effect::Confirm`]), which
//! follows the durable status *running*. A process that dies before has done nothing, so it is started again. A process
//! that dies later without a report has failed, unless its job is resumable. A job leaves *running* or *canceling* only
//! when its process is dead; its locks stay taken until then.
//!
//! ```text
//! lib ── queue (events) ── schedule (order, obstacles) ── rules, limits ── job
//!           └── state (load, checks)
//!     process: the handshake with a job's process (Linux)
//! ```

mod job;
mod limits;
#[cfg(target_os = "linux")]
pub mod process;
mod queue;
mod rules;
mod schedule;
mod state;

#[cfg(test)]
mod model_test;
#[cfg(test)]
mod queue_test;

pub use cob_job_locks::{Lock, Mode, Patience, Priority};
pub use job::{Cause, Job, JobId, Millis, Outcome, Report, Run, Spec, Status};
pub use limits::{Bucket, Limits};
pub use queue::{Effect, NotDone, Queue, Refused, Request, is_permitted};
pub use rules::{Action, Drain, Rule, Selection, because};
pub use schedule::{Limit, Obstacle};
pub use state::{Corrupt, State};
