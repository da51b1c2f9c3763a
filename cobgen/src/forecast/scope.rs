//! Which change objects a switch concerns: those that differ, and those that are asked for something by one that is
//! concerned.
//!
//! Followed goal by goal: a state that somebody may be in, a state that it may have to go to, the hops between them,
//! and what each hop and each promise needs. Who is asked for the state that it is in keeps to it, and needs only what
//! that promise rests on. So the work grows with what changes, not with the cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cob_depot::DepotError;
use cob_types::{Bundle, CobId, HostName, Kind, Need, StateName, SwitchOrder};

use super::sides::{Known, Side, Sides};

/// What is concerned.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// All of them; those that differ among them.
    pub(super) cobs: BTreeSet<CobId>,
    /// Those that differ.
    pub(super) seeds: BTreeSet<CobId>,
}

/// Where a change object may be, and where it may have to go.
#[derive(Debug, Default)]
struct Reach {
    places: BTreeSet<StateName>,
    targets: BTreeSet<StateName>,
    done: BTreeSet<(StateName, StateName)>,
    promised: BTreeSet<StateName>,
    queued: bool,
}

struct Walk<'s, 'a> {
    sides: &'s mut Sides<'a>,
    reach: HashMap<CobId, Reach>,
    open: Vec<CobId>,
    /// Named, and on hosts that were not looked at.
    unseen: BTreeMap<HostName, Vec<Need>>,
}

/// Finds them; looks at further hosts where they are concerned.
pub(super) fn scope(sides: &mut Sides<'_>, order: &SwitchOrder) -> Result<Scope, DepotError> {
    let seeds = seeds(sides);
    let mut walk = Walk { sides, reach: HashMap::new(), open: Vec::new(), unseen: BTreeMap::new() };
    for seed in &seeds {
        walk.sow(seed, order.taken_back.contains(seed));
    }
    loop {
        while let Some(id) = walk.open.pop() {
            walk.follow(&id);
        }
        if walk.unseen.is_empty() {
            break;
        }
        let unseen = std::mem::take(&mut walk.unseen);
        walk.sides.look_at(&unseen.keys().cloned().collect())?;
        for need in unseen.values().flatten() {
            walk.ask(need);
        }
    }
    Ok(Scope { cobs: walk.reach.into_keys().collect(), seeds })
}

/// Everything, with all hosts looked at.
pub(super) fn everything(sides: &mut Sides<'_>) -> Result<Scope, DepotError> {
    let all = sides.not_looked_at().clone();
    sides.look_at(&all)?;
    let bundles = sides.from.bundles.values().chain(sides.to.bundles.values());
    let cobs = bundles.flat_map(|bundle| bundle.cobs.keys().cloned()).collect();
    Ok(Scope { cobs, seeds: seeds(sides) })
}

/// Those that differ in what they are or in how they are to be treated. Ranks and the fingerprints that they expect of
/// others follow from others.
fn seeds(sides: &Sides<'_>) -> BTreeSet<CobId> {
    let mut seeds = BTreeSet::new();
    for (host, old) in &sides.from.bundles {
        let new = sides.to.bundles.get(host);
        if new.is_some_and(|new| Arc::ptr_eq(old, new)) {
            continue;
        }
        seeds.extend(old.cobs.keys().filter(|id| new.is_none_or(|new| !new.cobs.contains_key(*id))).cloned());
    }
    for (host, new) in &sides.to.bundles {
        let old = sides.from.bundles.get(host);
        if old.is_some_and(|old| Arc::ptr_eq(old, new)) {
            continue;
        }
        for (id, cob) in &new.cobs {
            let same = old.and_then(|old| old.cobs.get(id)).is_some_and(|before| {
                (before.fingerprint, &before.preferred, &before.transitions, &before.locks)
                    == (cob.fingerprint, &cob.preferred, &cob.transitions, &cob.locks)
                    && (&before.budget, before.at_most, before.observe) == (&cob.budget, cob.at_most, cob.observe)
            });
            if !same {
                seeds.insert(id.clone());
            }
        }
    }
    seeds
}

impl Walk<'_, '_> {
    fn sow(&mut self, id: &CobId, is_taken_back: bool) {
        let (before, after) = (self.sides.home_before(id).cloned(), self.sides.home_after(id).cloned());
        let (old, new) = (self.sides.from.find(id), self.sides.to.find(id));
        let off = old.map(|known| known.kind.pre_remove.clone());
        let outdated = new.and_then(|known| known.kind.outdated().cloned());
        let leaves = new.is_none() || is_taken_back;
        let reach = self.reach.entry(id.clone()).or_default();
        reach.places.extend(before.into_iter().chain(outdated));
        reach.targets.extend(after.into_iter().chain(off.filter(|_| leaves)));
        self.queue(id);
    }

    fn queue(&mut self, id: &CobId) {
        let reach = self.reach.entry(id.clone()).or_default();
        if !reach.queued {
            reach.queued = true;
            self.open.push(id.clone());
        }
    }

