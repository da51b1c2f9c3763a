//! What stands beside a place until it is in it: names that are found again after a kill, and others where somebody has taken
//! the first.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::OwnedFd;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::path::TreePath;

/// The end of the name of a file that is not in its place yet.
const NEW: &[u8] = b".cob-new";
/// The length of what tells another name beside a place from the first.
const RANDOM: usize = 17;
/// So many other names are tried where the first one beside a place is taken.
pub(super) const NAMES: u32 = 8;

/// Whether a name is that of a file that is not in its place yet.
pub(crate) fn is_staged(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(NEW)
}

/// The name beside a name: hidden, and of no sort that programs read by its ending.
pub(super) fn staged_name(name: &[u8]) -> Vec<u8> {
    staged_as(name, b"")
}

/// Another one, which nobody can know before.
pub(super) fn staged_name_besides(name: &[u8]) -> Vec<u8> {
    // Keyed anew each time.
    let random = RandomState::new().hash_one(name);
    staged_as(name, format!(".{random:016x}").as_bytes())
}

/// What a name beside a place may begin with: of the first, and of another one.
pub(super) fn stem_of(staged: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = staged.strip_suffix(NEW).filter(|_| is_staged(staged));
    let dot = whole.and_then(|whole| whole.len().checked_sub(RANDOM));
    let besides = whole.zip(dot).filter(|(whole, dot)| whole[*dot] == b'.').map(|(whole, dot)| &whole[..dot]);
    whole.into_iter().chain(besides)
}

fn staged_as(name: &[u8], besides: &[u8]) -> Vec<u8> {
    [&staged_stem(name), besides, NEW].concat()
}

/// What the names beside a name begin with. Another one fits behind it.
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

/// Makes something beside the place of a path, under a name that nobody has; the name. What an attempt before has left under
/// the first one is removed; anything else, which whoever may write in the folder may have put there, stays.
pub(super) fn stage(
    parent: &OwnedFd,
    path: &TreePath,
    first: Vec<u8>,
    make: impl Fn(&[u8]) -> Result<(), Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut new = first;
    for _ in 0..NAMES {
        match remove_staged(parent, &new).and_then(|()| make(&new)) {
            // A folder with something in it; or somebody makes it again and again.
            Err(error) if is_taken(error) => new = staged_name_besides(path.name()),
            ended => return ended.map(|()| new),
        }
    }
    remove_staged(parent, &new).and_then(|()| make(&new)).map(|()| new)
}

/// Whether what stands beside a place is not ours to remove.
pub(super) fn is_taken(error: Errno) -> bool {
    matches!(error, Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::PERM | Errno::ACCESS | Errno::BUSY)
}

/// Removes what stands under such a name: a file, a link, or a folder with nothing in it.
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
