//! The process of a job: its start, its life, its death.
//!
//! A job's process outlives the hub. It is started in four steps (Ganeti's handshake), so that no process works that the
//! hub does not know:
//!
//! ```text
//! hub                                   process
//! Newborn::start ─────────────────────▶ begin: new session,
//!                                       1 creates the file `alive` in the job's folder
//!                                       2 locks it (flock)
//! Newborn::announced ◀───────────────── 3 announces it through the socket on its standard input
//! (the job's record is made durable)
//! Newborn::confirm ───────────────────▶ 4 reads the confirmation, works
//! ```
//!
//! If the hub dies or gives up before the fourth step, the socket breaks, and the process ends without having done
//! anything.
//!
//! The lock is the only proof of life: the kernel frees it when the process dies. A process id is used for signals
//! only, and only while the lock is held ([`terminate`]).
//!
//! All processes that a job starts have `COB_JOB` in their environment, so [`kill`] finds them even if they have left
//! the session. A process that has to outlive its job (a machine of a provider) is started without this variable.
//! `systemd` needs `KillMode=process` for the hub.

mod begin;
mod end;
mod life;
mod start;

#[cfg(test)]
mod process_test;

pub use begin::{Alive, NotConfirmed, begin};
pub use end::{end_leftovers, kill, terminate};
pub use life::{Life, probe, wait_for_death, watch};
pub use start::{Newborn, NotStarted, Worker};

/// The lock file in a job's folder. Its content is the process id of its owner.
const ALIVE: &str = "alive";
/// The process has its lock.
const ANNOUNCED: u8 = b'a';
/// The process may work.
const CONFIRMED: u8 = b'c';
