//! Hosts, a network that can be cut, and captured log lines, for the tests of the links.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names the event that it waits for")]

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cob_trust::SecretKey;
use cob_trust::tls::Identity;
use cob_types::link::Frame;
use cob_types::{HostName, Incarnation};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::task::Owned;
use super::{Limits, LinkConfig, LinkEvent, Links, Protection, Roster, RosterHost};

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not happen in {PATIENCE:?}"))
}

/// Both hosts send a batch and receive the other's, this many times: their link works.
pub(super) async fn talk(one: &mut TestHost, other: &mut TestHost, rounds: u32) {
    for round in 0..rounds {
        let text = round.to_string();
        one.send(other.name.as_str(), &text);
        assert_eq!(other.received().await, text);
        other.send(one.name.as_str(), &text);
        assert_eq!(one.received().await, text);
    }
}

pub(super) fn host(name: &str) -> HostName {
    HostName::new(name).expect("host")
}

pub(super) fn life(id: u64, start: u32) -> Incarnation {
    Incarnation { id, start }
}

/// Limits with times that suit a test.
pub(super) fn quick() -> Limits {
    Limits {
        setup_time: Duration::from_secs(2),
        heartbeat_busy: Duration::from_millis(50),
        heartbeat_idle: Duration::from_millis(400),
        redial_min: Duration::from_millis(2),
        redial_max: Duration::from_millis(10),
        ..Limits::default()
    }
}

/// A daemon's links, and their events.
pub(super) struct TestHost {
    pub(super) name: HostName,
    pub(super) links: Links,
    pub(super) events: mpsc::Receiver<LinkEvent>,
    folder: TempDir,
}

impl TestHost {
    pub(super) async fn start(name: &str, session: Incarnation) -> Self {
        Self::start_with(name, session, quick(), 64).await
    }

    /// A host of a model with identities; its roster is still empty.
    pub(super) async fn secure(name: &str, session: Incarnation, key: u8) -> Self {
        Self::start_as(name, session, quick(), 64, shows(key)).await
    }

    pub(super) async fn start_with(name: &str, session: Incarnation, limits: Limits, room: usize) -> Self {
        Self::start_as(name, session, limits, room, Protection::LoopbackOnly).await
    }

    pub(super) async fn start_as(
        name: &str,
        session: Incarnation,
        limits: Limits,
        room: usize,
        protection: Protection,
    ) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let config = LinkConfig {
            me: host(name),
            listen: "127.0.0.1:0".parse().expect("address"),
            awaits_address: false,
            socket_dir: folder.path().join("sockets"),
            protection,
            session,
            limits,
        };
        let (events_in, events) = mpsc::channel(room);
        let links = Links::start(config, events_in).await.expect("starts");
        Self { name: host(name), links, events, folder }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.links.address()
    }

    pub(super) fn roster(&mut self, hosts: &[(&str, SocketAddr)]) {
        self.links.roster(Roster::loopback_only(hosts.iter().map(|&(name, address)| (host(name), address))));
    }

    /// A roster with identities: this host's own key, the addresses and keys of all hosts, and the revoked keys.
    pub(super) fn trust(&mut self, own: u8, hosts: &[(&str, SocketAddr, &[u8])], revoked: &[u8]) {
        let entry = |&(name, address, keys): &(&str, SocketAddr, &[u8])| {
            let keys = keys.iter().map(|n| secret(*n).public()).collect();
            (host(name), RosterHost { address: Some(address), keys })
        };
        self.links.roster(Roster {
            hosts: hosts.iter().map(entry).collect(),
            operators: [secret(OPERATOR).public()].into(),
            revoked: revoked.iter().map(|n| secret(*n).public()).collect(),
            protection: shows(own),
            ..Roster::default()
        });
    }

    pub(super) fn send(&mut self, to: &str, text: &str) {
        self.links.send(&host(to), Bytes::copy_from_slice(text.as_bytes()));
    }

    pub(super) async fn next(&mut self) -> LinkEvent {
        within("an event", self.events.recv()).await.expect("the links live")
    }

    /// The next event, which must be a link coming up.
    pub(super) async fn up(&mut self) -> (u64, Incarnation) {
        match self.next().await {
            LinkEvent::Up { link, incarnation, .. } => (link, incarnation),
            other => panic!("{}: not up: {other:?}", self.name),
        }
    }

    /// The next event, which must be a link going down; returns the reason.
    pub(super) async fn down(&mut self) -> String {
        match self.next().await {
            LinkEvent::Down { why, .. } => why,
            other => panic!("{}: not down: {other:?}", self.name),
        }
    }

    /// The next event, which must be a batch.
    pub(super) async fn received(&mut self) -> String {
        match self.next().await {
            LinkEvent::Received { bytes, .. } => String::from_utf8(bytes.to_vec()).expect("text"),
            other => panic!("{}: not received: {other:?}", self.name),
        }
    }

    /// The number of sockets left in the folder.
    pub(super) fn sockets(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("sockets")).expect("lists").count()
    }
}

