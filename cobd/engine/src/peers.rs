//! Other hosts: their incarnations, greetings, and the wire form of messages.
//!
//! The engine accepts no message from a host before the hello of its present incarnation. The first tick with a message
//! to a host begins with our hello, which is repeated until it is acknowledged. A hello names the locks of earlier
//! incarnations that are kept; the receiver forgets all other old numbers of that host.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use cob_types::message::{About, Grant, Hello, HelloAck, MAX_VALUES, MAX_WHY, Probe, Refused, Request, Values};
use cob_types::status::Unheard;
use cob_types::{Batch, CobId, HostName, Incarnation, Item, Number};

use crate::engine::Engine;
use crate::incarnations::Over;
use crate::mail::{Asked, Granted, Mail, Msg, Probed};
use crate::names::{CobRef, HostRef};
use crate::object::{Object, shared};
use crate::repeat::Repeat;
use crate::room::Room;
use crate::time::Time;

/// The most state folders of reinstalled hosts that are remembered.
const PAST_MAX: usize = 64;
/// The most states in a set, and the most steps of a probe, that are accepted from the wire.
const SET_MAX: usize = cob_types::kind::MAX_STATES;

/// This host's knowledge of another host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    /// Its present incarnation; `None`: no hello yet.
    pub(crate) life: Option<Incarnation>,
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
    /// Our unacknowledged hello.
    repeat: Repeat,
    /// Locks on its change objects that we kept from earlier incarnations: dependent, depended-on, number.
    pub(crate) restored: Vec<(CobRef, CobRef, Number)>,
    /// Our change objects that depend on its change objects.
    pub(crate) dependents: BTreeSet<CobRef>,
    /// Our change objects that its change objects have asked.
    pub(crate) asked: BTreeSet<CobRef>,
    /// Messages of this and older incarnations are refused, by an operator's order.
    pub(crate) fenced: Option<Incarnation>,
    /// It was fenced since this daemon started, and no later incarnation has sent a message.
    pub(crate) off: bool,
    pub(crate) room: Room,
}

impl Peer {
    pub(crate) fn is_acked(&self) -> bool {
        self.acked
    }

    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted
    }
}

/// The state folder that a host uses, as far as its daemon has said.
pub(crate) fn folder_of(peers: &[Peer], host: HostRef) -> Option<u64> {
    Some(peers.get(host.0 as usize)?.life?.id)
}

impl Engine {
    /// Every other host that has exchanged messages with this host.
    pub(crate) fn known_peers(&self) -> impl Iterator<Item = (&HostName, &Peer)> {
        self.peers.iter().enumerate().map(|(at, peer)| (self.names.host_name(HostRef(at as u32)), peer))
    }

    pub(crate) fn peer(&mut self, host: HostRef) -> &mut Peer {
        let at = host.0 as usize;
        if self.peers.len() <= at {
            self.peers.resize_with(at + 1, Peer::default);
        }
        &mut self.peers[at]
    }

    /// The incarnation of the last hello of a host.
    #[must_use]
    pub fn life_of(&self, host: &HostName) -> Option<Incarnation> {
        self.find_peer(host)?.1.life
    }

    /// Whether the engine has pending business with a host: requests, held locks, grants or awaited departures.
    #[must_use]
    pub fn is_busy_with(&self, host: &HostName) -> bool {
        let Some((here, peer)) = self.find_peer(host) else { return false };
        let away = |cob: CobRef| self.names.host_of(cob) == here;
        let holds = |cob: &CobRef| self.object(*cob).is_some_and(|o| o.locks.iter().any(|l| away(l.asked)));
        let waits = self.going.as_ref().is_some_and(|g| g.questions.contains_key(&here));
        waits || peer.dependents.iter().any(holds) || self.owes(here, peer)
    }

    /// Whether there is open business with a host: [pending business](Self::is_busy_with), or grants or unacknowledged
    /// releases of departed and present change objects.
    #[must_use]
    pub fn is_open_with(&self, host: &HostName) -> bool {
        let away = |cob: CobRef| self.is_of(cob, host);
        let gave_back = |cob: &CobRef| self.object(*cob).is_some_and(|o| o.given_back.iter().any(|g| away(g.0)));
        let is_unheard = |(_, peer): (HostRef, &Peer)| peer.dependents.iter().any(gave_back);
        // For departed change objects, there may have been no message with the host in this incarnation.
        self.is_busy_with(host) || self.find_peer(host).is_some_and(is_unheard) || self.left.is_open_with(away)
    }

