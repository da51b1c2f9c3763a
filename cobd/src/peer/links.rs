//! The links of a daemon to all its peers.
//!
//! The daemon's loop holds [`Links`], passes it rosters and batches, and reads [`LinkEvent`]s from a channel. Only
//! start and shutdown wait.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cob_types::HostName;
use cob_types::message::MAX_BATCH;
use cob_types::status::{PeerStatus, RefusalCounts};
use rustix::net::sockopt::{set_ip_freebind, set_ipv6_freebind};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::config::{LinkConfig, LinkError, only_loopback};
use super::event::{Counters, LinkEvent};
use super::gate::Gate;
use super::link_supervisor::{Accepted, DesiredLink, LinkSupervisor, Shared};
use super::listener::Directory;
use super::listeners::Listeners;
use super::peer_state::Peer;
use super::quiet::{Quiet, Topic};
use super::refusals::Refusals;
use super::roster::Roster;
use super::session::Session;
use super::socket_dir::SocketDir;
use super::task::Owned;

/// The most connections that wait for the listener.
const BACKLOG: u32 = 1024;

/// The links of a daemon, over TCP. Dropping it closes all links.
#[derive(Debug)]
pub struct Links {
    shared: Arc<Shared>,
    /// The first listening address.
    first: SocketAddr,
    directory: Arc<Directory>,
    /// Every host that has been in the roster during this incarnation.
    peers: BTreeMap<HostName, PeerEntry>,
    doors: Listeners,
}

#[derive(Debug)]
struct PeerEntry {
    peer: Arc<Peer>,
    desired: watch::Sender<DesiredLink>,
    accepted: mpsc::Sender<Accepted>,
    keeper: Owned<()>,
}

impl Links {
    /// Starts to listen. Links come up once [`Links::roster`] has named the hosts.
    ///
    /// # Errors
    /// [`LinkError`] if the address is not a loopback address and there are no identities, or if the port or the folder
    /// can't be used.
    pub async fn start(config: LinkConfig, events: mpsc::Sender<LinkEvent>) -> Result<Self, LinkError> {
        let LinkConfig { me, listen, awaits_address, socket_dir, protection, session, limits } = config;
        if !protection.has_identities() {
            only_loopback("refusing to listen:", listen)?;
        }
        let sockets =
            SocketDir::open(&socket_dir).map_err(|source| LinkError::SocketDir { path: socket_dir, source })?;
        let bound = if awaits_address { bind_early(listen) } else { bind(listen).await };
        let (listener, address) = bound.map_err(|source| LinkError::Listen { address: listen, source })?;
        let shared = Arc::new(Shared {
            me,
            session,
            limits,
            sockets,
            events,
            links: AtomicU64::new(0),
            quiet: Quiet::default(),
            refusals: Refusals::default(),
            gate: Mutex::new(Arc::new(Gate::new(&Roster { protection, young: true, ..Roster::default() }))),
        });
        let directory = Arc::new(Directory::default());
        let doors = Listeners::new(listener, address, &shared, &directory);
        Ok(Self { shared, first: address, directory, peers: BTreeMap::new(), doors })
    }

    /// The address at which this daemon listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.doors.address().unwrap_or(self.first)
    }

    /// Listens at another address: peers find this host at its new address, and peers that know only the old address
    /// still reach it. Returns whether the address is new.
    ///
    /// # Errors
    /// If the address is not a loopback address and there are no identities, or if the system reports an error.
    pub fn listen(&mut self, address: SocketAddr) -> Result<bool, LinkError> {
        if !self.shared.gate().has_identities() {
            only_loopback("refusing to listen:", address)?;
        }
        let opened = self.doors.open(address, &self.shared, &self.directory);
        opened.map_err(|source| LinkError::Listen { address, source })
    }

    /// Stops listening at these addresses; returns the addresses that were open.
    pub fn close(&mut self, which: impl Fn(&SocketAddr) -> bool) -> Vec<SocketAddr> {
        self.doors.close(which)
    }

    /// The time of the last message from a host; `None`: there is no link to it.
    #[must_use]
    pub fn heard(&self, host: &HostName) -> Option<std::time::Instant> {
        self.peers.get(host)?.peer.lock().heard()
    }

    fn keep(shared: &Arc<Shared>, host: &HostName, desired: DesiredLink) -> PeerEntry {
        let peer = Arc::new(Peer::new(host.clone(), Session::new(shared.session, &shared.limits)));
        let (desired, desired_receiver) = watch::channel(desired);
        // A connection waits while its supervisor is busy; a second waiting connection means a broken peer.
        let (accepted, accepts) = mpsc::channel(1);
        let keeper =
            LinkSupervisor { shared: shared.clone(), peer: peer.clone(), desired: desired_receiver, accepted: accepts };
        PeerEntry { peer, desired, accepted, keeper: Owned::spawn(keeper.run()) }
    }
}

