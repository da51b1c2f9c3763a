//! Budgets: at most so many of a group are disturbed at a time.
//!
//! A budget is a change object of one state that promises it to `at_most` askers at a time: a promise of
//! it is a token. A member takes a token before it leaves its preferred state, or `outdated`, for whatever
//! reason, and keeps it over all hops until it is back. Until it has one it stays as it is: it
//! serves whom it serves, and asks nobody else for anything. What is not our doing (a crash, a first
//! start) takes none.
//!
//! A token is on record from the first hop that leaves to the end of the hop that comes back, so that a
//! member whose daemon was restarted in between names it in its hello and still has it.
//!
//! A member that has failed keeps its token, in whichever state it failed: a rollout stops at the first
//! failure, until an operator's retry or the next generation. It tells the budget, which gives no more tokens
//! meanwhile, whatever it has left, unless an operator says how many.
//!
//! Where members can only be disturbed together (they all require one thing, and that must move), the
//! number would make them wait for ever: those who have a token can't come back before the thing has
//! moved, and that waits for one who has no token. A drained budget therefore looks for such circles, by
//! sending a wide probe to one holder after the other. When a probe of every holder has come home, each by
//! one who waits for a token, these get theirs beyond the number, and the history says so.

use std::collections::BTreeMap;

use thin_vec::ThinVec;

use crate::engine::Faults;

use crate::names::{CobRef, Names};
use crate::object::decide::{Need, Scratch};
use crate::object::target::Aim;
use crate::object::{Cx, Lock, Object, Request};
use crate::record::{HeldLock, Note};
use crate::spec::StateIx;

/// Why a member needs its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// To leave: it waits for it.
    Wanted,
    /// It has left and is not back, or it has failed.
    Kept,
}

/// What a drained budget has found out about those who have its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Watch {
    /// Whose circle the probe that is on its way looks for.
    holder: Option<CobRef>,
    /// Those who can't be back before somebody gets a token, sorted.
    blocked: ThinVec<CobRef>,
}

impl Watch {
    fn is_blocked(&self, holder: CobRef) -> bool {
        self.blocked.binary_search(&holder).is_ok()
    }
}

impl Object {
    /// Whether it needs a token in this state, going to this target.
    pub(super) fn token(&self, cx: &Cx<'_>, state: StateIx, target: StateIx) -> Option<Token> {
        self.spec.budget.as_ref()?;
        if !self.serves_in(state) {
            let asked = state != self.home() && self.token_lock().is_some();
            return asked.then_some(Token::Kept);
        }
        if self.failed && !cx.faults.failed_give_tokens_back() {
            let held = self.token_lock().is_some_and(|lock| lock.held.is_some());
            return held.then_some(Token::Kept);
        }
        // It may serve somebody who acts on its own wish to leave.
        let own_wish = || {
            !self.stays()
                && self.requests.iter().any(|r| r.origin == self.me)
                && self.aim(cx, state, Some(self.me)).target != state
        };
        (target != state || own_wish()).then_some(Token::Wanted)
    }

    /// It has a budget, and leaving this state takes a token.
    pub(crate) fn needs_token_to_leave(&self, state: StateIx) -> bool {
        self.spec.budget.is_some() && self.serves_in(state)
    }

    /// Leaving this state disturbs those whom it is there for.
    fn serves_in(&self, state: StateIx) -> bool {
        state == self.spec.preferred || Some(state) == self.spec.kind.outdated
    }

    /// It is where it goes by itself.
    pub(super) fn is_back(&self) -> bool {
        self.state == Some(self.home())
    }

    /// Its lock of its budget, held or asked for.
    fn token_lock(&self) -> Option<&Lock> {
        let budget = self.spec.budget.as_ref()?;
        self.lock_ix(budget.cob).ok().map(|at| &self.locks[at])
    }

    /// It has a token that counts.
    pub(super) fn has_token(&self) -> bool {
        self.token_lock().is_some_and(Lock::usable)
    }

    /// The token that it has, as it is written when it leaves.
    pub(crate) fn token_held(&self, names: &Names) -> Option<HeldLock> {
        Object::held_lock(self.token_lock()?, names)
    }

