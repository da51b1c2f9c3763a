//! Ports for programs, options of `curl`, writers of a file, and processes in `/proc`: the living processes of an action, and the leftovers of a killed runner.
//!
//! A process id alone proves nothing: it may have been given to another process. A leftover is identified by the
//! session of its runner, *and* by the process group of its action, the variable in its environment that names the job,
//! or the job's file that it prints into. It is signalled through a handle that was opened before these checks.

mod curl;
mod folder;
mod ports;
mod writers;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal};

pub use curl::CurlOptions;
pub use folder::{end_all_in, living_in};
pub use ports::free_ports;
pub use writers::has_writer;

/// The variable in the environment of all processes of a job: its value is the job's folder.
pub const JOB_VARIABLE: &str = "COB_JOB";

/// The mark of a job's processes: the variable with its value.
pub fn mark(folder: &Path) -> String {
    format!("{JOB_VARIABLE}={}", folder.display())
}

/// How often, a millisecond apart, a process without an environment is checked while it is being executed.
const LOOKS_AT_EXECUTED: usize = 1000;
/// After this many checks without the variable it counts as foreign.
const LOOKS_AT_STRANGER: usize = 4;
/// The pause between two checks of a group that was asked to end: the first and the longest.
const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// A flag of a process (`include/linux/sched.h`): it is ending.
const PF_EXITING: u32 = 0x4;
/// It is a kernel thread.
const PF_KTHREAD: u32 = 0x0020_0000;

/// The state of a process, from the kernel.
struct Stat {
    state: char,
    group: i32,
    session: i32,
    /// False while it is being executed: it has no environment then.
    has_begun: bool,
    /// It is a kernel thread or is ending: it has no environment any more.
    has_none: bool,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain any characters.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let _parent = fields.next()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        // `flags` is the ninth field, `env_end` the 51st (proc_pid_stat(5)); the session was the sixth.
        let flags: u32 = fields.nth(9 - 6 - 1)?.parse().ok()?;
        let has_begun = fields.nth(51 - 9 - 1) != Some("0");
        let has_none = flags & (PF_EXITING | PF_KTHREAD) != 0;
        Some(Self { state, group, session, has_begun, has_none })
    }

    fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

