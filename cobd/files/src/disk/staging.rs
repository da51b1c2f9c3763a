//! Staged files, beside their place until they are moved into it: a fixed name that is found again after a kill, and
//! random names if another user has taken the first.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::OwnedFd;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::path::TreePath;

/// The suffix of a staged file's name.
const NEW: &[u8] = b".cob-new";
/// The length of the random part of a name.
const RANDOM: usize = 17;
/// How many random names are tried.
pub(super) const NAMES: u32 = 8;

/// Whether a name is that of a staged file.
pub(crate) fn is_staged(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(NEW)
}

/// The first name for a staged file: hidden, and without a suffix that programs look for.
pub(super) fn staged_name(name: &[u8]) -> Vec<u8> {
    staged_as(name, b"")
}

/// A random name, which cannot be guessed.
pub(super) fn staged_name_besides(name: &[u8]) -> Vec<u8> {
    // Each `RandomState` has a new key.
    let random = RandomState::new().hash_one(name);
    staged_as(name, format!(".{random:016x}").as_bytes())
}

/// The stems that a staged name may have: as a first name, and as a random name.
pub(super) fn stem_of(staged: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = staged.strip_suffix(NEW).filter(|_| is_staged(staged));
    let dot = whole.and_then(|whole| whole.len().checked_sub(RANDOM));
    let besides = whole.zip(dot).filter(|(whole, dot)| whole[*dot] == b'.').map(|(whole, dot)| &whole[..dot]);
    whole.into_iter().chain(besides)
}

fn staged_as(name: &[u8], besides: &[u8]) -> Vec<u8> {
    [&staged_stem(name), besides, NEW].concat()
}

/// The stem of all staged names of a name; a random part fits behind it.
pub(super) fn staged_stem(name: &[u8]) -> Vec<u8> {
    let longest = 255 - NEW.len() - 1 - RANDOM;
    let mut stem = vec![b'.'];
    if name.len() <= longest {
        stem.extend_from_slice(name);
    } else {
        // Two long names may begin alike.
        let hash =
            name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
        stem.extend_from_slice(&name[..longest - 17]);
        stem.extend_from_slice(format!("-{hash:016x}").as_bytes());
    }
    stem
}

/// Makes an entry beside a path, under a free name, and returns the name. An entry that an earlier attempt left under
/// the first name is removed; other entries, which another user may have put there, stay.
pub(super) fn stage(
    parent: &OwnedFd,
    path: &TreePath,
    first: Vec<u8>,
    make: impl Fn(&[u8]) -> Result<(), Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut new = first;
    for _ in 0..NAMES {
        match remove_staged(parent, &new).and_then(|()| make(&new)) {
            // A folder with entries in it, or another process makes it again and again.
            Err(error) if is_taken(error) => new = staged_name_besides(path.name()),
            ended => return ended.map(|()| new),
        }
    }
    remove_staged(parent, &new).and_then(|()| make(&new)).map(|()| new)
}

/// Whether the error means that the staged entry belongs to others.
pub(super) fn is_taken(error: Errno) -> bool {
    matches!(error, Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::PERM | Errno::ACCESS | Errno::BUSY)
}

/// Removes a staged entry: a file, a link, or an empty folder.
pub(super) fn remove_staged(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let removed = match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR),
        removed => removed,
    };
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}
