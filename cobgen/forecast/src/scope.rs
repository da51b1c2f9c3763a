//! The scope of a switch: the change objects that differ, and the change objects that a member of the scope requests.
//!
//! The search goes from goal to goal: the possible states of a change object, the states that it may have to reach, the
//! transitions between these states, and the needs of each transition and grant. A change object that is requested in
//! its present state keeps it, and needs only the grants that its own grant relies on. So the work grows with the
//! changes, not with the cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cob_depot::DepotError;
use cob_types::{Bundle, CobId, HostName, Kind, Need, StateName, SwitchOrder};
use rayon::prelude::*;

use crate::sides::{Known, Side, Sides, home_after, home_before};

/// The scope of a switch.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// All members, including the changed members.
    pub(crate) cobs: BTreeSet<CobId>,
    /// The changed members.
    pub(crate) seeds: BTreeSet<CobId>,
}

/// A state by its number in [`States`].
type At = u16;

/// Names of states; there are only a few.
#[derive(Debug, Default)]
struct States(Vec<StateName>);

impl States {
    fn number(&mut self, name: &StateName) -> At {
        let known = self.0.iter().position(|other| other == name).unwrap_or_else(|| {
            self.0.push(name.clone());
            self.0.len() - 1
        });
        At::try_from(known).unwrap_or(At::MAX)
    }

    fn name(&self, number: At) -> StateName {
        self.0[usize::from(number)].clone()
    }
}

/// the possible states of a change object, and the states that it may have to reach.
#[derive(Debug, Default)]
struct Reach {
    /// Its preferred or exit states before and after the switch; `None`: it has not been requested.
    homes: Option<(At, At)>,
    places: Vec<At>,
    targets: Vec<At>,
    done: Vec<(At, At)>,
    promised: Vec<At>,
    queued: bool,
}

/// Adds a state if it is not in the list; returns whether it is new.
fn note(list: &mut Vec<At>, state: At) -> bool {
    let new = !list.contains(&state);
    if new {
        list.push(state);
    }
    new
}

/// The results so far.
#[derive(Default)]
struct Walk {
    states: States,
    number: HashMap<CobId, usize>,
    reach: Vec<Reach>,
    open: Vec<CobId>,
    /// Needs for change objects on hosts that are not loaded.
    unseen: BTreeMap<HostName, Vec<Need>>,
}

/// Finds the scope; loads further hosts in scope.
pub(crate) fn scope(sides: &mut Sides<'_>, order: &SwitchOrder) -> Result<Scope, DepotError> {
    let seeds = seeds(sides);
    let mut walk = Walk::default();
    for seed in &seeds {
        walk.sow(sides, seed, order.taken_back.contains(seed));
    }
    loop {
        while let Some(id) = walk.open.pop() {
            walk.follow(sides, &id);
        }
        if walk.unseen.is_empty() {
            break;
        }
        let unseen = std::mem::take(&mut walk.unseen);
        sides.look_at(&unseen.keys().cloned().collect())?;
        for need in unseen.values().flatten() {
            walk.ask(sides, need);
        }
    }
    Ok(Scope { cobs: walk.number.into_keys().collect(), seeds })
}

/// All change objects, with all hosts loaded.
pub(crate) fn everything(sides: &mut Sides<'_>) -> Result<Scope, DepotError> {
    let all = sides.not_looked_at().clone();
    sides.look_at(&all)?;
    let bundles = sides.from.bundles.values().chain(sides.to.bundles.values());
    let cobs = bundles.flat_map(|bundle| bundle.cobs.keys().cloned()).collect();
    Ok(Scope { cobs, seeds: seeds(sides) })
}

/// The change objects whose definition or treatment differs. Ranks and expected fingerprints are ignored: they follow
/// from other change objects.
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

impl Walk {
    fn sow(&mut self, sides: &Sides<'_>, id: &CobId, is_taken_back: bool) {
        let both = sides.in_both(id);
        let off = both[0].map(|known| &known.kind.pre_remove);
        let outdated = both[1].and_then(|known| known.kind.outdated());
        let leaves = both[1].is_none() || is_taken_back;
        let at = self.reached(id);
        let Self { states, reach, .. } = self;
        let reach = &mut reach[at];
        for place in home_before(&both).into_iter().chain(outdated) {
            note(&mut reach.places, states.number(place));
        }
        for target in home_after(&both).into_iter().chain(off.filter(|_| leaves)) {
            note(&mut reach.targets, states.number(target));
        }
        self.queue(at, id);
    }

    fn reached(&mut self, id: &CobId) -> usize {
        if let Some(at) = self.number.get(id) {
            return *at;
        }
        self.number.insert(id.clone(), self.reach.len());
        self.reach.push(Reach::default());
        self.reach.len() - 1
    }

    fn queue(&mut self, at: usize, id: &CobId) {
        if !std::mem::replace(&mut self.reach[at].queued, true) {
            self.open.push(id.clone());
        }
    }

