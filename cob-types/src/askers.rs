//! The askers of a bundle: the change objects of other hosts that may send requests to this host, and for which states.
//!
//! The generator collects these from the dependencies of all hosts, and the publishers' signatures cover the result. A
//! daemon accepts a request of another host only if a dependency justifies it. Names of askers and sets of states are
//! stored once, in tables; a dependency is an index into each, so the size is linear in the number of dependencies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::generation::Bundle;
use crate::id::{CobId, HostName, StateName};
use crate::words::count;

/// The most pairs of a dependent change object of another host and a change object of this host. A message may change
/// all these locks at once, and keep this host's loop busy for 100 ms.
pub const MAX_OF_HOST: usize = 20_000;
/// The most change objects that may depend on the same change object: it recalls all these locks at once.
pub const MAX_OF_ONE: usize = 40_000;

/// The error for more dependencies between hosts than a daemon can serve without a long interruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TooMany {
    /// Too many from the change objects of another host: [at most](MAX_OF_HOST).
    OfHost {
        /// The host whose change objects depend.
        host: HostName,
        /// The number of pairs.
        pairs: usize,
    },
    /// Too many on a change object: [at most](MAX_OF_ONE).
    OfOne {
        /// Its name, without its host.
        asked: String,
        /// The number of change objects that depend on it.
        dependents: usize,
    },
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfHost { host, pairs } => {
                let depends = count(*pairs, "dependency");
                write!(
                    f,
                    "{depends} of change objects of {host} on change objects of this host; at most {MAX_OF_HOST} are \
                     allowed"
                )
            }
            Self::OfOne { asked, dependents } => {
                let dependents = count(*dependents, "change object");
                write!(f, "{dependents} depend on {asked}; at most {MAX_OF_ONE} are allowed")
            }
        }
    }
}

/// The change objects of other hosts that may send requests to a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Askers {
    /// Sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ids: Vec<CobId>,
    /// Sorted. Acceptable states in order, as in the dependencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sets: Vec<Vec<StateName>>,
    /// By the name of the asked change object, without its host: each set that may be requested, and its askers, as
    /// sorted indexes into the two lists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    asked: BTreeMap<String, Vec<(u32, Vec<u32>)>>,
}

/// A dependency of a change object on a change object of another host.
type Edge<'a> = (&'a CobId, &'a [StateName], &'a CobId);

impl Askers {
    /// Sets the askers of every bundle of a generation, from the dependencies of all bundles.
    pub fn fill(bundles: &mut BTreeMap<HostName, Bundle>) {
        let mut edges: Vec<Edge<'_>> = Vec::new();
        for cob in bundles.values().flat_map(|bundle| bundle.cobs.values()) {
            let away = cob.needs().filter(|need| need.cob.host_str() != cob.id.host_str());
            edges.extend(away.map(|need| (&need.cob, need.states.as_slice(), &cob.id)));
        }
        edges.sort_unstable();
        edges.dedup();
        let of_hosts = edges.chunk_by(|a, b| a.0.host_str() == b.0.host_str());
        let mut all: BTreeMap<HostName, Self> = of_hosts.map(|edges| (edges[0].0.host(), Self::of(edges))).collect();
        for (host, bundle) in bundles {
            bundle.askers = Some(Arc::new(all.remove(host).unwrap_or_default()));
        }
    }

    /// From the sorted edges to the change objects of a host.
    fn of(edges: &[Edge<'_>]) -> Self {
        let mut ids: Vec<&CobId> = edges.iter().map(|edge| edge.2).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut sets: Vec<&[StateName]> = edges.iter().map(|edge| edge.1).collect();
        sets.sort_unstable();
        sets.dedup();
        let id = |edge: &Edge<'_>| ids.partition_point(|id| *id < edge.2) as u32;
        let set = |edge: &Edge<'_>| sets.partition_point(|set| *set < edge.1) as u32;
        let asked = edges.chunk_by(|a, b| a.0 == b.0).map(|edges| {
            let by_set = edges.chunk_by(|a, b| a.1 == b.1);
            let by_set = by_set.map(|edges| (set(&edges[0]), edges.iter().map(id).collect())).collect();
            (edges[0].0.name().to_owned(), by_set)
        });
        let asked = asked.collect();
        Self { asked, ids: ids.into_iter().cloned().collect(), sets: sets.into_iter().map(<[_]>::to_vec).collect() }
    }

    /// The number of dependencies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.asked.values().flatten().map(|(_, by)| by.len()).sum()
    }

