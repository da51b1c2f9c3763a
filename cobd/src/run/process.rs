//! The daemon's side of the runner processes.
//!
//! Executing a program takes longer than all other work of a short action: 1 to 2 ms, more than a round trip to another
//! host. So it is done once, before the first job: a single process does all jobs, and when the daemon ends, it
//! finishes the jobs that it has. A killed process is replaced with the next job.

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

use super::handover;
use super::program::{Program, RUN_ACTIONS};

/// The most jobs of a process at a time, because they are lost if it is killed.
const JOBS: u64 = 100;
/// The most open files of a job: lock, pipe, two outputs, the child's handle, the alarm. Some are only open briefly.
const FILES_OF_A_JOB: u64 = 8;
/// The number of open files without a job.
const FILES: u64 = 16;

/// The runner processes, once there was a job.
#[derive(Debug)]
pub(super) struct Processes {
    program: Program,
    /// The folder of jobs. It is an argument of the processes, for readers of the process list.
    root: PathBuf,
    /// The process that gets the next job. Full processes end after their last job.
    next: Mutex<Option<Arc<Process>>>,
    /// The most jobs of a process at a time.
    jobs: usize,
}

/// A runner process. It takes jobs as long as this value is held.
#[derive(Debug)]
pub(super) struct Process {
    socket: OwnedFd,
    pid: Option<u32>,
    /// `None` on kernels before 5.3.
    handle: Option<OwnedFd>,
    /// Whether it was killed because it took no job.
    killed: AtomicBool,
}

impl Processes {
    pub(super) fn new(program: Program, root: &Path) -> Self {
        // It may open as many files as this process.
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let jobs = (files.saturating_sub(FILES) / FILES_OF_A_JOB).clamp(1, JOBS);
        Self { program, root: root.to_owned(), next: Mutex::new(None), jobs: jobs as usize }
    }

    /// Gives the job in this folder to a runner process. Returns the pipe for news about the job, and the process. Must
    /// be called within a tokio runtime.
    ///
    /// # Errors
    /// If no runner takes the job and no new runner can be started. No part of the job runs then.
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

    /// Like [`Self::run`], with a separate process for this job: the data in its memory ends with it.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub(super) fn run_alone(&self, folder: &Path, lock: &std::fs::File) -> io::Result<(pipe::Receiver, Arc<Process>)> {
        let (heard, tell) = ends_of_pipe()?;
        Ok((heard, self.execute_for(folder, lock, &tell)?))
    }

    /// Replaces a process that has not taken a job in time. The kernel drops the messages that it had not taken, so
    /// that no lock of these jobs is held, and no action had started.
    pub(super) fn replace(&self, stopped: &Arc<Process>) {
        if stopped.killed.swap(true, Relaxed) {
            return;
        }
        let pid = stopped.pid.unwrap_or_default();
        warn!(pid, "the process for actions and checks does not answer; it is killed and replaced");
        self.next().take_if(|next| Arc::ptr_eq(next, stopped));
        stopped.signal(Signal::KILL);
    }

    fn next(&self) -> MutexGuard<'_, Option<Arc<Process>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a new process with this job.
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

    /// The process id of the process that gets the next job.
    #[cfg(test)]
    pub(super) fn pid(&self) -> Option<u32> {
        self.next().as_ref()?.pid
    }
}

impl Process {
    /// Continues the process if it was stopped: otherwise its actions would never end.
    pub(super) fn let_go_on(&self) {
        let pid = self.pid.unwrap_or_default();
        if cob_processes::is_stopped(pid.cast_signed()) {
            warn!(pid, "the process for actions and checks was stopped (SIGSTOP); it is continued");
            self.signal(Signal::CONT);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(handle) = &self.handle {
            // It may have ended already.
            let _ = pidfd_send_signal(handle, signal);
        }
    }

    /// Logs why the process gets no more jobs. It finishes the jobs that it has.
    fn is_left(&self, why: &io::Error) {
        let pid = self.pid.unwrap_or_default();
        warn!(pid, %why, "the process for actions and checks accepts no more jobs; it is replaced");
    }
}

fn ends_of_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (heard, tell) = io::pipe()?;
    Ok((pipe::Receiver::from_owned_fd(heard.into())?, tell.into()))
}
