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
    /// This was there before a change object came.
    pub(super) fn add<'k>(&mut self, before: impl Iterator<Item = (&'k TreePath, &'k Kept)>) {
        for path in absent(before) {
            *self.times.entry(self.hasher.hash_one(path)).or_default() += 1;
        }
    }

    /// The change object has left, or something else was there before.
    pub(super) fn remove<'k>(&mut self, before: impl Iterator<Item = (&'k TreePath, &'k Kept)>) {
        for path in absent(before) {
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

fn absent<'k>(before: impl Iterator<Item = (&'k TreePath, &'k Kept)>) -> impl Iterator<Item = &'k TreePath> {
    before.filter(|(_, kept)| kept.node == KeptNode::Absent).map(|(path, _)| path)
}
