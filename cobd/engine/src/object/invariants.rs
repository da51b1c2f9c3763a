//! The invariants of a change object after every event.

use crate::names::Names;
use crate::object::{Activity, Object};
use crate::time::Time;

impl Object {
    /// Checks the invariants of a change object.
    pub(crate) fn verify(&self, names: &Names) -> Result<(), String> {
        if !self.requests.is_sorted_by_key(|r| r.asker) || !self.locks.is_sorted_by_key(|l| l.asked) {
            return Err("its tables are not in order".to_owned());
        }
        if let Activity::Acting(action) = &self.activity {
            let t = &self.spec.kind.transitions[usize::from(action.transition)];
            if self.state != Some(t.from) {
                return Err("it leaves a state that it is not in".to_owned());
            }
            if self.has_grants_out() {
                return Err("its transition runs against a grant".to_owned());
            }
            if self.needs_token_to_leave(t.from) && self.token_held(names).is_none() {
                return Err("it leaves without a token of its budget".to_owned());
            }
            if action.outlived {
                return Ok(());
            }
            for need in self.spec.transition_needs(action.transition) {
                let lock = self.lock_ix(need.cob).map(|i| &self.locks[i]);
                if !lock.is_ok_and(|l| l.held.is_some_and(|h| need.set.contains(&h))) {
                    let of = names.cob_id(need.cob);
                    return Err(format!("it acts without its lock on {of}"));
                }
            }
            return Ok(());
        }
        let state = self.state_id();
        for r in &self.requests {
            let known_elsewhere = state.is_some() && r.granted.is_some_and(|g| Some(g) != state);
            if known_elsewhere && !r.recalled && !self.counts_as_removed(r) {
                return Err("it has granted another state than its own, and does not recall the grant".to_owned());
            }
        }
        Ok(())
    }

    /// A time before its next check.
    pub(crate) fn before_check(&self) -> Time {
        if self.check_at == Time::NEVER { self.since } else { Time(self.check_at.0.saturating_sub(1)) }
    }
}
