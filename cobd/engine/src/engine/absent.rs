//! Answers for missing change objects of this host: departed, or not there yet.

use std::collections::BTreeMap;

use cob_types::message::Values;
use cob_types::{CobId, Number};

use crate::engine::Engine;
use crate::mail::{Granted, Mail, Msg};
use crate::names::{CobRef, HostRef, StateId};
use crate::object::{Object, Request, shared};
use crate::record::{Body, DurableCob, GrantRecord};
use crate::spec::Spec;
use crate::time::Time;
use crate::timers::Timer;

impl Engine {
    /// Adds a change object, and delivers the requests that came before it.
    pub(super) fn insert(&mut self, mut object: Object) {
        let me = object.me;
        let (requests, releases) = self.absent.take(me);
        object.come_back(requests, releases);
        self.objects.insert(object, self.names.cob_count());
        self.deliver_early(me);
    }

    /// Removes a departed change object and releases its locks.
    pub(super) fn remove(&mut self, cob: CobRef, now: Time) {
        let Some(object) = self.objects.remove(cob) else { return };
        let state = object.spec.kind.id(object.own_target());
        self.release_all(&object);
        // Local askers send a request only once: redirect it to the present answerer.
        let waiting = object.requests().iter().filter(|r| r.is_open() && self.names.is_here(r.asker));
        let waiting: Vec<Mail> = waiting.map(|r| r.to_mail(cob)).collect();
        let off = object.spec.kind.id(object.spec.kind.pre_remove);
        self.absent.put(cob, object.into_requests());
        self.repeat_for_departed(now);
        // Askers that wait for another state, or that asked before, get the answer for departed change objects.
        self.note_departed(cob, state, Some(off).filter(|off| *off != state));
        waiting.into_iter().for_each(|mail| self.out.post(mail));
    }

    /// A change object of an abandoned switch counts as departed, unless it is here or has departed: hosts that have
    /// gone further may wait for its departure in their rollback.
    pub(super) fn count_as_departed(&mut self, id: &CobId, spec: &Spec) {
        let cob = self.names.cob(id);
        if self.objects.slot(cob).is_none() && !self.absent.has_departed(cob) {
            self.note_departed(cob, spec.kind.id(spec.kind.pre_remove), None);
            self.deliver_early(cob);
        }
    }

    fn note_departed(&mut self, cob: CobRef, state: StateId, kept_from: Option<StateId>) {
        self.absent.depart(cob, state, kept_from);
        let name = |state: StateId| self.names.state_name(state).clone();
        let (state, kept_from) = (name(state), kept_from.map(name));
        self.out.record(Body::Removed { cob: self.names.cob_id(cob).clone(), state, kept_from });
    }

    /// Answers for a missing change object: if departed, it counts as locked in its last state; otherwise the request
    /// waits.
    pub(super) fn answer_for_absent(&mut self, mail: Mail, now: Time) {
        let Mail { from, to, ref msg } = mail;
        let answer = match msg {
            Msg::Request(asked) => {
                let (number, rev) = (asked.number, asked.rev);
                let known = self.absent.find(to, from).map(|r| r.number);
                if let Some(higher) = known.filter(|k| number < *k) {
                    // The asker's host may have been reinstalled meanwhile, and does not know the higher number.
                    self.out.post(Mail { from: to, to: from, msg: Msg::Query(higher) });
                }
                let broken = self.absent.find(to, from).is_some_and(|r| r.broken.is_some());
                if known.is_some_and(|k| number < k) {
                    Some(Msg::Released(number))
                } else if broken && known == Some(number) {
                    Some(Msg::Invalidated(number))
                } else if let Some(state) = self.absent.locked_as(to, asked) {
                    let folder = self.peers.folder_of(self.names.host_of(from));
                    let fresh = Request::new(from, asked.clone(), folder, Time(0));
                    self.grant_as_departed(to, Request { granted: Some(state), restored: true, ..fresh }, known);
                    Some(Msg::Grant(Granted { number, rev, state, values: shared(Values::new()) }))
                } else {
                    // A higher number implies the release of the previous number.
                    self.returned_to_departed(to, from, number);
                    let is_new = self.absent.early(to, from).is_none();
                    if !is_new || self.has_early_place(self.names.host_of(from), now) {
                        self.absent.wait(mail);
                    }
                    return;
                }
            }
            Msg::Release(number) => {
                self.absent.release_early(to, from, *number);
                self.returned_to_departed(to, from, *number);
                Some(Msg::Released(*number))
            }
            Msg::Grant(Granted { number, .. })
            | Msg::Recall(number)
            | Msg::Query(number)
            | Msg::Invalidated(number) => Some(Msg::Release(*number)),
            Msg::Released(number) => {
                self.absent.acknowledged(to, from, *number);
                None
            }
            Msg::Probe(probe) => {
                if self.absent.early(to, from).is_some() {
                    self.lead_to_departing(to, probe.clone(), now);
                }
                None
            }
            Msg::Refused { .. } => None,
        };
        if let Some(msg) = answer {
            self.out.post(Mail { from: to, to: from, msg });
        }
    }

