//! A new generation against the present state: which change objects depart, change, or are new.
//!
//! At the start of a switch, the change objects that the new generation lacks begin to depart (their preferred
//! state becomes the pre-remove state, or, if kept, their present state); so do change objects that are taken back.
//! When all waits are over ([`crate::departures`]), the host activates the generation: it drops the departed change
//! objects, and adds the taken-back change objects again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_types::packed::Difference;
use cob_types::{CobId, Packed};

use crate::bundle::{ActiveBundle, SwitchTarget};
use crate::departures::PendingSwitch;
use crate::engine::Engine;
use crate::names::{CobRef, HostRef};
use crate::object::{Lifecycle, Object};
use crate::record::{Body, OrderRecord};
use crate::spec::{Compiler, Spec};
use crate::time::Time;

/// The differences between a generation and the active generation.
#[derive(Debug, Default)]
struct BundleDiff {
    /// New, changed, or taken-back change objects.
    specs: BTreeMap<CobId, Arc<Spec>>,
    /// Departing change objects of this host.
    departing: BTreeSet<CobRef>,
}

impl Engine {
    /// Starts a switch. Only a rollback leads to an older generation; in the midst of a switch it leads to the
    /// generation that is still active, and departing change objects stay.
    pub(super) fn switch(&mut self, target: SwitchTarget, rollback: bool, now: Time) {
        let newest = self.pending_generation().unwrap_or(self.generation);
        if target.generation == newest || target.generation < newest && !rollback {
            return;
        }
        self.out.record(Body::SwitchStarted(target.generation));
        let was_cancelled = self.limits.cancelled.take().is_some();
        // A pending switch, or a generation visited before: hosts must tell the facts of the two switches apart.
        if self.departures.visits(target.generation) || rollback || self.departures.pending.is_some() {
            self.abandon_switch();
        }
        if let Some(abandoned) = self.departures.pending.take() {
            self.keep_pending_askers(&abandoned.target);
            abandoned.specs.iter().for_each(|(id, spec)| self.count_as_departed(id, spec));
        }
        self.start_switch(target, now);
        self.order_departures(now);
        if was_cancelled {
            // Change objects held by a cancel may move again, but must not: without departures, activate the next
            // generation before any change object decides.
            self.try_activate(now);
        }
    }

    /// As [`Self::switch`], for a switch that is on record already.
    pub(super) fn start_switch(&mut self, target: SwitchTarget, now: Time) {
        let BundleDiff { specs, departing } = self.difference_to(&target);
        // The switch does not concern an idle change object that stays.
        let concerned: BTreeSet<usize> = self
            .objects
            .active()
            .map(|o| o.me)
            .chain(departing.iter().copied())
            .filter_map(|cob| self.objects.slot(cob))
            .collect();
        let concerned: Vec<CobRef> =
            concerned.into_iter().filter_map(|at| Some(self.objects.in_slot(at)?.me)).collect();
        for cob in concerned {
            let leaves = departing.contains(&cob);
            self.with(cob, now, |o, cx| {
                let departed = o.lifecycle.is_departing();
                o.lifecycle = if leaves { Lifecycle::DEPARTING } else { Lifecycle::Present };
                // A departing change object that has failed tries again.
                if departed != leaves || leaves && o.has_failed() {
                    if o.has_failed() {
                        cx.record(Body::Ordered(OrderRecord::Retry(cx.names.cob_id(o.me).clone())));
                    }
                    o.renew();
                }
            });
        }
        self.departures.pending = Some(PendingSwitch::new(target, specs, departing, now));
        self.departures.changed = true;
        self.judge_waiting(now);
    }

    /// The changes of a generation here. Unchanged change objects are not even compiled.
    fn difference_to(&mut self, target: &SwitchTarget) -> BundleDiff {
        let mut news = BundleDiff::default();
        let bundle = &target.bundle.bundle;
        let mut compiler = Compiler::new(bundle.kinds(), &target.bundle.in_process);
        match self.active.as_ref().filter(|active| active.runs_as(&target.bundle)).map(|active| active.bundle.clone()) {
            Some(before) => {
                for difference in bundle.differences(&before) {
                    if difference.now.is_none() || changes_kind(&difference, &before, bundle) {
                        news.departing.extend(self.names.find_cob(&difference.id));
                    }
                    if let Some(cob) = difference.now {
                        news.add(&difference.id, compiler.spec(&cob, &mut self.names));
                    }
                }
            }
            None => {
                self.names.make_room(bundle.len());
                for (id, cob) in bundle.iter() {
                    news.add(id, compiler.spec(&cob, &mut self.names));
                }
                let has = |o: &&Object| bundle.has(self.names.cob_id(o.me));
                news.departing.extend(self.objects.iter().filter(|o| !has(o)).map(|o| o.me));
                let before = self.active.iter().map(|active| &active.bundle);
                let others = before.flat_map(|before| {
                    let differences = bundle.differences(before);
                    differences.filter(|difference| changes_kind(difference, before, bundle))
                });
                news.departing.extend(others.filter_map(|difference| self.names.find_cob(&difference.id)));
            }
        }
        let here = self.names.here().clone();
        for id in target.order.taken_back_of(&here) {
            if let Some(cob) = bundle.get(id).filter(|_| !news.specs.contains_key(id)) {
                news.add(id, compiler.spec(&cob, &mut self.names));
            }
            news.departing.extend(self.names.find_cob(id));
        }
        news.departing.retain(|cob| self.objects.slot(*cob).is_some());
        news
    }

