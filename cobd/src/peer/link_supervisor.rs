//! The supervisor of a peer: maintains a link while the peer is in the roster.
//!
//! Each peer has one task for as long as the daemon runs, so that the events of a peer arrive in order. The host with
//! the lower name dials repeatedly; the other host waits for connections from `door`. A peer has at most one link: a
//! newer connection of the same peer replaces the older.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::link::{Frame, LinkHello};
use cob_types::{HostName, Incarnation, PublicKey};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::config::Limits;
use super::dial::{Dialled, SetupError, dial};
use super::event::LinkEvent;
use super::gate::Gate;
use super::link::{Link, LinkEnd};
use super::peer_state::Peer;
use super::quiet::{Quiet, Topic};
use super::refusals::Refusals;
use super::session::End;
use super::socket_dir::SocketDir;
use super::task::Owned;
use super::wire::Wire;

/// Data shared by all supervisors of a daemon.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) me: HostName,
    pub(super) session: Incarnation,
    pub(super) limits: Limits,
    pub(super) sockets: SocketDir,
    pub(super) events: mpsc::Sender<LinkEvent>,
    pub(super) links: AtomicU64,
    pub(super) quiet: Quiet,
    pub(super) refusals: Refusals,
    pub(super) gate: Mutex<Arc<Gate>>,
}

impl Shared {
    /// The current gate for connections.
    pub(super) fn gate(&self) -> Arc<Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_gate(&self, gate: Gate) {
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(gate);
    }
}

/// The desired state of a peer's link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DesiredLink {
    /// The peer is not in the roster.
    Absent,
    /// There should be a link to the peer.
    Linked {
        /// The peer's listening address.
        address: SocketAddr,
        /// The accepted keys, of which the peer must hold one; `None`: in clear, without identities.
        keys: Option<Arc<BTreeSet<PublicKey>>>,
    },
    /// The daemon stops: say goodbye.
    Leave,
}

/// A connection that a peer made to this host; its hello is read and not yet answered.
pub(super) struct Accepted {
    pub(super) wire: Wire,
    pub(super) hello: LinkHello,
    /// The key that the peer has proved; `None`: in clear.
    pub(super) key: Option<PublicKey>,
}

impl DesiredLink {
    /// The reason why a link with this proved key is not allowed; `None`: it is allowed.
    fn objects_to(&self, key: Option<PublicKey>) -> Option<LinkEnd> {
        match (self, key) {
            (DesiredLink::Linked { keys: None, .. }, None) | (DesiredLink::Absent | DesiredLink::Leave, _) => None,
            (DesiredLink::Linked { keys: Some(keys), .. }, Some(key)) => {
                (!keys.contains(&key)).then_some(LinkEnd::KeyGone(key))
            }
            (DesiredLink::Linked { .. }, _) => Some(LinkEnd::OtherProtection),
        }
    }
}

/// The supervisor of a peer.
pub(super) struct LinkSupervisor {
    pub(super) shared: Arc<Shared>,
    pub(super) peer: Arc<Peer>,
    pub(super) desired: watch::Receiver<DesiredLink>,
    pub(super) accepted: mpsc::Receiver<Accepted>,
}

/// The event that ended the wait for a connection.
enum Next {
    Up(Box<Link>),
    Failed(SetupError),
    Changed,
}

impl LinkSupervisor {
    /// Runs until the daemon stops.
    pub(super) async fn run(mut self) {
        let mut pause = Pause::new(&self.shared.limits);
        loop {
            let desired = self.desired.borrow_and_update().clone();
            let next = match &desired {
                DesiredLink::Leave => return,
                DesiredLink::Absent => {
                    self.peer.lock().session.forget();
                    changed(&mut self.desired).await;
                    Next::Changed
                }
                DesiredLink::Linked { address, keys } if self.dials() => self.dial(*address, keys.clone()).await,
                DesiredLink::Linked { .. } => self.wait_for_it().await,
            };
            let wait = match next {
                Next::Changed => continue,
                Next::Up(link) => {
                    let start = Instant::now();
                    self.hold(*link).await;
                    if start.elapsed() >= self.shared.limits.redial_max {
                        pause.reset();
                    }
                    pause.next()
                }
                Next::Failed(error) => {
                    self.note_failure(&error);
                    // If the address is wrong, only another address can help.
                    if matches!(error, SetupError::NotLoopback(_)) { Duration::MAX } else { pause.next() }
                }
            };
            if self.dials() {
                tokio::select! {
                    () = sleep(wait) => {}
                    () = desired_other_than(&mut self.desired, &desired) => {}
                }
            }
        }
    }

