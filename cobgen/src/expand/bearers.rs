//! The change objects of a service that a dependency of the service applies to: the ready change objects, and the
//! change objects that gates among these require, because a gate has no action of its own.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::CobId;

use super::asks::Word;
use super::objects::{ObjectOrigin, Objects};
use super::targets::Link;

/// The change objects of a service that a dependency of the service applies to.
pub(super) struct Bearers {
    pub(super) all: Vec<CobId>,
    /// Gates that require another bearer. They need no `requires` of their own: that bearer has the same.
    through: BTreeSet<CobId>,
}

impl Bearers {
    /// The bearers of a service on a cluster, by the links inside the service.
    pub(super) fn of_service(
        objects: &Objects,
        links: &[Link],
        (cluster, service): (usize, &str),
        ready: Vec<CobId>,
    ) -> Self {
        let is_gate = |id: &CobId| {
            objects.get(id).and_then(|o| o.kind.as_ref()).and_then(|k| k.builtin).is_some_and(|entry| entry.kind.gate)
        };
        let within = |id: &CobId| matches!(objects.get(id).map(|o| &o.home), Some(ObjectOrigin::Service { cluster: c, service: s, .. }) if *c == cluster && &**s == service);
        let mut all = ready;
        // Most services have no gate, and a search through all links for every service takes time.
        if !all.iter().any(is_gate) {
            return Self { all, through: BTreeSet::new() };
        }
        let mut seen: BTreeSet<CobId> = all.iter().cloned().collect();
        let mut required: BTreeMap<&CobId, Vec<&CobId>> = BTreeMap::new();
        for link in links.iter().filter(|l| l.word == Word::Requires && is_gate(&l.from) && within(&l.to)) {
            required.entry(&link.from).or_default().push(&link.to);
        }
        let mut next = 0;
        while let Some(id) = all.get(next).cloned() {
            next += 1;
            for to in required.get(&id).into_iter().flatten() {
                if seen.insert((*to).clone()) {
                    all.push((*to).clone());
                }
            }
        }
        let through = all.iter().filter(|id| required.contains_key(id)).cloned().collect();
        Self { all, through }
    }

    /// The change objects that get the dependencies of a word.
    pub(super) fn of(&self, word: Word) -> impl Iterator<Item = &CobId> {
        let follows = move |id: &CobId| word == Word::Requires && self.through.contains(id);
        self.all.iter().filter(move |id| !follows(id))
    }
}
