//! Before an outdated change object stops: what it needs to come up again.
//!
//! One that is `outdated` still serves, with its older content. If it went down first and asked then for what its way up
//! needs, a migration that fails would become an outage. So it asks for all that ahead, stays where it is until everything
//! is promised, and only then takes its token and asks others to go. From then on it goes on asking for it (so its way up
//! finds the locks held) without waiting for it: a recall is obeyed at once, and nothing new can wait in a circle.
//!
//! It stays in its own name alone. As soon as anybody asks it to be elsewhere than where it goes by itself, it goes without
//! waiting ahead: whoever has to move before what it waits for can be there reaches it with a request. So no wait is added
//! that a goal of the generation does not have anyway: the goal (C, preferred) needs the same, one hop later.

use crate::object::decide::{Need, Scratch};
use crate::object::target::Aim;
use crate::object::{Cx, Object};
use crate::spec::{NeedSpec, StateIx};

/// What the later hops of its way home need, before the first one.
#[derive(Debug)]
pub(super) struct Ahead {
    needs: Vec<NeedSpec>,
    /// All of it was promised while the change object stayed: it may go.
    seen: bool,
}

impl Ahead {
    /// The change object stays, and waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        !(self.needs.is_empty() || self.seen)
    }
}

impl Object {
    /// How it stands with what the later hops of its way home need.
    pub(super) fn ahead(&mut self, state: StateIx, aim: Aim) -> Ahead {
        let needs = self.needs_ahead(state, aim);
        let is_held = |need: &NeedSpec| {
            let lock = self.lock_ix(need.cob).map(|at| &self.locks[at]);
            lock.is_ok_and(|lock| lock.usable() && lock.held.is_some_and(|held| need.set.contains(&held)))
        };
        self.seen_ahead = !needs.is_empty() && (self.seen_ahead || needs.iter().all(is_held));
        Ahead { needs, seen: self.seen_ahead }
    }

    /// The needs of all hops of its way home but the first, of whom neither the first hop nor a promise of where it is
    /// names; none where it is not for it to say whether it stays.
    fn needs_ahead(&self, state: StateIx, aim: Aim) -> Vec<NeedSpec> {
        let kind = &self.spec.kind;
        let stays_for_itself = Some(state) == kind.outdated
            && !(self.stays() || self.retiring)
            && aim.target == self.home()
            && aim.origin.is_none()
            && !self.has_conflict(aim.target);
        let mut needs: Vec<NeedSpec> = Vec::new();
        let Some(first) = kind.hop(state, aim.target).filter(|_| stays_for_itself) else { return needs };
        let told = [self.spec.hop_needs(first), self.spec.lock_needs(state)];
        let mut at = kind.transitions[usize::from(first)].to;
        while let Some(hop) = (at != aim.target).then(|| kind.hop(at, aim.target)).flatten() {
            for need in self.spec.hop_needs(hop) {
                let names = |other: &NeedSpec| other.cob == need.cob;
                if !told.iter().any(|told| told.iter().any(names)) && !needs.iter().any(names) {
                    needs.push(need.clone());
                }
            }
            at = kind.transitions[usize::from(hop)].to;
        }
        needs
    }

    /// Adds what is needed ahead.
    pub(super) fn need_ahead(&self, cx: &Cx<'_>, needs: &mut Scratch, aim: Aim, ahead: Ahead) {
        let Ahead { needs: all, seen: kept } = ahead;
        for NeedSpec { cob, set } in all {
            let (rank, any_content) = (self.goal_rank(cx, aim.target, aim), aim.any_content);
            needs.add(Need { cob, set, rank, origin: self.me, kept, any_content });
        }
    }
}
