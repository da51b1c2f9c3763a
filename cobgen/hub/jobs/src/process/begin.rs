//! The first steps of a job's process, in the process itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;

use rustix::fs::FlockOperation;
use rustix::process::{getpid, getsid, setsid};

use super::{ALIVE, ANNOUNCED, CONFIRMED, life};

/// The first file descriptor beyond the three standard descriptors.
const FIRST_OTHER: i32 = 3;

/// The proof of life of this process. Keep it until the process ends: the lock is free as soon as it is dropped.
#[derive(Debug)]
#[must_use = "the process counts as dead as soon as this is dropped"]
pub struct Alive(#[expect(dead_code, reason = "it is kept open")] File);

/// Why a job's process must not work. It has done nothing, and ends.
#[derive(Debug, thiserror::Error)]
pub enum NotConfirmed {
    /// The process can't prepare itself.
    #[error("{doing}: {source}")]
    Step {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The hub has ended, or has given up the start.
    #[error("the hub has not confirmed the start")]
    HubGone,
}

/// Makes this process the process of the job in this folder. Has to be called first in `main`, while there is a single
/// thread. Afterwards the process leads a session of its own, and its standard input is empty.
///
/// # Errors
///
/// The process must end, without having done anything.
pub fn begin(folder: &Path) -> Result<Alive, NotConfirmed> {
    let mut socket = detach().map_err(step("leave the hub's session"))?;
    let mut file = create(folder).map_err(step("create the lock file"))?;
    own(&mut file).map_err(step("lock the lock file"))?;
    announce(&mut socket)?;
    confirmed(&mut socket)?;
    Ok(Alive(file))
}

fn step(doing: &'static str) -> impl FnOnce(io::Error) -> NotConfirmed {
    move |source| NotConfirmed::Step { doing, source }
}

/// Leaves the session and the open files of the hub. Returns the socket to the hub.
pub(super) fn detach() -> io::Result<UnixStream> {
    close_fds::set_fds_cloexec_threadsafe(FIRST_OTHER, &[]);
    // It fails if this process leads its session already.
    if let Err(error) = setsid()
        && getsid(None) != Ok(getpid())
    {
        return Err(error.into());
    }
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST_OTHER)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(socket.into())
}

pub(super) fn create(folder: &Path) -> io::Result<File> {
    // Not truncated: a former process of the job may still hold the lock.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(folder.join(ALIVE))
}

/// Takes the lock. A former process that was not confirmed may still hold it; it ends by itself.
pub(super) fn own(file: &mut File) -> io::Result<()> {
    life::lock(file, FlockOperation::LockExclusive)?;
    file.set_len(0)?;
    writeln!(file, "{}", process::id())
}

pub(super) fn announce(socket: &mut UnixStream) -> Result<(), NotConfirmed> {
    socket.write_all(&[ANNOUNCED]).map_err(|_| NotConfirmed::HubGone)
}

pub(super) fn confirmed(socket: &mut UnixStream) -> Result<(), NotConfirmed> {
    let mut answer = [0];
    let read = socket.read_exact(&mut answer);
    read.ok().filter(|()| answer == [CONFIRMED]).ok_or(NotConfirmed::HubGone)
}
