//! Where a change object is to go: rule 1.
//!
//! Of the requests of the least phase the one whose set's first state stands first in the kind's priority decides, and the
//! further ones of this phase narrow. In an ordered change object the least rank decides, and nobody else narrows (decision
//! 0110). The own state never changes a request's priority (counterexample 3), so nothing here depends on the order of arrival.

use cob_types::Rank;

use crate::names::CobRef;
use crate::object::{Cx, Object, Request};
use crate::spec::StateIx;

/// Where to, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aim {
    pub(crate) target: StateIx,
    /// Whose request made the target; none: its own wish.
    pub(crate) asker: Option<CobRef>,
    /// The origin of the request that made the target; none: its own wish, or one with it.
    pub(crate) origin: Option<CobRef>,
    /// 0 when it goes there for a retirement.
    pub(crate) phase: u8,
    /// Of the request that made the target.
    pub(crate) rank: Option<Rank>,
    /// What it needs on its way may be of whatever content: it goes there for somebody who leaves on the way back.
    pub(crate) any_content: bool,
}

impl Object {
    /// The target by all requests but those with this origin.
    pub(crate) fn aim(&self, cx: &Cx<'_>, state: StateIx, without_origin: Option<CobRef>) -> Aim {
        self.aim_by(cx, state, without_origin, self.ordered)
    }

    /// It goes elsewhere than by rank: for the sake of others the request of least rank asks for more than by itself.
    pub(super) fn goes_otherwise_by_rank(&self, cx: &Cx<'_>, state: StateIx, aim: Aim) -> bool {
        !self.ordered && self.requests.len() > 1 && self.aim_by(cx, state, None, true).target != aim.target
    }

    fn aim_by(&self, cx: &Cx<'_>, state: StateIx, without_origin: Option<CobRef>, ordered: bool) -> Aim {
        let phase = u8::from(!self.retiring);
        let any_content = self.retiring && cx.goes_back;
        let own = Aim { target: self.home(), asker: None, origin: None, phase, rank: None, any_content };
        if self.finished || self.declared {
            return own;
        }
        let asks = |r: &Request| self.serves(r) && !self.is_as_good_as_off(r) && !self.is_stopped_for(r);
        let counts = |r: &&Request| asks(r) && without_origin != Some(r.origin) && self.can_serve(r, state);
        let mut wishes: Vec<&Request> = self.requests.iter().map(AsRef::as_ref).filter(counts).collect();
        let first_place = |r: &Request| {
            let first = r.set.first().and_then(|s| self.spec.kind.ix(*s));
            first.map_or(u16::MAX, |s| self.spec.kind.priority(s))
        };
        wishes.sort_by(|a, b| {
            let by_state = if ordered { std::cmp::Ordering::Equal } else { first_place(a).cmp(&first_place(b)) };
            // All that is done for one wish of another generation has that wish's rank. What others need for it comes
            // before the wish itself, and among those the own ranks say what comes first.
            let of_another = a.rank.generation != cx.generation;
            let in_one = |r: &Request| of_another.then(|| (r.asker == r.origin, self.own_rank(r)));
            let by_rank = || a.rank.cmp(&b.rank).then_with(|| in_one(a).cmp(&in_one(b)));
            // Who leaves is served first: what those who stay want may be had only when it has left.
            let by_phase = a.rank.phase.cmp(&b.rank.phase);
            by_phase.then(by_state).then_with(by_rank).then_with(|| cx.names.cmp(a.asker, b.asker))
        });
        let Some(first) = wishes.first() else { return own };
        let mut possible = self.reachable(first, state);
        // By rank a wish is narrowed by what else the same one wants alone. What others want is done after it: on the way
        // to what suits all of them more may be needed than for any of them, and that may be what waits for the first.
        let narrows = |wish: &&&Request| match ordered {
            true => (wish.rank, wish.origin) == (first.rank, first.origin),
            false => wish.rank.phase == first.rank.phase,
        };
        for wish in wishes[1..].iter().filter(narrows) {
            if possible.len() == 1 {
                break;
            }
            let states = self.reachable(wish, state);
            if possible.iter().any(|s| states.contains(s)) {
                possible.retain(|s| states.contains(s));
            }
        }
        let target = if possible.contains(&state) { state } else { possible.first().copied().unwrap_or(own.target) };
        let phase = if self.retiring { 0 } else { first.rank.phase };
        // What it would do by itself it does in its own name, whoever asks for it too. For one that leaves it does what
        // nobody who leaves would do for its own sake: so it does that in the name of who asks.
        let by_itself = target == own.target && phase == own.phase;
        let origin = (!by_itself).then_some(first.origin);
        let any_content = any_content || first.takes_any_content(cx);
        Aim { target, asker: Some(first.asker), origin, phase, rank: Some(first.rank), any_content }
    }

    /// The least rank that the own generation gives to a state of the set.
    fn own_rank(&self, request: &Request) -> Option<u64> {
        request.set.iter().filter_map(|s| self.spec.kind.ix(*s)).map(|s| self.spec.rank(s)).min()
    }

    /// The states of the set that a route leads to, in the set's order.
    fn reachable(&self, request: &Request, state: StateIx) -> Vec<StateIx> {
        let kind = &self.spec.kind;
        request.set.iter().filter_map(|s| kind.ix(*s)).filter(|s| kind.reaches(state, *s)).collect()
    }

    /// A route leads to some state of the set.
    pub(crate) fn can_serve(&self, request: &Request, state: StateIx) -> bool {
        let kind = &self.spec.kind;
        request.set.iter().filter_map(|s| kind.ix(*s)).any(|s| kind.reaches(state, s))
    }
}