    fn is_of(&self, cob: CobRef, host: &HostName) -> bool {
        self.names.host_name(self.names.host_of(cob)) == host
    }

    /// Whether a grant to a change object of the host is recalled.
    #[must_use]
    pub fn asks_back_from(&self, host: &HostName) -> bool {
        let Some((named, peer)) = self.find_peer(host) else { return false };
        peer.asked.iter().any(|cob| self.object(*cob).is_some_and(|o| self.asked_back(o, |h| h == named)))
    }

    fn asked_back(&self, o: &Object, host: impl Fn(HostRef) -> bool) -> bool {
        o.requests.iter().any(|r| r.recalled && r.granted.is_some() && host(self.names.host_of(r.asker)))
    }

    /// Stops waiting for recalled grants of these hosts.
    pub(crate) fn let_lapse(&mut self, hosts: &BTreeSet<HostName>, now: Time) {
        let lost: BTreeSet<HostRef> = hosts.iter().map(|host| self.names.host(host)).collect();
        let asked_back = |o: &&Object| self.asked_back(o, |host| lost.contains(&host));
        let concerned: Vec<CobRef> = self.restless().filter(asked_back).map(|o| o.me).collect();
        for cob in concerned {
            self.with(cob, now, |o, cx| {
                let names = cx.names;
                o.let_lapse(cx, |asker| lost.contains(&names.host_of(asker)));
            });
        }
    }

    /// Whether the host is unknown: no incarnation of it counts here, its change objects neither hold nor ask for a
    /// lock, and no departure of it is awaited.
    #[must_use]
    pub fn knows_nothing_of(&self, host: &HostName) -> bool {
        let nothing = |(named, peer): (HostRef, &Peer)| peer.life.is_none() && !self.owes(named, peer);
        let waits =
            |(named, _): (HostRef, &Peer)| self.going.as_ref().is_some_and(|g| g.questions.contains_key(&named));
        self.find_peer(host).is_none_or(|peer| nothing(peer) && !waits(peer))
            && !self.left.has_promised(|cob| self.is_of(cob, host))
    }

    fn find_peer(&self, host: &HostName) -> Option<(HostRef, &Peer)> {
        let mut peers = (0..).map(HostRef).zip(&self.peers);
        peers.find(|(named, _)| self.names.host_name(*named) == host)
    }

    /// Whether a change object of the host has a request to a local change object.
    fn owes(&self, host: HostRef, peer: &Peer) -> bool {
        let away = |cob: CobRef| self.names.host_of(cob) == host;
        peer.asked.iter().any(|cob| self.object(*cob).is_some_and(|o| o.requests.iter().any(|r| away(r.asker))))
    }

    pub(crate) fn received(&mut self, batch: Batch, now: Time) {
        let host = self.names.host(&batch.from);
        if host == self.here || !self.admit(host, &batch, now) {
            return;
        }
        for item in batch.items {
            match item {
                // The daemon handles switches and has removed these items.
                Item::Hello(_) | Item::Going(_) | Item::Withdrawn(_) | Item::Through(_) => {}
                Item::HelloAck(ack) => self.on_hello_ack(host, &ack),
                Item::AskFinal(asked) => self.on_ask_final(host, asked),
                Item::Final(told) => self.on_final(host, told),
                // The previous host has asked under this number, and its state folder is gone.
                Item::Grant(grant) if grant.folder.is_some_and(|folder| folder != self.life.id) => {}
                Item::Request(_)
                | Item::Release(_)
                | Item::Released(_)
                | Item::Grant(_)
                | Item::Recall(_)
                | Item::Query(_)
                | Item::Lapsed(_)
                | Item::Probe(_)
                | Item::Refused(_) => {
                    if let Some(mail) = self.take_in(host, item, now) {
                        self.out.mail.push_back(mail);
                    }
                }
            }
        }
        self.lay_out_if_due(now);
    }

    /// Whether a fence of the host would have no effect: an operator has fenced it since this daemon started, and it is
    /// otherwise unknown.
    #[must_use]
    pub fn is_fenced(&self, host: &HostName) -> bool {
        self.knows_nothing_of(host) && self.find_peer(host).is_some_and(|(_, peer)| peer.off)
    }

