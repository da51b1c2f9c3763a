//! The keeper of one peer: sees to it that there is a link while the peer is in the roster.
//!
//! One task a peer, for as long as the daemon lives, so that what is told of a peer comes in order. The
//! host with the lower name dials, again and again; the other waits for what `door` hands over. There
//! is one link at most: a newer connection of the same peer takes the place of the older.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cob_types::link::{Frame, Hello};
use cob_types::{HostName, Incarnation};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::config::{Limits, LinkError, only_loopback};
use super::event::LinkEvent;
use super::link::{Link, LinkEnd};
use super::peer_state::Peer;
use super::quiet::{Quiet, Topic};
use super::session::{End, Fault, check_hello, read_hello};
use super::socket_dir::SocketDir;
use super::task::Owned;
use super::wire::{Wire, WireEnd};

/// What all keepers of a daemon share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) me: HostName,
    pub(super) session: Incarnation,
    pub(super) limits: Limits,
    pub(super) sockets: SocketDir,
    pub(super) events: mpsc::Sender<LinkEvent>,
    pub(super) links: AtomicU64,
    pub(super) quiet: Quiet,
}

/// What is wanted of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// It is not in the roster.
    Absent,
    /// A link to it, at this address.
    Linked(SocketAddr),
    /// The daemon stops: say goodbye.
    Leave,
}

/// A connection that a peer made to us, its hello read and not yet answered.
pub(super) struct Accepted {
    pub(super) wire: Wire,
    pub(super) hello: Hello,
}

