//! Which paths change objects have, and which of them were absent before one came.
//!
//! Several may have files in a folder that one of them has made: whoever leaves last removes it, so each that comes to it has
//! to know that it was not there before the first. And a path may go from one change object to another: what was there before
//! the first one came goes with it, and the first one leaves it alone.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use super::{Frozen, Kept, KeptNode};
use crate::path::TreePath;

/// How many change objects have each path. There may be a hundred thousand of them, most of one change object, so what stands
/// here of a path is a hash (keyed, of 64 bits): nothing but whether it is among them is ever asked.
#[derive(Debug, Default)]
pub(super) struct Claims {
    of: HashMap<u64, Claim>,
    hasher: RandomState,
}

/// Of one path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Claim {
    /// Before so many came nothing was there.
    absent: u32,
    /// So many have it for its own sake, and not only on the way to something.
    own: u32,
}

impl Claim {
    fn counts(&mut self, kept: &Kept) -> [(bool, &mut u32); 2] {
        [(kept.node == KeptNode::Absent, &mut self.absent), (!kept.implied, &mut self.own)]
    }
}

impl Claims {
    /// This is what was there before a change object came.
    pub(super) fn add(&mut self, before: &Frozen) {
        for (path, kept) in before.iter() {
            for (counts, count) in self.of.entry(self.hasher.hash_one(path)).or_default().counts(kept) {
                *count += u32::from(counts);
            }
        }
    }

    /// The change object has left, or something else was there before.
    pub(super) fn remove(&mut self, before: &Frozen) {
        for (path, kept) in before.iter() {
            let hash = self.hasher.hash_one(path);
            let Some(claim) = self.of.get_mut(&hash) else { continue };
            for (counts, count) in claim.counts(kept) {
                *count -= u32::from(counts);
            }
            if *claim == Claim::default() {
                self.of.remove(&hash);
            }
        }
    }

    /// Whether nothing was at a path before some change object came to it.
    pub(super) fn was_absent(&self, path: &TreePath) -> bool {
        self.claim(path).absent > 0
    }

    /// How many have a path for its own sake.
    pub(super) fn owners(&self, path: &TreePath) -> u32 {
        self.claim(path).own
    }

    fn claim(&self, path: &TreePath) -> Claim {
        self.of.get(&self.hasher.hash_one(path)).copied().unwrap_or_default()
    }
}
