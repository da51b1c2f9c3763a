//! The daemon's side of the processes that do its jobs.
//!
//! Executing a program takes longer than all that has to be done for a short action: 1 to 2 ms, more than a message to
//! another host and back. So it is done once, before the first job: one process does all jobs that it is given, and what it
//! has when the daemon ends it brings to an end. One that was killed is replaced with the next job.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, PidfdFlags, Resource, Signal, getrlimit, pidfd_open, pidfd_send_signal};
use tokio::net::unix::pipe;
use tokio::process::Command;
use tracing::warn;

use super::program::{Program, RUN_ACTIONS};
use super::{handover, leftovers};

/// A process is given so many jobs at a time, because they go with it when it is killed.
const JOBS: u64 = 100;
/// Each has so many files open at most: lock, pipe, two outputs, the child's handle, the alarm. Some are open for a moment.
const FILES_OF_A_JOB: u64 = 8;
/// And so many are open without a job.
const FILES: u64 = 16;

/// The processes that do jobs, as soon as there has been one.
#[derive(Debug)]
pub(super) struct Processes {
    program: Program,
    /// The folder of jobs. They are told it for those who look at the list of processes.
    root: PathBuf,
    /// The one that is given the next job. Those that were full end with their last one.
    next: Mutex<Option<Arc<Process>>>,
    /// So many are given to one at a time.
    jobs: usize,
}

/// A process that does jobs. It takes them as long as somebody has this.
#[derive(Debug)]
pub(super) struct Process {
    socket: OwnedFd,
    pid: Option<u32>,
    /// None on kernels before 5.3.
    handle: Option<OwnedFd>,
    /// It was killed because it took nothing.
    killed: AtomicBool,
}

impl Processes {
    pub(super) fn new(program: Program, root: &Path) -> Self {
        // It may open as many files as this process.
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let jobs = (files.saturating_sub(FILES) / FILES_OF_A_JOB).clamp(1, JOBS);
        Self { program, root: root.to_owned(), next: Mutex::new(None), jobs: jobs as usize }
    }

    /// Has the job in this folder done. Comes back with what is heard of it, and by whom it is done. Must be called within
    /// a tokio runtime.
    ///
    /// # Errors
    /// When nobody is there to do it and no process can be executed. Nothing of the job runs then.
    pub(super) fn run(&self, folder: &Path, lock: &std::fs::File) -> io::Result<(pipe::Receiver, Arc<Process>)> {
        let (heard, tell) = ends_of_pipe()?;
        let mut next = self.next();
        if let Some(process) = next.as_ref().filter(|process| Arc::strong_count(process) <= self.jobs) {
            match handover::give(&process.socket, folder, lock, &tell) {
                Ok(()) => return Ok((heard, process.clone())),
                Err(error) => process.is_left(&error),
            }
        }
        let process = self.execute_for(folder, lock, &tell)?;
        *next = Some(process.clone());
        Ok((heard, process))
    }

    /// The same, by a process that does nothing else: what it has had in its memory goes with it.
    ///
    /// # Errors
    /// As above.
    pub(super) fn run_alone(&self, folder: &Path, lock: &std::fs::File) -> io::Result<(pipe::Receiver, Arc<Process>)> {
        let (heard, tell) = ends_of_pipe()?;
        Ok((heard, self.execute_for(folder, lock, &tell)?))
    }

    /// It has not taken a job in time: another one takes its place. The kernel drops what it had not taken, so that
    /// nothing of these jobs is held, and nothing had begun.
    pub(super) fn replace(&self, stopped: &Arc<Process>) {
        if stopped.killed.swap(true, Relaxed) {
            return;
        }
        let pid = stopped.pid.unwrap_or_default();
        warn!(
            pid,
            "the process that does actions and checks takes none; it is killed, and another one takes its place"
        );
        self.next().take_if(|next| Arc::ptr_eq(next, stopped));
        stopped.signal(Signal::KILL);
    }

    fn next(&self) -> MutexGuard<'_, Option<Arc<Process>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new process that has this job.
    fn execute_for(&self, folder: &Path, lock: &std::fs::File, tell: &OwnedFd) -> io::Result<Arc<Process>> {
        let process = self.execute()?;
        handover::give(&process.socket, folder, lock, tell)?;
        Ok(Arc::new(process))
    }

    fn execute(&self) -> io::Result<Process> {
        let (socket, its) = handover::ends()?;
        let mut command = self.program.command(RUN_ACTIONS, &self.root);
        command.stdin(Stdio::from(its));
        let mut process = Command::from(command).spawn()?;
        let pid = process.id();
        let number = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let handle = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Reaped as soon as it has ended.
        tokio::spawn(async move { process.wait().await });
        Ok(Process { socket, pid, handle, killed: AtomicBool::new(false) })
    }

    /// The process id of the one that is given the next job.
    #[cfg(test)]
    pub(super) fn pid(&self) -> Option<u32> {
        self.next().as_ref()?.pid
    }
}

impl Process {
    /// Continues it if somebody has stopped it: its actions would have no end.
    pub(super) fn let_go_on(&self) {
        let pid = self.pid.unwrap_or_default();
        if leftovers::is_stopped(pid.cast_signed()) {
            warn!(pid, "the process that does actions and checks was stopped (SIGSTOP); it is continued");
            self.signal(Signal::CONT);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(handle) = &self.handle {
            // It may have ended already.
            let _ = pidfd_send_signal(handle, signal);
        }
    }

    /// Says why it is given nothing more. What it has it does.
    fn is_left(&self, why: &io::Error) {
        let pid = self.pid.unwrap_or_default();
        warn!(pid, %why, "the process that does actions and checks takes nothing more; another one takes its place");
    }
}

fn ends_of_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (heard, tell) = io::pipe()?;
    Ok((pipe::Receiver::from_owned_fd(heard.into())?, tell.into()))
}
