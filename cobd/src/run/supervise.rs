//! One child in a process group of its own: begun, watched, ended with all its group.
//!
//! Used by the runner (actions) and by the keeper of a service. Synchronous: each of these is a process
//! that does nothing else.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid};

use super::job::Exit;
use super::leftovers;
use super::output::OutputFile;

/// Between two looks at output and cancellation: short at first, because most actions are short.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// Growth between two looks that makes the next one come soon.
const FLOOD: u64 = 64 << 10;

/// A running child that leads a process group.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    /// None on kernels before 5.3: the child is looked at instead of waited for.
    handle: Option<OwnedFd>,
    leader: Pid,
}

/// Why a child was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It ended by itself.
    Itself,
    /// Its time was over.
    TimedOut,
    /// Somebody asked for it.
    Asked,
}

impl Group {
    /// Begins a child. Its environment is what the command says and nothing else.
    pub(crate) fn begin(command: &mut Command, output: [&OutputFile; 2]) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(output[0].handle()?).stderr(output[1].handle()?).process_group(0);
        let child = command.spawn()?;
        let leader =
            i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("the kernel's process ids are positive");
        Ok(Self { child, handle: pidfd_open(leader, PidfdFlags::empty()).ok(), leader })
    }

    /// Waits for the child's end, and brings it about when its time is over or `asked` says so.
    pub(crate) fn wait(
        mut self,
        outputs: &mut [OutputFile],
        limit: Option<Instant>,
        grace: Duration,
        mut asked: impl FnMut() -> bool,
    ) -> io::Result<(ExitStatus, Ended)> {
        let (mut pause, mut held) = (LOOK.0, 0);
        let ended = loop {
            let left = limit.map_or(LOOK.1, |limit| limit.saturating_duration_since(Instant::now()));
            if self.has_ended_within(pause.min(left)) {
                break Ended::Itself;
            }
            let holds = outputs.iter_mut().map(OutputFile::bound).sum::<u64>();
            pause = if holds > held + FLOOD { LOOK.0 } else { (pause * 2).min(LOOK.1) };
            held = holds;
            if asked() {
                break Ended::Asked;
            }
            if limit.is_some_and(|limit| Instant::now() >= limit) {
                break Ended::TimedOut;
            }
        };
        if ended != Ended::Itself {
            self.end(grace);
        }
        Ok((self.child.wait()?, ended))
    }

    /// Asks the whole group to end, waits, kills what is left. The leader is not reaped before that, so
    /// the group's number stays its own.
    fn end(&self, grace: Duration) {
        let tell = |signal| {
            // It fails when nobody is left, and then nobody has to be told.
            let _ = kill_process_group(self.leader, signal);
        };
        tell(Signal::TERM);
        // Who was stopped can't end.
        tell(Signal::CONT);
        if leftovers::wait_for_group(self.leader, Some(Instant::now() + grace)) {
            return;
        }
        tell(Signal::KILL);
        // One that can't be killed (it waits for a disk) still acts: there is no limit to this.
        leftovers::wait_for_group(self.leader, None);
    }

    /// Whether the child ends within this time. It is not reaped.
    fn has_ended_within(&self, time: Duration) -> bool {
        let limit = Instant::now() + time;
        loop {
            let left = limit.saturating_duration_since(Instant::now());
            match &self.handle {
                Some(handle) => {
                    let spec = Timespec {
                        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                        tv_nsec: i64::from(left.subsec_nanos()),
                    };
                    match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&spec)) {
                        Ok(ready) => return ready > 0,
                        Err(rustix::io::Errno::INTR) => {}
                        Err(_) => thread::sleep(left.min(LOOK.0)),
                    }
                }
                None => thread::sleep(left.min(LOOK.0)),
            }
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            if matches!(waitid(WaitId::Pid(self.leader), options), Ok(Some(_))) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }
}

/// The exit of a child, in the words of a result.
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

/// The words of a command: a text goes to the shell, a list stands as it is.
pub(crate) fn words(command: &cob_types::Command) -> Vec<OsString> {
    match command {
        cob_types::Command::Shell(text) => vec!["/bin/sh".into(), "-c".into(), text.into()],
        cob_types::Command::Argv(words) => words.iter().map(OsString::from).collect(),
    }
}

/// Why a program could not be begun, in words that tell what to do.
pub(crate) fn why_not_begun(words: &[OsString], folder: &Path, error: &io::Error) -> String {
    let program = words.first().map(|w| w.to_string_lossy().into_owned()).unwrap_or_default();
    if !folder.is_dir() {
        return format!("{program}: its working folder {} is not there", folder.display());
    }
    // A name without a slash is looked for in PATH.
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
