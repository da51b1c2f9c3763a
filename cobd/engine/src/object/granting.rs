//! Messages about locks that others ask of this change object: the grantor's side.
//!
//! The order of arrival does not matter: a higher number of an asker replaces its lower numbers, and the answer to an
//! older number is the known state.

use cob_types::Number;

use crate::mail::{Asked, Granted, Msg};
use crate::names::CobRef;
use crate::object::{Cx, Object, Request, room_for_one};
use crate::record::{Body, Note};

/// The most askers whose released numbers are stored.
const RETURNED_MAX: usize = 1024;

impl Object {
    pub(crate) fn on_request(&mut self, cx: &mut Cx<'_>, asker: CobRef, asked: Asked) {
        let number = asked.number;
        match self.request_ix(asker) {
            Ok(at) if number < self.requests[at].number => {
                cx.post(self.me, asker, Msg::Released(number));
                self.query_restored(cx, at);
            }
            Ok(at) if number == self.requests[at].number => self.on_repeat(cx, at, asked),
            Ok(at) => {
                self.note_return(cx, at);
                self.remember_returned(cx, asker, self.requests[at].number);
                *self.requests[at] = Request::new(asker, asked, cx.folder_of(asker), cx.now);
                self.changed();
            }
            Err(_) if self.returned_up_to(asker).is_some_and(|n| number <= n) => {
                cx.post(self.me, asker, Msg::Released(number));
            }
            Err(at) => {
                room_for_one(&mut self.requests);
                self.requests.insert(at, Box::new(Request::new(asker, asked, cx.folder_of(asker), cx.now)));
                self.changed();
            }
        }
    }

    /// A grant of an earlier incarnation has a higher number than the request: the asker's host may have been
    /// reinstalled meanwhile, and does not know that number.
    fn query_restored(&self, cx: &mut Cx<'_>, at: usize) {
        let Request { asker, number, restored, .. } = *self.requests[at];
        if restored {
            cx.post(self.me, asker, Msg::Query(number));
        }
    }

    /// The same number again: a revision, or a repeat by an asker without an answer.
    fn on_repeat(&mut self, cx: &mut Cx<'_>, at: usize, asked: Asked) {
        let request = &mut self.requests[at];
        request.restored = false;
        // A refusal may have got lost: the decision that follows repeats it.
        request.refused = false;
        if asked.rev > request.rev {
            request.rev = asked.rev;
            request.set = asked.set;
            request.rank = asked.rank;
            request.origin = asked.origin;
            request.fingerprint = asked.fingerprint;
            // A failure of the asker matters only to a budget.
            let failed = asked.failed && self.spec.at_most.is_some();
            if std::mem::replace(&mut request.failed, failed) != failed {
                self.note_failed(cx, at);
            }
            self.changed();
        }
        let request = &self.requests[at];
        let (asker, number) = (request.asker, request.number);
        if request.broken.is_some() {
            cx.post(self.me, asker, Msg::Invalidated(number));
        } else if let Some(state) = request.granted {
            let (recalled, invalidated, rev) = (request.recalled, request.invalidated, request.rev);
            cx.post(self.me, asker, Msg::Grant(Granted { number, rev, state, values: self.values.clone() }));
            if invalidated {
                cx.post(self.me, asker, Msg::Invalidated(number));
            } else if recalled {
                cx.post(self.me, asker, Msg::Recall(number));
            }
        }
    }

    /// A holder of a token has failed, or starts anew: recorded, because it decides on further tokens.
    fn note_failed(&self, cx: &mut Cx<'_>, at: usize) {
        let request = &self.requests[at];
        let Some(state) = request.granted else { return };
        let grant = request.grant_out(state, cx.names, Vec::new());
        let (cob, to) = (cx.names.cob_id(self.me).clone(), cx.names.cob_id(request.asker).clone());
        cx.record(Body::Granted { cob, to, grant });
    }

    pub(crate) fn on_release(&mut self, cx: &mut Cx<'_>, asker: CobRef, number: Number) {
        // The asker's host may have been reinstalled since an earlier incarnation of this host recorded the number.
        let mut is_of_this_incarnation = true;
        if let Ok(at) = self.request_ix(asker)
            && self.requests[at].number <= number
        {
            is_of_this_incarnation = !self.requests[at].restored;
            self.drop_request(cx, at);
        }
        if is_of_this_incarnation {
            self.remember_returned(cx, asker, number);
        }
        if !cx.is_here(asker) {
            cx.post(self.me, asker, Msg::Released(number));
        }
    }