    /// Adds the token to what is needed.
    pub(super) fn need_token(&self, cx: &Cx<'_>, needs: &mut Scratch, token: Option<Token>, aim: Aim) {
        let (Some(token), Some(budget)) = (token, &self.spec.budget) else { return };
        needs.add(Need {
            cob: budget.cob,
            set: budget.set.clone(),
            rank: self.goal_rank(cx, aim.target, aim),
            origin: aim.origin.unwrap_or(self.me),
            kept: token == Token::Kept,
            any_content: aim.any_content,
        });
    }

    /// Whether this is its budget: a lock of that is a token, which no promise waits for.
    pub(crate) fn is_budget(&self, cob: CobRef) -> bool {
        self.spec.budget.as_ref().is_some_and(|b| b.cob == cob)
    }

    /// How many tokens it has, as a budget: those of the model, or more or fewer if an operator says so.
    fn at_most(&self, cx: &Cx<'_>) -> Option<u32> {
        let limit = cx.tokens.get(&self.me).copied().unwrap_or(u32::MAX);
        let raised = cx.raised.get(&self.me).copied();
        self.spec.at_most.map(|at_most| raised.unwrap_or(at_most).min(limit))
    }

    /// A budget one of whose holders has failed: the rollout stops there, whatever tokens are left, until an operator says
    /// how many are given all the same.
    pub(crate) fn is_stopped(&self, raised: &BTreeMap<CobRef, u32>, faults: &Faults) -> bool {
        let has_failed = |r: &Request| r.granted.is_some() && r.failed;
        let stops = !raised.contains_key(&self.me) && !faults.failed_give_tokens_back();
        self.spec.at_most.is_some() && stops && self.requests.iter().any(|r| has_failed(r))
    }

    /// Of those who wait for a promise of a budget the first, by rank and name, as long as there are
    /// tokens; all, of what is no budget.
    pub(super) fn choose(&mut self, cx: &Cx<'_>, waiting: &mut Vec<usize>) {
        let Some(at_most) = self.at_most(cx).filter(|_| !cx.faults.gives_any_number()) else { return };
        let given = self.requests.iter().filter(|r| r.granted.is_some()).count();
        let stopped = self.is_stopped(cx.raised, cx.faults);
        let mut left = if stopped { 0 } else { (at_most as usize).saturating_sub(given) };
        let by_rank = |a: &Request, b: &Request| a.rank.cmp(&b.rank).then_with(|| cx.names.cmp(a.asker, b.asker));
        waiting.sort_by(|a, b| by_rank(&self.requests[*a], &self.requests[*b]));
        let all = waiting.len();
        waiting.retain(|at| {
            let beyond = self.requests[*at].beyond;
            let gets = beyond || left > 0;
            left -= usize::from(gets && !beyond);
            gets
        });
        self.view.drained = waiting.len() < all;
    }

    /// The holder that the next probe of a drained budget goes to: in turn, those who are not known to be
    /// blocked.
    pub(super) fn next_watched(&mut self, turn: u32) -> Option<CobRef> {
        let holders = self.requests.iter().filter(|r| r.granted.is_some()).map(|r| r.asker);
        let open: Vec<_> = holders.filter(|h| !self.watch.is_blocked(*h)).collect();
        let next = (!open.is_empty()).then(|| open[turn as usize % open.len()]);
        self.watch.holder = next;
        next
    }

    /// A probe of a drained budget is home, from one who waits: its holder can't be back before. True if
    /// that was the last that was in doubt: those who wait in circles get tokens now.
    pub(super) fn watched_is_blocked(&mut self, cx: &mut Cx<'_>, from: CobRef) -> bool {
        let Some(holder) = self.watch.holder.take() else { return false };
        let Ok(at) = self.request_ix(from) else { return false };
        if self.requests[at].granted.is_some() {
            return false;
        }
        if let Err(at) = self.watch.blocked.binary_search(&holder) {
            self.watch.blocked.insert(at, holder);
        }
        if !self.requests.iter().all(|r| r.granted.is_none() || self.watch.is_blocked(r.asker)) {
            return false;
        }
        self.requests[at].beyond = true;
        let (by, at_most) = (cx.names.cob_id(from).clone(), self.at_most(cx).unwrap_or(u32::MAX));
        cx.note(self.me, Note::Overdrawn { by, at_most });
        true
    }
}
