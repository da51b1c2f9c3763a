//! A fenced host: an operator has said that it is off and will not come back as it was.
//!
//! What its change objects held here is free, and no change object here waits for it so as to leave: its own departures count as
//! final, and locks that are needed for a departure count as granted. What stays in the model and needs a change object of the
//! host goes on waiting: to begin it without what it needs would be worse. All of that ends when a later life of its daemon
//! speaks.

use std::collections::BTreeSet;

use cob_types::message::Values;
use cob_types::{CobId, HostName, Incarnation};

use crate::engine::Engine;
use crate::incarnations::Over;
use crate::names::{CobRef, HostRef};
use crate::object::{Lock, Mail, Msg, shared};
use crate::record::{Body, OrderRecord};
use crate::time::Time;

impl Engine {
    /// An operator says that the host will not come back as it was.
    pub(crate) fn fence(&mut self, host: &HostName, now: Time) {
        let named = self.names.host(host);
        let peer = self.peer(named);
        // Of a host that has not spoken since, the life fenced before stays so.
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
        // What they have promised rests on locks that others free as well, and nobody there keeps it.
        self.lose_locks_of(named);
        self.repeat_to(named, now);
        self.declare_departed(named, now);
    }

    /// What a fenced host was asked of its departures counts as told.
    pub(crate) fn declare_departed(&mut self, host: HostRef, now: Time) {
        let question = self.going.as_ref().and_then(|going| going.questions.get(&host));
        let awaited: Vec<CobRef> = question.map_or_else(Vec::new, |question| question.cobs.iter().copied().collect());
        let awaited: Vec<CobId> = awaited.into_iter().map(|cob| self.names.cob_id(cob).clone()).collect();
        for cob in awaited {
            self.declare_final(cob, now);
        }
    }

    /// Hosts that are waited for to say what has left, and that are fenced.
    pub(crate) fn fenced_among(&self, hosts: &[HostRef]) -> Vec<HostRef> {
        let is_off = |host: &HostRef| self.peers.get(host.0 as usize).is_some_and(|peer| peer.off);
        hosts.iter().copied().filter(is_off).collect()
    }

    /// A fenced host speaks again: what was granted in its place it does not know.
    pub(crate) fn lose_locks_in_its_place(&mut self, host: HostRef, now: Time) {
        for cob in self.peer(host).dependents.clone() {
            self.with(cob, now, |o, cx| {
                let in_its_place =
                    |l: &Lock| cx.names.host_of(l.asked) == host && l.held.is_some() && l.rank.phase == 0;
                while let Some(at) = o.locks.iter().position(|l| in_its_place(l) && !l.recalled) {
                    o.lose(at);
                }
            });
        }
    }

    /// Speaks for a fenced host where somebody leaves, or gives back what nobody there will acknowledge.
    pub(crate) fn answer_for_fenced(&self, mail: &Mail) -> Option<Mail> {
        let host = self.names.host_of(mail.to);
        if !self.peers.get(host.0 as usize).is_some_and(|peer| peer.off) {
            return None;
        }
        let msg = match &mail.msg {
            Msg::Request { number, rev, set, rank, .. } if rank.phase == 0 => {
                Msg::Grant { number: *number, rev: *rev, state: *set.first()?, values: shared(Values::new()) }
            }
            Msg::Release(number) => Msg::Released(*number),
            Msg::Request { .. }
            | Msg::Released(_)
            | Msg::Grant { .. }
            | Msg::Recall(_)
            | Msg::Query(_)
            | Msg::Lapsed(_)
            | Msg::Refused { .. }
            | Msg::Probe { .. } => return None,
        };
        Some(Mail { from: mail.to, to: mail.from, msg })
    }
}