    /// Whether an operator has fenced the host and no later incarnation of it has sent a message since.
    #[must_use]
    pub fn counts_as_off(&self, host: &HostName) -> bool {
        self.find_peer(host).is_some_and(|(_, peer)| peer.off || peer.life.is_none() && peer.fenced.is_some())
    }

    /// Why the last message of a host was refused, if it was: its daemon runs, but is ignored here.
    #[must_use]
    pub fn unheard(&self, host: &HostName) -> Option<Unheard> {
        self.find_peer(host)?.1.unheard
    }

    /// Whether messages of this incarnation count; a hello in the batch may open a new incarnation.
    fn admit(&mut self, host: HostRef, batch: &Batch, now: Time) -> bool {
        let life = batch.incarnation;
        let peer = self.peer(host);
        let is_over = |end: &Incarnation| life.compare(*end).is_some_and(Ordering::is_le);
        peer.unheard = match (peer.fenced.as_ref().is_some_and(is_over), peer.past.iter().any(is_over)) {
            (true, _) => Some(Unheard::Fenced),
            (false, true) => Some(Unheard::Replaced),
            (false, false) => None,
        };
        if peer.unheard.is_some() {
            return false;
        }
        let known = peer.life.and_then(|k| life.compare(k));
        if peer.life.is_some() && known == Some(Ordering::Less) {
            return false;
        }
        let hello = batch.items.iter().find_map(|i| if let Item::Hello(h) = i { Some(h) } else { None });
        match hello {
            Some(hello) => {
                self.on_hello(host, life, hello, known == Some(Ordering::Equal), now);
                true
            }
            None if known == Some(Ordering::Equal) => true,
            // The sender assumes that we know this incarnation: our hello makes it repeat its own.
            None => {
                self.greet.insert(host);
                false
            }
        }
    }

    fn on_hello(&mut self, host: HostRef, life: Incarnation, hello: &Hello, known: bool, now: Time) {
        let peer = self.peer(host);
        let before = peer.heard.filter(|old| old.id != life.id);
        if let Some(old) = before {
            // A folder that comes back is no past folder any more.
            peer.past.retain(|past| past.id != life.id);
            peer.past.push(old);
            if peer.past.len() > PAST_MAX {
                peer.past.remove(0);
            }
        }
        peer.heard = Some(life);
        peer.life = Some(life);
        let was_off = std::mem::take(&mut peer.off);
        if !known {
            peer.acked = false;
            peer.greeted = false;
            self.justification.forget_waiting(host);
        }
        let kept: BTreeSet<_> = hello
            .kept
            .iter()
            .filter_map(|k| Some((self.names.find_cob(&k.asker)?, self.names.find_cob(&k.asked)?, k.number)))
            .collect();
        self.forget_numbers(host, &Over { life, replaced: before.is_some(), kept: &kept }, now);
        if before.is_some() {
            self.lose_locks_of(host);
        } else if was_off {
            self.lose_locks_in_its_place(host, now);
        }
        if !known {
            self.repeat_to(host, now);
        }
        let granted = kept.iter().filter_map(|k| self.granted_as(k.0, k.1, k.2)).collect();
        self.send.push((host, Item::HelloAck(HelloAck { incarnation: life, granted })));
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
        let Some(object) = self.object(asked) else {
            return Some(grant(0, self.left_as(asker, asked, number)?));
        };
        let request = &object.requests[object.request_ix(asker).ok()?];
        let state = request.granted.filter(|_| request.number == number && !request.lapsed)?;
        Some(grant(request.rev, state))
    }

    fn on_hello_ack(&mut self, host: HostRef, ack: &HelloAck) {
        if ack.incarnation != self.life {
            return;
        }
        let peer = self.peer(host);
        peer.acked = true;
        peer.repeat.restart();
        // They stay on the list: a later incarnation of the host needs them again.
        let mut restored = std::mem::take(&mut peer.restored);
        restored.retain(|(asker, asked, number)| self.holds(*asker, *asked, *number));
        self.peer(host).restored.clone_from(&restored);
        let find = |g: &Grant| Some((self.names.find_cob(&g.asker)?, self.names.find_cob(&g.asked)?, g.number));
        let granted: BTreeSet<_> = ack.granted.iter().filter_map(find).collect();
        for (asker, asked, number) in restored {
            let stands = granted.contains(&(asker, asked, number));
            if let Some(object) = self.object_mut(asker)
                && let Ok(at) = object.lock_ix(asked)
            {
                if stands {
                    object.locks[at].confirmed = true;
                } else {
                    object.lose(at);
                }
            }
            self.touch(asker);
        }
    }

