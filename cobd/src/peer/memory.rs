//! Links without a network: daemons of the same process, joined by a hub. For tests of the daemon.
//!
//! For a daemon they behave like [`super::Links`]: the same events in the same order, batches once and in order across
//! cuts, bounded queues that end in a resync, no batch carried from one incarnation to another. Batches are copied
//! bytes here too, so that no data is shared by mistake. A test cuts and heals the connection of two hosts at will.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cob_types::status::{PeerStatus, Refused};
use cob_types::{HostName, Incarnation};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::config::Limits;
use super::event::{Counters, LinkEvent};
use super::roster::Roster;
use super::task::Owned;
use super::transport::Transport;

/// Joins the hosts of a process.
#[derive(Debug, Clone)]
pub struct Hub {
    state: Arc<Mutex<HubState>>,
    /// Wakes tasks that wait for a change.
    changed: Arc<Notify>,
}

/// The links of a daemon over a [`Hub`]. Dropping it closes all links, like a killed daemon.
#[derive(Debug)]
pub struct MemoryLinks {
    hub: Hub,
    me: HostName,
    /// The number of the incarnation under this name.
    life: u64,
    deliveries: BTreeMap<HostName, Owned<()>>,
}

#[derive(Debug)]
struct HubState {
    limits: Limits,
    links: u64,
    lives: u64,
    hosts: BTreeMap<HostName, Member>,
    cuts: BTreeSet<(HostName, HostName)>,
    /// The queue from each host to each other host.
    lanes: BTreeMap<(HostName, HostName), Lane>,
}

/// A running daemon.
#[derive(Debug)]
struct Member {
    life: u64,
    session: Incarnation,
    roster: BTreeSet<HostName>,
    events: mpsc::Sender<LinkEvent>,
    counters: Counters,
}

/// The direction from a host to another.
#[derive(Debug, Default)]
struct Lane {
    /// The present link.
    link: Option<u64>,
    /// The link that the receiving daemon knows of.
    told: Option<u64>,
    /// The reason why there is no link.
    why: String,
    queue: VecDeque<Bytes>,
    bytes: usize,
    /// A batch was dropped: the sending daemon has to send everything again.
    owes_resync: bool,
}

/// The next event for a daemon.
enum Next {
    Down(u64),
    Up(u64),
    Batch,
    Resync,
}

