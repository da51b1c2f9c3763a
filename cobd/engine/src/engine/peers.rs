//! Other hosts: their hellos, and the messages that are repeated to them.
//!
//! The engine accepts no message from a host before the hello of its present incarnation. The first tick with a message
//! to a host begins with our hello, which is repeated until it is acknowledged. A hello names the locks of earlier
//! incarnations that are kept; the receiver forgets all other old numbers of that host.

use std::collections::BTreeSet;

use cob_types::message::{About, Grant, Hello, HelloAck, Values};
use cob_types::status::Unheard;
use cob_types::{Batch, HostName, Incarnation, Item, Number};

use crate::engine::Engine;
use crate::engine::incarnations::Over;
use crate::names::{CobRef, HostRef};
use crate::object::Object;
use crate::peers::{Greeting, Peer};
use crate::time::Time;
use crate::timers::Timer;

impl Engine {
    /// The incarnation of the last hello of a host.
    #[must_use]
    pub fn incarnation_of(&self, host: &HostName) -> Option<Incarnation> {
        self.find_peer(host)?.1.incarnation()
    }

    /// Whether the engine has pending business with a host: requests, held locks, grants or awaited departures.
    #[must_use]
    pub fn is_busy_with(&self, host: &HostName) -> bool {
        let Some((here, peer)) = self.find_peer(host) else { return false };
        let away = |cob: CobRef| self.names.host_of(cob) == here;
        let holds = |cob: &CobRef| self.objects.get(*cob).is_some_and(|o| o.locks().iter().any(|l| away(l.asked)));
        self.departures.awaits(here) || peer.dependents.iter().any(holds) || self.owes(here, peer)
    }

    /// Whether there is open business with a host: [pending business](Self::is_busy_with), or grants or unacknowledged
    /// releases of departed and present change objects.
    #[must_use]
    pub fn is_open_with(&self, host: &HostName) -> bool {
        let away = |cob: CobRef| self.is_of(cob, host);
        let gave_back = |cob: &CobRef| self.objects.get(*cob).is_some_and(|o| o.releases().iter().any(|g| away(g.0)));
        let is_unheard = |(_, peer): (HostRef, &Peer)| peer.dependents.iter().any(gave_back);
        // For departed change objects, there may have been no message with the host in this incarnation.
        self.is_busy_with(host)
            || self.find_peer(host).is_some_and(is_unheard)
            || self.absent.has_granted(away)
            || self.absent.releases().any(|(_, asked, _)| away(asked))
    }

    fn is_of(&self, cob: CobRef, host: &HostName) -> bool {
        self.names.host_name(self.names.host_of(cob)) == host
    }

    /// Whether a grant to a change object of the host is recalled.
    #[must_use]
    pub fn recalls_from(&self, host: &HostName) -> bool {
        let Some((named, peer)) = self.find_peer(host) else { return false };
        peer.asked.iter().any(|cob| self.objects.get(*cob).is_some_and(|o| self.asked_back(o, |h| h == named)))
    }

    fn asked_back(&self, o: &Object, host: impl Fn(HostRef) -> bool) -> bool {
        o.requests().iter().any(|r| r.recalled && r.granted.is_some() && host(self.names.host_of(r.asker)))
    }

    /// Stops waiting for recalled grants of these hosts.
    pub(super) fn invalidate_grants(&mut self, hosts: &BTreeSet<HostName>, now: Time) {
        let lost: BTreeSet<HostRef> = hosts.iter().map(|host| self.names.host(host)).collect();
        let asked_back = |o: &&Object| self.asked_back(o, |host| lost.contains(&host));
        let concerned: Vec<CobRef> = self.objects.active().filter(asked_back).map(|o| o.me).collect();
        for cob in concerned {
            self.with(cob, now, |o, cx| {
                let names = cx.names;
                o.invalidate_grants(cx, |asker| lost.contains(&names.host_of(asker)));
            });
        }
    }

    /// Whether the host is unknown: no incarnation of it counts here, its change objects neither hold nor ask for a
    /// lock, and no departure of it is awaited.
    #[must_use]
    pub fn is_unknown(&self, host: &HostName) -> bool {
        let is_unknown = |(named, peer): (HostRef, &Peer)| {
            peer.incarnation().is_none() && !self.owes(named, peer) && !self.departures.awaits(named)
        };
        self.find_peer(host).is_none_or(is_unknown) && !self.absent.has_granted(|cob| self.is_of(cob, host))
    }

