//! The processes of a folder: the daemons whose configuration is in it, with their services and actions.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The environment variables of all processes that daemons start; their values are paths in the daemon's state folder.
const MARKS: [&str; 3] = ["COB_JOB=", "COB_SERVICE=", "COB_COMMAND="];
/// How long the kernel has to end processes after SIGKILL.
const KILL: Duration = Duration::from_secs(10);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Ends every process of the folder: with SIGTERM, and after `grace` with SIGKILL. Says whether none is left.
pub fn end_all_in(folder: &Path, grace: Duration) -> bool {
    for (signal, limit) in [(Signal::TERM, grace), (Signal::KILL, KILL)] {
        let limit = Instant::now() + limit;
        let mut asked = Vec::new();
        loop {
            let living = living_in(folder);
            if living.is_empty() {
                return true;
            }
            for pid in living {
                // Once: a daemon that is asked twice may hurry. A later process of the folder is asked, too.
                if !asked.contains(&pid) {
                    asked.push(pid);
                    send(folder, pid, signal);
                }
            }
            if Instant::now() > limit {
                break;
            }
            thread::sleep(LOOK);
        }
    }
    living_in(folder).is_empty()
}

/// Signals a process, if it still belongs to the folder.
fn send(folder: &Path, pid: i32, signal: Signal) {
    let Some(process) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return };
    if is_of(folder, pid) {
        // A process that has ended needs no signal.
        let _ = pidfd_send_signal(&process, signal);
    }
}

/// The processes of the folder, except for this process. Other processes that use the folder do not count.
pub fn living_in(folder: &Path) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let Ok(all) = super::all_processes() else { return Vec::new() };
    all.filter(|pid| *pid != own && is_of(folder, *pid)).collect()
}

/// Whether a process is a daemon with a path in the folder among its arguments, or has such a path in its environment.
fn is_of(folder: &Path, pid: i32) -> bool {
    let within = |word: &[u8]| Path::new(OsStr::from_bytes(word)).starts_with(folder);
    let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let command = read("cmdline");
    let mut words = command.split(|byte| *byte == 0);
    let program = words.next().unwrap_or_default();
    // A program that contains the daemon is told so by its first argument.
    let is_daemon = program.rsplit(|byte| *byte == b'/').next() == Some(b"cobd")
        || words.clone().next().is_some_and(|word| word.starts_with(b"__"));
    let is_marked =
        |variable: &[u8]| MARKS.iter().any(|mark| variable.strip_prefix(mark.as_bytes()).is_some_and(within));
    (is_daemon && words.any(within)) || read("environ").split(|byte| *byte == 0).any(is_marked)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn processes_outside_the_folder_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("there");
        let log = folder.join("n1.log");
        fs::write(&log, "").expect("written");
        let sleeps = |name: &str, words: &[&str]| {
            let mut command = Command::new("/bin/sh");
            // `exec` names the program freely; the script ignores its arguments and sleeps.
            command.arg0(name).args(["-c", "while :; do sleep 0.1; done", "sh"]).args(words);
            command
        };
        let beside = format!("{}2/n1.toml", folder.display());
        let within = format!("{}/n1.toml", folder.display());
        let strangers = [
            Command::new("tail").arg("-f").arg(&log).stdout(Stdio::null()).spawn(),
            Command::new("sleep").arg("60").current_dir(&folder).spawn(),
            sleeps("/usr/bin/cobd", &[&beside]).spawn(),
        ];
        let mut strangers = strangers.map(|child| child.expect("begun"));
        let own = Command::new("sleep").arg("60").env("COB_JOB", folder.join("n1/jobs/1")).spawn();
        let daemon = sleeps("/usr/bin/cobd", &[&within]).spawn();
        let mut own = [own, daemon].map(|child| child.expect("begun"));
        let mut expected: Vec<i32> = own.iter().map(|child| i32::try_from(child.id()).expect("small")).collect();
        expected.sort_unstable();
        let limit = Instant::now() + Duration::from_secs(20);
        let living = || {
            let mut living = living_in(&folder);
            living.sort_unstable();
            living
        };
        while living() != expected {
            assert!(Instant::now() < limit, "{:?} and not {expected:?}", living());
            thread::sleep(LOOK);
        }
        let waiting = own.each_mut().map(|child| child.id());
        // The children are reaped meanwhile: a zombie has neither arguments nor environment.
        assert!(end_all_in(&folder, Duration::from_secs(5)), "{waiting:?}");
        for child in &mut own {
            child.wait().expect("reaped");
        }
        for child in &mut strangers {
            assert!(matches!(child.try_wait(), Ok(None)), "a stranger was ended");
            child.kill().expect("killed");
            child.wait().expect("reaped");
        }
    }
}
