//! The roles of hosts and change objects: two of the same role differ only in their names.
//!
//! The colours of a graph are refined until they are stable (Weisfeiler and Leman, 1968): a change object's colour
//! follows from its kind, its goal in both generations, and the colours of its neighbours and of its host. Contents
//! count only as far as the engine knows contents: whether the switch changes a change object.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use cob_types::{Bundle, Cob, CobId, HostName, Kind, Need, SwitchOrder};

/// The most rounds of the refinement: as far as a difference is seen.
const ROUNDS: usize = 32;

/// The roles.
#[derive(Debug, Default)]
pub(super) struct Roles {
    /// Looked up, never iterated.
    cobs: HashMap<CobId, u64>,
    /// Looked up, never iterated.
    hosts: HashMap<HostName, u64>,
    /// The members of budgets.
    members: BTreeSet<CobId>,
}

/// A hash that is the same in every run.
pub(super) fn hash_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The neighbours of a change object: the dependency, and the index of the other.
type Edges = Vec<Vec<(u64, usize)>>;

impl Roles {
    pub(super) fn of(
        first: &BTreeMap<HostName, Arc<Bundle>>,
        second: &BTreeMap<HostName, Arc<Bundle>>,
        order: &SwitchOrder,
    ) -> Self {
        let sides = [first, second];
        let ids: BTreeSet<&CobId> =
            sides.iter().flat_map(|side| side.values()).flat_map(|bundle| bundle.cobs.keys()).collect();
        let ids: Vec<&CobId> = ids.into_iter().collect();
        let number: HashMap<&CobId, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let find = |side: usize, id: &CobId| {
            let bundle = sides[side].get(id.host_str())?;
            let cob = bundle.cobs.get(id)?;
            Some((cob, bundle.kinds.get(&cob.kind)?))
        };
        let mut colours: Vec<u64> = Vec::with_capacity(ids.len());
        let mut edges: Edges = vec![Vec::new(); ids.len()];
        for (at, id) in ids.iter().enumerate() {
            let both = [find(0, id), find(1, id)];
            colours.push(hash_of((both.map(|known| known.map(|(cob, kind)| own(cob, kind))), changes(&both))));
            for (side, (cob, _)) in both.into_iter().enumerate().filter_map(|(side, known)| Some((side, known?))) {
                for (what, need) in needs(cob) {
                    if let Some(other) = number.get(&need.cob) {
                        let dependency = hash_of((side, what, &need.states));
                        edges[at].push((dependency, *other));
                        edges[*other].push((hash_of((dependency, "asked")), at));
                    }
                }
            }
            for other in order.before(id).filter_map(|other| number.get(other)) {
                edges[at].push((hash_of("after"), *other));
                edges[*other].push((hash_of("before"), at));
            }
        }
        let hosts = refine(&mut colours, &edges, &ids);
        let cobs = sides.iter().flat_map(|side| side.values()).flat_map(|bundle| bundle.cobs.values());
        let members = cobs.filter(|cob| cob.budget.is_some()).map(|cob| cob.id.clone()).collect();
        Self { cobs: ids.into_iter().cloned().zip(colours).collect(), hosts, members }
    }

    /// The role of a change object.
    pub(super) fn cob(&self, id: &CobId) -> u64 {
        self.cobs.get(id).copied().unwrap_or_default()
    }

    /// Whether a change object is a member of a budget.
    pub(super) fn is_member(&self, id: &CobId) -> bool {
        self.members.contains(id)
    }

    /// The role of a host.
    pub(super) fn host(&self, name: &HostName) -> u64 {
        self.hosts.get(name).copied().unwrap_or_default()
    }
}

/// A change object without its neighbours.
fn own(cob: &Cob, kind: &Kind) -> u64 {
    let moves = kind.transitions.iter();
    let moves: Vec<_> =
        moves.map(|t| (&t.from, &t.to, t.retries, t.retry_delay_ms, &t.failure, t.irreversible)).collect();
    let flags = (cob.at_most, cob.keep, cob.observe);
    hash_of((&kind.backend, &kind.states, &kind.priority, &kind.pre_remove, moves, &cob.preferred, flags))
}

/// Whether the second generation changes it.
fn changes(both: &[Option<(&Arc<Cob>, &Kind)>; 2]) -> Option<(bool, bool)> {
    let [Some((before, _)), Some((after, _))] = both else { return None };
    Some((before.fingerprint == after.fingerprint, before.rests_on == after.rests_on))
}

fn needs(cob: &Cob) -> impl Iterator<Item = (u64, &Need)> {
    let moves = cob.transitions.iter().flat_map(|t| t.needs.iter().map(|need| (hash_of((&t.from, &t.to)), need)));
    let locks = cob.locks.iter().flat_map(|l| l.needs.iter().map(|need| (hash_of(("lock", &l.state)), need)));
    moves.chain(locks).chain(cob.budget.as_deref().map(|need| (hash_of("budget"), need)))
}

/// Refines the colours until no further difference appears; returns the colours of the hosts.
fn refine(colours: &mut Vec<u64>, edges: &Edges, ids: &[&CobId]) -> HashMap<HostName, u64> {
    let mut hosts = of_hosts(colours, ids);
    let mut different = 0;
    for _ in 0..ROUNDS {
        let next = edges.iter().enumerate().map(|(at, edges)| {
            let mut near: Vec<(u64, u64)> = edges.iter().map(|(what, other)| (*what, colours[*other])).collect();
            near.sort_unstable();
            hash_of((colours[at], hosts.get(ids[at].host_str()), near))
        });
        *colours = next.collect();
        hosts = of_hosts(colours, ids);
        let now = colours.iter().collect::<BTreeSet<_>>().len();
        if now == different {
            break;
        }
        different = now;
    }
    hosts
}

fn of_hosts(colours: &[u64], ids: &[&CobId]) -> HashMap<HostName, u64> {
    let mut parts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (id, colour) in ids.iter().zip(colours) {
        parts.entry(id.host_str()).or_default().push(*colour);
    }
    let colour = |mut part: Vec<u64>| {
        part.sort_unstable();
        hash_of(part)
    };
    parts.into_iter().filter_map(|(host, part)| Some((HostName::new(host).ok()?, colour(part)))).collect()
}