    /// All hops that it may have to make, and all promises that it may have to give.
    fn follow(&mut self, id: &CobId) {
        let Some(reach) = self.reach.get_mut(id) else { return };
        reach.queued = false;
        let mut needs = Vec::new();
        loop {
            let pairs = reach.places.iter().flat_map(|p| reach.targets.iter().map(move |t| (p.clone(), t.clone())));
            let fresh: Vec<(StateName, StateName)> = pairs.filter(|pair| !reach.done.contains(pair)).collect();
            if fresh.is_empty() {
                break;
            }
            for (place, target) in fresh {
                for side in [&self.sides.from, &self.sides.to] {
                    if let Some(known) = side.find(id) {
                        hops(known, &place, &target, &mut reach.places, &mut needs);
                    }
                }
                reach.done.insert((place, target));
            }
        }
        let promised: Vec<StateName> = reach.targets.difference(&reach.promised).cloned().collect();
        for state in promised {
            promises([&self.sides.from, &self.sides.to], id, &state, &mut needs);
            reach.promised.insert(state);
        }
        for need in &needs {
            self.ask(need);
        }
    }

    /// Somebody may ask for this.
    fn ask(&mut self, need: &Need) {
        let id = &need.cob;
        if self.sides.is_unseen(id) {
            self.unseen.entry(id.host()).or_default().push(need.clone());
            return;
        }
        let Some(before) = self.sides.home_before(id).cloned() else { return };
        let Some(after) = self.sides.home_after(id).cloned() else { return };
        let first = need.states.first().cloned();
        let stays = need.states.contains(&before) && before == after;
        let reach = self.reach.entry(id.clone()).or_default();
        let known = (reach.places.len(), reach.targets.len());
        reach.places.insert(before);
        reach.targets.insert(after);
        reach.targets.extend(first.filter(|_| !stays));
        if known != (reach.places.len(), reach.targets.len()) {
            self.queue(id);
        }
    }
}

/// The hops of the shortest way, and what they need.
fn hops(known: Known<'_>, from: &StateName, to: &StateName, places: &mut BTreeSet<StateName>, needs: &mut Vec<Need>) {
    let mut moved = false;
    for (left, entered) in route(known.kind, from, to) {
        moved = true;
        places.insert(entered.clone());
        let of_hop = known.cob.transitions.iter().filter(|t| t.from == *left && t.to == *entered);
        needs.extend(of_hop.flat_map(|t| &t.needs).cloned());
    }
    if moved {
        needs.extend(known.cob.budget.clone());
    }
}

fn promises(sides: [&Side; 2], id: &CobId, state: &StateName, needs: &mut Vec<Need>) {
    for known in sides.into_iter().filter_map(|side| side.find(id)) {
        let locks = known.cob.locks.iter().filter(|lock| lock.state == *state);
        needs.extend(locks.flat_map(|lock| &lock.needs).cloned());
    }
}

/// The shortest way through a kind's matrix, ties broken by the order in which it lists its transitions.
pub(super) fn route<'k>(kind: &'k Kind, from: &StateName, to: &StateName) -> Vec<(&'k StateName, &'k StateName)> {
    let mut came: BTreeMap<&StateName, &StateName> = BTreeMap::new();
    let mut edge: Vec<&StateName> = kind.states.iter().filter(|state| *state == from).collect();
    while !edge.is_empty() && !came.contains_key(to) {
        let mut next = Vec::new();
        for state in edge {
            for t in kind.transitions.iter().filter(|t| t.from == *state) {
                if t.to != *from && !came.contains_key(&t.to) {
                    came.insert(&t.to, &t.from);
                    next.push(&t.to);
                }
            }
        }
        edge = next;
    }
    let mut way = Vec::new();
    let mut at = came.get_key_value(to).map(|(to, _)| *to);
    while let Some(state) = at {
        let before = came.get(state).copied();
        way.extend(before.map(|before| (before, state)));
        at = before.filter(|before| *before != from);
    }
    way.reverse();
    way
}

/// The parts of the concerned, without what a forecast has no use for.
pub(super) fn parts(side: &Side, cobs: &BTreeSet<CobId>) -> BTreeMap<HostName, Arc<Bundle>> {
    let mut parts: BTreeMap<HostName, Bundle> = BTreeMap::new();
    for id in cobs {
        let Some(known) = side.find(id) else { continue };
        let host = id.host();
        let part = parts.entry(host.clone()).or_insert_with(|| Bundle::empty(host));
        part.kinds.entry(known.cob.kind.clone()).or_insert_with(|| {
            let mut kind = known.kind.clone();
            // Nobody looks for drift in a forecast.
            kind.check.interval_ms = None;
            kind
        });
        part.cobs.insert(id.clone(), known.cob.clone());
    }
    parts.into_iter().map(|(host, part)| (host, Arc::new(part))).collect()
}
