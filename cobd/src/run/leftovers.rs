//! Processes, as `/proc` shows them: who of an action still lives, and what a killed runner left
//! behind.
//!
//! A process id alone means nothing: it may have been given to somebody else. A leftover is known by
//! the session of its runner *and* by the variable in its environment that names the job, and it is
//! signalled through a handle that was opened before both were looked at.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, getsid, kill_process_group, pidfd_open, pidfd_send_signal};

use super::job::JOB_VARIABLE;

/// Between two looks at a group that was asked to end.
const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// What the kernel tells of a process.
struct Stat {
    state: char,
    group: i32,
    session: i32,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain anything.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let _parent = fields.next()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        Some(Self { state, group, session })
    }

    fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

fn all_processes() -> io::Result<impl Iterator<Item = i32>> {
    Ok(fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// All that a child of ours has begun: its process group, and whoever else is in the session that this
/// process leads. Neither number can be given away while this process lives and has not reaped the
/// child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kin {
    leader: Pid,
    session: Option<i32>,
}

impl Kin {
    /// The kin of a child that leads a process group.
    pub(crate) fn of(leader: Pid) -> Self {
        let own = getpid();
        Self { leader, session: getsid(None).ok().filter(|s| *s == own).map(|s| s.as_raw_nonzero().get()) }
    }

    /// Asks all to end, waits, kills who is left.
    pub(crate) fn end(self, grace: Duration) {
        self.signal(Signal::TERM);
        // Who was stopped can't end.
        self.signal(Signal::CONT);
        if wait_until(Some(Instant::now() + grace), || self.members().is_empty()) {
            return;
        }
        // New ones may have been forked meanwhile. One that can't be killed (it waits for a disk) is
        // waited for without a limit: as long as it lives, the action is not over.
        wait_until(None, || {
            self.signal(Signal::KILL);
            self.members().is_empty()
        });
    }

    fn signal(self, signal: Signal) {
        // The group all at once, so that nobody forks between two signals. It fails when nobody is left.
        let _ = kill_process_group(self.leader, signal);
        for (pid, _) in self.members().into_iter().filter(|(_, group)| *group != self.group()) {
            let handle = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            if let Some(handle) = handle.filter(|_| self.member(pid).is_some()) {
                let _ = pidfd_send_signal(handle, signal);
            }
        }
    }

    /// Process and group of all that live. When `/proc` can't be read: none.
    fn members(self) -> Vec<(i32, i32)> {
        all_processes().map(|all| all.filter_map(|pid| self.member(pid)).collect()).unwrap_or_default()
    }

    fn member(self, pid: i32) -> Option<(i32, i32)> {
        let stat = Stat::read(pid)?;
        let kin = stat.group == self.group() || (self.session == Some(stat.session) && self.session != Some(pid));
        (kin && stat.lives()).then_some((pid, stat.group))
    }

    fn group(self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }
}

fn wait_until(limit: Option<Instant>, mut done: impl FnMut() -> bool) -> bool {
    let mut pause = LOOK.0;
    loop {
        if done() {
            return true;
        }
        let left = limit.map_or(LOOK.1, |limit| limit.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return false;
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LOOK.1);
    }
}

/// Ends what a killed runner or keeper left behind: asks, waits, kills. Returns how many processes it
/// found.
///
/// `session` is the process id of the runner, which leads a session of its own; `variable` is the
/// `NAME=VALUE` that its action has in its environment.
pub(crate) fn end_leftovers(session: i32, variable: &str, grace: Duration) -> usize {
    let found = leftovers(session, variable);
    let count = found.len();
    signal(&found, Signal::TERM);
    let limit = Instant::now() + grace;
    if !found.is_empty() && !wait_until(Some(limit), || leftovers(session, variable).is_empty()) {
        // As above: new ones, and no limit.
        wait_until(None, || {
            let left = leftovers(session, variable);
            signal(&left, Signal::KILL);
            left.is_empty()
        });
    }
    count
}

/// Whether a killed runner or keeper left anything behind.
pub(crate) fn has_leftovers(session: i32, variable: &str) -> bool {
    !leftovers(session, variable).is_empty()
}

/// Kills all that an action has begun, but for its runner, as a test of it asks for; how many there were.
///
/// `session` is the process id of the runner, `job` the folder of the job.
pub(crate) fn kill_action(session: i32, job: &Path) -> usize {
    let variable = format!("{JOB_VARIABLE}={}", job.display());
    let mut count = 0;
    // New ones may have been forked meanwhile.
    wait_until(None, || {
        let found = leftovers(session, &variable);
        count += found.len();
        signal(&found, Signal::KILL);
        found.is_empty()
    });
    count
}

fn leftovers(session: i32, variable: &str) -> Vec<OwnedFd> {
    let Ok(all) = all_processes() else { return Vec::new() };
    let mut found = Vec::new();
    for pid in all {
        if !is_leftover(pid, session, variable) {
            continue;
        }
        // The second look is at the process that the handle stands for.
        let handle = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        found.extend(handle.filter(|_| is_leftover(pid, session, variable)));
    }
    found
}

fn is_leftover(pid: i32, session: i32, variable: &str) -> bool {
    Stat::read(pid).is_some_and(|s| s.session == session && s.lives())
        && fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environment| environment.split(|b| *b == 0).any(|v| v == variable.as_bytes()))
}

fn signal(handles: &[OwnedFd], signal: Signal) {
    for handle in handles {
        // Who has ended meanwhile need not be told.
        let _ = pidfd_send_signal(handle, signal);
    }
}
