//! Other hosts: their incarnations and hellos, the change objects on both sides that have to do with each other, and
//! how much memory a host may occupy here.
//!
//! Names are never forgotten, and each change object that asks for a lock leaves an entry. Both are counted by host.
//! Items beyond a bound are dropped as if lost, and the sender may repeat the item. The bounds are far above the needs
//! of the largest supported host, with 100,000 change objects.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use cob_types::status::Unheard;
use cob_types::{Incarnation, Number};

use crate::names::{CobRef, HostRef};
use crate::repeat::Repeat;
use crate::time::{Span, Time};

/// The most bytes of new names that a host may mention in a generation: six times 100,000 names of 40 letters.
#[cfg(not(test))]
pub(crate) const NAMES: usize = 64 << 20;
#[cfg(test)]
pub(crate) const NAMES: usize = 64 << 10;
/// The most pairs of an asking change object of a host and a local change object: 100,000 askers, ten requests
/// each.
#[cfg(not(test))]
pub(crate) const PAIRS: usize = 1_000_000;
#[cfg(test)]
pub(crate) const PAIRS: usize = 1000;
/// The most stored requests of a host for change objects which this host does not have yet.
#[cfg(not(test))]
pub(crate) const EARLY: usize = 100_000;
#[cfg(test)]
pub(crate) const EARLY: usize = 100;
/// When all slots are taken, the shortest time between two recounts.
pub(crate) const COUNT: Span = Span::secs(10);
/// The most state folders of reinstalled hosts that are remembered.
const PAST_MAX: usize = 64;

/// All other hosts that have exchanged messages with this host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers {
    all: Vec<Peer>,
    /// Hosts that get a message in this tick in any case.
    greet: BTreeSet<HostRef>,
}

impl Peers {
    pub(crate) fn get(&self, host: HostRef) -> Option<&Peer> {
        self.all.get(host.0 as usize)
    }

    pub(crate) fn at(&mut self, host: HostRef) -> &mut Peer {
        let at = host.0 as usize;
        if self.all.len() <= at {
            self.all.resize_with(at + 1, Peer::default);
        }
        &mut self.all[at]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (HostRef, &Peer)> {
        (0..).map(HostRef).zip(&self.all)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.all.iter_mut()
    }

    /// The state folder that a host uses, as far as its daemon has said.
    pub(crate) fn folder_of(&self, host: HostRef) -> Option<u64> {
        Some(self.get(host)?.incarnation?.id)
    }

    /// An operator has declared that the host is off, and no later incarnation has sent a message.
    pub(crate) fn is_off(&self, host: HostRef) -> bool {
        self.get(host).is_some_and(|peer| peer.off)
    }

    /// The host gets a message in this tick.
    pub(crate) fn greet(&mut self, host: HostRef) {
        self.greet.insert(host);
    }

    pub(crate) fn take_greeted(&mut self) -> BTreeSet<HostRef> {
        std::mem::take(&mut self.greet)
    }
}

/// This host's knowledge of another host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    /// Its present incarnation; `None`: no hello yet.
    incarnation: Option<Incarnation>,
    /// The last incarnations of its earlier state folders: their late messages are refused.
    past: Vec<Incarnation>,
    /// The last incarnation with a message to this daemon, also when it is fenced.
    heard: Option<Incarnation>,
    /// Why its last message did not count.
    unheard: Option<Unheard>,
    /// It has acknowledged our hello of this incarnation.
    acked: bool,
    /// Our hello was sent since it last mattered; only a timer repeats it.
    greeted: bool,
    hello: Repeat,
    /// Messages of this and older incarnations are refused, by an operator's order.
    fenced: Option<Incarnation>,
    /// It was fenced since this daemon started, and no later incarnation has sent a message.
    off: bool,
    /// Locks on its change objects that we kept from earlier incarnations: dependent, depended-on, number.
    pub(crate) restored: Vec<(CobRef, CobRef, Number)>,
    /// Our change objects that depend on its change objects.
    pub(crate) dependents: BTreeSet<CobRef>,
    /// Our change objects that its change objects have asked.
    pub(crate) asked: BTreeSet<CobRef>,
    pub(crate) room: Room,
}

/// The change that a hello makes.
pub(crate) struct Greeting {
    /// The incarnation is not new.
    pub(crate) known: bool,
    /// Its host has another state folder than before.
    pub(crate) replaced: bool,
    /// Its host was fenced.
    pub(crate) was_off: bool,
}