/// Sees to one peer.
pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) peer: Arc<Peer>,
    pub(super) wish: watch::Receiver<Wish>,
    pub(super) accepted: mpsc::Receiver<Accepted>,
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    #[error(transparent)]
    NotLoopback(#[from] LinkError),
    #[error("can't reach it at {address}: {source}")]
    Dial { address: SocketAddr, source: std::io::Error },
    #[error("nobody listens at {0}, where this host should be")]
    Nobody(SocketAddr),
    #[error("no handshake within {} s", .0.as_secs_f32())]
    Slow(Duration),
    #[error(transparent)]
    Wire(#[from] WireEnd),
    #[error("the other side broke the rules of the link: {0}")]
    Fault(#[from] Fault),
    #[error("a hello could not be made: {0}")]
    Encode(#[from] cob_types::codec::CodecError),
    #[error("a defect of the program: {0}")]
    Panic(#[from] tokio::task::JoinError),
}

/// What ended the wait for a connection.
enum Next {
    Up(Box<Link>),
    Failed(SetupError),
    OtherWish,
}

impl Keeper {
    /// Works until the daemon leaves.
    pub(super) async fn run(mut self) {
        let mut pause = Pause::new(&self.shared.limits);
        loop {
            let wish = *self.wish.borrow_and_update();
            let next = match wish {
                Wish::Leave => return,
                Wish::Absent => {
                    self.peer.lock().session.forget();
                    changed(&mut self.wish).await;
                    Next::OtherWish
                }
                Wish::Linked(address) if self.dials() => self.dial(address).await,
                Wish::Linked(_) => self.wait_for_it().await,
            };
            let wait = match next {
                Next::OtherWish => continue,
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
                    // Against a wrong address only another address can help.
                    if matches!(error, SetupError::NotLoopback(_)) { Duration::MAX } else { pause.next() }
                }
            };
            if self.dials() {
                tokio::select! {
                    () = sleep(wait) => {}
                    () = wish_other_than(&mut self.wish, wish) => {}
                }
            }
        }
    }

    fn dials(&self) -> bool {
        self.shared.me < self.peer.host
    }

    async fn dial(&mut self, address: SocketAddr) -> Next {
        let dialled = Owned::spawn(dial(self.shared.clone(), self.peer.clone(), address));
        let (wire, hello) = tokio::select! {
            dialled = dialled => match dialled {
                Ok(Ok(opened)) => opened,
                Ok(Err(error)) => return Next::Failed(error),
                Err(panic) => return Next::Failed(panic.into()),
            },
            () = changed(&mut self.wish) => return Next::OtherWish,
        };
        self.shared.quiet.over(Topic::Dial, &self.peer.host);
        self.link(wire, &hello, End::Dialled).map_or_else(Next::Failed, |link| Next::Up(Box::new(link)))
    }

    async fn wait_for_it(&mut self) -> Next {
        let accepted = tokio::select! {
            accepted = self.accepted.recv() => accepted,
            () = changed(&mut self.wish) => return Next::OtherWish,
        };
        match accepted {
            Some(accepted) => self.answer(accepted).await.map_or_else(Next::Failed, |link| Next::Up(Box::new(link))),
            None => std::future::pending().await,
        }
    }

    async fn answer(&mut self, Accepted { mut wire, hello }: Accepted) -> Result<Link, SetupError> {
        self.peer.lock().session.greet(&hello, End::Accepted)?;
        let answer = self.peer.lock().session.hello(&self.shared.me, &self.peer.host);
        wire.send(Frame::Hello(answer).encode()?).await?;
        Ok(self.new_link(wire, &hello))
    }

    fn link(&self, wire: Wire, hello: &Hello, end: End) -> Result<Link, SetupError> {
        self.peer.lock().session.greet(hello, end)?;
        Ok(self.new_link(wire, hello))
    }

    fn new_link(&self, wire: Wire, hello: &Hello) -> Link {
        Link {
            peer: self.peer.clone(),
            number: self.shared.links.fetch_add(1, Ordering::Relaxed) + 1,
            incarnation: hello.session,
            wire,
            events: self.shared.events.clone(),
            limits: self.shared.limits.clone(),
        }
    }

    /// Runs a link, and whichever takes its place, until there is none.
    async fn hold(&mut self, link: Link) {
        let mut link = Some(link);
        while let Some(held) = link.take() {
            let number = held.number;
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
                    () = changed(&mut self.wish) => {
                        let wish = *self.wish.borrow();
                        match wish {
                            Wish::Linked(_) if self.dials() => break (LinkEnd::Moved, None),
                            Wish::Linked(_) => {}
                            Wish::Absent => break (LinkEnd::Dismissed, None),
                            Wish::Leave => break ((&mut task).await.unwrap_or_else(LinkEnd::Panic), None),
                        }
                    }
                }
            };
            // Nothing of this link may be told after its end.
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

    async fn note_down(&self, number: u64, end: &LinkEnd) {
        let why = end.to_string();
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
            // Without a daemon nobody has to be told.
            let _ = self.shared.events.send(LinkEvent::Down { host: self.peer.host.clone(), link, why }).await;
        }
    }

    fn note_failure(&self, error: &SetupError) {
        self.shared.quiet.say(Topic::Dial, Some(&self.peer.host), |more| {
            tracing::warn!(host = %self.peer.host, "no link: {error}{more}");
        });
        let mut state = self.peer.lock();
        if state.up.is_none() {
            state.set_down(&error.to_string());
        }
    }
}

/// Waits for a wish that is not this one.
async fn wish_other_than(wish: &mut watch::Receiver<Wish>, old: Wish) {
    while *wish.borrow() == old {
        changed(wish).await;
    }
}

/// Waits for another wish. A daemon that is gone wishes for nothing.
async fn changed(wish: &mut watch::Receiver<Wish>) {
    if wish.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Connects to a peer, shakes hands, says hello and takes the answer.
async fn dial(shared: Arc<Shared>, peer: Arc<Peer>, address: SocketAddr) -> Result<(Wire, Hello), SetupError> {
    only_loopback(&format!("host {} at", peer.host), address)?;
    let limit = shared.limits.setup_time;
    let setup = async {
        let stream = TcpStream::connect(address).await.map_err(|source| SetupError::Dial { address, source })?;
        if has_met_itself(&stream) {
            return Err(SetupError::Nobody(address));
        }
        stream.set_nodelay(true).map_err(|source| SetupError::Dial { address, source })?;
        let mut wire = Wire::open(stream, &shared.sockets, shared.limits.max_frame, limit).await?;
        let hello = peer.lock().session.hello(&shared.me, &peer.host);
        wire.send(Frame::Hello(hello).encode()?).await?;
        let answer = read_hello(&wire.next().await?)?;
        check_hello(&answer, &shared.me, &peer.host)?;
        Ok((wire, answer))
    };
    timeout(limit, setup).await.unwrap_or(Err(SetupError::Slow(limit)))
}

/// A connection to a port of this machine that nobody listens on may come from that very port.
fn has_met_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(remote)) if local == remote)
}

/// The pause before a host is dialled again: doubles, with a jitter, so that hosts that lost each
/// other together do not come back in step.
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
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_met_itself_is_noticed() {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("address")).expect("binds");
        let own = socket.local_addr().expect("bound");
        assert!(has_met_itself(&socket.connect(own).await.expect("meets itself")));

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let other = listener.local_addr().expect("bound");
        assert!(!has_met_itself(&TcpStream::connect(other).await.expect("connects")));
    }

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
