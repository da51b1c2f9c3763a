//! The durable state of a change object: from the records after a restart, and for comparison with them.

use cob_types::{CobId, GenerationNumber, Rank};

use crate::event::ActionOutcome;
use crate::mail::Asked;
use crate::names::{CobRef, Names, StateId};
use crate::object::{Action, Activity, Cx, LastAction, Lock, Object, Request, shared};
use crate::record::{Begun, Body, DurableCob, GrantOut, GrantRecord, LockRecord, Missed};
use crate::spec::NeedSpec;
use crate::time::Time;

impl Request {
    /// A grant on record.
    pub(crate) fn restored(names: &mut Names, asker: &CobId, grant: &GrantOut, now: Time) -> Self {
        let asker = names.cob(asker);
        let asked = Asked {
            number: grant.number,
            rev: 0,
            set: grant.set.iter().map(|s| names.state(s)).collect(),
            rank: grant.rank,
            origin: names.cob(&grant.origin),
            fingerprint: grant.fingerprint,
            failed: grant.failed,
        };
        let granted = Some(names.state(&grant.state));
        let since = if grant.at == Time(0) { now } else { grant.at };
        Self { granted, restored: true, ..Self::new(asker, asked, grant.folder, since) }
    }
}

impl Lock {
    /// A lock on record, with the start of the incarnation.
    pub(crate) fn restored(names: &mut Names, me: CobRef, held: &LockRecord, (start, now): (u32, Time)) -> Self {
        let state = names.state(&held.state);
        Self {
            asked: names.cob(&held.cob),
            number: held.number,
            // Above every revision of an earlier incarnation.
            rev: u64::from(start) << 32,
            // It sends no message before the first decision revises it.
            rev_known: u64::from(start) << 32,
            set: [state].into_iter().collect(),
            rank: Rank::LAST,
            origin: me,
            fingerprint: held.fingerprint,
            held: Some(state),
            values: shared(held.values.clone()),
            recalled: false,
            confirmed: false,
            needed: true,
            speculative: false,
            unsent: true,
            sent_leaving: false,
            sent_failed: false,
            objections: None,
            since: now,
        }
    }
}

impl Object {
    /// Restores its state, and its grants and locks.
    pub(crate) fn restore(
        &mut self,
        cx: &mut Cx<'_>,
        was: &DurableCob,
        state: Option<StateId>,
        same_boot: bool,
        (grants, locks): (Vec<Request>, Vec<Lock>),
    ) {
        let process = self.spec.kind.process;
        // Actions inside the daemon died with it, and so did their data.
        let known = process && same_boot;
        self.recorded = state.filter(|_| known).and_then(|s| self.spec.kind.ix(s));
        self.failed = was.failed;
        self.values = shared(was.values.clone());
        self.applied = was.applied;
        self.rested_on = was.rests_on;
        if !cx.faults.forgets_tokens() {
            self.token_out.clone_from(&was.token);
        }
        self.since = if was.since == Time(0) { cx.now } else { was.since };
        // A change object without a check result is checked again, and counts as failing until then.
        let unclear = if self.recorded.is_some() { was.unclear } else { 0 };
        self.trouble(|t| (t.failures, t.check_failures) = (was.failures, unclear));
        self.restore_missed(cx, was);
        self.check_at = Time(0);
        for request in grants {
            if let Err(at) = self.request_ix(request.asker) {
                self.requests.insert(at, Box::new(request));
            }
        }
        for lock in locks {
            match self.lock_ix(lock.asked) {
                Ok(at) if self.locks[at].number < lock.number => self.locks[at] = lock,
                Ok(_) => {}
                Err(at) => self.locks.insert(at, lock),
            }
        }
        if self.recorded.is_none() && was.state.is_some() {
            let id = cx.names.cob_id(self.me).clone();
            cx.record(Body::Unknown { cob: id, from_nothing: false });
            // The record resets these, and so does the engine.
            self.failed = false;
            self.last = None;
            self.trouble(|t| (t.failures, t.error) = (0, None));
        }
        if let Some(begun) = was.action.as_ref().filter(|_| !cx.faults.forgets_actions()) {
            self.restore_action(cx, begun, process);
        }
    }

