//! Missing change objects of this host: departed, or not there yet.
//!
//! A departed change object counts as locked in its last state. Its grants are recorded like all others: if it comes
//! back (with a later generation, or in a rollback), it has these grants out and moves only after their release.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cob_types::Number;
use cob_types::message::Values;

use crate::engine::{Engine, Timer};
use crate::mail::{Asked, Granted, Mail, Msg};
use crate::names::{CobRef, HostRef, Names, StateId};
use crate::object::{Object, Request, shared};
use crate::record::{Body, DurableCob, KeptGrant};
use crate::repeat::Repeat;
use crate::time::Time;

/// The open business of departed change objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct DepartedObjects {
    /// Their grants, by grantor and holder.
    promised: BTreeMap<CobRef, BTreeMap<CobRef, Request>>,
    /// Their releases to change objects of other hosts, by releaser and grantor: this host repeats each until it is
    /// acknowledged.
    given_back: BTreeMap<(CobRef, CobRef), Number>,
    repeat: Repeat,
}

impl DepartedObjects {
    /// A change object departs with these grants out.
    pub(crate) fn put(&mut self, cob: CobRef, requests: impl IntoIterator<Item = Request>) {
        let out = requests.into_iter().filter(|r| r.granted.is_some() || r.broken.is_some());
        // If it comes back, it queries whether they are still needed.
        let as_left = |r: Request| {
            if r.broken.is_some() { r } else { Request { restored: true, recalled: false, ..r } }
        };
        let out: BTreeMap<_, _> = out.map(|r| (r.asker, as_left(r))).collect();
        if !out.is_empty() {
            self.promised.insert(cob, out);
        }
    }

    /// It is back and gets its grants again, sorted by holder.
    pub(crate) fn take(&mut self, cob: CobRef) -> Vec<Request> {
        self.promised.remove(&cob).unwrap_or_default().into_values().collect()
    }

    pub(crate) fn find(&self, cob: CobRef, asker: CobRef) -> Option<&Request> {
        self.promised.get(&cob)?.get(&asker)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CobRef, &Request)> {
        self.promised.iter().flat_map(|(cob, all)| all.values().map(move |r| (*cob, r)))
    }

    /// Their unacknowledged releases: from, to, and the number.
    pub(crate) fn given_back(&self) -> impl Iterator<Item = (CobRef, CobRef, Number)> {
        self.given_back.iter().map(|((cob, asked), number)| (*cob, *asked, *number))
    }

    /// Whether a change object that `of` picks holds a grant of a departed change object.
    pub(crate) fn has_promised(&self, of: impl Fn(CobRef) -> bool) -> bool {
        self.iter().any(|(_, r)| of(r.asker))
    }

    /// Whether a change object that `of` picks holds a grant of a departed change object, or has not acknowledged a
    /// release.
    pub(crate) fn is_open_with(&self, of: impl Fn(CobRef) -> bool) -> bool {
        self.has_promised(&of) || self.given_back().any(|(_, asked, _)| of(asked))
    }

    /// Drops the releases to these change objects: their host cannot receive them.
    pub(crate) fn forget_given_back(&mut self, to: impl Fn(CobRef) -> bool) {
        self.given_back.retain(|(_, asked), _| !to(*asked));
    }

    /// A repeat is scheduled.
    pub(crate) fn repeats(&self) -> bool {
        self.repeat.is_scheduled()
    }

    /// Whether `asker` holds a grant of the departed change object `cob`.
    pub(crate) fn knows(&self, cob: CobRef, asker: CobRef) -> bool {
        self.find(cob, asker).is_some()
    }

    fn add(&mut self, cob: CobRef, request: Request) {
        self.promised.entry(cob).or_default().insert(request.asker, request);
    }

    fn remove(&mut self, cob: CobRef, asker: CobRef) -> Option<Request> {
        let all = self.promised.get_mut(&cob)?;
        let request = all.remove(&asker);
        if all.is_empty() {
            self.promised.remove(&cob);
        }
        request
    }

    /// A message of theirs must be repeated until it is answered.
    fn is_open(&self) -> bool {
        !self.given_back.is_empty() || self.iter().any(|(_, r)| r.broken.is_some())
    }

