//! Finds the mount option that the kernel rejects, with its reason: `mount` mostly reports only that an option is bad.
//!
//! The calls `fsopen(2)`, `fspick(2)` and `fsconfig(2)` ask the kernel: it takes the options separately, and explains
//! each rejection.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsOpenFlags, FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsopen, fspick,
};

use super::mounted;

/// Options that `mount` handles itself or turns into flags; no file system gets them.
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
/// The longest message of the kernel.
const MAX_MESSAGE: usize = 4 << 10;
/// The most messages that are read.
const MOST: usize = 20;

/// The first option that a new mount of this type can't have, with the kernel's reason. `None`: all options are
/// accepted, or the kernel can't be asked.
pub(super) fn option(kind: &str, options: &[String]) -> Option<String> {
    // Types with a mount helper have options that only the helper knows.
    if Path::new("/sbin").join(format!("mount.{kind}")).exists() {
        return None;
    }
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    set_all(&context, options)
}

/// The kernel's reason against other options of a mounted `tmpfs`. A size that is too small fails only when it is
/// applied, so accepted options take effect.
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
        // Other errors say no more than that the call was wrong for this option.
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

/// The pending messages, without the leading letter for error or warning.
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