    /// Whether there are no dependencies from other hosts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Whether a dependency of the asker justifies a request for this set: it declares the set, or exactly these states
    /// are common to two dependencies (the needs of a transition narrow those of a grant).
    #[must_use]
    pub fn justify(&self, asker: &CobId, asked: &CobId, set: &[StateName]) -> bool {
        let declared = || self.declared(asker, asked);
        let narrowed =
            |own: &[StateName]| declared().any(|other| own.iter().filter(|state| other.contains(state)).eq(set));
        !set.is_empty() && declared().any(|own| own == set || own.len() > set.len() && narrowed(own))
    }

    /// Whether a dependency of the asker names the asked change object.
    #[must_use]
    pub fn name(&self, asker: &CobId, asked: &CobId) -> bool {
        self.declared(asker, asked).next().is_some()
    }

    /// The sets of states that other hosts may request of this change object, each once.
    pub fn sets_of(&self, asked: &CobId) -> impl Iterator<Item = &[StateName]> {
        let sets = self.asked.get(asked.name()).into_iter().flatten();
        sets.filter_map(|(set, _)| Some(self.sets.get(*set as usize)?.as_slice()))
    }

    fn declared(&self, asker: &CobId, asked: &CobId) -> impl Iterator<Item = &[StateName]> {
        let asker = self.ids.binary_search(asker).ok().map(|at| at as u32);
        let sets = self.asked.get(asked.name()).filter(|_| asker.is_some()).into_iter().flatten();
        let names_it = move |by: &[u32]| asker.is_some_and(|asker| by.binary_search(&asker).is_ok());
        sets.filter(move |(_, by)| names_it(by)).filter_map(|(set, _)| Some(self.sets.get(*set as usize)?.as_slice()))
    }

    /// Checks the limits; `here`: how many change objects of this host depend on each.
    fn check_room(&self, here: &BTreeMap<&str, usize>) -> Result<(), TooMany> {
        let mut pairs: BTreeMap<&str, usize> = BTreeMap::new();
        let local = |asked: &str| here.get(asked).copied().unwrap_or_default();
        let of_one = |asked: &str, dependents| match dependents > MAX_OF_ONE {
            true => Err(TooMany::OfOne { asked: asked.to_owned(), dependents }),
            false => Ok(()),
        };
        here.iter().try_for_each(|(asked, dependents)| of_one(asked, *dependents))?;
        for (asked, by_set) in &self.asked {
            let mut askers: Vec<u32> = by_set.iter().flat_map(|(_, by)| by).copied().collect();
            askers.sort_unstable();
            askers.dedup();
            of_one(asked, askers.len() + local(asked))?;
            for asker in askers.iter().filter_map(|at| self.ids.get(*at as usize)) {
                *pairs.entry(asker.host_str()).or_default() += 1;
            }
        }
        let crowded = self.ids.iter().find(|id| pairs.get(id.host_str()).is_some_and(|pairs| *pairs > MAX_OF_HOST));
        crowded.map_or(Ok(()), |id| Err(TooMany::OfHost { host: id.host(), pairs: pairs[id.host_str()] }))
    }

    /// Checks the conditions of the lookups.
    pub(crate) fn validate(&self, host: &HostName) -> Result<(), String> {
        if !self.ids.is_sorted_by(|a, b| a < b) || self.ids.iter().any(|id| id.host_str() == host.as_str()) {
            return Err("the names of its askers are not in order".to_owned());
        }
        if self.sets.iter().any(Vec::is_empty) {
            return Err("an asker may ask for no state at all".to_owned());
        }
        let by_set = || self.asked.values().flatten();
        let known =
            |by: &[u32]| by.is_sorted_by(|a, b| a < b) && by.last().is_some_and(|at| (*at as usize) < self.ids.len());
        if by_set().any(|(set, by)| *set as usize >= self.sets.len() || !known(by)) {
            return Err("its askers are not in order".to_owned());
        }
        Ok(())
    }
}

impl Bundle {
    /// Checks that the dependencies on the change objects of this host are within the limits of a daemon.
    ///
    /// # Errors
    /// The exceeded limit.
    pub fn check_room(&self) -> Result<(), TooMany> {
        let mut here = BTreeMap::new();
        for cob in self.cobs.values() {
            let mut asked: Vec<&str> = cob
                .needs()
                .filter(|need| need.cob.host_str() == cob.id.host_str())
                .map(|need| need.cob.name())
                .collect();
            asked.sort_unstable();
            asked.dedup();
            asked.into_iter().for_each(|asked| *here.entry(asked).or_default() += 1);
        }
        self.askers.as_deref().unwrap_or(&Askers::default()).check_room(&here)
    }
}

#[cfg(test)]
#[path = "askers_test.rs"]
mod tests;
