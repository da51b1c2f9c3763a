//! How a cluster goes from one generation to another: who leaves before whom, which host waits for what,
//! and what happens when something fails.
//!
//! Made when the generation is made, and carried by its manifest; nothing of it is worked out on a host.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};

use serde::{Deserialize, Serialize};

use crate::id::{CobId, GenerationNumber, HostName};

/// The order of one switch, from a generation to another one.
///
/// A change object *leaves* when the second generation lacks it, or when it is [taken
/// back](Self::taken_back). One that leaves is *final*, for ever, when it is in its pre-remove state with no
/// other promise out, and all that leave before it are final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchOrder {
    /// The generation that is active.
    pub from: GenerationNumber,
    /// The generation to be activated.
    pub to: GenerationNumber,
    /// Those that must be final before another one can be: by the one that comes later. Only where there is one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub after: BTreeMap<CobId, BTreeSet<CobId>>,
    /// Those of *other* hosts that must be final before a host activates. Its own it waits for in any case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<HostName, BTreeSet<CobId>>,
    /// Change objects of both generations that leave all the same, and come anew: those that are something else in the
    /// second one, of a [kind](crate::kind::Kind::continues) that can't go on from theirs; and on a way back those
    /// whose moves are taken back by their reverts before the other content is applied.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_back: BTreeSet<CobId>,
}

/// What happens when a switch to a generation fails on some host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// It stops where it is, and tells who waits for what.
    #[default]
    Hold,
    /// All hosts return to the generation before.
    Rollback,
}

/// How the hosts behave in a switch to a generation, unless whoever orders it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SwitchPolicy {
    /// What happens when it fails.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// A host that does not reach all hosts that it has links with, so many milliseconds after it has activated the
    /// generation, goes back by itself; none: no guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_ms: Option<u64>,
}

impl SwitchPolicy {
    /// Whether it says nothing but the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl SwitchOrder {
    /// An order in which nobody waits for anybody.
    #[must_use]
    pub fn free(from: GenerationNumber, to: GenerationNumber) -> Self {
        Self { from, to, after: BTreeMap::new(), waits: BTreeMap::new(), taken_back: BTreeSet::new() }
    }

    /// What must be final before this one can be.
    pub fn before(&self, cob: &CobId) -> impl Iterator<Item = &CobId> {
        self.after.get(cob).into_iter().flatten()
    }

    /// What is taken back on a host: in a large cluster a small part of all.
    pub fn taken_back_of(&self, host: &HostName) -> impl Iterator<Item = &CobId> {
        // The character after the one that ends a host's name in an id.
        let (first, beyond) = (format!("{host}/"), format!("{host}0"));
        self.taken_back.range::<str, _>((Included(first.as_str()), Excluded(beyond.as_str())))
    }

    /// What a host waits for on other hosts.
    pub fn waits_of(&self, host: &HostName) -> impl Iterator<Item = &CobId> {
        self.waits.get(host).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_back_on_a_host_is_found_among_neighbours_with_like_names() {
        let mut order = SwitchOrder::free(GenerationNumber(1), GenerationNumber(2));
        let all = ["n/z", "n1-a/b", "n1.a/b", "n1/-", "n1/a", "n1/zz/z", "n10/a", "n1A/b", "n1_/b", "n2/a"];
        order.taken_back = all.iter().map(|id| CobId::new(id).expect("an id")).collect();
        let of = |host: &str| {
            let host = HostName::new(host).expect("a name");
            let found = order.taken_back_of(&host).map(CobId::as_str);
            found.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("n1"), "n1/- n1/a n1/zz/z");
        assert_eq!([of("n10"), of("n1_"), of("n"), of("n3")], ["n10/a", "n1_/b", "n/z", ""]);
        // Those of all hosts together are all.
        let hosts: BTreeSet<HostName> = order.taken_back.iter().map(CobId::host).collect();
        assert_eq!(hosts.iter().map(|host| order.taken_back_of(host).count()).sum::<usize>(), all.len());
    }
}