    /// Records departures, and activates the generation of the pending switch when all waits are over. Returns whether
    /// there was a change.
    pub(super) fn try_activate(&mut self, now: Time) -> bool {
        // A cancelled switch does not continue.
        if self.departures.pending.is_none() || self.limits.cancelled.is_some() {
            return false;
        }
        let (news, freed) = self.find_departed(now);
        if !news.is_empty() {
            self.departures.changed = true;
        }
        if self.may_activate()
            && let Some(going) = self.departures.pending.take()
        {
            self.activate(going, now);
            return true;
        }
        for cob in &news {
            self.out.record(Body::Departed { cob: self.names.cob_id(*cob).clone() });
            self.objects.touch(*cob);
        }
        freed || !news.is_empty()
    }

    fn activate(&mut self, going: PendingSwitch, now: Time) {
        for cob in &going.departing {
            self.remove(*cob, now);
        }
        self.keep_active_askers();
        let before = std::mem::replace(&mut self.generation, going.target.generation);
        let back = going.target.generation < before;
        self.active = Some(going.target.bundle);
        self.activations += 1;
        self.make_room(going.specs.len());
        // Unchanged change objects start anew; idle ones have no counters to reset.
        let mut concerned: BTreeMap<CobId, Option<Arc<Spec>>> =
            self.objects.active().map(|o| (self.names.cob_id(o.me).clone(), None)).collect();
        concerned.extend(going.specs.into_iter().map(|(id, spec)| (id, Some(spec))));
        for (id, spec) in concerned {
            let cob = self.names.cob(&id);
            if let Some(spec) = &spec {
                self.note_dependencies(cob, spec);
            }
            if self.objects.slot(cob).is_some() {
                self.with(cob, now, |o, cx| {
                    o.restore_stop(None);
                    if back {
                        o.forget_abandoned_requests(cx);
                    }
                    o.enter_generation(cx, spec);
                });
            } else if let Some(spec) = spec {
                self.insert(Object::new(cob, spec, now));
            }
        }
        self.departures.changed = true;
        self.limits.tokens.forget_raised();
        self.out.record(Body::Activated(going.target.generation));
        self.make_room_for_names();
        self.out.activated(before);
    }

    /// Reserves room for exactly the change objects of a first generation.
    pub(super) fn make_room(&mut self, count: usize) {
        self.objects.make_room(count);
        self.names.make_room(count);
    }

    /// All change objects of a bundle, as found after a restart.
    pub(super) fn specs_of(&mut self, active: &ActiveBundle) -> Vec<(CobRef, Arc<Spec>)> {
        let mut compiler = Compiler::new(active.bundle.kinds(), &active.in_process);
        let mut specs = Vec::with_capacity(active.bundle.len());
        self.names.make_room(active.bundle.len());
        for (id, cob) in active.bundle.iter() {
            if let Some(spec) = compiler.spec(&cob, &mut self.names) {
                specs.push((self.names.cob(id), spec));
            }
        }
        specs
    }

    pub(super) fn note_dependencies(&mut self, cob: CobRef, spec: &Spec) {
        let hosts: BTreeSet<_> = spec.depended_on().map(|c| self.names.host_of(c)).collect();
        for host in hosts.into_iter().filter(|h| *h != HostRef::HERE) {
            self.peers.at(host).dependents.insert(cob);
        }
    }
}

/// The new kind cannot continue from the state of the old: the change object departs as the old and comes as the new.
/// The switch order says so, but some switches have no order, for example from the midst of a rollback; the checks of
/// the new kind would leave the old object behind.
fn changes_kind(difference: &Difference, before: &Packed, after: &Packed) -> bool {
    let (Some(was), Some(now)) = (&difference.before, &difference.now) else { return false };
    let kinds = (before.kinds().get(&was.kind), after.kinds().get(&now.kind));
    let goes_on = matches!(kinds, (Some(was), Some(now)) if now.continues(was));
    was.fingerprint != now.fingerprint && !was.leaves_as_it_is() && !goes_on
}

impl BundleDiff {
    fn add(&mut self, id: &CobId, spec: Option<Arc<Spec>>) {
        self.specs.extend(spec.map(|spec| (id.clone(), spec)));
    }
}

#[cfg(test)]
#[path = "switching_test.rs"]
mod tests;
