//! The reports of the engine for people: plain values derived from its state.

use std::collections::BTreeMap;

use cob_types::status::{CobStatus, InvalidGrant, InvalidGrantCause, Phase, Stopped, SwitchWait};
use cob_types::{CobId, Number};

use crate::engine::Engine;
use crate::names::CobRef;
use crate::object::status::Reporter;
use crate::object::{Object, Request};
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

    fn named(&self, cob: &CobId) -> Option<&Object> {
        self.objects.get(self.names.find_cob(cob)?)
    }

    /// Whether this check is under way, or about to start.
    #[must_use]
    pub fn awaits_check(&self, cob: &CobId, check: Number) -> bool {
        self.check_of(cob) == Some(check)
    }

    /// The check of this change object that is under way, or about to start.
    #[must_use]
    pub fn check_of(&self, cob: &CobId) -> Option<Number> {
        self.named(cob)?.check()
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
        let is_drained = |id: &CobId| self.named(id).is_some_and(Object::is_drained);
        let is_reported_here = |cob: &CobStatus| !has_nothing_to_report(cob) || is_drained(&cob.id);
        for cob in self.status_of_all(self.objects.active(), now).filter(is_reported_here) {
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
        self.named(cob).is_some_and(Object::has_no_exit_state)
    }

    /// Whether the state of a change object is known.
    #[must_use]
    pub fn is_known(&self, cob: &CobId) -> bool {
        self.named(cob).is_some_and(|o| o.state_id().is_some())
    }

    /// All change objects that have failed since then.
    pub fn failed_since(&self, since: Time) -> impl Iterator<Item = CobId> {
        let failed = move |o: &&Object| o.has_failed() && o.since() >= since;
        self.objects.active().filter(failed).map(|o| self.names.cob_id(o.me).clone())
    }

    /// All change objects that have come to [no exit state](Self::has_no_exit_state) since then.
    pub fn without_exit_state(&self, since: Time) -> impl Iterator<Item = CobId> {
        let come = move |o: &&Object| o.since() >= since && o.has_no_exit_state();
        self.objects.active().filter(come).map(|o| self.names.cob_id(o.me).clone())
    }

    /// The status of a change object.
    #[must_use]
    pub fn status_of(&self, cob: &CobId, now: Time) -> Option<CobStatus> {
        let object = self.named(cob)?;
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
    pub fn invalid_grants(&self) -> Vec<InvalidGrant> {
        let invalid_grant = |of: CobRef, held_by: CobRef, since: Time, cause| {
            let (of, held_by) = (self.names.cob_id(of).clone(), self.names.cob_id(held_by).clone());
            InvalidGrant { of, held_by, since_ns: since.0, cause }
        };
        let own = |of: CobRef, r: &Request| match (r.broken, r.granted) {
            (Some(_), _) => Some(invalid_grant(of, r.asker, r.since, InvalidGrantCause::Guard)),
            (None, Some(_)) if r.invalidated => Some(invalid_grant(of, r.asker, r.since, InvalidGrantCause::Drift)),
            (None, Some(_) | None) => None,
        };
        let mut all: Vec<InvalidGrant> = self.absent.grants().filter_map(|(of, r)| own(of, r)).collect();
        for o in self.objects.active() {
            all.extend(o.requests().iter().filter_map(|r| own(o.me, r)));
            all.extend(
                o.locks()
                    .iter()
                    .filter_map(|l| Some(invalid_grant(l.asked, o.me, l.invalidated()?, InvalidGrantCause::Told))),
            );
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
        let stopped = |o: &Object| Some((self.names.cob_id(o.me).clone(), o.stopped()?.clone()));
        self.objects.active().filter_map(stopped).collect()
    }

    /// Whether an order can stop this change object; `None`: it is not here.
    #[must_use]
    pub fn stops(&self, cob: &CobId) -> Option<Stops> {
        let object = self.named(cob)?;
        Some(match object.spec.kind.stopped {
            _ if object.departs() => Stops::Leaves,
            _ if object.spec.observe => Stops::IsObserved,
            None => Stops::HasNothingToStop,
            Some(_) => Stops::Yes,
        })
    }

    fn object_status(&self, o: &Object, now: Time) -> CobStatus {
        let (limits, pending) = (&self.limits, self.departures.pending.as_ref());
        Reporter { names: &self.names, limits, pending, faults: &self.faults, now }.status(o)
    }
}

/// Whether it has converged and has no trouble. Its holders and askers do not matter to people that wait for the host.
fn has_nothing_to_report(cob: &CobStatus) -> bool {
    let is_preferred = cob.phase == Phase::Settled && cob.state.as_ref() == Some(&cob.preferred);
    is_preferred
        && !cob.failed
        && !cob.retiring
        && cob.action.is_none()
        && cob.waits_for.is_empty()
        && cob.trouble.is_empty()
        && cob.stopped.is_none()
}