    /// A departing change object releases all its locks and requests.
    fn release_all(&mut self, object: &Object) {
        for lock in object.locks() {
            self.out.post(Mail { from: object.me, to: lock.asked, msg: Msg::Release(lock.number) });
        }
        let all = object.releases().iter().copied().chain(object.locks().iter().map(|l| (l.asked, l.number)));
        self.absent.release(object.me, all.filter(|(asked, _)| !self.names.is_here(*asked)));
    }

    /// Schedules the repeats for departed change objects.
    pub(super) fn repeat_for_departed(&mut self, now: Time) {
        if let Some(at) = self.absent.schedule_repeat(now) {
            self.timers.set(at, Timer::Departed);
        }
    }

    pub(super) fn departed_timer(&mut self, at: Time, now: Time) {
        if self.absent.is_due(at) {
            self.post_for_departed(None);
            self.repeat_for_departed(now);
        }
    }

    /// Repeats the releases and invalidations of departed change objects, to a single host or to all.
    pub(super) fn post_for_departed(&mut self, host: Option<HostRef>) {
        let releases = self.absent.releases().map(|(cob, asked, n)| (cob, asked, Msg::Release(n)));
        let broken = self.absent.grants().filter(|(_, r)| r.broken.is_some());
        let broken = broken.map(|(cob, r)| (cob, r.asker, Msg::Invalidated(r.number)));
        for (from, to, msg) in releases.chain(broken) {
            if host.is_none_or(|host| self.names.host_of(to) == host) {
                self.out.post(Mail { from, to, msg });
            }
        }
    }

    /// Delivers again the requests that came before a change object was here, or before it departed.
    fn deliver_early(&mut self, cob: CobRef) {
        self.absent.take_early(cob).into_iter().for_each(|mail| self.out.post(mail));
    }

    /// Records a grant of a departed change object, unless it repeats a valid grant.
    fn grant_as_departed(&mut self, cob: CobRef, request: Request, known: Option<Number>) {
        if known != Some(request.number)
            && let Some(state) = request.granted
        {
            let grant = request.grant_out(state, &self.names, Vec::new());
            let (cob, to) = (self.names.cob_id(cob).clone(), self.names.cob_id(request.asker).clone());
            self.out.record(Body::Granted { cob, to, grant });
        }
        self.absent.add(cob, request);
    }

    /// A grant of a departed change object is released, up to this number.
    fn returned_to_departed(&mut self, cob: CobRef, asker: CobRef, number: Number) {
        if self.absent.find(cob, asker).is_some_and(|r| r.number <= number) {
            self.forget_grant_of_departed(cob, asker);
        }
    }

    pub(super) fn forget_grant_of_departed(&mut self, cob: CobRef, asker: CobRef) {
        if let Some(request) = self.absent.remove(cob, asker) {
            let (cob, from) = (self.names.cob_id(cob).clone(), self.names.cob_id(asker).clone());
            self.out.record(Body::Returned { cob, from, number: request.number });
        }
    }

    /// The durable state of departed change objects, from the running engine.
    pub(super) fn durable_grants_of_departed(&self, cobs: &mut BTreeMap<CobId, Box<DurableCob>>) {
        for (cob, request) in self.absent.grants() {
            let Some(state) = request.granted.or(request.broken) else { continue };
            let grant = request.grant_out(state, &self.names, Vec::new());
            let of = cobs.entry(self.names.cob_id(cob).clone()).or_default();
            let grants = if request.broken.is_some() { &mut of.invalidated } else { &mut of.grants };
            grants.insert(self.names.cob_id(request.asker).clone(), GrantRecord::of(&grant));
        }
    }
}