    /// Restores the last failed attempt and its error.
    fn restore_missed(&mut self, cx: &mut Cx<'_>, was: &DurableCob) {
        let Some(missed) = was.missed.as_deref() else { return };
        let find = |name| cx.names.find_state(name).and_then(|s| self.spec.kind.ix(s));
        let (Some(from), Some(to)) = (find(&missed.from), find(&missed.to)) else { return };
        self.last = Some(LastAction { from, to, attempt: missed.attempt, since: self.since });
        self.trouble(|t| (t.error, t.conflict) = (Some(missed.error.as_str().into()), missed.conflict));
    }

    fn restore_action(&mut self, cx: &mut Cx<'_>, begun: &Begun, process: bool) {
        let find = |name| cx.names.find_state(name).and_then(|s| self.spec.kind.ix(s));
        let (Some(from), Some(to)) = (find(&begun.from), find(&begun.to)) else { return };
        let Some(transition) = self.spec.kind.transitions.iter().position(|t| t.from == from && t.to == to) else {
            return;
        };
        (self.state, self.recorded) = (Some(from), None);
        let mut action = Action::new(begun.job, transition as u16);
        // Its result has another generation's content: checked when it has ended.
        action.outlived = begun.generation != GenerationNumber(0) && begun.generation != cx.generation;
        // It may have ended long ago, and its result may be gone: this is checked as well.
        action.suspect = true;
        self.activity = Activity::Acting(action);
        self.last = Some(LastAction { from, to, attempt: begun.attempt, since: cx.now });
        if !process {
            self.action_ended(cx, begun.job, ActionOutcome::Lost, (0, 0));
        }
    }

    /// The state that its records must add up to.
    pub(crate) fn durable(&self, names: &Names, generation: GenerationNumber) -> DurableCob {
        let action = match &self.activity {
            &Activity::Acting(Action { job, transition, .. }) => {
                let t = &self.spec.kind.transitions[usize::from(transition)];
                let name = |s| names.state_name(self.spec.kind.id(s)).clone();
                let of = |n: &NeedSpec| Object::held_lock(&self.locks[self.lock_ix(n.cob).ok()?], names);
                Some(Begun {
                    job,
                    from: name(t.from),
                    to: name(t.to),
                    attempt: self.last.as_ref().map_or(1, |l| l.attempt),
                    process: self.spec.kind.process,
                    locks: self.spec.transition_needs(transition).iter().filter_map(of).collect(),
                    token: self.token_out.clone(),
                    generation,
                })
            }
            Activity::Idle | Activity::Checking { .. } => None,
        };
        let promise = |r: &Request, state| {
            let grant = GrantOut { at: r.since, ..r.grant_out(state, names, Vec::new()) };
            (names.cob_id(r.asker).clone(), GrantRecord::of(&grant))
        };
        let granted = self.requests.iter().filter_map(|r| Some(promise(r, r.granted?)));
        let invalidated = self.requests.iter().filter_map(|r| Some(promise(r, r.broken?)));
        let missed = self.last.as_ref().filter(|_| self.troubles.failures > 0).map(|last| {
            let name = |s| names.state_name(self.spec.kind.id(s)).clone();
            let error = self.troubles.error.as_deref().unwrap_or_default().to_owned();
            let (from, to, conflict) = (name(last.from), name(last.to), self.troubles.conflict);
            Box::new(Missed { from, to, attempt: last.attempt, error, conflict })
        });
        let state = self.state_on_record();
        DurableCob {
            state: state.map(|s| names.state_name(self.spec.kind.id(s)).clone()),
            failed: self.failed,
            failures: self.troubles.failures,
            values: self.values.as_ref().clone(),
            applied: self.applied,
            rests_on: self.rested_on,
            action: action.map(Box::new),
            token: self.token_out.clone(),
            grants: granted.collect(),
            invalidated: invalidated.collect(),
            since: self.since,
            unclear: if state.is_some() { self.troubles.check_failures } else { 0 },
            missed,
        }
    }
}
