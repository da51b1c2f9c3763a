//! The kind back end `service`: a long-running program, as a unit of systemd ([`unit`]) or by commands, for machines
//! without systemd and all other programs.
//!
//! ```text
//!   content: {start: CMD, stop: CMD, status: CMD, ready: CMD, settle: 250ms, dir: DIR, env: {…}, exports: {…}}
//! ```
//! Only `start` is required. Its meaning depends on `status`:
//! - without `status` the service is *supervised* (`Kept`): `start` runs in the foreground below a supervisor
//!   (`keeper`), this program executed again. It holds a lock as long as the service lives, bounds the output, and
//!   records the end. So the lock shows whether the service runs, never a process id.
//! - with `status` the service is *external* (`Driven`): `start` and `stop` (required then) are commands that return,
//!   and exit status 0 of `status` means that it runs.
//!
//! It is up once `ready` succeeds (after repeated attempts), or, without `ready`, once a supervised service has lived
//! for `settle`. If it ends before, the transition fails, with the last output.
//!
//! | state | result of a check |
//! | --- | --- |
//! | `down` | it does not run, as intended (or the machine was rebooted) |
//! | `up` | it runs with the desired content, and became ready |
//! | `outdated` | it runs with another content |
//! | `failed` | it has ended by itself, was never ready, or lost its supervisor |
//!
//! ```text
//!   daemon ── runner ── mover (an action like any other: survives the daemon)
//!                         └─ starts, once and for good ─> keeper ── the service, in its own group
//!   SERVICE/ plan  lock  output  ended  ready  stop
//! ```
//!
//! A service with secrets in its `env` has a private folder in memory: its environment is there until the service has
//! started, and its output until the service has ended and the values were redacted.
//!
//! A change object may change to another unit, or to a service of another form ([`former`]): the previous service is
//! stopped and its original state restored first.
//!
//! Rules: transitions are idempotent; a stop reaches all processes in the service's session; the service never holds a
//! job's lock, and has no variables of a job in its environment.

mod backend;
mod commands;
mod external;
mod folder;
mod former;
#[cfg(test)]
mod former_test;
mod keeper;
mod leaving;
mod link;
mod logs;
mod mover;
mod ready;
#[cfg(test)]
mod service_test;
mod supervised;
mod unit;
mod watch;

pub(super) use backend::{Call, ServiceKind};
pub(super) use commands::last_line;
pub(crate) use commands::{RunAs, words_as};
pub(super) use folder::clear_leftovers;
pub(crate) use keeper::keep;
pub(super) use leaving::is_noted;
pub(crate) use leaving::restore;
pub(crate) use mover::make_move;
pub(super) use mover::{Goal, Task, answer, content_path, move_unit};
pub(super) use unit::own_unit;