    fn find_peer(&self, host: &HostName) -> Option<(HostRef, &Peer)> {
        self.peers.iter().find(|(named, _)| self.names.host_name(*named) == host)
    }

    /// Whether a change object of the host has a request to a local change object.
    fn owes(&self, host: HostRef, peer: &Peer) -> bool {
        let away = |cob: CobRef| self.names.host_of(cob) == host;
        peer.asked.iter().any(|cob| self.objects.get(*cob).is_some_and(|o| o.requests().iter().any(|r| away(r.asker))))
    }

    pub(super) fn received(&mut self, batch: Batch, now: Time) {
        let host = self.names.host(&batch.from);
        if host == HostRef::HERE || !self.admit(host, &batch, now) {
            return;
        }
        for item in batch.items {
            match item {
                // The daemon handles switches and has removed these items.
                Item::Hello(_) | Item::Going(_) | Item::Withdrawn(_) | Item::Through(_) => {}
                Item::HelloAck(ack) => self.on_hello_ack(host, &ack),
                Item::AskDepartures(asked) => self.on_departures_asked(host, asked),
                Item::Departures(told) => self.on_departures(host, told),
                // The previous host has asked under this number, and its state folder is gone.
                Item::Grant(grant) if grant.folder.is_some_and(|folder| folder != self.incarnation.id) => {}
                Item::Request(_)
                | Item::Release(_)
                | Item::Released(_)
                | Item::Grant(_)
                | Item::Recall(_)
                | Item::Query(_)
                | Item::Invalidated(_)
                | Item::Probe(_)
                | Item::Refused(_) => {
                    if let Some(mail) = self.take_in(host, item, now) {
                        self.out.post(mail);
                    }
                }
            }
        }
        self.order_departures_if_due(now);
    }

    /// Whether a fence of the host would have no effect: an operator has fenced it since this daemon started, and it is
    /// otherwise unknown.
    #[must_use]
    pub fn is_fenced(&self, host: &HostName) -> bool {
        self.is_unknown(host) && self.find_peer(host).is_some_and(|(named, _)| self.peers.is_off(named))
    }

    /// Whether an operator has fenced the host and no later incarnation of it has sent a message since.
    #[must_use]
    pub fn counts_as_off(&self, host: &HostName) -> bool {
        self.find_peer(host).is_some_and(|(_, peer)| peer.counts_as_off())
    }

    /// Why the last message of a host was refused, if it was: its daemon runs, but is ignored here.
    #[must_use]
    pub fn unheard(&self, host: &HostName) -> Option<Unheard> {
        self.find_peer(host)?.1.unheard()
    }

    /// Whether messages of this incarnation count; a hello in the batch may open a new incarnation.
    fn admit(&mut self, host: HostRef, batch: &Batch, now: Time) -> bool {
        let incarnation = batch.incarnation;
        let peer = self.peers.at(host);
        if peer.refuses(incarnation) {
            return false;
        }
        let known = peer.is(incarnation);
        match batch.items.iter().find_map(|i| if let Item::Hello(h) = i { Some(h) } else { None }) {
            Some(hello) => self.on_hello(host, incarnation, hello, now),
            None if known => {}
            // The sender assumes that we know this incarnation: our hello makes it repeat its own.
            None => {
                self.peers.greet(host);
                return false;
            }
        }
        true
    }

    fn on_hello(&mut self, host: HostRef, incarnation: Incarnation, hello: &Hello, now: Time) {
        let Greeting { known, replaced, was_off } = self.peers.at(host).greets(incarnation);
        if !known {
            self.justification.forget_waiting(host);
        }
        let kept: BTreeSet<_> = hello
            .kept
            .iter()
            .filter_map(|k| Some((self.names.find_cob(&k.asker)?, self.names.find_cob(&k.asked)?, k.number)))
            .collect();
        self.forget_numbers(host, &Over { incarnation, replaced, kept: &kept }, now);
        if replaced {
            self.lose_locks_of(host);
        } else if was_off {
            self.lose_locks_in_its_place(host, now);
        }
        if !known {
            self.repeat_to(host, now);
        }
        let granted = kept.iter().filter_map(|k| self.granted_as(k.0, k.1, k.2)).collect();
        self.out.send(host, Item::HelloAck(HelloAck { incarnation, granted }));
    }

