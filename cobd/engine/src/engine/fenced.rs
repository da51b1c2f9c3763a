//! A fenced host: an operator has declared that it is off and will not come back as it was.
//!
//! The locks that its change objects held here are free, and no change object here waits for it to depart: the host's
//! own departures count as done, and locks on it for a departure count as granted. A change object that stays in the
//! model and needs the host goes on waiting: a start without its need would be worse. All of this ends when a later
//! incarnation of the host sends a message.

use std::collections::BTreeSet;

use cob_types::message::Values;
use cob_types::{HostName, Incarnation};

use crate::engine::Engine;
use crate::engine::incarnations::Over;
use crate::mail::{Asked, Granted, Mail, Msg};
use crate::names::HostRef;
use crate::object::{Lock, shared};
use crate::record::{Body, OrderRecord};
use crate::time::Time;

impl Engine {
    /// An operator declares that the host will not come back as it was.
    pub(super) fn fence(&mut self, host: &HostName, now: Time) {
        let named = self.names.host(host);
        let peer = self.peers.at(named);
        let (fenced, dependents) = (peer.fence(), peer.dependents.clone());
        self.out.record(Body::Ordered(OrderRecord::Fence(host.clone(), fenced)));
        let incarnation = fenced.unwrap_or(Incarnation { id: 0, start: u32::MAX });
        self.forget_numbers(named, &Over { incarnation, replaced: true, kept: &BTreeSet::new() }, now);
        self.justification.forget_waiting(named);
        self.absent.forget_releases(|cob| self.names.host_of(cob) == named);
        for cob in dependents {
            self.with(cob, now, |o, cx| o.forget_releases(|asked| cx.names.host_of(asked) == named));
        }
        // Other hosts release the locks under its grants as well, and no daemon there honours these grants.
        self.lose_locks_of(named);
        self.repeat_to(named, now);
        self.declare_all_departed(named, now);
    }

    /// A fenced host sends messages again: it does not know the grants given in its name.
    pub(super) fn lose_locks_in_its_place(&mut self, host: HostRef, now: Time) {
        for cob in self.peers.at(host).dependents.clone() {
            self.with(cob, now, |o, cx| {
                let in_its_place =
                    |l: &Lock| cx.names.host_of(l.asked) == host && l.held.is_some() && l.rank.phase.is_departure();
                o.lose_all(|l| in_its_place(l) && !l.recalled);
            });
        }
    }

    /// Answers in place of a fenced host a request for a departure and a release, which the host cannot acknowledge.
    pub(super) fn answer_for_fenced(&self, mail: &Mail) -> Option<Mail> {
        if !self.peers.is_off(self.names.host_of(mail.to)) {
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
            | Msg::Invalidated(_)
            | Msg::Refused { .. }
            | Msg::Probe(_) => return None,
        };
        Some(Mail { from: mail.to, to: mail.from, msg })
    }
}