    /// It is back and repeats its unacknowledged releases itself, sorted by grantor.
    pub(crate) fn take_given_back(&mut self, cob: CobRef) -> Vec<(CobRef, Number)> {
        let of = (cob, CobRef(0))..=(cob, CobRef(u32::MAX));
        let taken: Vec<_> = self.given_back.range(of).map(|((_, asked), number)| (*asked, *number)).collect();
        taken.iter().for_each(|(asked, _)| _ = self.given_back.remove(&(cob, *asked)));
        taken
    }

    /// A grantor has acknowledged the release of a departed change object.
    fn acknowledged(&mut self, cob: CobRef, asked: CobRef, number: Number) {
        if self.given_back.get(&(cob, asked)).is_some_and(|n| *n <= number) {
            self.given_back.remove(&(cob, asked));
        }
    }
}

impl Engine {
    /// Answers for a missing change object: if departed, it counts as locked in its last state; otherwise the request
    /// waits.
    pub(crate) fn answer_for_absent(&mut self, mail: Mail, now: Time) {
        let Mail { from, to, ref msg } = mail;
        let answer = match msg {
            Msg::Request(asked) => {
                let (number, rev) = (asked.number, asked.rev);
                let known = self.left.find(to, from).map(|r| r.number);
                if let Some(higher) = known.filter(|k| number < *k) {
                    // The asker's host may have been reinstalled meanwhile, and does not know the higher number.
                    self.out.mail.push_back(Mail { from: to, to: from, msg: Msg::Query(higher) });
                }
                let broken = self.left.find(to, from).is_some_and(|r| r.broken.is_some());
                if known.is_some_and(|k| number < k) {
                    Some(Msg::Released(number))
                } else if broken && known == Some(number) {
                    Some(Msg::Lapsed(number))
                } else if let Some(state) = self.as_left(to, asked) {
                    let folder = self.folder_of(self.names.host_of(from));
                    let fresh = Request::new(from, asked.clone(), folder, Time(0));
                    self.grant_as_left(to, Request { granted: Some(state), restored: true, ..fresh }, known);
                    Some(Msg::Grant(Granted { number, rev, state, values: shared(Values::new()) }))
                } else {
                    // A higher number implies the release of the previous number.
                    self.returned_to_left(to, from, number);
                    self.wait_for_absent(mail, now);
                    return;
                }
            }
            Msg::Release(number) => {
                let is_given_back = |early: &Mail| early.number().is_none_or(|asked| asked <= *number);
                if self.early.get(&(to, from)).is_some_and(is_given_back) {
                    self.early.remove(&(to, from));
                }
                self.returned_to_left(to, from, *number);
                Some(Msg::Released(*number))
            }
            Msg::Grant(Granted { number, .. }) | Msg::Recall(number) | Msg::Query(number) | Msg::Lapsed(number) => {
                Some(Msg::Release(*number))
            }
            Msg::Released(number) => {
                self.left.acknowledged(to, from, *number);
                None
            }
            Msg::Probe(probe) => {
                if self.early.contains_key(&(to, from)) {
                    self.lead_to_leaving(to, probe.clone(), now);
                }
                None
            }
            Msg::Refused { .. } => None,
        };
        if let Some(msg) = answer {
            self.out.mail.push_back(Mail { from: to, to: from, msg });
        }
    }

    /// Stores a request for a change object that is not there yet; the newest of each asker.
    fn wait_for_absent(&mut self, mail: Mail, now: Time) {
        let key = (mail.to, mail.from);
        let waits = match self.early.get(&key) {
            Some(known) => mail.number() >= known.number(),
            None => self.has_early_place(self.names.host_of(mail.from), now),
        };
        if waits {
            self.early.insert(key, mail);
        }
    }

    /// A departing change object releases all its locks and requests.
    pub(crate) fn give_all_back(&mut self, object: &Object) {
        let here = self.here;
        let away = |names: &Names, asked: CobRef| names.host_of(asked) != here;
        for lock in &object.locks {
            let mail = Mail { from: object.me, to: lock.asked, msg: Msg::Release(lock.number) };
            self.out.mail.push_back(mail);
        }
        let all = object.given_back.iter().copied().chain(object.locks.iter().map(|l| (l.asked, l.number)));
        let all: Vec<_> = all.filter(|(asked, _)| away(&self.names, *asked)).collect();
        if all.is_empty() {
            return;
        }
        for (asked, number) in all {
            let known = self.left.given_back.entry((object.me, asked)).or_insert(number);
            *known = number.max(*known);
        }
        self.left.repeat = Repeat::default();
    }