    /// The link is new: repeats the messages without an answer.
    pub(crate) fn link_up(&mut self, host: &HostName, now: Time) {
        let host = self.names.host(host);
        if host == self.here {
            return;
        }
        let peer = self.peer(host);
        peer.acked = false;
        peer.greeted = false;
        if !peer.dependents.is_empty() || !peer.asked.is_empty() || !peer.restored.is_empty() {
            self.greet.insert(host);
        }
        self.repeat_to(host, now);
        self.say_for_left(Some(host));
        self.ask_anew(host, now);
    }

    pub(crate) fn repeat_to(&mut self, host: HostRef, now: Time) {
        let peer = self.peer(host);
        let all: Vec<_> = peer.dependents.union(&peer.asked).copied().collect();
        for cob in all {
            let others: BTreeSet<_> = match self.object(cob) {
                Some(o) => o
                    .locks
                    .iter()
                    .map(|l| l.asked)
                    .chain(o.requests.iter().map(|r| r.asker))
                    .chain(o.given_back.iter().map(|g| g.0))
                    .filter(|c| self.names.host_of(*c) == host)
                    .collect(),
                None => continue,
            };
            self.with(cob, now, |o, cx| o.repeat_unanswered(cx, |c| others.contains(&c)));
        }
    }

    /// Puts our hello before the messages to hosts that have not acknowledged it.
    pub(crate) fn add_hellos(&mut self, now: Time) {
        let mut hosts = std::mem::take(&mut self.greet);
        hosts.extend(self.send.iter().map(|(host, _)| *host));
        let mut hellos = Vec::new();
        for host in hosts {
            let peer = self.peer(host);
            if peer.acked || std::mem::replace(&mut peer.greeted, true) {
                continue;
            }
            hellos.push((host, Item::Hello(Hello { kept: self.kept_on(host) })));
            let peer = self.peer(host);
            if let Some(at) = peer.repeat.schedule(now) {
                self.schedule_peer(host, at);
            }
        }
        if !hellos.is_empty() {
            hellos.append(&mut self.send);
            self.send = hellos;
        }
    }

    fn kept_on(&self, host: HostRef) -> Vec<About> {
        if self.faults.hello_names_nothing() {
            return Vec::new();
        }
        let restored = self.peers.get(host.0 as usize).map_or(&[][..], |p| &p.restored);
        let current = restored.iter().filter(|(asker, asked, number)| self.holds(*asker, *asked, *number));
        current.map(|(asker, asked, number)| self.about(*asker, *asked, *number)).collect()
    }

    /// Whether this is the number of the present request of a local change object.
    fn holds(&self, asker: CobRef, asked: CobRef, number: Number) -> bool {
        self.object(asker).is_some_and(|o| o.lock_ix(asked).is_ok_and(|i| o.locks[i].number == number))
    }

    pub(crate) fn peer_timer(&mut self, host: HostRef, _now: Time) {
        let peer = self.peer(host);
        if peer.acked {
            peer.repeat.stop();
        } else {
            peer.repeat.count();
            peer.greeted = false;
            self.greet.insert(host);
        }
    }

    fn about(&self, asker: CobRef, asked: CobRef, number: Number) -> About {
        About { asker: self.names.cob_id(asker).clone(), asked: self.names.cob_id(asked).clone(), number }
    }

    /// The state folder that a host uses, as far as its daemon has said.
    pub(crate) fn folder_of(&self, host: HostRef) -> Option<u64> {
        folder_of(&self.peers, host)
    }