    /// Drops a request and its grant.
    pub(crate) fn drop_request(&mut self, cx: &mut Cx<'_>, at: usize) {
        self.note_return(cx, at);
        self.requests.remove(at);
        self.changed();
    }

    /// Drops all requests that `which` picks, in a single pass.
    pub(crate) fn drop_requests(&mut self, cx: &mut Cx<'_>, which: impl Fn(&Request) -> bool) {
        let all = self.requests.len();
        for at in (0..all).filter(|at| which(&self.requests[*at])) {
            self.note_return(cx, at);
        }
        self.requests.retain(|r| !which(r));
        if self.requests.len() < all {
            self.changed();
        }
    }

    /// On a rollback: drops ungranted requests of the abandoned generation from other hosts, which roll back too, or
    /// ask again.
    pub(crate) fn forget_abandoned_requests(&mut self, cx: &Cx<'_>) {
        let all = self.requests.len();
        let is_left = |r: &Request| r.granted.is_none() && r.broken.is_none() && r.rank.generation > cx.generation;
        self.requests.retain(|r| cx.is_here(r.asker) || !is_left(r));
        if self.requests.len() < all {
            self.changed();
        }
    }

    fn note_return(&self, cx: &mut Cx<'_>, at: usize) {
        let request = &self.requests[at];
        if request.granted.is_some() || request.broken.is_some() {
            let (cob, from) = (cx.names.cob_id(self.me).clone(), cx.names.cob_id(request.asker).clone());
            cx.record(Body::Returned { cob, from, number: request.number });
        }
    }

    pub(crate) fn returned_up_to(&self, asker: CobRef) -> Option<Number> {
        self.returned.binary_search_by_key(&asker, |r| r.0).ok().map(|i| self.returned[i].1)
    }

    /// Only for askers on other hosts: within a daemon no message overtakes another.
    fn remember_returned(&mut self, cx: &Cx<'_>, asker: CobRef, number: Number) {
        if cx.is_here(asker) {
            return;
        }
        match self.returned.binary_search_by_key(&asker, |r| r.0) {
            Ok(i) => self.returned[i].1 = self.returned[i].1.max(number),
            Err(i) => {
                self.returned.insert(i, (asker, number));
                // This only saves time: a stale request without an entry is queried later.
                if self.returned.len() > RETURNED_MAX {
                    self.returned.remove(0);
                }
            }
        }
    }

    /// Invalidates recalled grants whose holders `lost` picks, on record, and informs the holders as soon as they are
    /// reachable.
    pub(crate) fn invalidate_grants(&mut self, cx: &mut Cx<'_>, lost: impl Fn(CobRef) -> bool) {
        for at in 0..self.requests.len() {
            let request = &self.requests[at];
            if !request.recalled || request.granted.is_none() || !lost(request.asker) {
                continue;
            }
            let (asker, number) = (request.asker, request.number);
            *self.requests[at] = Request { since: cx.now, ..request.as_ref().clone().broken() };
            let (cob, from) = (cx.names.cob_id(self.me).clone(), cx.names.cob_id(asker).clone());
            cx.record(Body::Invalidated { cob, from, number });
            cx.post(self.me, asker, Msg::Invalidated(number));
            self.changed();
        }
    }

    /// A check found another state than the granted state: informs the holders.
    pub(crate) fn inform_holders(&mut self, cx: &mut Cx<'_>) {
        let Some(state) = self.state_id() else { return };
        for i in 0..self.requests.len() {
            let request = &mut self.requests[i];
            if request.granted.is_none_or(|g| g == state) || request.invalidated {
                continue;
            }
            request.invalidated = true;
            request.recalled = true;
            request.since = cx.now;
            let (asker, number) = (request.asker, request.number);
            cx.post(self.me, asker, Msg::Invalidated(number));
            let from = cx.names.cob_id(asker).clone();
            cx.note(self.me, Note::Invalidated { from });
        }
    }

    /// The askers with a request, and the askers without a request whose released numbers are stored.
    pub(crate) fn heard_of(&self) -> impl Iterator<Item = CobRef> {
        let asks = self.requests.iter().map(|r| r.asker);
        asks.chain(self.returned.iter().map(|r| r.0).filter(|asker| self.request_ix(*asker).is_err()))
    }

    pub(crate) fn has_heard_of(&self, asker: CobRef) -> bool {
        self.request_ix(asker).is_ok() || self.returned_up_to(asker).is_some()
    }

    /// Forgets the released numbers of some askers, which start anew.
    pub(crate) fn forget_returned(&mut self, of: impl Fn(CobRef) -> bool) {
        self.returned.retain(|(asker, _)| !of(*asker));
    }
}
