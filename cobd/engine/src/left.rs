//! Change objects that this host does not have: those that have left, and those that have not come yet.
//!
//! One that has left counts as locked in the state in which it left. Who counts on that is remembered, on record as
//! every promise: should it come back (with a later generation, or on the way back), it finds these promises out
//! and moves only when they are given back.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cob_types::Number;
use cob_types::message::Values;

use crate::engine::{Engine, Timer};
use crate::names::{CobRef, HostRef, Names, StateId};
use crate::object::probe::Probed;
use crate::object::{Mail, Msg, Object, RESEND, RESEND_CAP, Request, shared};
use crate::record::{Body, DurableCob, KeptGrant};
use crate::time::Time;

/// What is still open with those that have left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Left {
    /// Their promises, by these and then by who holds them.
    promised: BTreeMap<CobRef, BTreeMap<CobRef, Request>>,
    /// What they gave back to change objects of other hosts, by these and by whom they had it of: said again until it
    /// is acknowledged, as nobody else would say it.
    given_back: BTreeMap<(CobRef, CobRef), Number>,
    repeat: Repeat,
}

/// When what was given back is said again.
#[derive(Debug, Clone, Copy, Default)]
struct Repeat {
    /// The timer that counts.
    at: Option<Time>,
    times: u32,
}

impl Left {
    /// One leaves with these promises out.
    pub(crate) fn put(&mut self, cob: CobRef, requests: impl IntoIterator<Item = Request>) {
        let out = requests.into_iter().filter(|r| r.granted.is_some() || r.broken.is_some());
        // Whoever it comes back to asks whether they are still meant.
        let as_left = |r: Request| {
            if r.broken.is_some() { r } else { Request { restored: true, recalled: false, ..r } }
        };
        let out: BTreeMap<_, _> = out.map(|r| (r.asker, as_left(r))).collect();
        if !out.is_empty() {
            self.promised.insert(cob, out);
        }
    }

    /// It is back: its promises are its own again, sorted by who holds them.
    pub(crate) fn take(&mut self, cob: CobRef) -> Vec<Request> {
        self.promised.remove(&cob).unwrap_or_default().into_values().collect()
    }

    pub(crate) fn find(&self, cob: CobRef, asker: CobRef) -> Option<&Request> {
        self.promised.get(&cob)?.get(&asker)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CobRef, &Request)> {
        self.promised.iter().flat_map(|(cob, all)| all.values().map(move |r| (*cob, r)))
    }

    /// What they gave back and is not acknowledged: by whom, to whom, and the number.
    pub(crate) fn given_back(&self) -> impl Iterator<Item = (CobRef, CobRef, Number)> {
        self.given_back.iter().map(|((cob, asked), number)| (*cob, *asked, *number))
    }

    /// Whether one of these holds a promise of theirs.
    pub(crate) fn has_promised(&self, of: impl Fn(CobRef) -> bool) -> bool {
        self.iter().any(|(_, r)| of(r.asker))
    }

    /// Whether one of these holds a promise of theirs, or has not acknowledged what they gave back.
    pub(crate) fn is_open_with(&self, of: impl Fn(CobRef) -> bool) -> bool {
        self.has_promised(&of) || self.given_back().any(|(_, asked, _)| of(asked))
    }

    /// What they gave back to one of these is not said again: nobody there will hear it.
    pub(crate) fn forget_given_back(&mut self, to: impl Fn(CobRef) -> bool) {
        self.given_back.retain(|(_, asked), _| !to(*asked));
    }

    /// Something of theirs will be said again.
    pub(crate) fn repeats(&self) -> bool {
        self.repeat.at.is_some()
    }

    /// Whether somebody holds a promise of one of them.
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

    /// Something of theirs is to be said until others have heard it.
    fn is_open(&self) -> bool {
        !self.given_back.is_empty() || self.iter().any(|(_, r)| r.broken.is_some())
    }

    /// It is back: what it gave back before it left is its own to repeat again, sorted by whom it had it of.
    pub(crate) fn take_given_back(&mut self, cob: CobRef) -> Vec<(CobRef, Number)> {
        let of = (cob, CobRef(0))..=(cob, CobRef(u32::MAX));
        let taken: Vec<_> = self.given_back.range(of).map(|((_, asked), number)| (*asked, *number)).collect();
        taken.iter().for_each(|(asked, _)| _ = self.given_back.remove(&(cob, *asked)));
        taken
    }

    /// Somebody has acknowledged what one that has left gave back.
    fn acknowledged(&mut self, cob: CobRef, asked: CobRef, number: Number) {
        if self.given_back.get(&(cob, asked)).is_some_and(|n| *n <= number) {
            self.given_back.remove(&(cob, asked));
        }
    }
}