    fn dials(&self) -> bool {
        self.shared.me < self.peer.host
    }

    async fn dial(&mut self, address: SocketAddr, keys: Option<Arc<BTreeSet<PublicKey>>>) -> Next {
        let dialled = Owned::spawn(dial(self.shared.clone(), self.peer.clone(), address, keys));
        let dialled = tokio::select! {
            dialled = dialled => match dialled {
                Ok(Ok(opened)) => opened,
                Ok(Err(error)) => return Next::Failed(error),
                Err(panic) => return Next::Failed(panic.into()),
            },
            () = changed(&mut self.desired) => return Next::Changed,
        };
        self.shared.quiet.over(Topic::Dial, &self.peer.host);
        self.dialled(dialled).map_or_else(Next::Failed, |link| Next::Up(Box::new(link)))
    }

    async fn wait_for_it(&mut self) -> Next {
        let accepted = tokio::select! {
            accepted = self.accepted.recv() => accepted,
            () = changed(&mut self.desired) => return Next::Changed,
        };
        match accepted {
            Some(accepted) => self.answer(accepted).await.map_or_else(Next::Failed, |link| Next::Up(Box::new(link))),
            None => std::future::pending().await,
        }
    }

    async fn answer(&mut self, Accepted { mut wire, hello, key }: Accepted) -> Result<Link, SetupError> {
        // The roster may have changed since the listener accepted the connection.
        if let Some(end) = self.desired.borrow().objects_to(key) {
            return Err(SetupError::Outdated(end));
        }
        self.peer.lock().session.greet(&hello, End::Accepted)?;
        let answer = self.peer.lock().session.hello(&self.shared.me, &self.peer.host);
        wire.send(Frame::Hello(answer).encode()?).await?;
        Ok(self.new_link(wire, &hello, key))
    }

    fn dialled(&self, Dialled { wire, hello, key }: Dialled) -> Result<Link, SetupError> {
        self.peer.lock().session.greet(&hello, End::Dialled)?;
        Ok(self.new_link(wire, &hello, key))
    }

    fn new_link(&self, wire: Wire, hello: &LinkHello, key: Option<PublicKey>) -> Link {
        Link {
            peer: self.peer.clone(),
            key,
            number: self.shared.links.fetch_add(1, Ordering::Relaxed) + 1,
            incarnation: hello.session,
            wire,
            events: self.shared.events.clone(),
            limits: self.shared.limits.clone(),
        }
    }

    /// Runs a link and its replacements until no link is left.
    async fn hold(&mut self, link: Link) {
        let mut link = Some(link);
        while let Some(held) = link.take() {
            let (number, key) = (held.number, held.key);
            self.shared.quiet.say(Topic::Up, Some(&self.peer.host), |more| {
                tracing::info!(host = %self.peer.host, link = number, life = held.incarnation.start, "link up{more}");
            });
            let mut task = Owned::spawn(held.run());
            let (end, newer) = loop {
                tokio::select! {
                    end = &mut task => break (end.unwrap_or_else(LinkEnd::Panic), None),
                    Some(newer) = self.accepted.recv() => {
                        let current = self.peer.lock().session.is_current(&newer.hello);
                        match current {
                            Ok(()) => break (LinkEnd::Replaced, Some(newer)),
                            Err(fault) => self.note_failure(&fault.into()),
                        }
                    }
                    () = changed(&mut self.desired) => {
                        let desired = self.desired.borrow().clone();
                        match desired {
                            // A link to the host's previous address serves until it ends. The next uses the new one.
                            DesiredLink::Linked { .. } => {
                                if let Some(end) = desired.objects_to(key) {
                                    break (end, None);
                                }
                            }
                            DesiredLink::Absent => break (self.dismissed(key), None),
                            DesiredLink::Leave => break ((&mut task).await.unwrap_or_else(LinkEnd::Panic), None),
                        }
                    }
                }
            };
            // After the end of this link, no event of it may be reported.
            task.end().await;
            self.note_down(number, &end).await;
            if let Some(newer) = newer {
                match self.answer(newer).await {
                    Ok(newer) => link = Some(newer),
                    Err(error) => self.note_failure(&error),
                }
            }
        }
    }

