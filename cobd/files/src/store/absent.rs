//! Which paths were absent before change objects came to them.
//!
//! Several may have files in a folder that one of them has made. Whoever leaves last removes it, so each that comes to it
//! has to know that it was not there before the first.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use super::{Kept, KeptNode};
use crate::path::TreePath;

/// For how many change objects each path was absent before they came. There may be a hundred thousand of them, most of one
/// change object, so what stands here of a path is a hash (keyed, of 64 bits): nothing but whether it is among them is
/// ever asked.
#[derive(Debug, Default)]
pub(super) struct Absent {
    times: HashMap<u64, u32>,
    hasher: RandomState,
}

impl Absent {
    /// These paths were absent before a change object came.
    pub(super) fn add<'p>(&mut self, paths: impl IntoIterator<Item = &'p TreePath>) {
        for path in paths {
            *self.times.entry(self.hasher.hash_one(path)).or_default() += 1;
        }
    }

    /// The change object has left, or something else was there before.
    pub(super) fn remove<'p>(&mut self, paths: impl IntoIterator<Item = &'p TreePath>) {
        for path in paths {
            let hash = self.hasher.hash_one(path);
            if let Some(times) = self.times.get_mut(&hash) {
                *times -= 1;
                if *times == 0 {
                    self.times.remove(&hash);
                }
            }
        }
    }

    /// Whether nothing was at a path before some change object came to it.
    pub(super) fn has(&self, path: &TreePath) -> bool {
        self.times.contains_key(&self.hasher.hash_one(path))
    }
}

/// The paths of a listing at which nothing is.
pub(super) fn absent<'k>(
    listing: impl IntoIterator<Item = (&'k TreePath, &'k Kept)>,
) -> impl Iterator<Item = &'k TreePath> {
    listing.into_iter().filter(|(_, kept)| kept.node == KeptNode::Absent).map(|(path, _)| path)
}