impl Engine {
    /// Speaks for a change object that this host does not have: one that has left counts as locked in
    /// its last state; one that has not come yet is waited for.
    pub(crate) fn answer_for_absent(&mut self, mail: Mail, now: Time) {
        let Mail { from, to, ref msg } = mail;
        let answer = match msg {
            Msg::Request { number, rev, set, rank, origin, fingerprint, failed } => {
                let known = self.left.find(to, from).map(|r| r.number);
                if let Some(higher) = known.filter(|k| *number < *k) {
                    // The asker's host may have been reinstalled meanwhile, and knows nothing of the higher one.
                    self.out.mail.push_back(Mail { from: to, to: from, msg: Msg::Query(higher) });
                }
                let broken = self.left.find(to, from).is_some_and(|r| r.broken.is_some());
                if known.is_some_and(|k| *number < k) {
                    Some(Msg::Released(*number))
                } else if broken && known == Some(*number) {
                    Some(Msg::Lapsed(*number))
                } else if let Some(state) = self.as_left(to, set, rank.phase) {
                    let fresh = Request {
                        asker: from,
                        number: *number,
                        rev: *rev,
                        set: set.clone(),
                        rank: *rank,
                        origin: *origin,
                        fingerprint: *fingerprint,
                        failed: *failed,
                        granted: Some(state),
                        recalled: false,
                        lapsed: false,
                        broken: None,
                        restored: true,
                        refused: false,
                        beyond: false,
                        since: Time(0),
                        folder: self.folder_of(self.names.host_of(from)),
                    };
                    self.grant_as_left(to, fresh, known);
                    Some(Msg::Grant { number: *number, rev: *rev, state, values: shared(Values::new()) })
                } else {
                    // A higher number stands for the release of the one before.
                    self.returned_to_left(to, from, *number);
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
            Msg::Grant { number, .. } | Msg::Recall(number) | Msg::Query(number) | Msg::Lapsed(number) => {
                Some(Msg::Release(*number))
            }
            Msg::Released(number) => {
                self.left.acknowledged(to, from, *number);
                None
            }
            &Msg::Probe { initiator, number, generation, ref path, more, wide } => {
                if self.early.contains_key(&(to, from)) {
                    let probe = Probed { initiator, number, generation, path: path.clone(), more, wide };
                    self.lead_to_leaving(to, probe, now);
                }
                None
            }
            Msg::Refused { .. } => None,
        };
        if let Some(msg) = answer {
            self.out.mail.push_back(Mail { from: to, to: from, msg });
        }
    }

    /// Keeps a request for a change object that has not come yet; of one asker the newest.
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

    /// One that leaves gives back all that it holds and has asked for.
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

    /// Sees to it that what is open with those that have left is said again.
    pub(crate) fn repeat_for_left(&mut self, now: Time) {
        if self.left.repeat.at.is_none() && self.left.is_open() {
            self.time_repeat(now);
        }
    }

    fn time_repeat(&mut self, now: Time) {
        let at = now + RESEND.doubled(self.left.repeat.times.min(16), RESEND_CAP);
        self.left.repeat.at = Some(at);
        self.timers.push(Reverse((at, Timer::GivenBack)));
    }

    pub(crate) fn given_back_timer(&mut self, at: Time, now: Time) {
        if self.left.repeat.at != Some(at) {
            return;
        }
        self.left.repeat.at = None;
        if self.left.is_open() {
            self.left.repeat.times = self.left.repeat.times.saturating_add(1);
            self.say_for_left(None);
            self.time_repeat(now);
        }
    }

    /// Says again what those that have left gave back and which promises of theirs are broken, to one host or to all.
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

    /// What was asked of one before it was here, or before it had left, is asked again.
    pub(crate) fn deliver_early(&mut self, cob: CobRef) {
        let from = (cob, CobRef(0));
        let waiting: Vec<_> = self.early.range(from..).take_while(|(k, _)| k.0 == cob).map(|(k, _)| *k).collect();
        for key in waiting {
            self.out.mail.extend(self.early.remove(&key));
        }
    }

    /// The state of a set in which one that has left counts as locked. One that was kept is for whoever leaves, too,
    /// as good as in its pre-remove state.
    fn as_left(&self, cob: CobRef, set: &[StateId], phase: u8) -> Option<StateId> {
        let kept_from = self.kept_from.get(&cob).filter(|_| phase == 0);
        self.gone.get(&cob).into_iter().chain(kept_from).copied().find(|state| set.contains(state))
    }

    /// Writes down a promise for one that has left, unless it is a repeat of one that stands.
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

    /// A promise of one that has left is back, up to this number.
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

    /// The promise of one that has left, if it stands under this number.
    pub(crate) fn left_as(&self, asker: CobRef, asked: CobRef, number: Number) -> Option<StateId> {
        self.left.find(asked, asker).filter(|r| r.number == number)?.granted
    }

    /// What is durable of it, told by the living engine.
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
