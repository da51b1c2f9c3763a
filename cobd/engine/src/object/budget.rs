//! Budgets limit how many members of a group are disturbed at a time.
//!
//! A budget is a change object with a single state, which it grants to `at_most` askers at a time: this grant is a
//! token. A member takes a token before it leaves its preferred state, or `outdated`, for any reason, and keeps it over
//! all transitions until it is back. Until it has a token it stays in its state: it keeps serving its holders, and asks
//! no other change object. A crash takes no token, and neither does a first start.
//!
//! A token is on record from the first transition away to the end of the transition back, so that a member whose daemon
//! was restarted in between names it in its hello and still has it.
//!
//! A failed member keeps its token, in any state: a rollout stops at the first failure, until an operator's retry or
//! the next generation. It informs the budget, which grants no further tokens meanwhile, even if some are left, unless
//! an operator sets their number.
//!
//! If members can only be disturbed together (they all require a change object that must move), the number would make
//! them wait forever: the holders of tokens cannot come back before it has moved, and it waits for a member without a
//! token. A drained budget therefore looks for these cycles: it sends a wide probe to each holder in turn. When a probe
//! of every holder has returned, each from a member that waits for a token, these members get tokens beyond the number,
//! and the history says so.

use thin_vec::ThinVec;

use crate::faults::Faults;
use crate::limits::TokenLimits;
use crate::names::{CobRef, Names};
use crate::object::decide::{Need, Scratch};
use crate::object::target::Aim;
use crate::object::{Cx, Lock, Object, Request};
use crate::record::{LockRecord, Note};
use crate::spec::StateIx;

/// Why a member needs its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// It waits for the token to leave its state.
    Wanted,
    /// It has left and is not back, or it has failed.
    Kept,
}

/// The findings of a drained budget about the holders of its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BlockedHolders {
    /// The holder that the pending probe examines.
    holder: Option<CobRef>,
    /// Holders that cannot come back before another member gets a token, sorted.
    blocked: ThinVec<CobRef>,
}

impl BlockedHolders {
    fn is_blocked(&self, holder: CobRef) -> bool {
        self.blocked.binary_search(&holder).is_ok()
    }
}

impl Object {
    /// Whether it needs a token in this state, with this target.
    pub(super) fn token(&self, cx: &Cx<'_>, state: StateIx, target: StateIx) -> Option<Token> {
        self.spec.budget.as_ref()?;
        if !self.serves_in(state) {
            let asked = state != self.own_target() && self.token_lock().is_some();
            return asked.then_some(Token::Kept);
        }
        if self.failed && !cx.faults.failed_give_tokens_back() {
            let held = self.token_lock().is_some_and(|lock| lock.held.is_some());
            return held.then_some(Token::Kept);
        }
        // It may serve a change object that acts on its own desire to leave.
        let own_desire = || {
            !self.stays()
                && self.requests.iter().any(|r| r.origin == self.me)
                && self.aim(cx, state, Some(self.me)).target != state
        };
        (target != state || own_desire()).then_some(Token::Wanted)
    }

    /// It has a budget, and leaving this state takes a token.
    pub(crate) fn needs_token_to_leave(&self, state: StateIx) -> bool {
        self.spec.budget.is_some() && self.serves_in(state)
    }

    /// Leaving this state disturbs its users.
    fn serves_in(&self, state: StateIx) -> bool {
        state == self.spec.preferred || Some(state) == self.spec.kind.outdated
    }

    /// It is in the state that it goes to by itself.
    pub(super) fn is_back(&self) -> bool {
        self.state == Some(self.own_target())
    }

    /// Its lock of its budget, held or asked for.
    fn token_lock(&self) -> Option<&Lock> {
        let budget = self.spec.budget.as_ref()?;
        self.lock_ix(budget.cob).ok().map(|at| &self.locks[at])
    }

