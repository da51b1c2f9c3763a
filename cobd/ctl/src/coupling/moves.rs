//! Which needs count in a switch: needs of change objects that move in it, and of states that change objects stay in.
//!
//! A changed change object moves by itself. It may request states of others; these move too, return afterwards, and
//! send requests in turn. The calculation assumes that all changes happen at once, on every host, and start from any
//! state: so it counts some change objects that stay, and misses no change object that moves. A change object that
//! stays makes no transition, so the needs of its transitions do not count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cob_types::switch::SwitchOrder;
use cob_types::{Cob, CobId, Generation, Kind, Need, StateName};

/// A change object in one of the generations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) cob: &'a Cob,
    kind: Option<&'a Kind>,
}

/// All change objects of a generation.
pub(super) type Side<'a> = BTreeMap<&'a CobId, Known<'a>>;

/// The target states of a change object.
#[derive(Debug, Default)]
struct Goals<'a> {
    /// Its own target states because it changes: when its own host switches.
    own: BTreeSet<&'a StateName>,
    /// Target states at any time: others request them, or it is not in its preferred state now.
    called: BTreeSet<&'a StateName>,
    /// Another change object requests that it stay.
    stays: bool,
}

/// The change objects that move, and their target states.
pub(super) struct MovingObjects<'a> {
    /// The old generation.
    pub(super) old: Side<'a>,
    /// The new generation.
    pub(super) new: Side<'a>,
    taken_back: Option<&'a BTreeSet<CobId>>,
    goals: BTreeMap<&'a CobId, Goals<'a>>,
    open: Vec<&'a CobId>,
}

impl<'a> MovingObjects<'a> {
    /// The moves between two generations; `is_idle` returns whether an object is idle in its old preferred state.
    pub(super) fn between(
        old: Option<&'a Generation>,
        new: &'a Generation,
        order: Option<&'a SwitchOrder>,
        is_idle: &dyn Fn(&CobId) -> bool,
    ) -> Self {
        let mut moves = Self {
            old: old.map(side).unwrap_or_default(),
            new: side(new),
            taken_back: order.map(|o| &o.taken_back),
            goals: BTreeMap::new(),
            open: Vec::new(),
        };
        let ids: BTreeSet<&CobId> = moves.old.keys().chain(moves.new.keys()).copied().collect();
        for id in ids {
            moves.sow(id, is_idle(id));
        }
        while let Some(id) = moves.open.pop() {
            let needs: Vec<&Need> = [&moves.old, &moves.new].into_iter().flat_map(|s| moves.of(s, id, true)).collect();
            for need in needs {
                moves.ask(need);
            }
        }
        moves
    }

    /// Whether grants of the old and the new change object are equivalent: no difference that others could notice.
    pub(super) fn is_same(&self, id: &CobId) -> bool {
        let what =
            |known: &Known<'a>| (known.cob.fingerprint, known.cob.rests_on, &known.cob.preferred, known.cob.observe);
        let taken_back = self.taken_back.is_some_and(|all| all.contains(id));
        !taken_back && self.old.get(id).map(what) == self.new.get(id).map(what)
    }

    /// Whether the change of the needed object matters to the change object that needs it, in this generation. A token
    /// of a budget has the same value for every content of the budget: requests expect no content.
    pub(super) fn matters(&self, side: &Side<'a>, asker: &CobId, need: &Need) -> bool {
        let needed = &need.cob;
        let expects = side.get(asker).is_some_and(|known| known.cob.expects.contains_key(needed));
        let stays = self.old.contains_key(needed) && self.new.contains_key(needed);
        let is_remade = self.taken_back.is_some_and(|all| all.contains(needed));
        !self.is_same(needed) && (expects || is_remade || !stays)
    }