    /// Follows all transitions that it may have to make and all grants that it may have to give.
    fn follow(&mut self, sides: &Sides<'_>, id: &CobId) {
        let Some(at) = self.number.get(id).copied() else { return };
        let both = sides.in_both(id);
        let Self { states, reach, .. } = self;
        let reach = &mut reach[at];
        reach.queued = false;
        let mut needs: Vec<&Need> = Vec::new();
        loop {
            let pairs = reach.places.iter().flat_map(|p| reach.targets.iter().map(move |t| (*p, *t)));
            let fresh: Vec<(At, At)> = pairs.filter(|pair| !reach.done.contains(pair)).collect();
            if fresh.is_empty() {
                break;
            }
            for (place, target) in fresh {
                let (from, to) = (states.name(place), states.name(target));
                for known in both.into_iter().flatten().filter(|_| place != target) {
                    for entered in transitions(known, &from, &to, &mut needs) {
                        note(&mut reach.places, states.number(entered));
                    }
                }
                reach.done.push((place, target));
            }
        }
        for target in 0..reach.targets.len() {
            let state = reach.targets[target];
            if note(&mut reach.promised, state) {
                promises(both, &states.name(state), &mut needs);
            }
        }
        for need in needs {
            self.ask(sides, need);
        }
    }

    /// Records a possible request.
    fn ask(&mut self, sides: &Sides<'_>, need: &Need) {
        let id = &need.cob;
        let known = self.number.get(id).copied().and_then(|at| Some((at, self.reach[at].homes?)));
        let (at, (before, after)) = match known {
            Some(known) => known,
            None => {
                if sides.is_unseen(id) {
                    self.unseen.entry(id.host()).or_default().push(need.clone());
                    return;
                }
                let both = sides.in_both(id);
                let Some((before, after)) = home_before(&both).zip(home_after(&both)) else { return };
                let homes = (self.states.number(before), self.states.number(after));
                let at = self.reached(id);
                self.reach[at].homes = Some(homes);
                (at, homes)
            }
        };
        let Self { states, reach, .. } = self;
        let reach = &mut reach[at];
        let stays = before == after && need.states.iter().any(|state| states.number(state) == before);
        let mut grown = note(&mut reach.places, before);
        grown |= note(&mut reach.targets, after);
        if let Some(first) = need.states.first().filter(|_| !stays) {
            grown |= note(&mut reach.targets, states.number(first));
        }
        if grown {
            self.queue(at, id);
        }
    }
}

/// The transitions of the shortest route: returns the entered states, and collects the needs.
fn transitions<'k>(
    known: Known<'k>,
    from: &StateName,
    to: &StateName,
    needs: &mut Vec<&'k Need>,
) -> Vec<&'k StateName> {
    let mut places = Vec::new();
    for (left, entered) in route(known.kind, from, to) {
        places.push(entered);
        let of_transition = known.cob.transitions.iter().filter(|t| t.from == *left && t.to == *entered);
        needs.extend(of_transition.flat_map(|t| &t.needs));
    }
    if !places.is_empty() {
        needs.extend(known.cob.budget.as_deref());
    }
    places
}

fn promises<'k>(both: [Option<Known<'k>>; 2], state: &StateName, needs: &mut Vec<&'k Need>) {
    for known in both.into_iter().flatten() {
        let locks = known.cob.locks.iter().filter(|lock| lock.state == *state);
        needs.extend(locks.flat_map(|lock| &lock.needs));
    }
}

/// The shortest route through a kind's transitions; of equal routes the first by the kind's order of transitions.
pub(crate) fn route<'k>(kind: &'k Kind, from: &StateName, to: &StateName) -> Vec<(&'k StateName, &'k StateName)> {
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

/// The parts of the concerned hosts, without data that a forecast does not use.
pub(crate) fn parts(side: &Side, cobs: &BTreeSet<CobId>) -> BTreeMap<HostName, Arc<Bundle>> {
    let cobs: Vec<&CobId> = cobs.iter().collect();
    // In id order the change objects of a host are adjacent: an id starts with the host, whose name has no `/`.
    let hosts: Vec<&[&CobId]> = cobs.chunk_by(|a, b| a.host_str() == b.host_str()).collect();
    let parts: Vec<Option<Arc<Bundle>>> = hosts.into_par_iter().map(|cobs| part(side, cobs)).collect();
    parts.into_iter().flatten().map(|part| (part.host.clone(), part)).collect()
}

/// The part of a host; `None` if it lacks these change objects.
fn part(side: &Side, cobs: &[&CobId]) -> Option<Arc<Bundle>> {
    let bundle = side.bundles.get(cobs.first()?.host_str())?;
    let known: Vec<(&CobId, Known<'_>)> = cobs.iter().filter_map(|id| Some((*id, side.find(id)?))).collect();
    if known.is_empty() {
        return None;
    }
    // A forecast has no periodic checks for drift.
    if known.len() == bundle.cobs.len() && bundle.kinds.values().all(|kind| kind.check.interval_ms.is_none()) {
        return Some(bundle.clone());
    }
    let mut part = Bundle::empty(bundle.host.clone());
    for (_, Known { cob, kind }) in &known {
        part.kinds.entry(cob.kind.clone()).or_insert_with(|| {
            let mut kind = (*kind).clone();
            kind.check.interval_ms = None;
            kind
        });
    }
    part.cobs = known.into_iter().map(|(id, Known { cob, .. })| (id.clone(), cob.clone())).collect();
    Some(Arc::new(part))
}