/// The number of the operator's key in every roster with identities.
pub(super) const OPERATOR: u8 = 200;

/// The secret key with this number.
pub(super) fn secret(number: u8) -> SecretKey {
    SecretKey::from_seed(&[number; 32])
}

pub(super) fn identity(number: u8) -> Identity {
    Identity::new(&secret(number)).expect("an identity")
}

pub(super) fn shows(key: u8) -> Protection {
    Protection::Identities(Some(identity(key)))
}

/// Two hosts with the keys 1 and 2, linked over TLS.
pub(super) async fn two_secure() -> (TestHost, TestHost) {
    let mut a = TestHost::secure("a", life(1, 1), 1).await;
    let mut b = TestHost::secure("b", life(2, 1), 2).await;
    let hosts: &[(&str, SocketAddr, &[u8])] = &[("a", a.address(), &[1]), ("b", b.address(), &[2])];
    a.trust(1, hosts, &[]);
    b.trust(2, hosts, &[]);
    a.up().await;
    b.up().await;
    (a, b)
}

/// Two hosts, linked.
pub(super) async fn two() -> (TestHost, TestHost) {
    let mut a = TestHost::start("a", life(1, 1)).await;
    let mut b = TestHost::start("b", life(2, 1)).await;
    a.roster(&[("a", a.address()), ("b", b.address())]);
    b.roster(&[("a", a.address()), ("b", b.address())]);
    a.up().await;
    b.up().await;
    (a, b)
}

/// The first bytes of a DEALER.
pub(super) fn dealer_handshake() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0] = 0xFF;
    bytes[9] = 0x7F;
    bytes[10] = 3;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes.extend(b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER");
    bytes
}

/// A frame as ZMTP carries it.
pub(super) fn zmtp(frame: &Frame<'_>) -> Vec<u8> {
    let body = frame.encode().expect("encodes");
    [&[2][..], &(body.len() as u64).to_be_bytes(), &body].concat()
}

/// How a connection through the proxy is closed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cut {
    Reset,
    Close,
}

/// A proxy in front of a port.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    cut: watch::Sender<Cut>,
    silent: Arc<AtomicBool>,
    _task: Owned<()>,
}

impl Proxy {
    pub(super) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let (cut, cuts) = watch::channel(Cut::Close);
        let silent = Arc::new(AtomicBool::new(false));
        let lets_nothing_through = silent.clone();
        let task = Owned::spawn(async move {
            let mut connections = Vec::new();
            loop {
                let (near, _) = listener.accept().await.expect("accepts");
                connections.push(Owned::spawn(forward(near, target, cuts.clone(), lets_nothing_through.clone())));
            }
        });
        Self { address, cut, silent, _task: task }
    }

    /// Ends every connection.
    pub(super) fn cut(&self, how: Cut) {
        self.cut.send_replace(how);
    }

    /// Swallows all bytes, without closing the connection.
    pub(super) fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
    }
}

async fn forward(mut near: TcpStream, target: SocketAddr, mut cuts: watch::Receiver<Cut>, silent: Arc<AtomicBool>) {
    cuts.mark_unchanged();
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    let how = {
        let (mut near_read, mut near_write) = near.split();
        let (mut far_read, mut far_write) = far.split();
        tokio::select! {
            _ = pump(&mut near_read, &mut far_write, &silent) => Cut::Close,
            _ = pump(&mut far_read, &mut near_write, &silent) => Cut::Close,
            _ = cuts.changed() => *cuts.borrow(),
        }
    };
    if let Cut::Reset = how {
        near.set_zero_linger().expect("a socket");
        far.set_zero_linger().expect("a socket");
    }
}

async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    silent: &AtomicBool,
) -> io::Result<()> {
    let mut piece = [0; 4096];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        if !silent.load(Ordering::Relaxed) {
            to.write_all(&piece[..read]).await?;
        }
    }
}

/// Captures the log lines of this thread during its lifetime.
pub(super) struct Lines {
    lines: Arc<Mutex<Vec<u8>>>,
    _guard: tracing::subscriber::DefaultGuard,
}

impl Lines {
    pub(super) fn capture() -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Sink(lines.clone());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || sink.clone()).finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The captured lines that contain a word.
    pub(super) fn with(&self, word: &str) -> Vec<String> {
        let bytes = self.lines.lock().expect("lock").clone();
        let text = String::from_utf8(bytes).expect("text");
        text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
    }
}

#[derive(Clone)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