    /// A message for a change object of another host, with full names.
    pub(crate) fn as_item(&self, mail: &Mail) -> Item {
        let id = |c: CobRef| self.names.cob_id(c).clone();
        let (from, to) = (mail.from, mail.to);
        match &mail.msg {
            Msg::Request(asked) => Item::Request(Request {
                asker: id(from),
                asked: id(to),
                number: asked.number,
                rev: asked.rev,
                set: self.names.state_names(&asked.set),
                rank: asked.rank,
                origin: id(asked.origin),
                fingerprint: asked.fingerprint,
                generation: Some(self.generation),
                failed: asked.failed,
            }),
            Msg::Release(n) => Item::Release(self.about(from, to, *n)),
            Msg::Query(n) => Item::Query(self.about(to, from, *n)),
            Msg::Released(n) => Item::Released(self.about(to, from, *n)),
            Msg::Recall(n) => Item::Recall(self.about(to, from, *n)),
            Msg::Lapsed(n) => Item::Lapsed(self.about(to, from, *n)),
            Msg::Grant(granted) => Item::Grant(Grant {
                asker: id(to),
                asked: id(from),
                number: granted.number,
                rev: granted.rev,
                state: self.names.state_name(granted.state).clone(),
                values: granted.values.as_ref().clone(),
                folder: self.folder_of(self.names.host_of(to)),
            }),
            Msg::Refused { number, reason } => {
                Item::Refused(Refused { about: self.about(to, from, *number), reason: reason.to_string() })
            }
            Msg::Probe(probe) => Item::Probe(Probe {
                to: id(to),
                initiator: id(probe.initiator),
                number: probe.number,
                generation: probe.generation,
                path: probe.path.iter().map(|c| id(*c)).collect(),
                more: probe.more,
                wide: probe.wide,
            }),
        }
    }

    /// A message of another host with interned names; `None` if this host may not send it to a local change object, or
    /// if it makes no sense.
    pub(crate) fn as_mail(&mut self, host: HostRef, item: Item) -> Option<Mail> {
        let here = self.here;
        let names = &mut self.names;
        // The sender must be a change object of the sending host, the receiver a local one. Other names are not stored.
        let mut pair = |speaker: &CobId, listener: &CobId| {
            let is_of = |cob: &CobId, host| cob.host_str() == names.host_name(host).as_str();
            let right = is_of(speaker, host) && is_of(listener, here);
            right.then(|| (names.cob(speaker), names.cob(listener)))
        };
        let (from, to, msg) = match item {
            Item::Request(r) => {
                let (from, to) = pair(&r.asker, &r.asked)?;
                if r.set.is_empty() || r.set.len() > SET_MAX {
                    return None;
                }
                let set = r.set.iter().map(|s| self.names.state(s)).collect();
                let origin = self.names.cob(&r.origin);
                let Request { number, rev, rank, fingerprint, failed, .. } = r;
                (from, to, Msg::Request(Asked { number, rev, set, rank, origin, fingerprint, failed }))
            }
            Item::Release(a) => {
                let (from, to) = pair(&a.asker, &a.asked)?;
                (from, to, Msg::Release(a.number))
            }
            Item::Released(a) => {
                let (from, to) = pair(&a.asked, &a.asker)?;
                (from, to, Msg::Released(a.number))
            }
            Item::Recall(a) => {
                let (from, to) = pair(&a.asked, &a.asker)?;
                (from, to, Msg::Recall(a.number))
            }
            Item::Query(a) => {
                let (from, to) = pair(&a.asked, &a.asker)?;
                (from, to, Msg::Query(a.number))
            }
            Item::Lapsed(a) => {
                let (from, to) = pair(&a.asked, &a.asker)?;
                (from, to, Msg::Lapsed(a.number))
            }
            Item::Grant(g) => {
                let (from, to) = pair(&g.asked, &g.asker)?;
                if g.values.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_VALUES {
                    return None;
                }
                let state = self.names.state(&g.state);
                (from, to, Msg::Grant(Granted { number: g.number, rev: g.rev, state, values: shared(g.values) }))
            }
            Item::Refused(r) => {
                let (from, to) = pair(&r.about.asked, &r.about.asker)?;
                let reason = r.reason.chars().take(MAX_WHY).collect::<String>();
                (from, to, Msg::Refused { number: r.about.number, reason: reason.into() })
            }
            Item::Probe(p) => {
                if p.path.len() > cob_types::message::MAX_PROBE_PATH {
                    return None;
                }
                let (from, to) = pair(p.path.last()?, &p.to)?;
                let initiator = self.names.cob(&p.initiator);
                let path = p.path.iter().map(|c| self.names.cob(c)).collect();
                let Probe { number, generation, more, wide, .. } = p;
                (from, to, Msg::Probe(Probed { initiator, number, generation, path, more, wide }))
            }
            Item::Hello(_)
            | Item::HelloAck(_)
            | Item::AskFinal(_)
            | Item::Final(_)
            | Item::Going(_)
            | Item::Withdrawn(_)
            | Item::Through(_) => return None,
        };
        Some(Mail { from, to, msg })
    }
}