    /// Schedules the repeats for departed change objects.
    pub(crate) fn repeat_for_left(&mut self, now: Time) {
        if self.left.is_open()
            && let Some(at) = self.left.repeat.schedule(now)
        {
            self.timers.push(Reverse((at, Timer::GivenBack)));
        }
    }

    pub(crate) fn given_back_timer(&mut self, at: Time, now: Time) {
        if self.left.repeat.at() != at {
            return;
        }
        if !self.left.is_open() {
            return self.left.repeat.stop();
        }
        self.left.repeat.count();
        self.say_for_left(None);
        self.repeat_for_left(now);
    }

    /// Repeats the releases and invalidations of departed change objects, to a single host or to all.
    pub(crate) fn say_for_left(&mut self, host: Option<HostRef>) {
        let given_back = self.left.given_back.iter().map(|((cob, asked), n)| (*cob, *asked, Msg::Release(*n)));
        let broken = self.left.iter().filter(|(_, r)| r.broken.is_some());
        let broken = broken.map(|(cob, r)| (cob, r.asker, Msg::Lapsed(r.number)));
        for (from, to, msg) in given_back.chain(broken) {
            if host.is_none_or(|host| self.names.host_of(to) == host) {
                self.out.mail.push_back(Mail { from, to, msg });
            }
        }
    }

    /// Delivers again the requests that came before a change object was here, or before it departed.
    pub(crate) fn deliver_early(&mut self, cob: CobRef) {
        let from = (cob, CobRef(0));
        let waiting: Vec<_> = self.early.range(from..).take_while(|(k, _)| k.0 == cob).map(|(k, _)| *k).collect();
        for key in waiting {
            self.out.mail.extend(self.early.remove(&key));
        }
    }

    /// The state of a set in which a departed change object counts as locked. For departing askers, a kept change
    /// object also counts as being in its pre-remove state.
    fn as_left(&self, cob: CobRef, asked: &Asked) -> Option<StateId> {
        let kept_from = self.kept_from.get(&cob).filter(|_| asked.rank.phase.is_departure());
        self.gone.get(&cob).into_iter().chain(kept_from).copied().find(|state| asked.set.contains(state))
    }

    /// Records a grant of a departed change object, unless it repeats a valid grant.
    fn grant_as_left(&mut self, cob: CobRef, request: Request, known: Option<Number>) {
        if known != Some(request.number)
            && let Some(state) = request.granted
        {
            let grant = request.grant_out(state, &self.names, Vec::new());
            let (cob, to) = (self.names.cob_id(cob).clone(), self.names.cob_id(request.asker).clone());
            self.out.record(Body::Granted { cob, to, grant });
        }
        self.left.add(cob, request);
    }

    /// A grant of a departed change object is released, up to this number.
    fn returned_to_left(&mut self, cob: CobRef, asker: CobRef, number: Number) {
        if self.left.find(cob, asker).is_some_and(|r| r.number <= number) {
            self.forget_left(cob, asker);
        }
    }

    pub(crate) fn forget_left(&mut self, cob: CobRef, asker: CobRef) {
        if let Some(request) = self.left.remove(cob, asker) {
            let (cob, from) = (self.names.cob_id(cob).clone(), self.names.cob_id(asker).clone());
            self.out.record(Body::Returned { cob, from, number: request.number });
        }
    }

    /// The state that a departed change object has granted under this number.
    pub(crate) fn left_as(&self, asker: CobRef, asked: CobRef, number: Number) -> Option<StateId> {
        self.left.find(asked, asker).filter(|r| r.number == number)?.granted
    }

    /// The durable state of departed change objects, from the running engine.
    pub(crate) fn durable_left(&self, cobs: &mut BTreeMap<cob_types::CobId, Box<DurableCob>>) {
        for (cob, request) in self.left.iter() {
            let Some(state) = request.granted.or(request.broken) else { continue };
            let grant = request.grant_out(state, &self.names, Vec::new());
            let of = cobs.entry(self.names.cob_id(cob).clone()).or_default();
            let promises = if request.broken.is_some() { &mut of.lapsed } else { &mut of.grants };
            promises.insert(self.names.cob_id(request.asker).clone(), KeptGrant::of(&grant));
        }
    }
}
