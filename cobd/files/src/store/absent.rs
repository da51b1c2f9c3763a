//! Which paths were absent before change objects came to them.
//!
//! Several may have files in a folder that one of them has made. Whoever leaves last removes it, so each that comes to it
//! has to know that it was not there before the first.

use std::collections::BTreeMap;

use super::{Kept, KeptNode};
use crate::path::TreePath;

/// The paths that were absent, by change object and all together.
#[derive(Debug, Default)]
pub(super) struct Absent {
    /// Each sorted.
    of: BTreeMap<String, Vec<TreePath>>,
    /// For how many change objects.
    counts: BTreeMap<TreePath, usize>,
}

impl Absent {
    /// This was there before a change object came; nothing, when it has left.
    pub(super) fn set<'k>(&mut self, cob: &str, before: impl Iterator<Item = (&'k TreePath, &'k Kept)>) {
        for path in self.of.remove(cob).into_iter().flatten() {
            if let Some(count) = self.counts.get_mut(&path) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&path);
                }
            }
        }
        let absent = before.filter(|(_, kept)| kept.node == KeptNode::Absent);
        let absent: Vec<TreePath> = absent.map(|(path, _)| path.clone()).collect();
        if absent.is_empty() {
            return;
        }
        for path in &absent {
            *self.counts.entry(path.clone()).or_default() += 1;
        }
        self.of.insert(cob.to_owned(), absent);
    }

    /// Whether nothing was at a path before some other change object came to it.
    pub(super) fn for_another(&self, path: &TreePath, cob: &str) -> bool {
        let own = self.of.get(cob).is_some_and(|paths| paths.binary_search(path).is_ok());
        self.counts.get(path).is_some_and(|count| *count > usize::from(own))
    }
}