    /// The reason for ending the link of a host that is not in the roster any more.
    fn dismissed(&self, key: Option<PublicKey>) -> LinkEnd {
        match key {
            Some(key) if self.shared.gate().is_revoked(&key) => LinkEnd::KeyGone(key),
            Some(_) | None => LinkEnd::Dismissed,
        }
    }

    async fn note_down(&self, number: u64, end: &LinkEnd) {
        let why = end.to_string();
        if let Some(reason) = end.reason() {
            self.shared.refusals.add(reason);
        }
        self.shared.quiet.say(Topic::Down, Some(&self.peer.host), |more| {
            let host = &self.peer.host;
            if end.is_planned() {
                tracing::info!(%host, link = number, "link down: {why}{more}");
            } else {
                tracing::warn!(%host, link = number, "link down: {why}{more}");
            }
        });
        let told = self.peer.lock().set_down(&why);
        if let Some(link) = told {
            // If the daemon is gone, the event has no receiver.
            let _ = self.shared.events.send(LinkEvent::Down { host: self.peer.host.clone(), link, why }).await;
        }
    }

    fn note_failure(&self, error: &SetupError) {
        let reason = error.reason();
        if let Some(reason) = reason {
            self.shared.refusals.add(reason);
        }
        // A refusal is logged even if the host was unreachable a moment ago.
        self.shared.quiet.say(reason.map_or(Topic::Dial, Topic::Refused), Some(&self.peer.host), |more| {
            tracing::warn!(host = %self.peer.host, "no link: {error}{more}");
        });
        let mut state = self.peer.lock();
        if state.up.is_none() {
            state.set_down(&error.to_string());
        }
    }
}

/// Waits for a desired state other than `old`.
async fn desired_other_than(desired: &mut watch::Receiver<DesiredLink>, old: &DesiredLink) {
    while *desired.borrow() == *old {
        changed(desired).await;
    }
}

/// Waits for another desired state; waits forever if the daemon is gone.
async fn changed(desired: &mut watch::Receiver<DesiredLink>) {
    if desired.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The pause before a host is dialled again: it doubles, with jitter, so that hosts that lost each other together do
/// not reconnect in step.
struct Pause {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Pause {
    fn new(limits: &Limits) -> Self {
        Self { min: limits.redial_min, max: limits.redial_max, next: limits.redial_min }
    }

    fn reset(&mut self) {
        self.next = self.min;
    }

    fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        let part = RandomState::new().hash_one(()) % 1024;
        pause / 2 + pause / 2 * u32::try_from(part).unwrap_or(0) / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_differ() {
        let limits = Limits::default();
        let mut pause = Pause::new(&limits);
        let pauses: Vec<_> = (0..20).map(|_| pause.next()).collect();
        assert!(pauses[0] >= limits.redial_min / 2 && pauses[0] <= limits.redial_min);
        assert!(pauses[8..].iter().all(|&pause| pause >= limits.redial_max / 2 && pause <= limits.redial_max));
        assert!(pauses[9..].windows(2).any(|pair| pair[0] != pair[1]));
        pause.reset();
        assert!(pause.next() <= limits.redial_min);
    }
}
