//! From records to a running engine, and back to its durable state.
//!
//! Grants stay granted; running actions are awaited (or looked up, or checked); locks under a grant or an action are
//! kept and named in the hello; other locks are requested again.

use std::sync::Arc;

use cob_types::{GenerationNumber, HostName, Incarnation, Number, Packed, SwitchOrder};

use crate::bundle::{ActiveBundle, SwitchTarget};
use crate::effect::Effects;
use crate::engine::Engine;
use crate::event::Event;
use crate::faults::Faults;
use crate::names::{CobRef, HostRef};
use crate::object::{Lock, Object, Request};
use crate::record::{Body, Durable, DurableCob, GrantOut, LockRecord};
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
    pub active: Option<Arc<Packed>>,
    /// The bundle of the pending switch.
    pub pending: Option<Arc<Packed>>,
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
        self.departures.epoch = durable.epoch;
        self.departures.highest = durable.highest.max(durable.active).max(durable.pending.unwrap_or_default());
        (self.limits.paused, self.limits.cancelled) = (durable.paused, durable.cancelled);
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
                            o.restore_stop(Some(stopped));
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
        let mut held: Vec<&LockRecord> = given.iter().flat_map(|g| &g.rests_on).collect();
        let begun = was.action.as_ref().filter(|_| !self.faults.forgets_actions());
        held.extend(begun.iter().flat_map(|b| &b.locks));
        held.extend(was.token.as_deref().filter(|_| !self.faults.forgets_tokens()));
        let locks: Vec<_> =
            held.into_iter().map(|l| Lock::restored(&mut self.names, cob, l, (self.incarnation.start, now))).collect();
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
        self.with(cob, now, |o, cx| o.restore(cx, was, state, same_boot, (grants, locks)));
    }

    /// Grants that are out, and invalidated grants whose holders do not know it.
    fn restored_grants(&mut self, was: &DurableCob, now: Time) -> Vec<Request> {
        let mut all = Vec::with_capacity(was.grants.len() + was.invalidated.len());
        all.extend(was.grants.iter().map(|(asker, g)| Request::restored(&mut self.names, asker, &g.get(), now)));
        all.extend(
            was.invalidated.iter().map(|(asker, g)| Request::restored(&mut self.names, asker, &g.get(), now).broken()),
        );
        all
    }

    /// Grants within this host are in the same records: both sides are here, or neither.
    fn confirm_own_locks(&mut self) {
        let all: Vec<(CobRef, CobRef, Number)> = self
            .objects
            .iter()
            .flat_map(|o| o.locks().iter().map(|l| (o.me, l.asked, l.number)))
            .filter(|(_, asked, _)| self.names.is_here(*asked))
            .collect();
        for (asker, asked, number) in all {
            let gone = self.absent.has_departed(asked);
            let stands = gone
                || self
                    .objects
                    .get(asked)
                    .and_then(|o| o.request_of(asker))
                    .is_some_and(|r| r.number == number && r.granted.is_some());
            if let Some(object) = self.objects.get_mut(asker) {
                object.judge_restored(asked, stands);
            }
        }
        // The inverse: a grant to a local change object that does not name it is not held.
        let granted: Vec<(CobRef, CobRef, Number)> = self
            .objects
            .iter()
            .flat_map(|o| o.requests().iter().map(|r| (o.me, r.asker, r.number)))
            .filter(|(_, asker, _)| self.names.is_here(*asker))
            .collect();
        for (asked, asker, number) in granted {
            if !self.holds(asker, asked, number) {
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
            paused: self.limits.paused,
            cancelled: self.limits.cancelled,
            limit: self.limit(),
            ..Durable::default()
        };
        for object in self.objects.iter() {
            let id = self.names.cob_id(object.me).clone();
            durable.cobs.insert(id, Box::new(object.durable(&self.names, self.generation)));
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
