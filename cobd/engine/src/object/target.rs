//! The target state of a change object: rule 1.
//!
//! In the lowest phase, the request whose first state is earliest in the kind's priority decides; the others narrow it.
//! In an ordered change object the lowest rank decides, and no other asker narrows (decision 0004). The own state never
//! changes a priority (counterexample 3): the order of arrival does not matter.

use cob_types::Rank;
use cob_types::message::RankPhase;

use crate::names::CobRef;
use crate::object::{Cx, Object, Request};
use crate::spec::StateIx;

/// A target state and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aim {
    pub(crate) target: StateIx,
    /// The asker whose request made the target; `None`: its own desired state.
    pub(crate) asker: Option<CobRef>,
    /// The origin of the request that made the target; `None`: its own desired state, alone or too.
    pub(crate) origin: Option<CobRef>,
    /// Whether it goes there for a departure.
    pub(crate) phase: RankPhase,
    /// The rank of the request that made the target.
    pub(crate) rank: Option<Rank>,
    /// Its needs on the way accept any content: it goes there on behalf of a departure in a rollback.
    pub(crate) any_content: bool,
}

impl Object {
    /// The target by all requests but the requests with this origin.
    pub(crate) fn aim(&self, cx: &Cx<'_>, state: StateIx, without_origin: Option<CobRef>) -> Aim {
        self.aim_by(cx, state, without_origin, self.ordered)
    }

    /// The target by rank differs: the request of lowest rank wants more for the sake of others than for itself.
    pub(super) fn goes_otherwise_by_rank(&self, cx: &Cx<'_>, state: StateIx, aim: Aim) -> bool {
        !self.ordered && self.requests.len() > 1 && self.aim_by(cx, state, None, true).target != aim.target
    }

    fn aim_by(&self, cx: &Cx<'_>, state: StateIx, without_origin: Option<CobRef>, ordered: bool) -> Aim {
        let phase = if self.departs() { RankPhase::DEPARTURE } else { RankPhase::STAY };
        let any_content = self.departs() && cx.goes_back;
        let own = Aim { target: self.own_target(), asker: None, origin: None, phase, rank: None, any_content };
        if self.lifecycle.is_over() {
            return own;
        }
        let asks = |r: &Request| self.serves(r) && !self.counts_as_removed(r) && !self.is_stopped_for(r);
        let counts = |r: &&Request| asks(r) && without_origin != Some(r.origin) && self.can_serve(r, state);
        let mut candidates: Vec<&Request> = self.requests.iter().map(AsRef::as_ref).filter(counts).collect();
        let first_place = |r: &Request| {
            let first = r.set.first().and_then(|s| self.spec.kind.ix(*s));
            first.map_or(u16::MAX, |s| self.spec.kind.priority(s))
        };
        candidates.sort_by(|a, b| {
            let by_state = if ordered { std::cmp::Ordering::Equal } else { first_place(a).cmp(&first_place(b)) };
            // All work for a single desired state of another generation has the rank of that state. The needs of others
            // for it come before the state itself, and the own ranks order these needs.
            let of_another = a.rank.generation != cx.generation;
            let in_one = |r: &Request| of_another.then(|| (r.asker == r.origin, self.own_rank(r)));
            let by_rank = || a.rank.cmp(&b.rank).then_with(|| in_one(a).cmp(&in_one(b)));
            // Departing askers are served first: staying askers may have to wait for the departure.
            let by_phase = a.rank.phase.cmp(&b.rank.phase);
            by_phase.then(by_state).then_with(by_rank).then_with(|| cx.names.cmp(a.asker, b.asker))
        });
        let Some(first) = candidates.first() else { return own };
        let mut possible = self.reachable(first, state);
        // By rank, only further requests of the same origin narrow the choice. Other requests are served later: a state
        // that suits all may need more on the way, and that need may wait for the first request.
        let narrows = |candidate: &&&Request| match ordered {
            true => (candidate.rank, candidate.origin) == (first.rank, first.origin),
            false => candidate.rank.phase == first.rank.phase,
        };
        for candidate in candidates[1..].iter().filter(narrows) {
            if possible.len() == 1 {
                break;
            }
            let states = self.reachable(candidate, state);
            if possible.iter().any(|s| states.contains(s)) {
                possible.retain(|s| states.contains(s));
            }
        }
        let target = if possible.contains(&state) { state } else { possible.first().copied().unwrap_or(own.target) };
        let phase = if self.departs() { phase } else { first.rank.phase };
        // A step that it would make by itself it makes in its own name, even if others ask for it too. A departing
        // change object makes the other steps in the name of the asker.
        let by_itself = target == own.target && phase == own.phase;
        let origin = (!by_itself).then_some(first.origin);
        let any_content = any_content || first.takes_any_content(cx);
        Aim { target, asker: Some(first.asker), origin, phase, rank: Some(first.rank), any_content }
    }

    /// The lowest rank that the own generation gives to a state of the set.
    fn own_rank(&self, request: &Request) -> Option<u64> {
        request.set.iter().filter_map(|s| self.spec.kind.ix(*s)).map(|s| self.spec.rank(s)).min()
    }

    /// The reachable states of the set, in the set's order.
    fn reachable(&self, request: &Request, state: StateIx) -> Vec<StateIx> {
        let kind = &self.spec.kind;
        request.set.iter().filter_map(|s| kind.ix(*s)).filter(|s| kind.reaches(state, *s)).collect()
    }

    /// Some state of the set is reachable.
    pub(crate) fn can_serve(&self, request: &Request, state: StateIx) -> bool {
        let kind = &self.spec.kind;
        request.set.iter().filter_map(|s| kind.ix(*s)).any(|s| kind.reaches(state, s))
    }
}
