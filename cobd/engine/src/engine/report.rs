//! The reports of the engine for people: plain values derived from its state.

use std::collections::BTreeMap;

use cob_types::status::{
    ActionStatus, CobStatus, Holder, InvalidGrant, InvalidGrantCause, Phase, Stopped, SwitchWait, Trouble, Wait,
};
use cob_types::{CobId, Number, StateName};

use crate::engine::Engine;
use crate::names::CobRef;
use crate::object::{Activity, CHECKS_UNTIL_FAILED, Object, Request};
use crate::spec::StateIx;
use crate::time::Time;

/// The result of [`Engine::status_of_active`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveObjects {
    /// The listed change objects, by id.
    pub cobs: Vec<CobStatus>,
    /// The number of further change objects that only wait for others.
    pub waiting: usize,
    /// The number of change objects in their desired states, with or without grants.
    pub idle: usize,
}

/// Whether an order can stop a change object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stops {
    /// It can.
    Yes,
    /// It has a single state, or it is only installed.
    HasNothingToStop,
    /// It is checked and never moved.
    IsObserved,
    /// It departs with the pending switch.
    Leaves,
}

impl Engine {
    /// The number of change objects of this host.
    pub(super) fn object_count(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.bundle.len())
    }

    /// Whether this check is under way, or about to start.
    #[must_use]
    pub fn awaits_check(&self, cob: &CobId, check: Number) -> bool {
        self.check_of(cob) == Some(check)
    }

    /// The check of this change object that is under way, or about to start.
    #[must_use]
    pub fn check_of(&self, cob: &CobId) -> Option<Number> {
        match self.objects.get(self.names.find_cob(cob)?)?.activity {
            Activity::Checking { job } => Some(job),
            Activity::Idle | Activity::Acting(_) => None,
        }
    }

    /// Every change object of this host, by id.
    #[must_use]
    pub fn status(&self, now: Time) -> Vec<CobStatus> {
        self.status_of_all(self.objects.iter(), now).collect()
    }

    /// Sorts references, because a status is large.
    fn status_of_all<'a>(
        &self,
        objects: impl Iterator<Item = &'a Object>,
        now: Time,
    ) -> impl Iterator<Item = CobStatus> {
        let mut all: Vec<_> = objects.collect();
        all.sort_by_key(|o| self.names.cob_id(o.me));
        all.into_iter().map(move |o| self.object_status(o, now))
    }

    /// The change objects with something to report. At most `most_waiting` of the change objects that only wait for
    /// others or for their first check: in a chain nearly all wait, and after a start all are checked.
    #[must_use]
    pub fn status_of_active(&self, now: Time, most_waiting: usize) -> ActiveObjects {
        let mut told = ActiveObjects { cobs: Vec::new(), waiting: 0, idle: 0 };
        let mut waiters = 0;
        // A budget with waiting members reports its holders.
        let is_drained = |id: &CobId| {
            self.names.find_cob(id).and_then(|cob| self.objects.get(cob)).is_some_and(|budget| budget.view.drained)
        };
        let is_told = |cob: &CobStatus| !is_nothing_to_tell(cob) || is_drained(&cob.id);
        for cob in self.status_of_all(self.objects.active(), now).filter(is_told) {
            let is_one_of_many = cob.only_waits() || cob.is_looked_at();
            waiters += usize::from(is_one_of_many);
            if is_one_of_many && waiters > most_waiting {
                told.waiting += 1;
            } else {
                told.cobs.push(cob);
            }
        }
        told.idle = self.object_count() - told.cobs.len() - told.waiting;
        told
    }

    /// Whether it has to leave its state, and no transition leads to the target.
    #[must_use]
    pub fn has_no_exit_state(&self, cob: &CobId) -> bool {
        self.names.find_cob(cob).and_then(|cob| self.objects.get(cob)).is_some_and(has_no_exit_state)
    }

    /// Whether the state of a change object is known.
    #[must_use]
    pub fn is_known(&self, cob: &CobId) -> bool {
        self.names.find_cob(cob).and_then(|cob| self.objects.get(cob)).is_some_and(|o| o.state.is_some())
    }

    /// All change objects that have failed since then.
    pub fn failed_since(&self, since: Time) -> impl Iterator<Item = CobId> {
        let failed = move |o: &&Object| o.failed && o.since >= since;
        self.objects.active().filter(failed).map(|o| self.names.cob_id(o.me).clone())
    }

    /// All change objects that have come to [no exit state](Self::has_no_exit_state) since then.
    pub fn without_exit_state(&self, since: Time) -> impl Iterator<Item = CobId> {
        let come = move |o: &&Object| o.since >= since && has_no_exit_state(o);
        self.objects.active().filter(come).map(|o| self.names.cob_id(o.me).clone())
    }

    /// The status of a change object.
    #[must_use]
    pub fn status_of(&self, cob: &CobId, now: Time) -> Option<CobStatus> {
        let object = self.objects.get(self.names.find_cob(cob)?)?;
        Some(self.object_status(object, now))
    }

    /// The departures that keep this host from activating its next generation, by id.
    #[must_use]
    pub fn switch_waits(&self) -> Vec<SwitchWait> {
        let Some(pending) = &self.departures.pending else { return Vec::new() };
        let since_ns = pending.since.0;
        let wait = |cob, asked| SwitchWait { cob: self.names.cob_id(cob).clone(), since_ns, asked };
        let is_open =
            |cob: &&CobRef| self.objects.get(**cob).is_some_and(|o| !o.lifecycle.is_departed() || !o.has_departed());
        let own = pending.departing.iter().filter(is_open).map(|cob| wait(*cob, 0));
        let away = pending.questions().flat_map(|(_, cobs, asked)| cobs.iter().map(move |c| wait(*c, asked)));
        let mut all: Vec<_> = own.chain(away).collect();
        all.sort_by(|a, b| a.cob.cmp(&b.cob));
        all
    }

    /// Invalidated grants: unreleased grants of this host, and lost grants to this host without a replacement.
    #[must_use]
    pub fn lapses(&self) -> Vec<InvalidGrant> {
        let lapse = |of: CobRef, held_by: CobRef, since: Time, cause| {
            let (of, held_by) = (self.names.cob_id(of).clone(), self.names.cob_id(held_by).clone());
            InvalidGrant { of, held_by, since_ns: since.0, cause }
        };
        let own = |of: CobRef, r: &Request| match (r.broken, r.granted) {
            (Some(_), _) => Some(lapse(of, r.asker, r.since, InvalidGrantCause::Guard)),
            (None, Some(_)) if r.lapsed => Some(lapse(of, r.asker, r.since, InvalidGrantCause::Drift)),
            (None, Some(_) | None) => None,
        };
        let mut all: Vec<InvalidGrant> = self.absent.grants().filter_map(|(of, r)| own(of, r)).collect();
        for o in self.objects.active() {
            all.extend(o.requests.iter().filter_map(|r| own(o.me, r)));
            all.extend(o.locks.iter().filter_map(|l| Some(lapse(l.asked, o.me, l.lapsed()?, InvalidGrantCause::Told))));
        }
        // Within a host both sides know of it: the grantor's entry has the cause.
        let key = |l: &InvalidGrant| (l.of.clone(), l.held_by.clone(), l.cause == InvalidGrantCause::Told);
        all.sort_by_key(key);
        all.dedup_by(|b, a| (&a.of, &a.held_by) == (&b.of, &b.held_by));
        all
    }

    /// The change objects that an operator has stopped.
    #[must_use]
    pub fn stopped(&self) -> BTreeMap<CobId, Stopped> {
        let stopped = |o: &Object| Some((self.names.cob_id(o.me).clone(), o.stopped.as_deref()?.clone()));
        self.objects.active().filter_map(stopped).collect()
    }

    /// Whether an order can stop this change object; `None`: it is not here.
    #[must_use]
    pub fn stops(&self, cob: &CobId) -> Option<Stops> {
        let object = self.objects.get(self.names.find_cob(cob)?)?;
        Some(match object.spec.kind.stopped {
            _ if object.departs() => Stops::Leaves,
            _ if object.spec.observe => Stops::IsObserved,
            None => Stops::HasNothingToStop,
            Some(_) => Stops::Yes,
        })
    }

    fn object_status(&self, o: &Object, now: Time) -> CobStatus {
        let name = |s: StateIx| self.state(o, s);
        let waits_for = self.waits_for(o, now);
        let phase = match o.activity {
            Activity::Acting(_) => Phase::Moving,
            _ if o.state.is_none() => Phase::Checking,
            Activity::Idle | Activity::Checking { .. } if o.state == o.view.target && waits_for.is_empty() => {
                Phase::Settled
            }
            Activity::Idle | Activity::Checking { .. } => Phase::Waiting,
        };
        CobStatus {
            id: self.names.cob_id(o.me).clone(),
            kind: o.spec.kind.name.to_string(),
            state: o.state.map(name),
            target: o.view.target.filter(|_| o.state.is_some()).map(name),
            preferred: name(o.prefers()),
            phase,
            since_ns: o.since.0,
            failed: o.failed || o.troubles.check_failures >= CHECKS_UNTIL_FAILED,
            retiring: o.departs(),
            waits_for,
            action: self.action_status(o),
            trouble: self.trouble(o),
            held_by: self.holders(o),
            observed: o.spec.observe,
            drift: Vec::new(),
            stopped: o.stopped.as_deref().cloned(),
        }
    }

    fn state(&self, o: &Object, s: StateIx) -> StateName {
        self.names.state_name(o.spec.kind.id(s)).clone()
    }

    fn action_status(&self, o: &Object) -> Option<ActionStatus> {
        let newest = o.troubles.check_error.as_ref().or(o.troubles.error.as_ref());
        let error = newest.map(ToString::to_string).unwrap_or_default();
        if let (Some(last), true) = (&o.last, o.acting() || o.troubles.failures > 0) {
            return Some(ActionStatus {
                from: Some(self.state(o, last.from)),
                to: Some(self.state(o, last.to)),
                attempt: last.attempt,
                of: self.attempts(o, last.from, last.to),
                running: o.acting(),
                since_ns: last.since.0,
                error,
                last_line: String::new(),
                earlier_content: o.action_with_earlier_content().is_some(),
            });
        }
        (o.troubles.check_failures > 0).then(|| ActionStatus {
            from: None,
            to: None,
            attempt: o.troubles.check_failures,
            of: 0,
            running: matches!(o.activity, Activity::Checking { .. }),
            since_ns: o.since.0,
            error,
            last_line: String::new(),
            earlier_content: false,
        })
    }

    fn attempts(&self, o: &Object, from: StateIx, to: StateIx) -> u32 {
        let of = o.spec.kind.transitions.iter().find(|t| t.from == from && t.to == to);
        of.map_or(1, |t| t.retries.saturating_add(1))
    }

    fn waits_for(&self, o: &Object, now: Time) -> Vec<Wait> {
        let mut waits = Vec::new();
        if o.acting() || o.state.is_none() {
            return waits;
        }
        let away = o.view.target.is_some() && o.state != o.view.target;
        for lock in o.locks.iter().filter(|l| l.needed && !l.kept && !l.usable()) {
            if o.is_budget(lock.asked) {
                waits.push(Wait::Token { cob: self.names.cob_id(lock.asked).clone(), since_ns: lock.since.0 });
                continue;
            }
            waits.push(Wait::Lock {
                cob: self.names.cob_id(lock.asked).clone(),
                states: self.names.state_names(&lock.set),
                since_ns: lock.since.0,
                recalled: lock.held.is_some(),
                refused: lock.refused().map(ToOwned::to_owned),
            });
        }
        if (away && !o.view.gated && !o.spec.observe) || o.leaves_as_it_is() {
            for r in &o.requests {
                if let Some(state) = r.granted {
                    waits.push(Wait::Grant {
                        cob: self.names.cob_id(r.asker).clone(),
                        state: self.names.state_name(state).clone(),
                        since_ns: r.since.0,
                    });
                }
            }
        }
        if let Some(to) = self.never_goes_to(o).filter(|_| o.spec.observe) {
            waits.push(Wait::Observed { to });
        }
        if let Some(target) = o.view.target.filter(|_| o.view.no_route) {
            waits.push(Wait::NoRoute { to: self.state(o, target) });
        }
        if o.failed && away {
            waits.push(Wait::Failed);
        } else if o.troubles.retry_at > now && away {
            let of = o.last.as_ref().map_or(1, |l| self.attempts(o, l.from, l.to));
            waits.push(Wait::Retry { at_ns: o.troubles.retry_at.0, attempt: o.troubles.failures + 1, of });
        }
        if let Some(until) = o.livelock.next_end(now) {
            waits.push(Wait::Rest { until_ns: until.0 });
        }
        if self.is_paused() && away && waits.is_empty() {
            waits.push(Wait::Paused);
        }
        if away && waits.is_empty() && matches!(o.activity, Activity::Checking { .. }) {
            waits.push(Wait::Check);
        }
        if let Some(at_most) = self.limits.starts.at_most().filter(|_| o.view.limited && waits.is_empty()) {
            waits.push(Wait::Limit { at_most });
        }
        let waits_to_depart = o.departs() && o.state == Some(o.own_target()) && !o.lifecycle.is_departed();
        if let Some(pending) = self.departures.pending.as_ref().filter(|_| waits_to_depart) {
            let since_ns = pending.since.0;
            let after = |cob| Wait::After { cob: self.names.cob_id(cob).clone(), since_ns };
            waits.extend(pending.before(o.me).map(after));
        }
        if o.departs() && o.requests.iter().any(|r| !o.serves(r)) {
            waits.push(Wait::Leaving);
        }
        waits
    }

    /// The state that an observed change object would go to: its own target, or the state wanted by the first unserved
    /// request.
    fn never_goes_to(&self, o: &Object) -> Option<StateName> {
        let id = o.state_id()?;
        let own = o.view.target.filter(|target| o.state != Some(*target)).map(|target| o.spec.kind.id(target));
        let asked = || o.requests.iter().filter(|r| !r.set.contains(&id)).find_map(|r| r.set.first().copied());
        own.or_else(asked).map(|state| self.names.state_name(state).clone())
    }

    fn trouble(&self, o: &Object) -> Vec<Trouble> {
        let id = |c| self.names.cob_id(c).clone();
        let mut all = Vec::new();
        if let Some((circle, more)) = o.probe.circle() {
            all.push(Trouble::Stuck { circle: circle.iter().map(|c| id(*c)).collect(), more: *more });
        }
        all.extend(o.livelock.chases().map(|(of, times)| Trouble::Chase { cob: id(of), times }));
        all.extend(o.livelock.flaps().map(|(state, times, because_of)| Trouble::Flap {
            state: self.names.state_name(state).clone(),
            times,
            because_of: because_of.map(id),
        }));
        all
    }

    fn holders(&self, o: &Object) -> Vec<Holder> {
        let stopped = o.is_stopped(&self.limits.tokens, &self.faults);
        let holder = |r: &crate::object::Request| {
            Some(Holder {
                cob: self.names.cob_id(r.asker).clone(),
                state: self.names.state_name(r.granted?).clone(),
                recalled: r.recalled,
                since_ns: Some(r.since.0),
                stops: stopped && r.failed,
            })
        };
        o.requests.iter().map(AsRef::as_ref).filter_map(holder).collect()
    }
}

/// Whether it has to leave its state, and no transition leads to the target.
fn has_no_exit_state(o: &Object) -> bool {
    o.view.no_route && o.state.is_some() && !o.acting() && !o.spec.observe && !o.lifecycle.is_over()
}

/// Whether it has converged and has no trouble. Its holders and askers do not matter to people that wait for the host.
fn is_nothing_to_tell(cob: &CobStatus) -> bool {
    let home = cob.phase == Phase::Settled && cob.state.as_ref() == Some(&cob.preferred);
    home && !cob.failed
        && !cob.retiring
        && cob.action.is_none()
        && cob.waits_for.is_empty()
        && cob.trouble.is_empty()
        && cob.stopped.is_none()
}
