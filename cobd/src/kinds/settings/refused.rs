//! Which option of a mount the kernel does not take, and why: `mount` says of most no more than that one is bad.
//!
//! The kernel is asked by `fsopen(2)`, `fspick(2)` and `fsconfig(2)`: it takes options one by one, and says in words what
//! is wrong with one.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsOpenFlags, FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsopen, fspick,
};

use super::mounted;

/// Options that `mount` keeps for itself, or turns into flags: no file system sees them.
const OF_MOUNT: [&str; 28] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "loop",
    "bind",
    "rbind",
    "silent",
    "loud",
    "sync",
    "async",
    "dirsync",
    "mand",
    "nomand",
    "lazytime",
    "nolazytime",
    "strictatime",
    "nostrictatime",
    "norelatime",
    "relatime",
    "iversion",
    "noiversion",
];
/// No message of the kernel is longer.
const MAX_MESSAGE: usize = 4 << 10;
/// So many messages are read.
const MOST: usize = 20;

/// The first option that a new mount of this type can't have, and what the kernel says of it; none: it takes them all, or
/// can't be asked.
pub(super) fn option(kind: &str, options: &[String]) -> Option<String> {
    // Types with a helper have options that the helper alone knows.
    if Path::new("/sbin").join(format!("mount.{kind}")).exists() {
        return None;
    }
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    set_all(&context, options)
}

/// What the kernel says against other options of a `tmpfs` that is mounted there. A size that is too small is known to it
/// when it is to hold only. What it does take holds from here on.
pub(super) fn option_of_mounted(path: &Path, options: &[String], read_only: bool) -> Option<String> {
    let context = fspick(CWD, path, FsPickFlags::FSPICK_CLOEXEC).ok()?;
    if let Some(refused) = set_all(&context, options) {
        return Some(refused);
    }
    if read_only {
        fsconfig_set_flag(context.as_fd(), "ro").ok()?;
    }
    let refused = fsconfig_reconfigure(context.as_fd()).is_err();
    said(&context).filter(|_| refused)
}

fn set_all(context: &OwnedFd, options: &[String]) -> Option<String> {
    options.iter().filter(|option| is_of_file_system(option)).find_map(|option| {
        let set = match option.split_once('=') {
            Some((key, value)) => fsconfig_set_string(context.as_fd(), key, value),
            None => fsconfig_set_flag(context.as_fd(), option.as_str()),
        };
        // What it is not asked for the right way says nothing of the option.
        let refused = matches!(set, Err(Errno::INVAL | Errno::RANGE | Errno::OPNOTSUPP));
        let why = said(context).map_or_else(String::new, |why| format!(": {why}"));
        refused.then(|| format!("the kernel does not take the option `{option}`{why}"))
    })
}

fn is_of_file_system(option: &str) -> bool {
    let is_flag = mounted::FLAGS.iter().any(|(flag, opposite)| option == *flag || option == *opposite);
    let is_note = ["x-", "X-", "comment=", "offset=", "sizelimit="].iter().any(|begin| option.starts_with(begin));
    !is_flag && !is_note && !OF_MOUNT.contains(&option)
}

/// The messages that have come, without the letter in front that tells errors from warnings.
fn said(context: &OwnedFd) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    let mut message = vec![0; MAX_MESSAGE];
    while all.len() < MOST
        && let Ok(length) = rustix::io::read(context, &mut message[..])
        && length > 0
    {
        let text = String::from_utf8_lossy(&message[..length]).trim().to_owned();
        all.push(text.split_once(' ').map_or(text.clone(), |(_, words)| words.to_owned()));
    }
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_the_kernel_does_not_take_is_named() {
        let options = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        if fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).is_err() {
            eprintln!("skipped: it takes root, and a kernel that lets it");
            return;
        }
        assert_eq!(option("tmpfs", &options("noexec x-systemd.automount nofail size=1m mode=0700 uid=1")), None);
        let why = option("tmpfs", &options("size=20m bogus")).expect("refused");
        assert!(why.starts_with("the kernel does not take the option `bogus`"), "{why}");
        assert!(option("tmpfs", &options("size=20q")).is_some_and(|why| why.contains("`size=20q`")));
        assert_eq!(option("no-such-type", &options("bogus")), None);
    }
}