impl Peer {
    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation
    }

    pub(crate) fn unheard(&self) -> Option<Unheard> {
        self.unheard
    }

    #[cfg(feature = "explored")]
    pub(crate) fn is_acked(&self) -> bool {
        self.acked
    }

    #[cfg(feature = "explored")]
    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// An operator has fenced it, and no later incarnation has sent a message.
    pub(crate) fn counts_as_off(&self) -> bool {
        self.off || self.incarnation.is_none() && self.fenced.is_some()
    }

    pub(crate) fn is(&self, incarnation: Incarnation) -> bool {
        self.incarnation.and_then(|known| incarnation.compare(known)) == Some(Ordering::Equal)
    }

    /// Whether messages of this incarnation are refused: it is fenced, replaced or older than the present one.
    pub(crate) fn refuses(&mut self, incarnation: Incarnation) -> bool {
        let is_over = |end: &Incarnation| incarnation.compare(*end).is_some_and(Ordering::is_le);
        self.unheard = match (self.fenced.as_ref().is_some_and(is_over), self.past.iter().any(is_over)) {
            (true, _) => Some(Unheard::Fenced),
            (false, true) => Some(Unheard::Replaced),
            (false, false) => None,
        };
        let is_older = self.incarnation.and_then(|known| incarnation.compare(known)) == Some(Ordering::Less);
        self.unheard.is_some() || is_older
    }

    /// A hello: this incarnation is the present one.
    pub(crate) fn greets(&mut self, incarnation: Incarnation) -> Greeting {
        let known = self.is(incarnation);
        let before = self.heard.filter(|old| old.id != incarnation.id);
        if let Some(old) = before {
            // A folder that comes back is no past folder any more.
            self.past.retain(|past| past.id != incarnation.id);
            self.past.push(old);
            if self.past.len() > PAST_MAX {
                self.past.remove(0);
            }
        }
        (self.heard, self.incarnation) = (Some(incarnation), Some(incarnation));
        if !known {
            self.forget_hello();
        }
        Greeting { known, replaced: before.is_some(), was_off: std::mem::take(&mut self.off) }
    }

    /// An operator fences it; returns the last refused incarnation.
    pub(crate) fn fence(&mut self) -> Option<Incarnation> {
        // If the host has been silent since an earlier fence, the incarnation fenced then stays fenced.
        self.fenced = self.incarnation.take().or(self.fenced);
        self.off = true;
        self.restored.clear();
        self.fenced
    }

    /// An earlier incarnation of this daemon has recorded a fence.
    pub(crate) fn restore_fence(&mut self, incarnation: Incarnation) {
        self.fenced = Some(incarnation);
    }

    /// Our hello must reach it again.
    pub(crate) fn forget_hello(&mut self) {
        (self.acked, self.greeted) = (false, false);
    }

    pub(crate) fn acknowledges(&mut self) {
        self.acked = true;
        self.hello.restart();
    }

    /// A message goes to it: whether our hello goes first, and when a timer repeats it.
    pub(crate) fn needs_hello(&mut self, now: Time) -> Option<Option<Time>> {
        let needs = !self.acked && !std::mem::replace(&mut self.greeted, true);
        needs.then(|| self.hello.schedule(now))
    }

    /// The timer has fired; returns whether our hello is repeated.
    pub(crate) fn repeats_hello(&mut self) -> bool {
        if self.acked {
            self.hello.stop();
        } else {
            self.hello.count();
            self.greeted = false;
        }
        !self.acked
    }
}

/// The memory that another host occupies here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    /// The size of the names in bytes.
    pub(crate) names: usize,
    /// Pairs of an asking change object of the host and a local change object.
    pub(crate) pairs: Places,
    /// Requests for change objects which this host does not have yet.
    pub(crate) early: Places,
}

/// An upper bound of the taken slots: some may be free again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Places {
    taken: usize,
    counted: Time,
}

impl Places {
    /// Whether a recount of the taken slots is due.
    pub(crate) fn is_doubtful(self, most: usize, now: Time) -> bool {
        self.taken >= most && self.counted + COUNT <= now
    }

    /// The number of slots that are taken now.
    pub(crate) fn recount(&mut self, taken: usize, now: Time) {
        *self = Self { taken, counted: now };
    }

    /// Takes a slot, if any is free.
    pub(crate) fn take(&mut self, most: usize) -> bool {
        let free = self.taken < most;
        self.taken += usize::from(free);
        free
    }
}
