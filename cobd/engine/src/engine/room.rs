//! The admission of items of other hosts: justified, and within the [bounds](crate::peers) of the host's memory here.

use cob_types::message::About;
use cob_types::{CobId, Item};

use crate::engine::Engine;
use crate::mail::{Mail, Msg};
use crate::names::{CobRef, HostRef};
use crate::peers::{EARLY, NAMES, PAIRS};
use crate::time::Time;

impl Engine {
    /// The number of items of other hosts that were dropped for lack of room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Accepts an item of a host, if there is room for it.
    pub(super) fn take_in(&mut self, host: HostRef, item: Item, now: Time) -> Option<Mail> {
        if self.peers.at(host).room.names >= NAMES && !self.knows_names_of(&item) {
            self.left_out += 1;
            return None;
        }
        if let Item::Request(request) = &item
            && !self.is_justified(host, request, now)
        {
            return None;
        }
        if let Item::Release(about) = &item
            && self.is_between(host, &about.asker, &about.asked)
        {
            self.justification.forget_released(host, about);
            if !self.is_asked_by(about) && !self.may_ask(about) {
                // There is no entry for it, and its host repeats it until it receives this answer.
                self.out.send(host, Item::Released(about.clone()));
                return None;
            }
        }
        let before = self.names.weight();
        let mail = self.as_mail(host, item);
        let more = self.names.weight() - before;
        self.peers.at(host).room.names += more;
        let mail = mail?;
        // A host asks under numbers of its current incarnation or an earlier incarnation.
        let newest = self.peers.at(host).incarnation().map_or(u32::MAX, |incarnation| incarnation.start);
        if mail.number().is_some_and(|number| number.start > newest) {
            self.left_out += 1;
            return None;
        }
        let asks = matches!(mail.msg, Msg::Request(_) | Msg::Release(_));
        if asks && !self.knows_pair(mail.from, mail.to) && !self.has_place(host, now) {
            self.left_out += 1;
            return None;
        }
        if asks {
            self.peers.at(host).asked.insert(mail.to);
        }
        Some(mail)
    }

    /// Resets the room for names: each generation has its own names.
    pub(super) fn make_room_for_names(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.room.names = 0);
    }

    fn is_asked_by(&self, about: &About) -> bool {
        let pair = (self.names.find_cob(&about.asker), self.names.find_cob(&about.asked));
        matches!(pair, (Some(asker), Some(asked)) if self.knows_pair(asker, asked))
    }

    fn knows_pair(&self, asker: CobRef, asked: CobRef) -> bool {
        match self.objects.get(asked) {
            Some(object) => object.has_heard_of(asker),
            None => self.absent.find(asked, asker).is_some() || self.absent.early(asked, asker).is_some(),
        }
    }

    fn has_place(&mut self, host: HostRef, now: Time) -> bool {
        if self.peers.at(host).room.pairs.is_doubtful(PAIRS, now) {
            let taken = self.count_pairs(host);
            self.peers.at(host).room.pairs.recount(taken, now);
        }
        self.peers.at(host).room.pairs.take(PAIRS)
    }

    /// Whether a further request of a host may wait for a missing change object. Hosts have separate slots.
    pub(super) fn has_early_place(&mut self, host: HostRef, now: Time) -> bool {
        if host == HostRef::HERE {
            return true;
        }
        if self.peers.at(host).room.early.is_doubtful(EARLY, now) {
            let taken = self.count_early(host);
            self.peers.at(host).room.early.recount(taken, now);
        }
        self.peers.at(host).room.early.take(EARLY)
    }

    fn count_pairs(&self, host: HostRef) -> usize {
        let of_host = |asker: &CobRef| self.names.host_of(*asker) == host;
        let here: usize = self.objects.iter().map(|o| o.heard_of().filter(of_host).count()).sum();
        let departed = self.absent.grants().filter(|(_, request)| of_host(&request.asker)).count();
        here + departed + self.count_early(host)
    }

    fn count_early(&self, host: HostRef) -> usize {
        self.absent.all_early().filter(|mail| self.names.host_of(mail.from) == host).count()
    }

    /// Whether all names in the item are known already.
    fn knows_names_of(&self, item: &Item) -> bool {
        let cob = |id: &CobId| self.names.find_cob(id).is_some();
        match item {
            Item::Request(r) => {
                let states = r.set.iter().all(|state| self.names.find_state(state).is_some());
                states && cob(&r.asker) && cob(&r.asked) && cob(&r.origin)
            }
            Item::Release(a) | Item::Released(a) | Item::Recall(a) | Item::Query(a) | Item::Invalidated(a) => {
                cob(&a.asker) && cob(&a.asked)
            }
            Item::Grant(g) => cob(&g.asker) && cob(&g.asked) && self.names.find_state(&g.state).is_some(),
            Item::Refused(r) => cob(&r.about.asker) && cob(&r.about.asked),
            Item::Probe(p) => cob(&p.to) && cob(&p.initiator) && p.path.iter().all(cob),
            Item::Hello(_)
            | Item::HelloAck(_)
            | Item::AskDepartures(_)
            | Item::Departures(_)
            | Item::Going(_)
            | Item::Withdrawn(_)
            | Item::Through(_) => true,
        }
    }
}

#[cfg(test)]
#[path = "room_test.rs"]
mod tests;