    /// The needs of a change object on a host that has switched.
    pub(super) fn needs_of_new(&self, id: &CobId) -> impl Iterator<Item = &'a Need> {
        self.of(&self.new, id, true).into_iter().chain(kept_to(&self.new, id))
    }

    /// The needs of a change object on a host that has not switched: its own moves start only with the switch.
    pub(super) fn needs_of_old(&self, id: &CobId) -> impl Iterator<Item = &'a Need> {
        self.of(&self.old, id, false).into_iter().chain(kept_to(&self.old, id))
    }

    fn sow(&mut self, id: &'a CobId, is_idle: bool) {
        let (old, new) = (self.old.get(id).copied(), self.new.get(id).copied());
        let same = self.is_same(id);
        if same && is_idle {
            return;
        }
        let goals = self.goals.entry(id).or_default();
        if !same {
            goals.own.extend(new.map(|n| &n.cob.preferred));
            if let Some(kind) = old.filter(|o| !o.cob.leaves_as_it_is()).and_then(|o| o.kind) {
                let leaves = new.is_none() || self.taken_back.is_some_and(|all| all.contains(id));
                goals.own.extend(leaves.then_some(&kind.pre_remove));
            }
        }
        if !is_idle {
            goals.called.extend(old.into_iter().chain(new).map(|known| &known.cob.preferred));
        }
        self.open.push(id);
    }

    /// Notes that the target of this need may be requested.
    fn ask(&mut self, need: &'a Need) {
        let (old, new) = (self.old.get(&need.cob), self.new.get(&need.cob));
        let preferred: BTreeSet<&StateName> = old.into_iter().chain(new).map(|known| &known.cob.preferred).collect();
        let Some((id, _)) = self.old.get_key_value(&need.cob).or_else(|| self.new.get_key_value(&need.cob)) else {
            return;
        };
        let goals = self.goals.entry(id).or_default();
        let before = (goals.called.len(), goals.stays);
        if preferred.len() == 1 && preferred.iter().all(|state| need.states.contains(state)) {
            goals.stays = true;
        } else {
            goals.called.extend(preferred.into_iter().chain(&need.states));
        }
        if before != (goals.called.len(), goals.stays) {
            self.open.push(id);
        }
    }

    /// The needs of the moves and grants of a change object in a generation; with or without its own moves.
    fn of(&self, side: &Side<'a>, id: &CobId, own: bool) -> Vec<&'a Need> {
        let (Some(known), Some(goals)) = (side.get(id), self.goals.get(id)) else { return Vec::new() };
        let mut needs = Vec::new();
        for goal in goals.called.iter().chain(goals.own.iter().filter(|_| own)) {
            needs.extend(on_the_way(*known, goal));
            needs.extend(promised(known.cob, goal));
        }
        if goals.stays {
            needs.extend(promised(known.cob, &known.cob.preferred));
        }
        needs
    }
}

fn side(generation: &Generation) -> Side<'_> {
    let bundles = generation.bundles.values();
    bundles.flat_map(|b| b.cobs.iter().map(|(id, cob)| (id, Known { cob, kind: b.kinds.get(&cob.kind) }))).collect()
}

/// The needs of a state that others may rely on at any time, even if only during an action.
fn kept_to<'a>(side: &Side<'a>, id: &CobId) -> impl Iterator<Item = &'a Need> {
    side.get(id).into_iter().flat_map(|known| promised(known.cob, &known.cob.preferred))
}

fn promised<'a>(cob: &'a Cob, state: &StateName) -> impl Iterator<Item = &'a Need> {
    cob.locks.iter().filter(move |lock| lock.state == *state).flat_map(|lock| &lock.needs)
}

/// The needs of the transitions on the shortest paths from every state to a state.
fn on_the_way<'a>(known: Known<'a>, to: &StateName) -> Vec<&'a Need> {
    let Known { cob, kind } = known;
    // An observed change object does not move.
    if cob.observe {
        return Vec::new();
    }
    let Some(kind) = kind else { return cob.needs().collect() };
    let far = distances(kind, to);
    let leads_nearer = |from: &StateName, to: &StateName| Some(far.get(from)? == &(far.get(to)? + 1));
    let transitions = cob.transitions.iter().filter(|t| leads_nearer(&t.from, &t.to).unwrap_or_default());
    transitions.flat_map(|t| &t.needs).chain(cob.budget.as_deref()).collect()
}

/// The number of transitions from each state to a given state, as far as it can be reached.
fn distances<'k>(kind: &'k Kind, to: &'k StateName) -> BTreeMap<&'k StateName, usize> {
    let mut far = BTreeMap::from([(to, 0)]);
    let mut next = VecDeque::from([(to, 0)]);
    while let Some((at, steps)) = next.pop_front() {
        for t in kind.transitions.iter().filter(|t| t.to == *at) {
            if !far.contains_key(&t.from) {
                far.insert(&t.from, steps + 1);
                next.push_back((&t.from, steps + 1));
            }
        }
    }
    far
}
