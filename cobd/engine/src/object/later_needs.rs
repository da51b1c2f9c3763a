//! The locks that an outdated change object needs to come up again, requested before it stops.
//!
//! An `outdated` change object still serves, with its older content. If it stopped first and then asked for the needs
//! of its way up, a failing migration would become an outage. So it asks for all of these first, stays in its state
//! until all are granted, and only then takes its token and asks others to move. From then on it holds the locks
//! speculatively: its way up finds the locks held, but it obeys a recall at once, so no new deadlock cycle can arise.
//!
//! It stays only in its own name. As soon as a request wants another state than its own target, it moves without this
//! wait: a change object that has to move first reaches it with a request. So this adds no wait that a goal of the
//! generation does not have anyway: the goal (C, preferred) needs the same locks, a transition later.

use crate::object::decide::{Need, Scratch};
use crate::object::target::Aim;
use crate::object::{Cx, Object};
use crate::spec::{NeedSpec, StateIx};

/// The needs of the later transitions to its own target, before the first transition.
#[derive(Debug)]
pub(super) struct LaterNeeds {
    needs: Vec<NeedSpec>,
    /// All were granted while the change object stayed: it may leave.
    seen: bool,
}

impl LaterNeeds {
    /// The change object stays and waits for these grants.
    pub(super) fn is_awaited(&self) -> bool {
        !(self.needs.is_empty() || self.seen)
    }
}

impl Object {
    /// Determines whether the needs of the later transitions to its own target are granted.
    pub(super) fn ahead(&mut self, state: StateIx, aim: Aim) -> LaterNeeds {
        let needs = self.later_needs(state, aim);
        let is_held = |need: &NeedSpec| {
            let lock = self.lock_ix(need.cob).map(|at| &self.locks[at]);
            lock.is_ok_and(|lock| lock.usable() && lock.held.is_some_and(|held| need.set.contains(&held)))
        };
        self.later_needs_granted = !needs.is_empty() && (self.later_needs_granted || needs.iter().all(is_held));
        LaterNeeds { needs, seen: self.later_needs_granted }
    }

    /// The needs of all transitions to its own target but the first, on change objects that neither the first
    /// transition nor a grant of the present state needs; empty if it does not decide by itself whether to stay.
    fn later_needs(&self, state: StateIx, aim: Aim) -> Vec<NeedSpec> {
        let kind = &self.spec.kind;
        let stays_for_itself = Some(state) == kind.outdated
            && !(self.stays() || self.departs())
            && aim.target == self.own_target()
            && aim.origin.is_none()
            && !self.has_conflict(aim.target);
        let mut needs: Vec<NeedSpec> = Vec::new();
        let Some(first) = kind.next_transition(state, aim.target).filter(|_| stays_for_itself) else { return needs };
        let told = [self.spec.transition_needs(first), self.spec.lock_needs(state)];
        let mut at = kind.transitions[usize::from(first)].to;
        while let Some(transition) = (at != aim.target).then(|| kind.next_transition(at, aim.target)).flatten() {
            for need in self.spec.transition_needs(transition) {
                let names = |other: &NeedSpec| other.cob == need.cob;
                if !told.iter().any(|told| told.iter().any(names)) && !needs.iter().any(names) {
                    needs.push(need.clone());
                }
            }
            at = kind.transitions[usize::from(transition)].to;
        }
        needs
    }

    /// Adds the needs of the later transitions.
    pub(super) fn add_later_needs(&self, cx: &Cx<'_>, needs: &mut Scratch, aim: Aim, ahead: LaterNeeds) {
        let LaterNeeds { needs: all, seen: speculative } = ahead;
        for NeedSpec { cob, set } in all {
            let (rank, any_content) = (self.goal_rank(cx, aim.target, aim), aim.any_content);
            needs.add(Need { cob, set, rank, origin: self.me, speculative, any_content });
        }
    }
}
