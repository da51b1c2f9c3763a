//! From records to a running engine, and back to its durable state.
//!
//! Grants stay granted; running actions are awaited (or looked up, or checked); locks under a grant or an action are
//! kept and named in the hello; other locks are requested again.

use std::sync::Arc;

use cob_types::{CobId, GenerationNumber, HostName, Incarnation, Number, Rank, SwitchOrder};

use crate::bundle::{ActiveBundle, AnyBundle, SwitchTarget};
use crate::effect::Effects;
use crate::engine::Engine;
use crate::event::{ActionOutcome, Event};
use crate::faults::Faults;
use crate::mail::Asked;
use crate::names::{CobRef, HostRef};
use crate::object::{Action, Activity, LastAction, Lock, Object, Request, shared};
use crate::record::{Begun, Body, Durable, DurableCob, GrantOut, HeldLock, KeptGrant, Missed};
use crate::spec;
use crate::time::Time;

/// The input of a restarted daemon.
#[derive(Debug, Clone)]
pub struct RestartInput<'a> {
    /// Its host.
    pub host: &'a HostName,
    /// The new incarnation: the same id as the last, a higher start.
    pub incarnation: Incarnation,
    /// The sum of the records.
    pub durable: &'a Durable,
    /// The bundle of the active generation; `None` if there is no active generation.
    pub active: Option<AnyBundle>,
    /// The bundle of the pending switch.
    pub pending: Option<AnyBundle>,
    /// The order of the pending switch.
    pub order: Arc<SwitchOrder>,
    /// As in [`Event::Switch`].
    pub in_process: &'a [String],
    /// The host itself has not restarted since: recorded states still count.
    pub same_boot: bool,
}

impl Engine {
    /// The engine after a restart, and its first effects. The daemon must report each action of
    /// [`Engine::running_actions`] from an earlier incarnation by [`Event::ActionEnded`] when it has ended, at once if
    /// it had ended before or left no result. The actions of this incarnation are among the first effects.
    #[must_use]
    pub fn recover(back: &RestartInput<'_>, now: Time) -> (Self, Effects) {
        Self::recover_with(back, Faults::default(), now)
    }

    /// As [`Engine::recover`], with faults planted.
    #[must_use]
    pub fn recover_with(back: &RestartInput<'_>, faults: Faults, now: Time) -> (Self, Effects) {
        let mut engine = Engine::new(back.host, back.incarnation);
        engine.plant(faults);
        engine.restore(back, now);
        let effects = engine.handle(Event::Tick, now);
        (engine, effects)
    }

    fn restore(&mut self, back: &RestartInput<'_>, now: Time) {
        let durable = back.durable;
        self.lamport = durable.lamport;
        self.out.record(Body::Incarnation(back.incarnation));
        self.generation = durable.active;
        let highest = durable.highest.max(durable.active).max(durable.pending.unwrap_or_default());
        self.departures.restore(durable.epoch, highest);
        if durable.paused {
            self.limits.pause();
        }
        self.limits.cancel(durable.cancelled);
        self.limits.starts.set(durable.limit);
        for (budget, tokens) in &durable.limited {
            self.limits.tokens.limit(self.names.cob(budget), Some(*tokens));
        }
        for (budget, tokens) in &durable.raised {
            self.limits.tokens.raise(self.names.cob(budget), Some(*tokens));
        }
        for (cob, state) in &durable.gone {
            let kept_from = durable.kept_from.get(cob);
            let (cob, state) = (self.names.cob(cob), self.names.state(state));
            self.absent.depart(cob, state, kept_from.map(|off| self.names.state(off)));
        }
        for (host, fenced) in &durable.fenced {
            let host = self.names.host(host);
            // For a host that had not sent a message before, no incarnation is over.
            self.peers.at(host).restore_fence(fenced.unwrap_or(Incarnation { id: 0, start: 0 }));
        }
        if let Some(bundle) = &back.active {
            let active = ActiveBundle { bundle: bundle.clone(), in_process: back.in_process.to_vec() };
            let specs = self.specs_of(&active);
            self.make_room(specs.len());
            for (cob, spec) in specs {
                self.note_dependencies(cob, &spec);
                let object = Object::new(cob, spec, now);
                self.insert(object);
                if let Some(stopped) = durable.stopped.get(self.names.cob_id(cob)) {
                    self.with(cob, now, |o, cx| {
                        if stopped.until_boot && !back.same_boot {
                            o.start(cx);
                        } else {
                            o.stopped = Some(Box::new(stopped.clone()));
                        }
                    });
                }
                if let Some(was) = durable.cobs.get(self.names.cob_id(cob)) {
                    self.restore_object(cob, was, back.same_boot, now);
                }
            }
            self.active = Some(active);
            for (id, was) in &durable.cobs {
                let cob = self.names.cob(id);
                if self.objects.slot(cob).is_none() {
                    let grants = self.restored_grants(was, now);
                    self.absent.put(cob, grants);
                }
            }
            self.confirm_own_locks();
            self.repeat_for_departed(now);
            self.greet_all();
        }
        if let (Some(generation), Some(bundle)) = (durable.pending, &back.pending) {
            let bundle = ActiveBundle { bundle: bundle.clone(), in_process: back.in_process.to_vec() };
            self.start_switch(SwitchTarget { generation, bundle, order: back.order.clone() }, now);
            if let Some(pending) = &mut self.departures.pending
                && durable.pending_since != Time(0)
            {
                pending.since = durable.pending_since;
            }
            self.restore_facts(durable, now);
        }
    }

