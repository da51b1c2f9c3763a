//! The start of a job's process, in the hub.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cob_processes::JOB_VARIABLE;

use super::{ANNOUNCED, CONFIRMED, Life, life, probe};

/// Why a process does not work: it has done nothing, and is killed.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The program can't be executed.
    #[error("the job's process can't be started: {0}")]
    Spawn(io::Error),
    /// The process has ended before its announcement or its confirmation.
    #[error("the job's process has ended before it was confirmed")]
    Ended,
    /// The process has not announced itself in time.
    #[error("the job's process has not announced itself within {} s", .0.as_secs())]
    Late(Duration),
    /// The process does not hold its lock.
    #[error("the job's process has announced itself without its lock")]
    NotLocked,
    /// The lock can't be checked.
    #[error("the lock of the job's process can't be checked: {0}")]
    Lock(io::Error),
}

/// A process that does not work yet. If it is dropped, the process is killed.
#[derive(Debug)]
pub struct Newborn {
    /// None: it was confirmed.
    child: Option<Child>,
    socket: UnixStream,
    folder: PathBuf,
}

/// A process that works: the hub has started it and reaps it. It goes on without the hub.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    folder: PathBuf,
}

impl Newborn {
    /// Executes the command, which has to call [`begin`](super::begin) with the same folder. The folder exists.
    ///
    /// # Errors
    ///
    /// The program can't be executed.
    pub fn start(mut command: Command, folder: &Path) -> Result<Self, NotStarted> {
        let (socket, other) = UnixStream::pair().map_err(NotStarted::Spawn)?;
        command.stdin(Stdio::from(OwnedFd::from(other))).env(JOB_VARIABLE, folder);
        let child = command.spawn().map_err(NotStarted::Spawn)?;
        Ok(Self { child: Some(child), socket, folder: folder.to_owned() })
    }

    /// Waits for the announcement. Afterwards the hub makes the job's record durable, then confirms.
    ///
    /// # Errors
    ///
    /// The process has ended, is late, or does not hold its lock.
    pub fn announced(&mut self, limit: Duration) -> Result<(), NotStarted> {
        self.socket.set_read_timeout(Some(limit)).map_err(NotStarted::Lock)?;
        let mut word = [0];
        match self.socket.read_exact(&mut word) {
            Ok(()) if word == [ANNOUNCED] => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(NotStarted::Late(limit));
            }
            Ok(()) | Err(_) => return Err(NotStarted::Ended),
        }
        match probe(&self.folder).map_err(NotStarted::Lock)? {
            Life::Alive => Ok(()),
            Life::Dead => Err(NotStarted::NotLocked),
        }
    }

    /// Permits the process to work. If it dies at this moment, [`Worker::watch`] sees it.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn confirm(mut self) -> Result<Worker, NotStarted> {
        self.socket.write_all(&[CONFIRMED]).map_err(|_| NotStarted::Ended)?;
        let child = self.child.take().ok_or(NotStarted::Ended)?;
        Ok(Worker { child, folder: std::mem::take(&mut self.folder) })
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It has done nothing, and this process has not reaped it: the process id is its own.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Worker {
    /// Waits for the death in a thread of its own, which then reaps the process and calls the function.
    ///
    /// # Errors
    ///
    /// No further thread can be started.
    pub fn watch(mut self, then: impl FnOnce(io::Result<()>) + Send + 'static) -> io::Result<()> {
        life::in_thread(move || {
            let death = super::wait_for_death(&self.folder);
            // At once: the lock was free because the process has ended.
            let reaped = self.child.wait().map(|_| ());
            then(death.and(reaped));
        })
    }
}
