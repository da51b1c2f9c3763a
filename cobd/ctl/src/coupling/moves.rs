//! Which needs count in a switch: those of change objects that move in it, and of states that are kept to.
//!
//! Who differs moves by itself. It may ask others to be elsewhere than where they are; these move too, come back
//! afterwards, and ask others in turn. All that differs is taken to move at once, on whatever host, and each to set out
//! from any of its states: so some are counted that stay, and none is left out that moves. Who stays where it is makes
//! no transition, and what these would need counts for nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cob_types::switch::SwitchOrder;
use cob_types::{Cob, CobId, Generation, Kind, Need, StateName};

/// A change object in one of the generations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) cob: &'a Cob,
    kind: Option<&'a Kind>,
}

/// All of a generation.
pub(super) type Side<'a> = BTreeMap<&'a CobId, Known<'a>>;

/// Where one goes.
#[derive(Debug, Default)]
struct Goals<'a> {
    /// By itself, because it differs: when its own host goes.
    own: BTreeSet<&'a StateName>,
    /// At any time: others ask for it, or it is not where it should be as it is.
    called: BTreeSet<&'a StateName>,
    /// It is asked to stay.
    stays: bool,
}

/// Which move, and where to.
pub(super) struct Moves<'a> {
    /// As it is.
    pub(super) old: Side<'a>,
    /// As it will be.
    pub(super) new: Side<'a>,
    taken_back: Option<&'a BTreeSet<CobId>>,
    goals: BTreeMap<&'a CobId, Goals<'a>>,
    open: Vec<&'a CobId>,
}

impl<'a> Moves<'a> {
    /// Between two generations; `at_rest` says who is where it should be under the old one.
    pub(super) fn between(
        old: Option<&'a Generation>,
        new: &'a Generation,
        order: Option<&'a SwitchOrder>,
        at_rest: &dyn Fn(&CobId) -> bool,
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
            moves.sow(id, at_rest(id));
        }
        while let Some(id) = moves.open.pop() {
            let needs: Vec<&Need> = [&moves.old, &moves.new].into_iter().flat_map(|s| moves.of(s, id, true)).collect();
            for need in needs {
                moves.ask(need);
            }
        }
        moves
    }

    /// Whether promises of the one stand for the other: nothing of it differs that others could notice.
    pub(super) fn is_same(&self, id: &CobId) -> bool {
        let what =
            |known: &Known<'a>| (known.cob.fingerprint, known.cob.rests_on, &known.cob.preferred, known.cob.observe);
        let taken_back = self.taken_back.is_some_and(|all| all.contains(id));
        !taken_back && self.old.get(id).map(what) == self.new.get(id).map(what)
    }

    /// Whether the difference of the needed one matters to who needs it, in this generation. A token of a budget is worth
    /// the same whatever the content of the budget is: no content is expected of it.
    pub(super) fn matters(&self, side: &Side<'a>, asker: &CobId, need: &Need) -> bool {
        let needed = &need.cob;
        let expects = side.get(asker).is_some_and(|known| known.cob.expects.contains_key(needed));
        let stays = self.old.contains_key(needed) && self.new.contains_key(needed);
        let is_remade = self.taken_back.is_some_and(|all| all.contains(needed));
        !self.is_same(needed) && (expects || is_remade || !stays)
    }

    /// What one needs on a host that has gone.
    pub(super) fn needs_of_new(&self, id: &CobId) -> impl Iterator<Item = &'a Need> {
        self.of(&self.new, id, true).into_iter().chain(kept_to(&self.new, id))
    }

    /// What one needs on a host that has not gone: what it would do by itself when that goes is still to come.
    pub(super) fn needs_of_old(&self, id: &CobId) -> impl Iterator<Item = &'a Need> {
        self.of(&self.old, id, false).into_iter().chain(kept_to(&self.old, id))
    }

    fn sow(&mut self, id: &'a CobId, at_rest: bool) {
        let (old, new) = (self.old.get(id).copied(), self.new.get(id).copied());
        let same = self.is_same(id);
        if same && at_rest {
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
        if !at_rest {
            goals.called.extend(old.into_iter().chain(new).map(|known| &known.cob.preferred));
        }
        self.open.push(id);
    }

    /// Somebody may ask for this.
    fn ask(&mut self, need: &'a Need) {
        let (old, new) = (self.old.get(&need.cob), self.new.get(&need.cob));
        let homes: BTreeSet<&StateName> = old.into_iter().chain(new).map(|known| &known.cob.preferred).collect();
        let Some((id, _)) = self.old.get_key_value(&need.cob).or_else(|| self.new.get_key_value(&need.cob)) else {
            return;
        };
        let goals = self.goals.entry(id).or_default();
        let before = (goals.called.len(), goals.stays);
        if homes.len() == 1 && homes.iter().all(|home| need.states.contains(home)) {
            goals.stays = true;
        } else {
            goals.called.extend(homes.into_iter().chain(&need.states));
        }
        if before != (goals.called.len(), goals.stays) {
            self.open.push(id);
        }
    }

    /// What one needs for its moves and promises in one of the generations; with or without what it does by itself.
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

/// What somebody may rest on at any time, if only for the time of an action.
fn kept_to<'a>(side: &Side<'a>, id: &CobId) -> impl Iterator<Item = &'a Need> {
    side.get(id).into_iter().flat_map(|known| promised(known.cob, &known.cob.preferred))
}

fn promised<'a>(cob: &'a Cob, state: &StateName) -> impl Iterator<Item = &'a Need> {
    cob.locks.iter().filter(move |lock| lock.state == *state).flat_map(|lock| &lock.needs)
}

/// What the hops of the shortest ways from everywhere to a state need.
fn on_the_way<'a>(known: Known<'a>, to: &StateName) -> Vec<&'a Need> {
    let Known { cob, kind } = known;
    // Who is observed goes nowhere.
    if cob.observe {
        return Vec::new();
    }
    let Some(kind) = kind else { return cob.needs().collect() };
    let far = distances(kind, to);
    let is_hop = |from: &StateName, to: &StateName| matches!((far.get(from), far.get(to)), (Some(from), Some(to)) if *from == to + 1);
    let hops = cob.transitions.iter().filter(|t| is_hop(&t.from, &t.to));
    hops.flat_map(|t| &t.needs).chain(cob.budget.as_deref()).collect()
}

/// How many transitions lie between each state and one, from where it can be reached.
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
