//! Processes from `/proc`: the processes that belong to a folder, and their memory.

use std::fs;

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// The processes, except this process, that name a folder in their command line or environment: daemons, runners,
/// supervisors, actions and services of a test.
///
/// # Panics
/// If `/proc` can't be read.
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

/// Whether a process exists and is not only waiting to be reaped.
#[must_use]
pub fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Sends a signal; the process may have ended already.
///
/// # Panics
/// If the number is not a process id.
pub fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    let _ = kill_process(pid, signal);
}

/// The memory of a process in RAM, in KiB.
///
/// # Panics
/// If the process does not exist.
#[must_use]
pub fn resident_kib(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The peak memory of a process in RAM, in KiB.
///
/// # Panics
/// If the process does not exist.
#[must_use]
pub fn peak_kib(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|l| l.strip_prefix(what)).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The number of open file descriptors of a process. If the process can't be dumped, only root can list them; but every
/// user can read their number (since Linux 6.2).
///
/// # Panics
/// If the process does not exist, or neither is readable.
#[must_use]
pub fn descriptors(pid: u32) -> usize {
    let folder = format!("/proc/{pid}/fd");
    if let Ok(all) = fs::read_dir(&folder) {
        return all.count();
    }
    let length = fs::metadata(&folder).expect("a process").len();
    assert!(length > 0, "{folder} can't be read, and the kernel does not tell how many there are");
    usize::try_from(length).expect("a number")
}

/// The targets of the descriptors of a process, for debugging a leak; as far as they are readable.
#[must_use]
pub fn open_files(pid: u32) -> Vec<String> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut all: Vec<_> =
        all.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned())).collect();
    all.sort();
    all
}
