//! Counts which paths change objects have, and which of them did not exist before.
//!
//! Several change objects may have files in a folder that the first of them made. The last that departs removes it, so
//! each has to know that the folder did not exist before the first came. And a path may pass from a change object to
//! another: the earlier entry passes with it, and the first change object no longer restores it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use super::{Frozen, RecordedEntry, RecordedNode};
use crate::path::TreePath;

/// The claims on each path. There may be a hundred thousand paths, most with a single change object. So a path is
/// stored as a keyed hash of 64 bits, which is enough for lookups.
#[derive(Debug, Default)]
pub(super) struct Claims {
    of: HashMap<u64, Claim>,
    hasher: RandomState,
}

/// The counters of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Claim {
    /// Change objects before which the path did not exist.
    absent: u32,
    /// Change objects that have the path as their own, and not only as a parent folder.
    own: u32,
}

impl Claim {
    fn counts(&mut self, kept: &RecordedEntry) -> [(bool, &mut u32); 2] {
        [(kept.node == RecordedNode::Absent, &mut self.absent), (!kept.implied, &mut self.own)]
    }
}

impl Claims {
    /// Adds a change object with these earlier entries.
    pub(super) fn add(&mut self, before: &Frozen) {
        for (path, kept) in before.iter() {
            for (counts, count) in self.of.entry(self.hasher.hash_one(path)).or_default().counts(kept) {
                *count += u32::from(counts);
            }
        }
    }

    /// Removes a change object's entries, because it departed or its earlier entries changed.
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

    /// Whether a path did not exist before a change object came to it.
    pub(super) fn was_absent(&self, path: &TreePath) -> bool {
        self.claim(path).absent > 0
    }

    /// The number of change objects that have the path as their own.
    pub(super) fn owners(&self, path: &TreePath) -> u32 {
        self.claim(path).own
    }

    fn claim(&self, path: &TreePath) -> Claim {
        self.of.get(&self.hasher.hash_one(path)).copied().unwrap_or_default()
    }
}
