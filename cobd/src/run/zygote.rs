//! The process that all runners of a daemon are forked from.
//!
//! Executing a program takes longer than all that a runner then does for a short action: 1 to 2 ms, more than a
//! message to another host and back. So it is done once, before the first job: the zygote is this very
//! program, executed with a hidden first argument, which forks itself for each job that it is given. It has one thread
//! and no state, and ends with its daemon; the runners go on. One that was killed is replaced with the next job.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fork::{Fork, fork};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};
use tokio::net::unix::pipe;
use tokio::process::Command;
use tracing::warn;

use super::handover::{self, Given};
use super::program::{Program, RUN_ACTIONS};
use super::runner;

/// The daemon's side: a zygote, as soon as there has been a job.
#[derive(Debug)]
pub(super) struct Zygote {
    program: Program,
    /// The folder of jobs. The zygote is told it for those who look at the list of processes.
    root: PathBuf,
    living: Mutex<Option<Living>>,
}

#[derive(Debug)]
struct Living {
    /// Where jobs are given to it. It ends when this is closed.
    socket: OwnedFd,
    pid: Option<u32>,
    /// None on kernels before 5.3.
    handle: Option<OwnedFd>,
}

impl Zygote {
    pub(super) fn new(program: Program, root: &Path) -> Self {
        Self { program, root: root.to_owned(), living: Mutex::new(None) }
    }

    /// Has a runner forked for the job in this folder. What comes back is at its end when the runner is. Must be called
    /// within a tokio runtime.
    ///
    /// # Errors
    /// When there is no zygote and none can be executed. Nothing of the job runs then.
    pub(super) fn run(&self, folder: &Path, lock: &std::fs::File) -> io::Result<pipe::Receiver> {
        let (ended, alive) = io::pipe()?;
        let (ended, alive) = (pipe::Receiver::from_owned_fd(ended.into())?, OwnedFd::from(alive));
        let mut living = self.living();
        if let Some(zygote) = &*living {
            match handover::give(&zygote.socket, folder, lock, &alive) {
                Ok(()) => return Ok(ended),
                Err(error) => zygote.is_no_use(&error.to_string()),
            }
        }
        let zygote = living.insert(self.execute()?);
        handover::give(&zygote.socket, folder, lock, &alive)?;
        Ok(ended)
    }

    /// It has not begun a job in time: another one takes its place. The kernel drops what it had not taken, so that
    /// nothing of these jobs is held, and nothing had begun.
    pub(super) fn replace(&self) {
        if let Some(zygote) = self.living().take() {
            zygote.is_no_use("it begins nothing");
        }
    }

    fn living(&self) -> MutexGuard<'_, Option<Living>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute(&self) -> io::Result<Living> {
        let (socket, its) = handover::ends()?;
        let mut command = self.program.command(RUN_ACTIONS, &self.root);
        command.stdin(Stdio::from(its));
        let mut process = Command::from(command).spawn()?;
        let pid = process.id();
        let number = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let handle = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Reaped as soon as it has ended.
        tokio::spawn(async move { process.wait().await });
        Ok(Living { socket, pid, handle })
    }

    /// The process id of the one that lives.
    #[cfg(test)]
    pub(super) fn pid(&self) -> Option<u32> {
        self.living().as_ref()?.pid
    }
}

impl Living {
    /// Says why, and sees to it that nothing of it is left.
    fn is_no_use(&self, why: &str) {
        let pid = self.pid.unwrap_or_default();
        warn!(
            pid,
            why, "the process that begins actions and checks was killed or stopped; another one takes its place"
        );
        if let Some(handle) = &self.handle {
            // It has ended already, most of the time.
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
    }
}

/// The zygote itself, from the beginning of `main`; its standard input is where it gets jobs. In a runner that it has
/// forked, what the runner did. The exit codes are for people who try it by hand.
pub(super) fn run() -> ExitCode {
    let mut runners = Vec::new();
    loop {
        if wait(&mut runners).is_err() {
            return ExitCode::FAILURE;
        }
        let job = match handover::take(io::stdin()) {
            Ok(Some(job)) => job,
            Ok(None) => return ExitCode::SUCCESS,
            Err(_) => return ExitCode::from(2),
        };
        // There is no other thread here, so a fork has all that it needs: no lock is held by somebody who is not there.
        match fork() {
            Ok(Fork::Child) => {
                drop(runners);
                let Given { folder, lock, alive } = job;
                // From here on the lock is the standard input, and the zygote's is closed.
                let done = match rustix::stdio::dup2_stdin(&lock) {
                    Ok(()) => {
                        drop(lock);
                        runner::run(&folder)
                    }
                    Err(error) => runner::refuse(&folder, &error.into()),
                };
                drop(alive);
                return done;
            }
            Ok(Fork::Parent(pid)) => runners.extend(Pid::from_raw(pid).map(Forked::new)),
            // Told to whoever waits for it, before the lock is let go.
            Err(error) => {
                runner::refuse(&job.folder, &error);
            }
        }
    }
}

/// A runner, as long as it is not reaped.
struct Forked {
    pid: Pid,
    /// None on kernels before 5.3.
    handle: Option<OwnedFd>,
}

impl Forked {
    fn new(pid: Pid) -> Self {
        Self { pid, handle: pidfd_open(pid, PidfdFlags::empty()).ok() }
    }

    fn has_ended(&self) -> bool {
        !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None))
    }
}

/// Waits until there is something to take, and reaps runners meanwhile.
fn wait(runners: &mut Vec<Forked>) -> io::Result<()> {
    let stdin = io::stdin();
    loop {
        runners.retain(|runner| !runner.has_ended());
        let handles = runners.iter().filter_map(|runner| runner.handle.as_ref()).map(|handle| handle.as_fd());
        let mut fds: Vec<_> = std::iter::once(stdin.as_fd())
            .chain(handles)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, None) {
            Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
