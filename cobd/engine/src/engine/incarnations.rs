//! The numbers of another host that this host stores, and when they become invalid.
//!
//! A number is unique within a state folder of its host: a daemon that starts on the same folder continues above all
//! earlier numbers, and a reinstalled host begins at 1 again. [`Engine::forget_numbers`] lists each table keyed by
//! these numbers. If a table is missing there, this host answers a reinstalled host from the memory of its predecessor,
//! forever.

use std::collections::BTreeSet;

use cob_types::{Incarnation, Number};

use crate::engine::Engine;
use crate::names::{CobRef, HostRef};
use crate::object::{Cx, Object, Request};
use crate::time::Time;

/// The invalid numbers of another host.
pub(crate) struct Over<'a> {
    /// The current incarnation of the host.
    pub(crate) incarnation: Incarnation,
    /// The host has another state folder than its numbers have, or an operator has fenced it.
    pub(crate) replaced: bool,
    /// Numbers of earlier incarnations that still count: dependent, depended-on, number.
    pub(crate) kept: &'a BTreeSet<(CobRef, CobRef, Number)>,
}

impl Over<'_> {
    /// The number of this request is invalid by itself, or is on record as a number of another state folder.
    fn has_request(&self, asked: CobRef, request: &Request) -> bool {
        request.folder.is_some_and(|folder| folder != self.incarnation.id)
            || self.has(request.asker, asked, request.number)
    }

    fn has(&self, asker: CobRef, asked: CobRef, number: Number) -> bool {
        // A number above the present start is of another state folder: this daemon has restarted since.
        let other = self.replaced || number.start != self.incarnation.start;
        other && !self.kept.contains(&(asker, asked, number))
    }
}

impl Engine {
    /// Forgets the entries under invalid numbers of a host: requests and their grants, also of change objects that have
    /// departed or are not there yet. For a replaced host it also forgets its change objects' releases and the probes
    /// that they have sent.
    pub(super) fn forget_numbers(&mut self, host: HostRef, over: &Over<'_>, now: Time) {
        let is_stale = |(cob, r): &(CobRef, &Request)| self.names.host_of(r.asker) == host && over.has_request(*cob, r);
        let stale: Vec<_> = self.absent.grants().filter(is_stale).map(|(cob, r)| (r.asker, cob)).collect();
        for (asker, cob) in stale {
            self.forget_grant_of_departed(cob, asker);
        }
        self.absent.retain_early(|mail| {
            let is_over = |number| over.has(mail.from, mail.to, number);
            self.names.host_of(mail.from) != host || !mail.number().is_some_and(is_over)
        });
        for asked in self.peers.at(host).asked.clone() {
            self.with(asked, now, |o, cx| o.forget_numbers_of(cx, host, over));
        }
        if over.replaced {
            self.forget_probes_of(host);
        }
    }

    fn forget_probes_of(&mut self, host: HostRef) {
        for object in self.objects.iter_mut() {
            object.forget_probes(|initiator| self.names.host_of(initiator) == host);
        }
    }

    /// The host has lost its grants: check the dependent change objects.
    pub(super) fn lose_locks_of(&mut self, host: HostRef) {
        let dependents = self.peers.get(host).map(|peer| peer.dependents.clone()).unwrap_or_default();
        for cob in dependents {
            if let Some(object) = self.objects.get_mut(cob) {
                object.lose_all(|lock| lock.held.is_some() && self.names.host_of(lock.asked) == host);
            }
            self.objects.touch(cob);
        }
    }
}

impl Object {
    /// Forgets the invalid requests of a host in a single pass, however many there are.
    fn forget_numbers_of(&mut self, cx: &mut Cx<'_>, host: HostRef, over: &Over<'_>) {
        let names = cx.names;
        let is_of_host = |asker: CobRef| names.host_of(asker) == host;
        let me = self.me;
        self.drop_requests(cx, |r: &Request| is_of_host(r.asker) && over.has_request(me, r));
        if over.replaced && !cx.faults.keeps_numbers() {
            self.forget_returned(is_of_host);
        }
    }
}

#[cfg(test)]
#[path = "incarnations_test.rs"]
mod tests;
