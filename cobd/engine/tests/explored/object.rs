//! The canonical form of a change object: see [`crate::canonical`].

use cob_types::Number;

use crate::canonical::{Form, Pair};
use crate::names::{CobRef, Names, StateId};
use crate::object::{Activity, Lock, Object, Request};
use crate::spec::{NeedSpec, Spec, StateIx};
use crate::time::Time;

/// Adds parts of an engine to a form.
pub(crate) struct Canonical<'a> {
    pub(crate) names: &'a Names,
    pub(crate) now: Time,
}

impl Canonical<'_> {
    pub(crate) fn pair(&self, form: &Form<'_>, asker: CobRef, asked: CobRef) -> Pair {
        form.pair(self.names.cob_id(asker), self.names.cob_id(asked))
    }

    pub(crate) fn object(&self, form: &mut Form<'_>, o: &Object) {
        form.word(o.state.map_or(u64::MAX, |s| u64::from(s.0)));
        form.word(o.recorded.map_or(u64::MAX, |s| u64::from(s.0)));
        let action = if let Activity::Acting(action) = &o.activity { Some(action) } else { None };
        let checks = matches!(o.activity, Activity::Checking { .. });
        form.word(action.map_or(u64::from(checks), |action| 2 + u64::from(action.transition)));
        let due = |at: Time| [at <= self.now, at == Time::NEVER];
        let [check_due, check_never] = due(o.check_at);
        let resting = o.livelock.next_end(self.now).is_some();
        let suspect = action.is_some_and(|action| action.suspect);
        form.flags(&[o.failed, o.ordered, suspect, check_due, check_never, o.troubles.retry_at > self.now, resting]);
        let (lifecycle, outlived) = (o.lifecycle, action.is_some_and(|action| action.outlived));
        form.flags(&[lifecycle.is_departing(), lifecycle.is_departed(), lifecycle.is_held_back()]);
        form.flags(&[lifecycle.is_declared(), outlived, o.later_needs_granted]);
        let restarts = o.stopped.as_ref().map(|stopped| stopped.restart);
        form.flags(&[restarts.is_some(), restarts == Some(true)]);
        form.word(u64::from(o.troubles.failures));
        // The target of its failed attempts: if a check finds that state, it has not failed.
        let failed_to = o.last.as_ref().filter(|_| o.failed).map(|last| last.to);
        form.word(failed_to.map_or(u64::MAX, |s| u64::from(s.0)));
        form.fingerprint(o.applied);
        form.fingerprint(o.rested_on);
        if let Some(next) = action.and_then(|action| action.next_spec.as_ref()) {
            self.spec(form, &o.spec);
            self.spec(form, next);
        }
        let mut requests: Vec<&Request> = o.requests.iter().map(AsRef::as_ref).collect();
        requests.sort_by(|a, b| self.names.cmp(a.asker, b.asker));
        form.word(requests.len() as u64);
        requests.into_iter().for_each(|r| self.request(form, o.me, r));
        let mut locks: Vec<&Lock> = o.locks.iter().collect();
        locks.sort_by(|a, b| self.names.cmp(a.asked, b.asked));
        form.word(locks.len() as u64);
        locks.into_iter().for_each(|l| self.lock(form, o.me, l));
        self.memory(form, &o.unacknowledged, |form, other| self.pair(form, o.me, other));
        self.memory(form, &o.returned, |form, other| self.pair(form, other, o.me));
        self.probe(form, o);
    }

    pub(crate) fn request(&self, form: &mut Form<'_>, me: CobRef, r: &Request) {
        let pair = self.pair(form, r.asker, me);
        form.number(pair, r.number);
        form.revision(pair, r.number, r.rev);
        self.set(form, &r.set);
        form.rank(r.rank);
        form.cob(self.names.cob_id(r.origin));
        form.some_state(r.granted.map(|s| self.names.state_name(s)));
        form.flags(&[
            r.recalled,
            r.invalidated,
            r.restored,
            r.refused,
            r.beyond,
            r.broken.is_some(),
            r.has_waited(self.now),
            r.failed,
        ]);
        form.fingerprint(r.fingerprint);
    }

    fn lock(&self, form: &mut Form<'_>, me: CobRef, l: &Lock) {
        let pair = self.pair(form, me, l.asked);
        form.number(pair, l.number);
        form.revision(pair, l.number, l.rev);
        form.revision(pair, l.number, l.rev_known);
        self.set(form, &l.set);
        form.rank(l.rank);
        form.cob(self.names.cob_id(l.origin));
        form.some_state(l.held.map(|s| self.names.state_name(s)));
        form.flags(&[
            l.recalled,
            l.confirmed,
            l.needed,
            l.speculative,
            l.unsent,
            l.sent_leaving,
            l.sent_failed,
            l.refused().is_some(),
        ]);
        form.fingerprint(l.fingerprint);
    }

    /// A content that is not the active generation's, or not yet.
    fn spec(&self, form: &mut Form<'_>, spec: &Spec) {
        form.fingerprint(Some(spec.fingerprint));
        form.state(self.names.state_name(spec.kind.id(spec.preferred)));
        form.flags(&[spec.keep, spec.observe]);
        for (at, state) in spec.kind.states.iter().enumerate() {
            form.state(self.names.state_name(*state));
            self.needs(form, spec.lock_needs(StateIx(at as u16)));
        }
        for at in 0..spec.kind.transitions.len() {
            self.needs(form, spec.transition_needs(at as u16));
        }
    }

    fn needs(&self, form: &mut Form<'_>, needs: &[NeedSpec]) {
        form.word(needs.len() as u64);
        let mut needs: Vec<_> = needs.iter().collect();
        needs.sort_by(|a, b| self.names.cmp(a.cob, b.cob));
        for need in needs {
            form.cob(self.names.cob_id(need.cob));
            self.set(form, &need.set);
        }
    }

    fn memory(&self, form: &mut Form<'_>, memory: &[(CobRef, Number)], pair: impl Fn(&Form<'_>, CobRef) -> Pair) {
        let mut memory = memory.to_vec();
        memory.sort_by(|a, b| self.names.cmp(a.0, b.0));
        form.word(memory.len() as u64);
        for (other, number) in memory {
            let pair = pair(form, other);
            form.number(pair, number);
        }
    }

    pub(crate) fn set(&self, form: &mut Form<'_>, set: &[StateId]) {
        form.word(set.len() as u64);
        for state in set {
            form.state(self.names.state_name(*state));
        }
    }

    fn probe(&self, form: &mut Form<'_>, o: &Object) {
        match o.probe.awaited() {
            Some((number, returned)) => form.awaited(self.names.cob_id(o.me), number, returned),
            None => form.word(0),
        }
        form.flags(&o.probe.turns());
        for (at, cob) in form.all().iter().enumerate() {
            match self.names.find_cob(cob).and_then(|c| o.probe.seen_of(c, self.now)) {
                Some(number) => form.seen(at, number),
                None => form.word(0),
            }
        }
    }
}