    /// A release of the last incarnation may have left no record: every asked host must learn which numbers are still
    /// needed.
    fn greet_all(&mut self) {
        let asked = self.peers.iter().filter(|(_, peer)| !peer.dependents.is_empty());
        asked.map(|(host, _)| host).collect::<Vec<_>>().into_iter().for_each(|host| self.peers.greet(host));
    }

    fn restore_object(&mut self, cob: CobRef, was: &DurableCob, same_boot: bool, now: Time) {
        let state = was.state.as_ref().map(|s| self.names.state(s));
        let grants = self.restored_grants(was, now);
        let given: Vec<GrantOut> = was.grants.iter().map(|(_, grant)| grant.get()).collect();
        let mut held: Vec<&HeldLock> = given.iter().flat_map(|g| &g.rests_on).collect();
        let begun = was.action.as_ref().filter(|_| !self.faults.forgets_actions());
        held.extend(begun.iter().flat_map(|b| &b.locks));
        held.extend(was.token.as_deref().filter(|_| !self.faults.forgets_tokens()));
        let locks: Vec<_> = held.into_iter().map(|l| self.restored_lock(cob, l, now)).collect();
        for lock in &locks {
            let host = self.names.host_of(lock.asked);
            if host != HostRef::HERE {
                self.peers.at(host).restored.push((cob, lock.asked, lock.number));
                self.peers.at(host).dependents.insert(cob);
                self.peers.greet(host);
            }
        }
        for request in &grants {
            let host = self.names.host_of(request.asker);
            if host != HostRef::HERE {
                self.peers.at(host).asked.insert(cob);
                self.peers.greet(host);
            }
        }
        self.with(cob, now, |o, cx| {
            let process = o.spec.kind.process;
            // Actions inside the daemon died with it, and so did their data.
            let known = process && same_boot;
            o.recorded = state.filter(|_| known).and_then(|s| o.spec.kind.ix(s));
            o.failed = was.failed;
            o.values = shared(was.values.iter().map(|(name, value)| (name.clone(), value.clone())).collect());
            o.applied = was.applied;
            o.rested_on = was.rests_on;
            if !cx.faults.forgets_tokens() {
                o.left_under.clone_from(&was.token);
            }
            o.since = if was.since == Time(0) { now } else { was.since };
            // A change object without a check result is checked again, and counts as failing until then.
            let unclear = if o.recorded.is_some() { was.unclear } else { 0 };
            o.trouble(|t| (t.failures, t.check_failures) = (was.failures, unclear));
            o.restore_missed(cx, was);
            o.check_at = Time(0);
            for request in grants {
                if let Err(at) = o.request_ix(request.asker) {
                    o.requests.insert(at, Box::new(request));
                }
            }
            for lock in locks {
                match o.lock_ix(lock.asked) {
                    Ok(at) if o.locks[at].number < lock.number => o.locks[at] = lock,
                    Ok(_) => {}
                    Err(at) => o.locks.insert(at, lock),
                }
            }
            if o.recorded.is_none() && was.state.is_some() {
                let id = cx.names.cob_id(cob).clone();
                cx.record(Body::Unknown { cob: id, from_nothing: false });
                // The record resets these, and so does the engine.
                o.failed = false;
                o.last = None;
                o.trouble(|t| (t.failures, t.error) = (0, None));
            }
            if let Some(begun) = begun {
                o.restore_action(cx, begun, process, now);
            }
        });
    }

