//! The switch of a cluster between two generations: order of departures, waits of hosts, reaction to failures.
//!
//! It is computed when the generation is made, and part of its manifest; hosts compute no part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::id::{CobId, GenerationNumber, HostName};

/// The order of a switch from a generation to another.
///
/// A change object *departs* when the second generation lacks it, or when it is [taken back](Self::taken_back). It *has
/// departed* (is final), forever, when it is in its pre-remove state, has no other grants, and all change objects that
/// depart before it have departed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchOrder {
    /// The generation that is active.
    pub from: GenerationNumber,
    /// The generation to be activated.
    pub to: GenerationNumber,
    /// For a change object, the change objects that must have departed before it can. Only entries with any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub after: BTreeMap<CobId, BTreeSet<CobId>>,
    /// For a host, the change objects of *other* hosts that must have departed before it activates. It always waits for
    /// its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<HostName, BTreeSet<CobId>>,
    /// Change objects of both generations that depart all the same, and start anew: because their second
    /// [kind](crate::kind::Kind::continues) can't continue the first; or because a rollback reverts their transitions
    /// before it applies the other content.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_back: BTreeSet<CobId>,
}

/// The reaction to a failure of a switch on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The switch stops where it is, and the status shows the waits.
    #[default]
    Hold,
    /// All hosts roll back to the previous generation.
    Rollback,
}

/// The policy of a switch, unless the order overrides it.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SwitchPolicy {
    /// The reaction to a failure.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The connectivity guard: a host that does not reach all its linked hosts within this many milliseconds after its
    /// activation rolls back by itself; absent: no guard.
    pub guard_ms: Option<u64>,
}

impl SwitchPolicy {
    /// Whether it is the default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl SwitchOrder {
    /// An order without waits.
    #[must_use]
    pub fn free(from: GenerationNumber, to: GenerationNumber) -> Self {
        Self { from, to, after: BTreeMap::new(), waits: BTreeMap::new(), taken_back: BTreeSet::new() }
    }

    /// The change objects that must depart before this.
    pub fn before(&self, cob: &CobId) -> impl Iterator<Item = &CobId> {
        self.after.get(cob).into_iter().flatten()
    }

    /// The taken-back change objects of a host: in a large cluster a small part of all.
    pub fn taken_back_of(&self, host: &HostName) -> impl Iterator<Item = &CobId> {
        // The ASCII successor of the slash that ends a host's name in an id.
        let (first, beyond) = (format!("{host}/"), format!("{host}0"));
        self.taken_back.range::<str, _>((Included(first.as_str()), Excluded(beyond.as_str())))
    }

    /// The change objects of other hosts for which a host waits.
    pub fn waits_of(&self, host: &HostName) -> impl Iterator<Item = &CobId> {
        self.waits.get(host).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_taken_back_on_a_host_are_found_among_similar_names() {
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
        // The entries of all hosts together are all.
        let hosts: BTreeSet<HostName> = order.taken_back.iter().map(CobId::host).collect();
        assert_eq!(hosts.iter().map(|host| order.taken_back_of(host).count()).sum::<usize>(), all.len());
    }
}
