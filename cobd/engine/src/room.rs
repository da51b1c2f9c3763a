//! How much memory another host may occupy on this host.
//!
//! Names are never forgotten, and each change object that asks for a lock leaves an entry. Both are counted by host.
//! Items beyond a bound are dropped as if lost, and the sender may repeat the item. The bounds are far above the needs
//! of the largest supported host, with 100,000 change objects.

use cob_types::message::About;
use cob_types::{CobId, Item};

use crate::engine::Engine;
use crate::mail::{Mail, Msg};
use crate::names::{CobRef, HostRef};
use crate::object::Object;
use crate::time::{Span, Time};

/// The most bytes of new names that a host may mention in a generation: six times 100,000 names of 40 letters.
#[cfg(not(test))]
const NAMES: usize = 64 << 20;
#[cfg(test)]
pub(crate) const NAMES: usize = 64 << 10;
/// The most pairs of an asking change object of a host and a local change object: 100,000 that ask ten each.
#[cfg(not(test))]
const PAIRS: usize = 1_000_000;
#[cfg(test)]
pub(crate) const PAIRS: usize = 1000;
/// The most stored requests of a host for change objects which this host does not have yet.
#[cfg(not(test))]
const EARLY: usize = 100_000;
#[cfg(test)]
pub(crate) const EARLY: usize = 100;
/// When all slots are taken, the shortest time between two recounts.
const COUNT: Span = Span::secs(10);

/// The memory that another host occupies here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    /// The size of the names in bytes.
    names: usize,
    pairs: Places,
    early: Places,
}

/// An upper bound of the taken slots: some may be free again.
#[derive(Debug, Clone, Copy, Default)]
struct Places {
    taken: usize,
    counted: Time,
}

impl Places {
    /// Whether a recount of the taken slots is due.
    fn is_doubtful(self, most: usize, now: Time) -> bool {
        self.taken >= most && self.counted + COUNT <= now
    }

    /// Takes a slot, if any is free.
    fn take(&mut self, most: usize) -> bool {
        let free = self.taken < most;
        self.taken += usize::from(free);
        free
    }
}

impl Engine {
    /// The number of items of other hosts that were dropped for lack of room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Accepts an item of a host, if there is room for it.
    pub(crate) fn take_in(&mut self, host: HostRef, item: Item, now: Time) -> Option<Mail> {
        if self.peer(host).room.names >= NAMES && !self.knows_names_of(&item) {
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
            self.justification.given_back(host, about);
            if !self.is_asked_by(about) && !self.may_ask(about) {
                // There is no entry for it, and its host repeats it until it receives this answer.
                self.send.push((host, Item::Released(about.clone())));
                return None;
            }
        }
        let before = self.names.weight();
        let mail = self.as_mail(host, item);
        let more = self.names.weight() - before;
        self.peer(host).room.names += more;
        let mail = mail?;
        // A host asks under numbers of its current incarnation or an earlier incarnation.
        let newest = self.peer(host).life.map_or(u32::MAX, |life| life.start);
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
            self.peer(host).asked.insert(mail.to);
        }
        Some(mail)
    }

    /// Resets the room for names: each generation has its own names.
    pub(crate) fn make_room_for_names(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.room.names = 0);
    }

    fn is_asked_by(&self, about: &About) -> bool {
        let pair = (self.names.find_cob(&about.asker), self.names.find_cob(&about.asked));
        matches!(pair, (Some(asker), Some(asked)) if self.knows_pair(asker, asked))
    }

    fn knows_pair(&self, asker: CobRef, asked: CobRef) -> bool {
        match self.object(asked) {
            Some(object) => object.has_heard_of(asker),
            None => self.left.knows(asked, asker) || self.early.contains_key(&(asked, asker)),
        }
    }

    fn has_place(&mut self, host: HostRef, now: Time) -> bool {
        if self.peer(host).room.pairs.is_doubtful(PAIRS, now) {
            let taken = self.count_pairs(host);
            self.peer(host).room.pairs = Places { taken, counted: now };
        }
        self.peer(host).room.pairs.take(PAIRS)
    }

    /// Whether a further request of a host may wait for a missing change object. Hosts have separate slots.
    pub(crate) fn has_early_place(&mut self, host: HostRef, now: Time) -> bool {
        if host == self.here {
            return true;
        }
        if self.peer(host).room.early.is_doubtful(EARLY, now) {
            let taken = self.early.keys().filter(|(_, asker)| self.names.host_of(*asker) == host).count();
            self.peer(host).room.early = Places { taken, counted: now };
        }
        self.peer(host).room.early.take(EARLY)
    }

    fn count_pairs(&self, host: HostRef) -> usize {
        let of_host = |asker: &CobRef| self.names.host_of(*asker) == host;
        let here: usize = self.objects().map(|o| o.heard_of().filter(of_host).count()).sum();
        let left = self.left.iter().filter(|(_, request)| of_host(&request.asker)).count();
        here + left + self.early.keys().filter(|(_, asker)| of_host(asker)).count()
    }

    /// Whether all names in the item are known already.
    fn knows_names_of(&self, item: &Item) -> bool {
        let cob = |id: &CobId| self.names.find_cob(id).is_some();
        match item {
            Item::Request(r) => {
                let states = r.set.iter().all(|state| self.names.find_state(state).is_some());
                states && cob(&r.asker) && cob(&r.asked) && cob(&r.origin)
            }
            Item::Release(a) | Item::Released(a) | Item::Recall(a) | Item::Query(a) | Item::Lapsed(a) => {
                cob(&a.asker) && cob(&a.asked)
            }
            Item::Grant(g) => cob(&g.asker) && cob(&g.asked) && self.names.find_state(&g.state).is_some(),
            Item::Refused(r) => cob(&r.about.asker) && cob(&r.about.asked),
            Item::Probe(p) => cob(&p.to) && cob(&p.initiator) && p.path.iter().all(cob),
            Item::Hello(_)
            | Item::HelloAck(_)
            | Item::AskFinal(_)
            | Item::Final(_)
            | Item::Going(_)
            | Item::Withdrawn(_)
            | Item::Through(_) => true,
        }
    }
}

impl Object {
    /// The askers with a request, and the askers without a request whose released numbers are stored.
    fn heard_of(&self) -> impl Iterator<Item = CobRef> {
        let asks = self.requests.iter().map(|r| r.asker);
        asks.chain(self.returned.iter().map(|r| r.0).filter(|asker| self.request_ix(*asker).is_err()))
    }

    fn has_heard_of(&self, asker: CobRef) -> bool {
        self.request_ix(asker).is_ok() || self.returned_up_to(asker).is_some()
    }
}

#[cfg(test)]
#[path = "room_test.rs"]
mod tests;