    /// Grants that are out, and invalidated grants whose holders do not know it.
    fn restored_grants(&mut self, was: &DurableCob, now: Time) -> Vec<Request> {
        let mut all = Vec::with_capacity(was.grants.len() + was.lapsed.len());
        all.extend(was.grants.iter().map(|(asker, g)| self.restored_request(asker, &g.get(), now)));
        all.extend(was.lapsed.iter().map(|(asker, g)| self.restored_request(asker, &g.get(), now).broken()));
        all
    }

    fn restored_request(&mut self, asker: &CobId, grant: &GrantOut, now: Time) -> Request {
        let asker = self.names.cob(asker);
        let asked = Asked {
            number: grant.number,
            rev: 0,
            set: grant.set.iter().map(|s| self.names.state(s)).collect(),
            rank: grant.rank,
            origin: self.names.cob(&grant.origin),
            fingerprint: grant.fingerprint,
            failed: grant.failed,
        };
        let granted = Some(self.names.state(&grant.state));
        let since = if grant.at == Time(0) { now } else { grant.at };
        Request { granted, restored: true, ..Request::new(asker, asked, grant.folder, since) }
    }

    fn restored_lock(&mut self, me: CobRef, held: &HeldLock, now: Time) -> Lock {
        let state = self.names.state(&held.state);
        Lock {
            asked: self.names.cob(&held.cob),
            number: held.number,
            // Above every revision of an earlier incarnation.
            rev: u64::from(self.incarnation.start) << 32,
            // It sends no message before the first decision revises it.
            rev_known: u64::from(self.incarnation.start) << 32,
            set: [state].into_iter().collect(),
            rank: Rank::LAST,
            origin: me,
            fingerprint: held.fingerprint,
            held: Some(state),
            values: shared(held.values.clone()),
            recalled: false,
            confirmed: false,
            needed: true,
            kept: false,
            unsent: true,
            sent_leaving: false,
            sent_failed: false,
            objections: None,
            since: now,
        }
    }

    /// Grants within this host are in the same records: both sides are here, or neither.
    fn confirm_own_locks(&mut self) {
        let all: Vec<(CobRef, CobRef, Number)> = self
            .objects
            .iter()
            .flat_map(|o| o.locks.iter().map(|l| (o.me, l.asked, l.number)))
            .filter(|(_, asked, _)| self.names.is_here(*asked))
            .collect();
        for (asker, asked, number) in all {
            let gone = self.absent.has_departed(asked);
            let stands = gone
                || self.objects.get(asked).is_some_and(|o| {
                    o.request_ix(asker).is_ok_and(|i| o.requests[i].number == number && o.requests[i].granted.is_some())
                });
            if let Some(object) = self.objects.get_mut(asker) {
                object.judge_restored(asked, stands);
            }
        }
        // The inverse: a grant to a local change object that does not name it is not held.
        let granted: Vec<(CobRef, CobRef, Number)> = self
            .objects
            .iter()
            .flat_map(|o| o.requests.iter().map(|r| (o.me, r.asker, r.number)))
            .filter(|(_, asker, _)| self.names.is_here(*asker))
            .collect();
        for (asked, asker, number) in granted {
            let held =
                self.objects.get(asker).is_some_and(|o| o.lock_ix(asked).is_ok_and(|i| o.locks[i].number == number));
            if !held {
                self.with(asked, Time(0), |o, cx| {
                    if let Ok(at) = o.request_ix(asker) {
                        o.drop_request(cx, at);
                    }
                });
            }
        }
    }

