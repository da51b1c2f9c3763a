//! Hands a job to a runner: a message with the path of the job's folder and two files, the locked lock file and the end
//! of a pipe to the daemon.
//!
//! A message under way keeps both files open like a process does: from the moment when the daemon takes the lock until
//! the job's end, the lock is never free (unix(7), `SCM_RIGHTS`).
//!
//! On the pipe the daemon reads a byte when a runner has taken the job, and another byte when the job's result is in
//! place. If the pipe ends earlier, the runner was killed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The longest path that the kernel takes (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;

/// A job as its runner receives it.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) folder: PathBuf,
    pub(super) lock: OwnedFd,
    tell: OwnedFd,
}

impl Given {
    /// Tells the daemon that a runner has taken the job.
    pub(super) fn confirm(&self) {
        self.tell();
    }

    /// Releases the lock and tells the daemon. Both explicitly: a process that is just being executed for another job
    /// holds all open files of its runner until it has started.
    pub(super) fn finish(self) {
        let _ = flock(&self.lock, FlockOperation::Unlock);
        self.tell();
    }

    /// Whether the daemon of this job has ended: the other end of the pipe is closed.
    pub(super) fn daemon_has_gone(&self) -> bool {
        let mut pipe = [PollFd::new(&self.tell, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut pipe, Some(&now)).is_ok() && pipe[0].revents().contains(PollFlags::ERR)
    }

    fn tell(&self) {
        // If the daemon is gone, no process reads the pipe.
        let _ = rustix::io::write(&self.tell, b".");
    }
}

/// The daemon's end and the runner's end.
pub(super) fn ends() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Hands over the job in this folder, without waiting for a runner to take it.
///
/// # Errors
/// If there is no runner, or too many jobs wait to be taken. No runner has the job then.
pub(super) fn give(socket: &OwnedFd, folder: &Path, lock: &File, tell: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [lock.as_fd(), tell.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    let path = [IoSlice::new(folder.as_os_str().as_bytes())];
    retry_on_intr(|| sendmsg(socket, &path, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT))?;
    Ok(())
}

/// Waits for a job; `None` if the daemon has ended.
///
/// # Errors
/// If this is not the runner's end; `InvalidData` if the message is not a job, and the next message may be a job.
pub(super) fn take(socket: impl AsFd) -> io::Result<Option<Given>> {
    let mut bytes = vec![0; LONGEST_PATH];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message =
        retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    if message.bytes == 0 {
        return Ok(None);
    }
    let rights = control
        .drain()
        .filter_map(|message| if let RecvAncillaryMessage::ScmRights(files) = message { Some(files) } else { None });
    let mut files = rights.flatten();
    match (files.next(), files.next()) {
        (Some(lock), Some(tell)) if !message.flags.contains(ReturnFlags::TRUNC) => {
            bytes.truncate(message.bytes);
            Ok(Some(Given { folder: PathBuf::from(OsString::from_vec(bytes)), lock, tell }))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "no folder with its lock")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::TryLockError;
    use std::io::Read as _;

    use super::*;

    /// A job in a folder that no runner has taken yet, and the daemon's end of its pipe.
    fn job(folder: &Path) -> (File, OwnedFd, io::PipeReader) {
        let lock = File::create(folder.join("lock")).expect("made");
        lock.try_lock().expect("free");
        let (ended, tell) = io::pipe().expect("made");
        (lock, tell.into(), ended)
    }

    fn is_free(folder: &Path) -> bool {
        let lock = File::open(folder.join("lock")).expect("there");
        !matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    #[test]
    fn a_job_under_way_keeps_its_lock() {
        let folder = tempfile::tempdir().expect("folder");
        let folder = folder.path();
        let (daemon, runner) = ends().expect("made");
        let (lock, tell, mut ended) = job(folder);
        give(&daemon, folder, &lock, &tell).expect("given");
        // The daemon is killed.
        drop((daemon, lock, tell));
        assert!(!is_free(folder));
        let given = take(&runner).expect("taken").expect("a job");
        assert_eq!(given.folder, folder);
        assert!(!is_free(folder));
        assert!(!given.daemon_has_gone());
        given.confirm();
        // A process that is just being executed for another job.
        let other = given.lock.try_clone().expect("cloned");
        given.finish();
        assert!(is_free(folder));
        drop(other);
        assert_eq!(ended.read(&mut [0; 3]).expect("read"), 2);
        assert_eq!(ended.read(&mut [0]).expect("read"), 0);
        assert!(take(&runner).expect("taken").is_none(), "the daemon is gone");
    }

    #[test]
    fn a_job_that_no_runner_takes_is_free_again() {
        let folder = tempfile::tempdir().expect("folder");
        let folder = folder.path();
        let (daemon, runner) = ends().expect("made");
        let (lock, tell, mut ended) = job(folder);
        give(&daemon, folder, &lock, &tell).expect("given");
        drop((lock, tell));
        // The runner that should have taken it is killed.
        drop(runner);
        assert!(is_free(folder));
        assert_eq!(ended.read(&mut [0]).expect("read"), 0);
        let (lock, tell, _) = job(folder);
        give(&daemon, folder, &lock, &tell).expect_err("no process takes it");
    }

    #[test]
    fn an_invalid_job_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let (daemon, runner) = ends().expect("made");
        let (lock, tell, _) = job(folder.path());
        rustix::net::send(&daemon, b"/no/lock", SendFlags::empty()).expect("sent");
        assert_eq!(take(&runner).expect_err("no lock").kind(), io::ErrorKind::InvalidData);
        let endless = PathBuf::from("x".repeat(LONGEST_PATH + 1));
        give(&daemon, &endless, &lock, &tell).expect("sent");
        assert_eq!(take(&runner).expect_err("too long").kind(), io::ErrorKind::InvalidData);
        assert_ne!(take(lock).expect_err("not a runner's end").kind(), io::ErrorKind::InvalidData);
    }
}