    /// It has a valid token.
    pub(super) fn has_token(&self) -> bool {
        self.token_lock().is_some_and(Lock::usable)
    }

    /// Its token, as recorded when it leaves.
    pub(crate) fn token_held(&self, names: &Names) -> Option<LockRecord> {
        Object::held_lock(self.token_lock()?, names)
    }

    /// Adds the token to the needs.
    pub(super) fn need_token(&self, cx: &Cx<'_>, needs: &mut Scratch, token: Option<Token>, aim: Aim) {
        let (Some(token), Some(budget)) = (token, &self.spec.budget) else { return };
        needs.add(Need {
            cob: budget.cob,
            set: budget.set.clone(),
            rank: self.goal_rank(cx, aim.target, aim),
            origin: aim.origin.unwrap_or(self.me),
            speculative: token == Token::Kept,
            any_content: aim.any_content,
        });
    }

    /// Whether this is its budget: a lock of a budget is a token, and no grant waits for it.
    pub(crate) fn is_budget(&self, cob: CobRef) -> bool {
        self.spec.budget.as_ref().is_some_and(|b| b.cob == cob)
    }

    /// Its number of tokens, as a budget: the number of the model, or an operator's.
    fn at_most(&self, cx: &Cx<'_>) -> Option<u32> {
        self.spec.at_most.map(|at_most| cx.tokens.of(self.me, at_most))
    }

    /// A budget with a failed holder: the rollout stops there, even with tokens left, until an operator sets their
    /// number.
    pub(crate) fn is_stopped(&self, tokens: &TokenLimits, faults: &Faults) -> bool {
        let has_failed = |r: &Request| r.granted.is_some() && r.failed;
        let stops = !tokens.raised().contains_key(&self.me) && !faults.failed_give_tokens_back();
        self.spec.at_most.is_some() && stops && self.requests.iter().any(|r| has_failed(r))
    }

    /// Keeps the first waiting requests of a budget, by rank and name, as long as there are tokens; keeps all requests
    /// of other change objects.
    pub(super) fn choose(&mut self, cx: &Cx<'_>, waiting: &mut Vec<usize>) {
        let Some(at_most) = self.at_most(cx).filter(|_| !cx.faults.gives_any_number()) else { return };
        let given = self.requests.iter().filter(|r| r.granted.is_some()).count();
        let stopped = self.is_stopped(cx.tokens, cx.faults);
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

    /// The holder that the next probe of a drained budget goes to: in turn, the holders not known to be blocked.
    pub(super) fn next_watched(&mut self, turn: u32) -> Option<CobRef> {
        let holders = self.requests.iter().filter(|r| r.granted.is_some()).map(|r| r.asker);
        let open: Vec<_> = holders.filter(|h| !self.blocked_holders.is_blocked(*h)).collect();
        let next = (!open.is_empty()).then(|| open[turn as usize % open.len()]);
        self.blocked_holders.holder = next;
        next
    }

    /// A probe of a drained budget has returned from a waiting member: its holder cannot come back before. If this was
    /// the last doubtful holder, returns true: the members that wait in cycles get tokens now.
    pub(super) fn watched_is_blocked(&mut self, cx: &mut Cx<'_>, from: CobRef) -> bool {
        let Some(holder) = self.blocked_holders.holder.take() else { return false };
        let Ok(at) = self.request_ix(from) else { return false };
        if self.requests[at].granted.is_some() {
            return false;
        }
        if let Err(at) = self.blocked_holders.blocked.binary_search(&holder) {
            self.blocked_holders.blocked.insert(at, holder);
        }
        if !self.requests.iter().all(|r| r.granted.is_none() || self.blocked_holders.is_blocked(r.asker)) {
            return false;
        }
        self.requests[at].beyond = true;
        let (by, at_most) = (cx.names.cob_id(from).clone(), self.at_most(cx).unwrap_or(u32::MAX));
        cx.note(self.me, Note::Overdrawn { by, at_most });
        true
    }
}