    /// The state that the records must add up to, from the running engine: the simulator compares the two.
    #[must_use]
    pub fn durable(&self) -> Durable {
        let mut durable = Durable {
            incarnation: Some(self.incarnation),
            lamport: self.lamport(),
            active: self.generation(),
            pending: self.pending_generation(),
            paused: self.limits.is_paused_by_order(),
            cancelled: self.limits.cancelled(),
            limit: self.limit(),
            ..Durable::default()
        };
        for object in self.objects.iter() {
            let id = self.names.cob_id(object.me).clone();
            durable.cobs.insert(id, Box::new(self.durable_cob(object)));
        }
        for (cob, exit) in self.absent.exit_states() {
            let (id, name) = (self.names.cob_id(cob), |state| self.names.state_name(state).clone());
            durable.gone.insert(id.clone(), name(exit.state));
            durable.kept_from.extend(exit.kept_from.map(|off| (id.clone(), name(off))));
        }
        self.durable_grants_of_departed(&mut durable.cobs);
        self.durable_facts(&mut durable);
        durable.stopped = self.stopped();
        durable
    }

    fn durable_cob(&self, object: &Object) -> DurableCob {
        let action = match &object.activity {
            &Activity::Acting(Action { job, transition, .. }) => {
                let t = &object.spec.kind.transitions[usize::from(transition)];
                let name = |s| self.names.state_name(object.spec.kind.id(s)).clone();
                let of =
                    |n: &spec::NeedSpec| Object::held_lock(&object.locks[object.lock_ix(n.cob).ok()?], &self.names);
                Some(Begun {
                    job,
                    from: name(t.from),
                    to: name(t.to),
                    attempt: object.last.as_ref().map_or(1, |l| l.attempt),
                    process: object.spec.kind.process,
                    locks: object.spec.transition_needs(transition).iter().filter_map(of).collect(),
                    token: object.left_under.clone(),
                    generation: self.generation,
                })
            }
            Activity::Idle | Activity::Checking { .. } => None,
        };
        let promise = |r: &Request, state| {
            let grant = GrantOut { at: r.since, ..r.grant_out(state, &self.names, Vec::new()) };
            (self.names.cob_id(r.asker).clone(), KeptGrant::of(&grant))
        };
        let granted = object.requests.iter().filter_map(|r| Some(promise(r, r.granted?)));
        let lapsed = object.requests.iter().filter_map(|r| Some(promise(r, r.broken?)));
        let missed = object.last.as_ref().filter(|_| object.troubles.failures > 0).map(|last| {
            let name = |s| self.names.state_name(object.spec.kind.id(s)).clone();
            let error = object.troubles.error.as_deref().unwrap_or_default().to_owned();
            Box::new(Missed { from: name(last.from), to: name(last.to), attempt: last.attempt, error })
        });
        let state = object.state_on_record();
        DurableCob {
            state: state.map(|s| self.names.state_name(object.spec.kind.id(s)).clone()),
            failed: object.failed,
            failures: object.troubles.failures,
            values: object.values.as_ref().clone().into_iter().collect(),
            applied: object.applied,
            rests_on: object.rested_on,
            action: action.map(Box::new),
            token: object.left_under.clone(),
            grants: granted.collect(),
            lapsed: lapsed.collect(),
            since: object.since,
            unclear: if state.is_some() { object.troubles.check_failures } else { 0 },
            missed,
        }
    }
}

impl Object {
    /// Restores the last failed attempt and its error.
    fn restore_missed(&mut self, cx: &mut crate::object::Cx<'_>, was: &DurableCob) {
        let Some(missed) = was.missed.as_deref() else { return };
        let find = |name| cx.names.find_state(name).and_then(|s| self.spec.kind.ix(s));
        let (Some(from), Some(to)) = (find(&missed.from), find(&missed.to)) else { return };
        self.last = Some(LastAction { from, to, attempt: missed.attempt, since: self.since });
        self.trouble(|t| t.error = Some(missed.error.as_str().into()));
    }

    fn restore_action(&mut self, cx: &mut crate::object::Cx<'_>, begun: &Begun, process: bool, now: Time) {
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
        self.last = Some(LastAction { from, to, attempt: begun.attempt, since: now });
        if !process {
            self.action_ended(cx, begun.job, ActionOutcome::Lost, (0, 0));
        }
    }
}

impl Durable {
    /// The generations whose bundles are needed: the active generation, which may be the empty generation, and the
    /// generation of the pending switch.
    #[must_use]
    pub fn needed_generations(&self) -> (Option<GenerationNumber>, Option<GenerationNumber>) {
        // A host that has switched before and has no generation has returned to the empty generation.
        let has_one = self.active != GenerationNumber(0) || self.highest != self.active && self.pending.is_none();
        (has_one.then_some(self.active), self.pending)
    }
}
