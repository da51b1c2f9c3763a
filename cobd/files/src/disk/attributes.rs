//! Reads and sets the attributes of open files and folders.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;

use crate::attributes::{ACCESS, Attributes, Bytes};

/// The kernel's limit for an attribute.
const MAX_XATTR: usize = 64 << 10;

pub(super) fn attributes(fd: impl AsFd, stat: &rustix::fs::Stat) -> Attributes {
    Attributes { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid, xattrs: xattrs(fd) }
}

/// The readable extended attributes; empty on file systems without support.
fn xattrs(fd: impl AsFd) -> BTreeMap<String, Bytes> {
    let list = whole(|room| rustix::fs::flistxattr(&fd, room));
    let value = |name: &str| whole(|room| rustix::fs::fgetxattr(&fd, name, room));
    let of = |name: &str| Some((name.to_owned(), Bytes(value(name)?)));
    let Some(list) = list else {
        // The file has none, or too many to list: attributes that give access must not hide among them.
        return ACCESS.into_iter().filter_map(of).collect();
    };
    let names = list.split(|b| *b == 0).filter_map(|name| std::str::from_utf8(name).ok()).filter(|n| !n.is_empty());
    names.filter_map(of).collect()
}

/// The bytes that `read` returns. Most files have no extended attributes, or a short label.
fn whole(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Option<Vec<u8>> {
    let mut short = [0; 256];
    match read(&mut short) {
        Ok(length) => Some(short[..length].to_vec()),
        Err(Errno::RANGE) => {
            let mut long = vec![0; MAX_XATTR];
            let length = read(&mut long).ok()?;
            Some(long[..length].to_vec())
        }
        Err(_) => None,
    }
}

/// Sets the attributes of an open file.
pub(super) fn apply(fd: impl AsFd, from: &Attributes, to: &Attributes) -> Result<(), Errno> {
    let different = |a: u32, b: u32| (a != b).then_some(b);
    let (uid, gid) = (different(from.uid, to.uid), different(from.gid, to.gid));
    if uid.is_some() || gid.is_some() {
        rustix::fs::fchown(&fd, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
    }
    for (name, value) in &to.xattrs {
        if from.xattrs.get(name) != Some(value) {
            match rustix::fs::fsetxattr(&fd, name.as_str(), &value.0, rustix::fs::XattrFlags::empty()) {
                // Labels that the system sets itself, and may refuse to others.
                Err(_) if name.starts_with("security.") || name.starts_with("trusted.") => {}
                other => other?,
            }
        }
    }
    let is_label = |name: &str| name.starts_with("security.") && !ACCESS.contains(&name);
    for name in from.xattrs.keys().filter(|name| !to.xattrs.contains_key(*name) && !is_label(name)) {
        match rustix::fs::fremovexattr(&fd, name.as_str()) {
            Err(Errno::NODATA) | Ok(()) => {}
            Err(error) => return Err(error),
        }
    }
    // After the owner, because a change of the owner clears the set-user-ID bit.
    if from.mode != to.mode || from.xattrs != to.xattrs || uid.is_some() || gid.is_some() {
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(to.mode))?;
    }
    Ok(())
}
