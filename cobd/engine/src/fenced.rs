//! A fenced host: an operator has declared that it is off and will not come back as it was.
//!
//! The locks that its change objects held here are free, and no change object here waits for it to depart: the host's
//! own departures count as done, and locks on it for a departure count as granted. A change object that stays in the
//! model and needs the host goes on waiting: a start without its need would be worse. All of this ends when a later
//! incarnation of the host sends a message.

use std::collections::BTreeSet;

use cob_types::message::Values;
use cob_types::{CobId, HostName, Incarnation};

use crate::engine::Engine;
use crate::incarnations::Over;
use crate::mail::{Asked, Granted, Mail, Msg};
use crate::names::{CobRef, HostRef};
use crate::object::{Lock, shared};
use crate::record::{Body, OrderRecord};
use crate::time::Time;

impl Engine {
    /// An operator declares that the host will not come back as it was.
    pub(crate) fn fence(&mut self, host: &HostName, now: Time) {
        let named = self.names.host(host);
        let peer = self.peer(named);
        // If the host has been silent since an earlier fence, the incarnation fenced then stays fenced.
        let life = peer.life.take().or(peer.fenced);
        peer.fenced = life;
        peer.off = true;
        let dependents = peer.dependents.clone();
        peer.restored.clear();
        self.out.record(Body::Ordered(OrderRecord::Fence(host.clone(), life)));
        let any = life.unwrap_or(Incarnation { id: 0, start: u32::MAX });
        self.forget_numbers(named, &Over { life: any, replaced: true, kept: &BTreeSet::new() }, now);
        self.justification.forget_waiting(named);
        let Self { left, names, .. } = self;
        left.forget_given_back(|cob| names.host_of(cob) == named);
        for cob in dependents {
            self.with(cob, now, |o, cx| o.given_back.retain(|(asked, _)| cx.names.host_of(*asked) != named));
        }
        // Other hosts release the locks under its grants as well, and no daemon there honours these grants.
        self.lose_locks_of(named);
        self.repeat_to(named, now);
        self.declare_departed(named, now);
    }

    /// The departures of a fenced host that this host has asked about count as announced.
    pub(crate) fn declare_departed(&mut self, host: HostRef, now: Time) {
        let question = self.going.as_ref().and_then(|going| going.questions.get(&host));
        let awaited: Vec<CobRef> = question.map_or_else(Vec::new, |question| question.cobs.iter().copied().collect());
        let awaited: Vec<CobId> = awaited.into_iter().map(|cob| self.names.cob_id(cob).clone()).collect();
        for cob in awaited {
            self.declare_final(cob, now);
        }
    }

    /// The fenced hosts among `hosts`, whose departures are awaited.
    pub(crate) fn fenced_among(&self, hosts: &[HostRef]) -> Vec<HostRef> {
        let is_off = |host: &HostRef| self.peers.get(host.0 as usize).is_some_and(|peer| peer.off);
        hosts.iter().copied().filter(is_off).collect()
    }

    /// A fenced host sends messages again: it does not know the grants given in its name.
    pub(crate) fn lose_locks_in_its_place(&mut self, host: HostRef, now: Time) {
        for cob in self.peer(host).dependents.clone() {
            self.with(cob, now, |o, cx| {
                let in_its_place =
                    |l: &Lock| cx.names.host_of(l.asked) == host && l.held.is_some() && l.rank.phase.is_departure();
                while let Some(at) = o.locks.iter().position(|l| in_its_place(l) && !l.recalled) {
                    o.lose(at);
                }
            });
        }
    }

    /// Answers in place of a fenced host a request for a departure and a release, which the host cannot acknowledge.
    pub(crate) fn answer_for_fenced(&self, mail: &Mail) -> Option<Mail> {
        let host = self.names.host_of(mail.to);
        if !self.peers.get(host.0 as usize).is_some_and(|peer| peer.off) {
            return None;
        }
        let msg = match &mail.msg {
            Msg::Request(Asked { number, rev, set, rank, .. }) if rank.phase.is_departure() => {
                Msg::Grant(Granted { number: *number, rev: *rev, state: *set.first()?, values: shared(Values::new()) })
            }
            Msg::Release(number) => Msg::Released(*number),
            Msg::Request(_)
            | Msg::Released(_)
            | Msg::Grant(_)
            | Msg::Recall(_)
            | Msg::Query(_)
            | Msg::Lapsed(_)
            | Msg::Refused { .. }
            | Msg::Probe(_) => return None,
        };
        Some(Mail { from: mail.to, to: mail.from, msg })
    }
}