impl Hub {
    /// A hub without hosts; only the queue limits count (window and outbox together).
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let state = HubState {
            limits,
            links: 0,
            lives: 0,
            hosts: BTreeMap::new(),
            cuts: BTreeSet::new(),
            lanes: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::new(Notify::new()) }
    }

    /// Starts an incarnation of a daemon. An earlier incarnation under this name is cut off.
    #[must_use]
    pub fn join(&self, me: HostName, session: Incarnation, events: mpsc::Sender<LinkEvent>) -> MemoryLinks {
        let mut state = self.lock();
        state.hosts.remove(&me);
        state.settle("a newer link of the same host takes its place");
        for ((from, to), lane) in &mut state.lanes {
            if *from == me || *to == me {
                lane.clear();
                lane.owes_resync = false;
            }
            if *to == me {
                lane.told = None;
            }
        }
        state.lives += 1;
        let life = state.lives;
        let member = Member { life, session, roster: BTreeSet::new(), events, counters: Counters::default() };
        state.hosts.insert(me.clone(), member);
        drop(state);
        self.changed.notify_waiters();
        MemoryLinks { hub: self.clone(), me, life, deliveries: BTreeMap::new() }
    }

    /// Cuts the connection of two hosts.
    pub fn cut(&self, one: &HostName, other: &HostName) {
        let mut state = self.lock();
        state.cuts.insert(pair(one, other));
        state.settle("the connection was cut");
        drop(state);
        self.changed.notify_waiters();
    }

    /// Lets two hosts reach each other again.
    pub fn heal(&self, one: &HostName, other: &HostName) {
        let mut state = self.lock();
        state.cuts.remove(&pair(one, other));
        state.settle("");
        drop(state);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` finds a value in the state.
    async fn until<T>(&self, mut look: impl FnMut(&HubState) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look(&self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    /// Delivers the events of the lane from `peer` to `me`, as long as this incarnation of `me` lasts.
    async fn deliver(self, peer: HostName, me: HostName, life: u64, events: mpsc::Sender<LinkEvent>) {
        loop {
            self.until(|state| state.next(&peer, &me)).await;
            let Ok(permit) = events.reserve().await else { return };
            let mut state = self.lock();
            if state.member(&me, life).is_none() {
                return;
            }
            if let Some(event) = state.take_next(&peer, &me) {
                permit.send(event);
            }
            drop(state);
            self.changed.notify_waiters();
        }
    }
}

impl HubState {
    fn lane(&mut self, from: &HostName, to: &HostName) -> &mut Lane {
        self.lanes.entry((from.clone(), to.clone())).or_default()
    }

    /// Adds links between running hosts that know each other and are not cut, and removes the others.
    fn settle(&mut self, why: &str) {
        let hosts: Vec<_> = self.hosts.keys().cloned().collect();
        let mut linked = BTreeSet::new();
        for (at, one) in hosts.iter().enumerate() {
            for other in &hosts[at + 1..] {
                let know_each_other = self.hosts[one].roster.contains(other) && self.hosts[other].roster.contains(one);
                if know_each_other && !self.cuts.contains(&pair(one, other)) {
                    linked.insert((one.clone(), other.clone()));
                }
            }
        }
        for (one, other) in &linked {
            if self.lane(one, other).link.is_none() {
                self.links += 1;
                let link = Some(self.links);
                self.lane(one, other).link = link;
                self.lane(other, one).link = link;
            }
        }
        for ((from, to), lane) in &mut self.lanes {
            if lane.link.is_some() && !linked.contains(&pair(from, to)) {
                lane.link = None;
                why.clone_into(&mut lane.why);
            }
        }
    }

    fn member(&mut self, me: &HostName, life: u64) -> Option<&mut Member> {
        self.hosts.get_mut(me).filter(|member| member.life == life)
    }

    fn leave(&mut self, me: &HostName, life: u64, why: &str) {
        if self.member(me, life).is_some() {
            self.hosts.remove(me);
            self.settle(why);
        }
    }

    fn next(&self, peer: &HostName, me: &HostName) -> Option<Next> {
        let lane = self.lanes.get(&(peer.clone(), me.clone()))?;
        match (lane.told, lane.link) {
            (Some(told), link) if link != Some(told) => Some(Next::Down(told)),
            (None, Some(link)) => Some(Next::Up(link)),
            (None, None) => None,
            (Some(_), _) if !lane.queue.is_empty() => Some(Next::Batch),
            (Some(_), _) => {
                let back = self.lanes.get(&(me.clone(), peer.clone()))?;
                (back.owes_resync && back.queue.is_empty()).then_some(Next::Resync)
            }
        }
    }

    fn take_next(&mut self, peer: &HostName, me: &HostName) -> Option<LinkEvent> {
        let host = peer.clone();
        Some(match self.next(peer, me)? {
            Next::Down(link) => {
                let lane = self.lane(peer, me);
                lane.told = None;
                LinkEvent::Down { host, link, why: lane.why.clone() }
            }
            Next::Up(link) => {
                let incarnation = self.hosts.get(peer)?.session;
                self.lane(peer, me).told = Some(link);
                LinkEvent::Up { host, link, incarnation }
            }
            Next::Batch => {
                let lane = self.lane(peer, me);
                let bytes = lane.queue.pop_front()?;
                lane.bytes -= bytes.len();
                let counters = &mut self.hosts.get_mut(me)?.counters;
                counters.received += 1;
                counters.received_bytes += bytes.len() as u64;
                LinkEvent::Received { host, bytes }
            }
            Next::Resync => {
                self.lane(me, peer).owes_resync = false;
                LinkEvent::Resync { host }
            }
        })
    }

    fn send(&mut self, from: &HostName, to: &HostName, batch: &[u8]) {
        let messages = self.limits.window_messages + self.limits.outbox_messages;
        let bytes = self.limits.window_bytes + self.limits.outbox_bytes;
        let lane = self.lane(from, to);
        let fits = lane.queue.is_empty() || (lane.queue.len() < messages && lane.bytes + batch.len() <= bytes);
        let dropped = if fits && !lane.owes_resync {
            lane.bytes += batch.len();
            lane.queue.push_back(Bytes::copy_from_slice(batch));
            None
        } else {
            lane.owes_resync = true;
            Some(lane.clear() + 1)
        };
        if let Some(member) = self.hosts.get_mut(from) {
            match dropped {
                Some(dropped) => member.counters.dropped += dropped,
                None => {
                    member.counters.sent += 1;
                    member.counters.sent_bytes += batch.len() as u64;
                }
            }
        }
    }

    /// The hosts for which a host still has queued batches.
    fn unsettled(&self, me: &HostName) -> Vec<HostName> {
        let lanes = self.lanes.iter().filter(|((from, _), lane)| from == me && !lane.queue.is_empty());
        let roster = self.hosts.get(me).map(|member| &member.roster);
        lanes.map(|((_, to), _)| to.clone()).filter(|to| roster.is_some_and(|roster| roster.contains(to))).collect()
    }
}

impl Lane {
    fn clear(&mut self) -> u64 {
        let dropped = self.queue.len() as u64;
        self.queue.clear();
        self.bytes = 0;
        dropped
    }
}

/// The pair in a fixed order.
fn pair(one: &HostName, other: &HostName) -> (HostName, HostName) {
    if one < other { (one.clone(), other.clone()) } else { (other.clone(), one.clone()) }
}

impl Transport for MemoryLinks {
    fn roster(&mut self, roster: Roster) {
        let mut state = self.hub.lock();
        let Some(member) = state.member(&self.me, self.life) else { return };
        member.roster = roster.addresses().map(|(host, ..)| host.clone()).filter(|host| *host != self.me).collect();
        let events = member.events.clone();
        for host in member.roster.clone() {
            self.deliveries.entry(host.clone()).or_insert_with(|| {
                Owned::spawn(self.hub.clone().deliver(host, self.me.clone(), self.life, events.clone()))
            });
        }
        state.settle("the host is not in the roster any more");
        drop(state);
        self.hub.changed.notify_waiters();
    }

    fn send(&mut self, host: &HostName, batch: Bytes) {
        let mut state = self.hub.lock();
        if state.member(&self.me, self.life).is_some_and(|member| member.roster.contains(host)) {
            state.send(&self.me, host, &batch);
        }
        drop(state);
        self.hub.changed.notify_waiters();
    }

    fn busy(&mut self, _host: &HostName, _busy: bool) {}

    fn status(&self) -> Vec<PeerStatus> {
        let mut state = self.hub.lock();
        let roster = state.member(&self.me, self.life).map(|member| member.roster.clone()).unwrap_or_default();
        let status = |host: HostName| {
            let lane = state.lanes.get(&(host.clone(), self.me.clone()));
            let up = lane.is_some_and(|lane| lane.told.is_some());
            let why = lane.map(|lane| lane.why.clone()).filter(|why| !up && !why.is_empty());
            PeerStatus { host, up, since_ns: 0, error: why, unheard: None, fenced: false }
        };
        roster.into_iter().map(status).collect()
    }

    fn counters(&self) -> Counters {
        self.hub.lock().member(&self.me, self.life).map(|member| member.counters).unwrap_or_default()
    }

    /// In memory there are no strangers.
    fn refused(&self) -> Refused {
        Refused::default()
    }

    async fn shutdown(self, limit: Duration) -> Vec<HostName> {
        let settled = self.hub.until(|state| state.unsettled(&self.me).is_empty().then_some(()));
        // After the limit, the hosts with queued batches are returned.
        let _ = timeout(limit, settled).await;
        let mut state = self.hub.lock();
        let missing = state.unsettled(&self.me);
        state.leave(&self.me, self.life, "the other side shut down");
        missing
    }
}

impl Drop for MemoryLinks {
    fn drop(&mut self) {
        self.hub.lock().leave(&self.me, self.life, "the other side closed the connection");
        self.hub.changed.notify_waiters();
    }
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod tests;