/// Listens at an address that this machine may get later.
fn bind_early(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    if address.is_ipv4() {
        set_ip_freebind(&socket, true)?
    } else {
        set_ipv6_freebind(&socket, true)?
    }
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Links {
    /// Sets the hosts, their addresses and their keys. Links to other hosts, or with other keys, are closed; this host
    /// itself is ignored.
    pub fn roster(&mut self, roster: Roster) {
        let shared = &self.shared;
        // First of all: from now on only hosts of this roster are admitted.
        shared.set_gate(Gate::new(&roster));
        let secure = roster.protection.has_identities();
        for (host, address, entry) in roster.addresses().filter(|(host, ..)| **host != shared.me) {
            let keys = entry.keys.difference(&roster.revoked).copied().collect();
            let desired = DesiredLink::Linked { address, keys: secure.then(|| Arc::new(keys)) };
            let kept = self.peers.entry(host.clone()).or_insert_with(|| Self::keep(shared, host, desired.clone()));
            kept.set_desired(desired);
        }
        let wanted = |host: &HostName| roster.hosts.get(host).is_some_and(|entry| entry.address.is_some());
        for (_, kept) in self.peers.iter().filter(|(host, _)| !wanted(host)) {
            kept.set_desired(DesiredLink::Absent);
        }
        let present = self.peers.iter().filter(|(_, kept)| kept.is_present());
        self.directory.set(present.map(|(host, kept)| (host.clone(), kept.accepted.clone())).collect());
    }

    /// Sends a batch: it arrives once and in order, also across closed links, as long as both daemons run. It may be
    /// dropped when too many batches wait; then [`LinkEvent::Resync`] follows.
    pub fn send(&mut self, host: &HostName, batch: Bytes) {
        let refused = if batch.len() > MAX_BATCH {
            Some(format!("{} bytes are more than a batch may have ({MAX_BATCH})", batch.len()))
        } else if self.peers.get(host).is_none_or(|kept| !kept.is_present()) {
            Some("this host is not in the roster".to_owned())
        } else {
            None
        };
        if let Some(why) = refused {
            self.shared.quiet.say(Topic::Send, Some(host), |more| {
                tracing::error!(%host, "a batch is not sent: {why}{more}");
            });
            return;
        }
        let Some(kept) = self.peers.get(host) else { return };
        if !kept.peer.lock().session.push(batch) {
            self.shared.quiet.say(Topic::Send, Some(host), |more| {
                tracing::warn!(%host, "batches are dropped: too many wait; the messages are repeated later{more}");
            });
        }
        kept.peer.wake.notify_one();
    }

    /// Sets whether grants or requests connect the two hosts: then a dead host must be noticed soon.
    pub fn busy(&mut self, host: &HostName, busy: bool) {
        if let Some(kept) = self.peers.get(host)
            && std::mem::replace(&mut kept.peer.lock().busy, busy) != busy
        {
            kept.peer.wake.notify_one();
        }
    }

    /// Every host of the roster, as `cobctl status` shows it.
    #[must_use]
    pub fn status(&self) -> Vec<PeerStatus> {
        self.peers.values().filter(|kept| kept.is_present()).map(|kept| kept.peer.status()).collect()
    }

    /// Counters of the links.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for kept in self.peers.values() {
            sum.add(kept.peer.lock().session.counters());
        }
        sum
    }

    /// Counters of refusals, by reason.
    #[must_use]
    pub fn refused(&self) -> RefusalCounts {
        self.shared.refusals.get()
    }

    /// Ends all links when all sent batches are acknowledged, or at the limit. Returns the hosts with unacknowledged
    /// batches. Batches that still arrive are not passed on.
    pub async fn shutdown(self, limit: Duration) -> Vec<HostName> {
        for kept in self.peers.values() {
            kept.peer.lock().stopping = true;
            kept.peer.wake.notify_one();
        }
        let settled = async {
            for kept in self.peers.values().filter(|kept| kept.is_present()) {
                while !kept.peer.lock().session.is_settled() {
                    kept.peer.settled.notified().await;
                }
            }
        };
        // After the limit, the hosts with unacknowledged batches are returned.
        let _ = timeout(limit, settled).await;
        let missing = self.peers.values().filter(|kept| kept.is_present());
        let missing = missing.filter(|kept| !kept.peer.lock().session.is_settled());
        let missing = missing.map(|kept| kept.peer.host.clone()).collect();
        for kept in self.peers.values() {
            kept.peer.lock().leaving = true;
            kept.desired.send_replace(DesiredLink::Leave);
            kept.peer.wake.notify_one();
        }
        let left = async {
            for kept in self.peers.into_values() {
                // A supervisor that panicked has no more results.
                let _ = kept.keeper.await;
            }
        };
        let _ = timeout(self.shared.limits.bye_time, left).await;
        missing
    }
}

impl PeerEntry {
    fn is_present(&self) -> bool {
        matches!(*self.desired.borrow(), DesiredLink::Linked { .. })
    }

    fn set_desired(&self, desired: DesiredLink) {
        self.desired.send_if_modified(|current| {
            let other = *current != desired;
            *current = desired;
            other
        });
    }
}
