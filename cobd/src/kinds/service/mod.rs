//! The kind back end `service`: something that runs for long, as a unit of systemd ([`unit`]) or, on machines
//! without it and for everything else, by commands.
//!
//! ```text
//!   content: {start: CMD, stop: CMD, status: CMD, ready: CMD, settle: 250ms, dir: DIR, env: {…}, exports: {…}}
//! ```
//! `start` alone is needed. What it means depends on `status`:
//! - without `status` the service is *kept*: `start` runs in the foreground below a keeper, this very
//!   program executed again, which holds a lock as long as the service lives, bounds what it prints and
//!   writes down how it ended. So "does it run" is asked of a lock, never of a process id.
//! - with `status` the service looks after itself: `start` and `stop` (needed then) are commands that
//!   return, `status` tells by exit status 0 that it runs.
//!
//! It is up once `ready` succeeds (tried again and again), or, without `ready`, once a kept service has
//! lived for `settle`. One that ends before is a failed transition, with the last it said.
//!
//! | state | what a check found |
//! | --- | --- |
//! | `down` | it does not run, and was not meant to (or the machine was restarted) |
//! | `up` | it runs with the content that is wanted, and became ready |
//! | `outdated` | it runs with another one |
//! | `failed` | it has ended by itself, or was never ready, or lost its keeper |
//!
//! ```text
//!   daemon ── runner ── mover (an action like any other: survives the daemon)
//!                         └─ begins, once and for good ─> keeper ── the service, in its own group
//!   SERVICE/ plan  lock  output  ended  ready  stop
//! ```
//!
//! With secrets in its `env` a service has a private folder in memory: its environment lies there until it
//! has begun, and what it prints stays there until it has ended and was cleaned of them.
//!
//! A change object may come to be about another unit, or a service of another form ([`former`]): the one before is
//! stopped and put back first.
//!
//! Rules: moving twice ends as moving once; stopping reaches everybody in the service's session; the
//! service never holds a job's lock, and has nothing of a job in its environment.

mod backend;
mod commands;
mod driven;
mod folder;
mod former;
#[cfg(test)]
mod former_test;
mod keeper;
mod kept;
mod leaving;
mod link;
mod logs;
mod mover;
mod ready;
#[cfg(test)]
mod service_test;
mod unit;
mod watch;

pub(super) use backend::Service;
pub(super) use folder::clear_leftovers;
pub(crate) use keeper::keep;
pub(crate) use leaving::restore;
pub use logs::{LogsAnswer, LogsQuery};
pub(crate) use mover::make_move;
pub(super) use unit::Systemd;
