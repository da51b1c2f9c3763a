//! The status of a change object, for people.

use cob_types::StateName;
use cob_types::status::{ActionStatus, CobStatus, Holder, Phase, Trouble, Wait};

use crate::departures::PendingSwitch;
use crate::faults::Faults;
use crate::limits::Limits;
use crate::names::Names;
use crate::object::{Activity, CHECKS_UNTIL_FAILED, Object, Request};
use crate::spec::StateIx;
use crate::time::Time;

/// The parts of the daemon that a status depends on.
pub(crate) struct Reporter<'a> {
    pub(crate) names: &'a Names,
    pub(crate) limits: &'a Limits,
    pub(crate) pending: Option<&'a PendingSwitch>,
    pub(crate) faults: &'a Faults,
    pub(crate) now: Time,
}

impl Object {
    /// It has to leave its state, and no transition leads to the target.
    pub(crate) fn has_no_exit_state(&self) -> bool {
        self.view.no_route && self.state.is_some() && !self.acting() && !self.spec.observe && !self.lifecycle.is_over()
    }

    /// It is a budget with waiting members.
    pub(crate) fn is_drained(&self) -> bool {
        self.view.drained
    }
}

impl Reporter<'_> {
    pub(crate) fn status(&self, o: &Object) -> CobStatus {
        let name = |s: StateIx| self.state(o, s);
        let waits_for = self.waits_for(o);
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
                conflict: o.troubles.conflict && o.troubles.error.is_some() && o.troubles.check_error.is_none(),
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
            conflict: false,
        })
    }

    fn attempts(&self, o: &Object, from: StateIx, to: StateIx) -> u32 {
        let of = o.spec.kind.transitions.iter().find(|t| t.from == from && t.to == to);
        of.map_or(1, |t| t.retries.saturating_add(1))
    }

    fn waits_for(&self, o: &Object) -> Vec<Wait> {
        let mut waits = Vec::new();
        if o.acting() || o.state.is_none() {
            return waits;
        }
        let away = o.view.target.is_some() && o.state != o.view.target;
        for lock in o.locks.iter().filter(|l| l.needed && !l.speculative && !l.usable()) {
            if o.is_budget(lock.asked) {
                waits.push(Wait::Token { cob: self.names.cob_id(lock.asked).clone(), since_ns: lock.since.0 });
                continue;
            }
            waits.push(Wait::Lock {
                cob: self.names.cob_id(lock.asked).clone(),
                states: self.names.state_names(&lock.set),
                since_ns: lock.since.0,
                recalled: lock.held.is_some(),
                refused: lock.refused().map(|refusal| refusal.reason.to_string()),
                refused_in: lock.refused().and_then(|refusal| refusal.from.clone()),
            });
        }
        if (away && !o.view.gated && !o.spec.observe) || o.departs_as_it_is() {
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
        } else if o.troubles.retry_at > self.now && away {
            let of = o.last.as_ref().map_or(1, |l| self.attempts(o, l.from, l.to));
            waits.push(Wait::Retry { at_ns: o.troubles.retry_at.0, attempt: o.troubles.failures + 1, of });
        }
        if let Some(until) = o.livelock.next_end(self.now) {
            waits.push(Wait::Rest { until_ns: until.0 });
        }
        if self.limits.is_paused() && away && waits.is_empty() {
            waits.push(Wait::Paused);
        }
        if away && waits.is_empty() && matches!(o.activity, Activity::Checking { .. }) {
            waits.push(Wait::Check);
        }
        if let Some(at_most) = self.limits.starts.at_most().filter(|_| o.view.limited && waits.is_empty()) {
            waits.push(Wait::Limit { at_most });
        }
        let waits_to_depart = o.departs() && o.state == Some(o.own_target()) && !o.lifecycle.is_departed();
        if let Some(pending) = self.pending.filter(|_| waits_to_depart) {
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
        let stopped = o.is_stopped(&self.limits.tokens, self.faults);
        let holder = |r: &Request| {
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
