//! Processes as the kernel shows them: who belongs to a folder, how much memory one takes.

use std::fs;

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// The processes, but for this one, that name a folder in their command line or in their environment:
/// daemons, runners, keepers, actions and services of a test.
///
/// # Panics
/// When `/proc` can't be read.
#[must_use]
pub fn mentioning(folder: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("a list of processes");
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    all.filter(|pid| *pid != std::process::id()).filter(|pid| mentions(*pid, folder)).collect()
}

fn mentions(pid: u32, folder: &str) -> bool {
    ["cmdline", "environ"].iter().any(|file| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        bytes.windows(folder.len()).any(|w| w == folder.as_bytes())
    })
}

/// Whether a process is there and not only waiting to be reaped.
#[must_use]
pub fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Sends a signal; one who has ended meanwhile need not be told.
///
/// # Panics
/// When it is no process id.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    let _ = kill_process(pid, signal);
}

/// The memory that a process has in RAM, in KiB.
///
/// # Panics
/// When it does not live.
#[must_use]
pub fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