fn all_processes() -> io::Result<impl Iterator<Item = i32>> {
    Ok(fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// All processes that a child of ours has started: its process group, and the processes of this session, if this
/// process leads it, or the processes of the session with the child's mark in their environment. The group's number
/// can't be reused while this process lives and has not reaped the child.
#[derive(Debug, Clone, Copy)]
pub struct Relatives<'a> {
    leader: Pid,
    session: Option<i32>,
    mark: Option<&'a str>,
    any_session: bool,
}

impl<'a> Relatives<'a> {
    /// The processes of a child that leads a process group. With a mark: only processes of the session with it.
    pub fn of(leader: Pid, mark: Option<&'a str>) -> Self {
        let own = getpid().as_raw_nonzero().get();
        // 0 if the session leader is outside this process namespace (`docker exec`); `getsid` of `rustix` rejects 0.
        let session = Stat::read(own).map(|stat| stat.session).filter(|session| mark.is_some() || *session == own);
        Self { leader, session, mark, any_session: false }
    }

    /// Includes processes of other sessions that have the mark.
    pub fn in_any_session(self, any_session: bool) -> Self {
        Self { any_session: any_session && self.mark.is_some(), ..self }
    }

    /// Asks all processes to end, waits, and kills the remaining processes.
    pub fn end(self, grace: Duration) {
        self.signal(Signal::TERM);
        // A stopped process can't end.
        self.signal(Signal::CONT);
        if wait_until(Some(Instant::now() + grace), || self.members().is_empty()) {
            return;
        }
        // New processes may have been forked in the meantime. A process that can't be killed (it waits for a disk) is
        // waited for without a limit: as long as it lives, the action is not over.
        wait_until(None, || {
            self.signal(Signal::KILL);
            self.members().is_empty()
        });
    }

    fn signal(self, signal: Signal) {
        // The whole group at once, so that no process forks between two signals. It fails if the group is empty.
        let _ = kill_process_group(self.leader, signal);
        for (pid, _) in self.members().into_iter().filter(|(_, group)| *group != self.group()) {
            let handle = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            if let Some(handle) = handle.filter(|_| self.member(pid).is_some()) {
                let _ = pidfd_send_signal(handle, signal);
            }
        }
    }

    /// Process id and group of all living members; empty if `/proc` can't be read.
    fn members(self) -> Vec<(i32, i32)> {
        all_processes().map(|all| all.filter_map(|pid| self.member(pid)).collect()).unwrap_or_default()
    }

    fn member(self, pid: i32) -> Option<(i32, i32)> {
        let stat = Stat::read(pid).filter(Stat::lives)?;
        let in_session = || (self.any_session || self.session == Some(stat.session)) && self.session != Some(pid);
        let kin =
            stat.group == self.group() || in_session() && self.mark.is_none_or(|mark| has_in_environment(pid, mark));
        kin.then_some((pid, stat.group))
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

/// The known facts about the processes of a runner or supervisor that may have been killed.
#[derive(Debug)]
pub struct Trail {
    /// Its process id: it leads its own session. `None`: unknown.
    session: Option<i32>,
    /// The process group that it has started.
    group: Option<i32>,
    /// The `NAME=VALUE` that all its processes have in their environment, unless a program clears it (`env -i`,
    /// `sudo`).
    mark: String,
    /// The files that all its processes print into, unless a program redirects its output. A process without both marks
    /// is identified by its group alone, which a runner can record only after the start.
    outputs: Vec<PathBuf>,
    any_session: bool,
}

impl Trail {
    /// The mark of a job, and the content of its lock, written by its runner: the process ids of the
    /// session leader and of the process group.
    pub fn new(signed: Option<&str>, mark: String) -> Self {
        let mut numbers = signed.unwrap_or_default().split_whitespace().map(|word| word.parse().ok());
        Self {
            session: numbers.next().flatten(),
            group: numbers.next().flatten(),
            mark,
            outputs: Vec::new(),
            any_session: false,
        }
    }

    /// Includes processes of other sessions that have the mark.
    pub fn in_any_session(self, any_session: bool) -> Self {
        Self { any_session, ..self }
    }

    /// Adds the files that its processes print into.
    pub fn with_outputs(self, outputs: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { outputs: outputs.into_iter().collect(), ..self }
    }

    /// Adds a group that is known from another source.
    pub fn with_group(self, group: Option<i32>) -> Self {
        Self { group: self.group.or(group), ..self }
    }

    /// Whether its session is known.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether any process is left.
    pub fn leads_anywhere(&self) -> bool {
        !self.leftovers().is_empty()
    }

    /// Ends the leftovers: asks, waits, kills. Returns how many processes it found.
    pub fn end(&self, grace: Duration) -> usize {
        let found = self.leftovers();
        let count = found.len();
        signal(&found, Signal::TERM);
        let limit = Instant::now() + grace;
        if !found.is_empty() && !wait_until(Some(limit), || self.leftovers().is_empty()) {
            self.kill();
        }
        count
    }

    /// Kills all leftovers, and processes forked in the meantime, without a time limit (see [`Relatives::end`]). Returns
    /// their number.
    pub fn kill(&self) -> usize {
        let mut count = 0;
        wait_until(None, || {
            let found = self.leftovers();
            count += found.len();
            signal(&found, Signal::KILL);
            found.is_empty()
        });
        count
    }

    fn leftovers(&self) -> Vec<OwnedFd> {
        let Ok(all) = all_processes() else { return Vec::new() };
        let mut found = Vec::new();
        for pid in all {
            if !self.is_leftover(pid) {
                continue;
            }
            // The second check concerns exactly the process of the handle.
            let handle = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            found.extend(handle.filter(|_| self.is_leftover(pid)));
        }
        found
    }

    fn is_leftover(&self, pid: i32) -> bool {
        let Some(stat) = Stat::read(pid).filter(Stat::lives) else { return false };
        let in_group = || self.session.is_some() && self.group == Some(stat.group);
        let in_session = self.session.is_none_or(|session| stat.session == session);
        in_session && (in_group() || self.prints(pid))
            || (in_session || self.any_session) && has_in_environment(pid, &self.mark)
    }

    fn prints(&self, pid: i32) -> bool {
        let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let into = |fd| file(Path::new(&format!("/proc/{pid}/fd/{fd}")));
        let printed = [1, 2].map(into);
        self.outputs.iter().filter_map(|path| file(path)).any(|output| printed.contains(&Some(output)))
    }
}

/// Whether a process was stopped (`SIGSTOP`), but not by a tracer (ptrace).
pub fn is_stopped(pid: i32) -> bool {
    Stat::read(pid).is_some_and(|stat| stat.state == 'T')
}

/// Whether a living process has this mark in its environment.
pub fn is_marked(pid: Pid, mark: &str) -> bool {
    has_in_environment(pid.as_raw_nonzero().get(), mark)
}

/// Whether the process was started with this `NAME=VALUE`. While it is being executed it has no environment, and a read
/// may return a part of the old environment: so several checks have to agree.
fn has_in_environment(pid: i32, variable: &str) -> bool {
    let mut without = 0;
    for _ in 0..LOOKS_AT_EXECUTED {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(all) if all.split(|b| *b == 0).any(|v| v == variable.as_bytes()) => return true,
            Ok(all) if !all.is_empty() => without += 1,
            // A process of another user.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return false,
            Ok(_) | Err(_) => {
                let Some(stat) = Stat::read(pid).filter(|stat| stat.lives() && !stat.has_none) else { return false };
                without += usize::from(stat.has_begun);
                thread::sleep(Duration::from_millis(1));
            }
        }
        if without == LOOKS_AT_STRANGER {
            return false;
        }
    }
    false
}

fn signal(handles: &[OwnedFd], signal: Signal) {
    for handle in handles {
        // The process may have ended in the meantime.
        let _ = pidfd_send_signal(handle, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command};

    use super::*;

    /// A process that leads its own group.
    fn begin(mark: &str) -> Child {
        Command::new("/bin/sleep").arg("600").env("COB_KIN", mark).process_group(0).spawn().expect("begun")
    }

    /// Waits for a condition, with a limit.
    fn wait_for(what: &str, condition: impl FnMut() -> bool) {
        assert!(wait_until(Some(Instant::now() + Duration::from_secs(120)), condition), "waited in vain: {what}");
    }

    fn pid(child: &Child) -> Pid {
        Pid::from_raw(child.id().cast_signed()).expect("a process id")
    }

    #[test]
    fn a_process_that_left_its_group_is_found_by_its_mark() {
        let own = format!("kin of {}", std::process::id());
        let (mut leader, mut gone, mut stranger) = (begin(&own), begin(&own), begin("of nobody"));
        let mark = format!("COB_KIN={own}");
        let kin = Relatives::of(pid(&leader), Some(&mark));
        let members = || kin.members().into_iter().map(|(pid, _)| pid.cast_unsigned()).collect::<Vec<_>>();
        wait_for("both are seen", || members().len() == 2);
        assert!(!members().contains(&stranger.id()));
        kin.end(Duration::from_secs(5));
        assert!(leader.wait().expect("reaped").code().is_none() && gone.wait().expect("reaped").code().is_none());
        assert!(stranger.try_wait().expect("looked at").is_none(), "it goes on");
        stranger.kill().expect("killed");
        stranger.wait().expect("reaped");
    }

    #[test]
    fn a_process_whose_session_began_outside_the_namespace_is_found() {
        let within = |command: &mut Command| {
            let mut unshare = Command::new("unshare");
            unshare.args(["--pid", "--fork", "--mount-proc", "--"]);
            unshare.arg(command.get_program()).args(command.get_args()).output()
        };
        if !within(&mut Command::new("true")).is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: a process namespace can't be made here");
            return;
        }
        let mut test = Command::new(std::env::current_exe().expect("this program"));
        test.args(["--exact", "tests::a_process_that_left_its_group_is_found_by_its_mark"]);
        let output = within(&mut test).expect("begun");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