    fn granted_as(&self, asker: CobRef, asked: CobRef, number: Number) -> Option<Grant> {
        // The other side has the values on record, or asks for them.
        let grant = |rev, state| Grant {
            asker: self.names.cob_id(asker).clone(),
            asked: self.names.cob_id(asked).clone(),
            number,
            rev,
            state: self.names.state_name(state).clone(),
            values: Values::new(),
            folder: None,
        };
        let Some(object) = self.objects.get(asked) else {
            let request = self.absent.find(asked, asker).filter(|r| r.number == number)?;
            return Some(grant(0, request.granted?));
        };
        let request = object.request_of(asker)?;
        let state = request.granted.filter(|_| request.number == number && !request.invalidated)?;
        Some(grant(request.rev, state))
    }

    fn on_hello_ack(&mut self, host: HostRef, ack: &HelloAck) {
        if ack.incarnation != self.incarnation {
            return;
        }
        let peer = self.peers.at(host);
        peer.acknowledges();
        // They stay on the list: a later incarnation of the host needs them again.
        let mut restored = std::mem::take(&mut peer.restored);
        restored.retain(|(asker, asked, number)| self.holds(*asker, *asked, *number));
        self.peers.at(host).restored.clone_from(&restored);
        let find = |g: &Grant| Some((self.names.find_cob(&g.asker)?, self.names.find_cob(&g.asked)?, g.number));
        let granted: BTreeSet<_> = ack.granted.iter().filter_map(find).collect();
        for (asker, asked, number) in restored {
            let stands = granted.contains(&(asker, asked, number));
            if let Some(object) = self.objects.get_mut(asker) {
                object.judge_restored(asked, stands);
            }
            self.objects.touch(asker);
        }
    }

    /// The link is new: repeats the messages without an answer.
    pub(super) fn link_up(&mut self, host: &HostName, now: Time) {
        let host = self.names.host(host);
        if host == HostRef::HERE {
            return;
        }
        let peer = self.peers.at(host);
        peer.forget_hello();
        if !peer.dependents.is_empty() || !peer.asked.is_empty() || !peer.restored.is_empty() {
            self.peers.greet(host);
        }
        self.repeat_to(host, now);
        self.post_for_departed(Some(host));
        self.ask_departures_anew(host, now);
    }

    pub(super) fn repeat_to(&mut self, host: HostRef, now: Time) {
        let peer = self.peers.at(host);
        let all: Vec<_> = peer.dependents.union(&peer.asked).copied().collect();
        for cob in all {
            let others: BTreeSet<_> = match self.objects.get(cob) {
                Some(o) => o
                    .locks()
                    .iter()
                    .map(|l| l.asked)
                    .chain(o.requests().iter().map(|r| r.asker))
                    .chain(o.releases().iter().map(|g| g.0))
                    .filter(|c| self.names.host_of(*c) == host)
                    .collect(),
                None => continue,
            };
            self.with(cob, now, |o, cx| o.repeat_unanswered(cx, |c| others.contains(&c)));
        }
    }

    /// Puts our hello before the messages to hosts that have not acknowledged it.
    pub(super) fn add_hellos(&mut self, now: Time) {
        let mut hosts = self.peers.take_greeted();
        hosts.extend(self.out.receivers());
        let mut hellos = Vec::new();
        for host in hosts {
            let Some(repeat) = self.peers.at(host).needs_hello(now) else { continue };
            hellos.push((host, Item::Hello(Hello { kept: self.kept_on(host) })));
            if let Some(at) = repeat {
                self.timers.set(at, Timer::Hello(host));
            }
        }
        self.out.send_first(hellos);
    }

    fn kept_on(&self, host: HostRef) -> Vec<About> {
        if self.faults.hello_names_nothing() {
            return Vec::new();
        }
        let restored = self.peers.get(host).map_or(&[][..], |p| &p.restored);
        let current = restored.iter().filter(|(asker, asked, number)| self.holds(*asker, *asked, *number));
        current.map(|(asker, asked, number)| self.about(*asker, *asked, *number)).collect()
    }

    /// Whether this is the number of the present request of a local change object.
    pub(super) fn holds(&self, asker: CobRef, asked: CobRef, number: Number) -> bool {
        self.objects.get(asker).is_some_and(|o| o.lock_ix(asked).is_ok_and(|i| o.locks()[i].number == number))
    }

    pub(super) fn hello_timer(&mut self, host: HostRef) {
        if self.peers.at(host).repeats_hello() {
            self.peers.greet(host);
        }
    }
}
