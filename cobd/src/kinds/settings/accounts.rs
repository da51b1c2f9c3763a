//! The files of accounts, and the programs that change accounts.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, fchown};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::kinds::native::{Host, bytes_of, run_bounded};

/// The name of the file lock for all changes of accounts.
pub(super) const TURN: &str = "accounts";

/// A line of `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) comment: String,
    pub(super) home: String,
    pub(super) shell: String,
}

/// A line of `/etc/group`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) gid: u32,
    pub(super) members: Vec<String>,
}

/// The account, if it exists.
pub(super) fn account(host: &Host, name: &str) -> Result<Option<Account>, String> {
    let text = host.read("/etc/passwd")?;
    let line =
        text.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields.first() == Some(&name));
    let Some(fields) = line else { return Ok(None) };
    let number = |at: usize| fields.get(at).and_then(|text| text.parse().ok());
    let text = |at: usize| fields.get(at).map(|text| (*text).to_owned()).unwrap_or_default();
    match (number(2), number(3)) {
        (Some(uid), Some(gid)) => Ok(Some(Account { uid, gid, comment: text(4), home: text(5), shell: text(6) })),
        _ => Err(format!("/etc/passwd: the line of {name} can't be read")),
    }
}

/// Whether an existing account is complete: a killed program may have written only one of two files.
pub(super) fn has_shadow(host: &Host, name: &str) -> Result<bool, String> {
    Ok(host.read_if_there("/etc/shadow")?.is_none_or(|text| names(&text, name)))
}

/// Whether a file of accounts has a line of this name.
pub(super) fn has_line(host: &Host, file: &str, name: &str) -> Result<bool, String> {
    Ok(names(&host.read(file)?, name))
}

/// Whether a line of the text begins with this name.
fn names(text: &str, name: &str) -> bool {
    text.lines().any(|line| line.split(':').next() == Some(name))
}

/// The files that account programs lock.
const LOCKED: [&str; 6] = ["passwd", "shadow", "group", "gshadow", "subuid", "subgid"];

/// Whether a program was killed while it held a lock file: its number is in the file, and no such process exists. The next
/// program that locks the file takes the lock over and removes it.
pub(super) fn has_stale_lock(host: &Host) -> Result<bool, String> {
    for file in LOCKED {
        let Some(text) = host.read_if_there(&format!("/etc/{file}.lock"))? else { continue };
        if is_dead(text.trim_matches(|c: char| c == '\0' || c.is_whitespace())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the files `/etc/FILE.PID` of killed programs: the programs make their locks from these files, and no other
/// program removes them.
fn remove_litter(host: &Host) -> Result<(), String> {
    let folder = host.path("/etc");
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let parts = name.to_str().and_then(|name| name.split_once('.'));
        if parts.is_some_and(|(file, process)| LOCKED.contains(&file) && is_number(process) && is_dead(process)) {
            std::fs::remove_file(folder.join(&name)).map_err(failed)?;
        }
    }
    Ok(())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether there is no process of this number.
fn is_dead(process: &str) -> bool {
    let process = process.parse().ok().and_then(Pid::from_raw);
    process.is_none_or(|process| test_kill_process(process).is_err_and(|e| e == Errno::SRCH))
}

/// Removes what a killed removal of a group has left in `/etc/gshadow`, by creating and removing a group of that name.
pub(super) fn remove_traces_of_group(host: &Host, name: &str) -> Result<(), String> {
    remove_litter(host)?;
    let is_gone = !has_line(host, "/etc/group", name)?;
    let is_traced = is_gone && (has_line(host, "/etc/gshadow", name)? || has_stale_lock(host)?);
    if !is_traced {
        return Ok(());
    }
    let name = [name.to_owned()];
    run(host, "groupadd", &name)?;
    run(host, "groupdel", &name)
}

/// All groups.
pub(super) fn groups(host: &Host) -> Result<Vec<Group>, String> {
    let text = host.read("/etc/group")?;
    let read = |line: &str| {
        let fields: Vec<_> = line.split(':').collect();
        let members = fields.get(3)?.split(',').filter(|m| !m.is_empty()).map(str::to_owned).collect();
        Some(Group { name: (*fields.first()?).to_owned(), gid: fields.get(2)?.parse().ok()?, members })
    };
    Ok(text.lines().filter_map(read).collect())
}

/// Gives a file to a user and a group, if these are named.
pub(super) fn give(file: &File, ids: (Option<u32>, Option<u32>)) -> io::Result<()> {
    match ids {
        (None, None) => Ok(()),
        (owner, group) => fchown(file, owner, group),
    }
}

/// The number of a user, given by name or number.
pub(super) fn uid(host: &Host, name: &str) -> Result<u32, String> {
    let known = |host: &Host| Ok::<_, String>(account(host, name)?.map(|account| account.uid));
    id(host, name, "passwd", known)?.ok_or_else(|| missing("user", name))
}

/// The number of a group, given by name or number.
pub(super) fn gid(host: &Host, name: &str) -> Result<u32, String> {
    let known = |host: &Host| Ok(groups(host)?.into_iter().find(|group| group.name == name).map(|group| group.gid));
    id(host, name, "group", known)?.ok_or_else(|| missing("group", name))
}

fn id(
    host: &Host,
    name: &str,
    database: &str,
    known: impl Fn(&Host) -> Result<Option<u32>, String>,
) -> Result<Option<u32>, String> {
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    let found = known(host)?;
    if found.is_some() || host.root().is_some() {
        return Ok(found);
    }
    Ok(other_source(database, name).and_then(|line| line.split(':').nth(2)?.parse().ok()))
}

/// The line of an account or group in any source of this host. Without `getent`, only the files count.
pub(super) fn other_source(database: &str, name: &str) -> Option<String> {
    let asked = run_bounded(Command::new("getent").args([database, "--", name]), b"");
    asked.ok().filter(|ran| ran.code == Some(0)).map(|ran| ran.out)
}

fn missing(sort: &str, name: &str) -> String {
    format!("there is no {sort} {name}; let it come `after` the object that makes the {sort}")
}

/// The lock of all programs that change accounts of a running host: lckpwdf(3).
const LOCK: &str = "/etc/.pwd.lock";
/// The pause between two attempts to lock.
const LOOK: Duration = Duration::from_millis(50);

/// Locks the account files of the running host against other programs. A folder that becomes a host has no such programs.
pub(super) fn lock(host: &Host, longest: Duration) -> Result<Option<File>, String> {
    if host.root().is_some() {
        return Ok(None);
    }
    let failed = |error: std::io::Error| format!("{LOCK}: {error}");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(LOCK).map_err(failed)?;
    let limit = Instant::now() + longest;
    loop {
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::AGAIN | Errno::ACCESS) if Instant::now() < limit => std::thread::sleep(LOOK),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                return Err(format!("{LOCK}: another program worked on the accounts for all of {longest:?}"));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Runs an account program, on the host's own files or on the files below its root folder.
pub(super) fn run(host: &Host, program: &str, arguments: &[String]) -> Result<(), String> {
    remove_litter(host)?;
    let mut command = Command::new(program);
    if let Some(root) = host.root() {
        command.arg("--prefix").arg(root);
    }
    // The fields of an account need not be UTF-8.
    let arguments = arguments.iter().map(|argument| OsString::from_vec(bytes_of(argument).into_owned()));
    run_bounded(command.args(arguments).env("LC_ALL", "C.UTF-8"), b"")?.ok().map(|_| ())
}
