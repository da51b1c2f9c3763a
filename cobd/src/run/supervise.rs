//! A child in its own process group: started, watched, ended with its whole group.
//!
//! Used by the runner (actions) and by the supervisor of a service. Synchronous: the thread that waits for a child does
//! no other work.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cob_processes::Relatives;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

use super::job::Exit;
use super::output::OutputFile;

/// The pause between the first two checks of output and cancellation: most actions are short.
const SHORTEST: Duration = Duration::from_millis(10);
/// Growth of the output between two checks that makes the next check come soon.
const FLOOD: u64 = 64 << 10;

/// A running child that leads a process group.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    /// `None` on kernels before 5.3: the child is polled instead of waited for.
    handle: Option<OwnedFd>,
    leader: Pid,
}

/// The reason for a child's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It ended by itself.
    Itself,
    /// Its time was over.
    TimedOut,
    /// The caller asked for it.
    Asked,
}

/// The other conditions that end a child, and how it is watched.
pub(crate) struct Watch<'a> {
    /// Whether the child's end is requested.
    pub(crate) asked: &'a dyn Fn() -> bool,
    /// Becomes readable when the result of `asked` may have changed.
    pub(crate) alarm: Option<&'a OwnedFd>,
    /// The longest pause between two checks.
    pub(crate) longest: Duration,
    /// The treatment of processes that the child leaves behind.
    pub(crate) rest: Rest,
    /// The mark of the child's processes among others in this session; `None` if there are no others.
    pub(crate) mark: Option<&'a str>,
}

/// The treatment of processes that outlive their parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They may stay: services that an action has started.
    Leave,
    /// They end with it.
    End,
    /// They end with it, also in sessions of their own.
    EndAll,
}

impl Group {
    /// Starts a child. Its environment contains only the command's variables.
    pub(crate) fn begin(command: &mut Command, output: [&OutputFile; 2]) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(output[0].handle()?).stderr(output[1].handle()?).process_group(0);
        let child = command.spawn()?;
        let leader =
            i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("the kernel's process ids are positive");
        Ok(Self { child, handle: pidfd_open(leader, PidfdFlags::empty()).ok(), leader })
    }

    /// The process id of the child, which is also the number of its group.
    pub(crate) fn leader(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    /// Waits for the child's end, and ends it if its time is over or `watch` requests it.
    pub(crate) fn wait(
        mut self,
        outputs: &mut [OutputFile],
        limit: Option<Instant>,
        grace: Duration,
        watch: &Watch<'_>,
    ) -> io::Result<(ExitStatus, Ended)> {
        let (mut pause, mut held) = (SHORTEST, 0);
        let ended = loop {
            let left = limit.map_or(pause, |limit| limit.saturating_duration_since(Instant::now()));
            if self.has_ended_within(pause.min(left), watch.alarm) {
                break Ended::Itself;
            }
            let holds = outputs.iter_mut().map(OutputFile::bound).sum::<u64>();
            pause = if holds > held + FLOOD { SHORTEST } else { (pause * 2).min(watch.longest) };
            held = holds;
            if (watch.asked)() {
                break Ended::Asked;
            }
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                break Ended::TimedOut;
            }
        };
        if ended != Ended::Itself || watch.rest != Rest::Leave {
            // The leader is not reaped before, so that the group's number stays its own.
            Relatives::of(self.leader, watch.mark).in_any_session(watch.rest == Rest::EndAll).end(grace);
        }
        Ok((self.child.wait()?, ended))
    }

    /// Whether the child has ended, after this time or as soon as the child or the alarm has an event. It is not
    /// reaped.
    fn has_ended_within(&self, time: Duration, alarm: Option<&OwnedFd>) -> bool {
        if let Some(handle) = &self.handle {
            let spec = timespec(time);
            let fds = [Some(handle), alarm].into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN));
            // If interrupted or refused, this is only a short wait.
            let _ = poll(&mut fds.collect::<Vec<_>>(), Some(&spec));
            alarm.inspect(|alarm| silence(alarm));
        } else {
            thread::sleep(time.min(SHORTEST));
        }
        has_ended(self.leader)
    }
}

/// Whether a child has ended. It is not reaped.
pub(super) fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(child), options), Ok(Some(_)))
}

/// A time in the system's type; a time beyond its range becomes the largest value.
pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

/// Reads the events of an alarm, so that the next wait does not end at once.
fn silence(alarm: &OwnedFd) {
    let mut buffer = [0; 4096];
    while rustix::io::read(alarm, &mut buffer).is_ok_and(|n| n == buffer.len()) {}
}

/// The exit of a child, as recorded in a result.
pub(crate) fn exit(status: ExitStatus, ended: Ended) -> Exit {
    match ended {
        Ended::TimedOut => Exit::TimedOut,
        Ended::Asked => Exit::Cancelled,
        Ended::Itself => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Exited(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Lost,
        },
    }
}

/// The arguments of a command: a text goes to the shell, a list is used as it is.
pub(crate) fn words(command: &cob_types::Command) -> Vec<OsString> {
    match command {
        cob_types::Command::Shell(text) => vec!["/bin/sh".into(), "-c".into(), text.into()],
        cob_types::Command::Argv(words) => words.iter().map(OsString::from).collect(),
    }
}

/// The reason why a program could not be started, with the remedy.
pub(crate) fn why_not_begun(words: &[OsString], folder: &Path, error: &io::Error) -> String {
    let program = words.first().map(|w| w.to_string_lossy().into_owned()).unwrap_or_default();
    if !folder.is_dir() {
        return format!("{program}: its working folder {} is not there", folder.display());
    }
    // A name without a slash is looked up in PATH.
    let there = program.contains('/') && folder.join(&program).exists();
    if error.kind() == io::ErrorKind::NotFound {
        return if there {
            format!("{program}: the interpreter named in its first line is not there")
        } else {
            format!("{program}: not found; does it have to be installed, or named with its folder?")
        };
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        return format!("{program}: not executable; set its mode (chmod +x), or run it through its interpreter");
    }
    if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) {
        return format!("{program}: neither a program for this machine nor a script with a first line #!");
    }
    if error.kind() == io::ErrorKind::ArgumentListTooLong {
        return format!("{program}: its arguments and environment are longer than the system allows");
    }
    format!("{program}: {error}")
}
