//! A thousand strangers connect to a daemon: links and API calls of others still get through at once, and the strangers
//! leave no resources behind.
//!
//! This test is alone in its process, because it counts the process's file descriptors.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cob_trust::SecretKey;
use cob_trust::tls::{self, HTTP, Identity};
use cob_types::{HostName, Incarnation};
use cobd::peer::{HttpStream, Limits, LinkConfig, LinkEvent, Links, PendingLimits, Protection, Roster, RosterHost};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const PATIENCE: Duration = Duration::from_secs(120);
/// Descriptors of both ends of the strangers' connections, and of two daemons.
const DESCRIPTORS: u64 = 4000;

struct Host {
    name: &'static str,
    key: u8,
    links: Links,
    events: mpsc::Receiver<LinkEvent>,
    _folder: TempDir,
}

fn name(text: &str) -> HostName {
    HostName::new(text).expect("a name")
}

fn identity(key: u8) -> Identity {
    Identity::new(&SecretKey::from_seed(&[key; 32])).expect("an identity")
}

impl Host {
    async fn start(host: &'static str, key: u8) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = LinkConfig {
            me: name(host),
            listen: "127.0.0.1:0".parse().expect("address"),
            awaits_address: false,
            socket_dir: folder.path().join("sockets"),
            protection: Protection::Identities(Some(identity(key))),
            session: Incarnation { id: u64::from(key), start: 1 },
            limits: Limits::default(),
        };
        let (events_in, events) = mpsc::channel(256);
        let links = Links::start(config, events_in).await.expect("starts");
        Self { name: host, key, links, events, _folder: folder }
    }

    fn entry(&self) -> (HostName, RosterHost) {
        let keys = [SecretKey::from_seed(&[self.key; 32]).public()].into();
        (name(self.name), RosterHost { address: Some(self.links.address()), keys })
    }

    fn meet(&mut self, hosts: &BTreeMap<HostName, RosterHost>) {
        let protection = Protection::Identities(Some(identity(self.key)));
        self.links.roster(Roster { hosts: hosts.clone(), protection, ..Roster::default() });
    }

    async fn next(&mut self) -> LinkEvent {
        timeout(PATIENCE, self.events.recv()).await.expect("in time").expect("the links live")
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("lists").count()
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    pages.split(' ').nth(1).expect("a second field").parse::<usize>().expect("a number") * 4096
}

/// Strangers that send these bytes and then stay silent.
async fn crowd(at: SocketAddr, count: usize, words: &[u8]) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(at).await.expect("connects");
        // The daemon may have refused it already.
        let _ = stream.write_all(words).await;
        all.push(stream);
    }
    all
}

/// An answer over TLS to a caller without a key. Returns the time that it took.
async fn ask(at: SocketAddr, of: &mut Host) -> Duration {
    let start = Instant::now();
    let config = tls::client(None, &[SecretKey::from_seed(&[of.key; 32]).public()], HTTP).expect("settings");
    let ask = async {
        let stream = TcpStream::connect(at).await.expect("connects");
        let mut stream = TlsConnector::from(config).connect(tls::name(), stream).await.expect("shakes hands");
        stream.write_all(b"?").await.expect("asks");
        stream.read_u8().await.expect("an answer")
    };
    let answer = async {
        let LinkEvent::Http(HttpStream::Tls { mut stream, .. }) = of.next().await else { panic!("no HTTP") };
        assert_eq!(stream.read_u8().await.expect("a question"), b'?');
        stream.write_all(b"!").await.expect("answers");
        stream.flush().await.expect("answers");
    };
    let (answer, ()) = timeout(PATIENCE, async { tokio::join!(ask, answer) }).await.expect("in time");
    assert_eq!(answer, b'!');
    start.elapsed()
}

#[tokio::test]
async fn a_thousand_strangers_block_no_host_and_leave_no_resources() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: limit.maximum.map_or(Some(DESCRIPTORS), |m| Some(m.min(DESCRIPTORS))),
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("a limit");
    // A first link, so that one-time allocations are done.
    let (mut a, mut b, mut c) = (Host::start("a", 1).await, Host::start("b", 2).await, Host::start("c", 3).await);
    let hosts: BTreeMap<_, _> = [a.entry(), b.entry()].into();
    let all: BTreeMap<_, _> = [a.entry(), b.entry(), c.entry()].into();
    a.meet(&hosts);
    b.meet(&hosts);
    for host in [&mut a, &mut b] {
        assert!(matches!(host.next().await, LinkEvent::Up { .. }));
    }
    let (before, memory) = (descriptors(), resident());
    let mut held = 0;

    for words in
        [&b""[..], b"\x16\x03\x01\x00\xf0\x01\x00\x00", b"\x16\x03\x01\x00\x10garbage!garbage!", b"GET / HTTP/1.1\r\n"]
    {
        let strangers = crowd(c.links.address(), 1000, words).await;
        // The API and the links of others while all strangers are connected.
        let api = ask(c.links.address(), &mut c).await;
        let start = Instant::now();
        c.meet(&all);
        a.meet(&all);
        for host in [&mut a, &mut c] {
            assert!(matches!(host.next().await, LinkEvent::Up { .. }), "{}", host.name);
        }
        let link = start.elapsed();
        held = held.max(descriptors());
        println!("behind {words:?}: an answer of the API after {api:?}, a link after {link:?}, {held} descriptors");
        assert!(api < Duration::from_secs(3) && link < Duration::from_secs(2), "{words:?}: {api:?} {link:?}");
        a.links.send(&name("b"), "the old link".into());
        assert!(matches!(b.next().await, LinkEvent::Received { .. }));
        drop(strangers);
        a.meet(&hosts);
        c.meet(&BTreeMap::new());
        for host in [&mut a, &mut c] {
            assert!(matches!(host.next().await, LinkEvent::Down { .. }), "{}", host.name);
        }
    }
    let limits = PendingLimits::default();
    let most = before + 1000 + limits.waiting + limits.slots + limits.reserved + 64;
    assert!(held <= most, "{held} descriptors, at most {most}");
    let refused = c.links.refused();
    assert!(refused.slow > 1000 && refused.not_tls >= 500, "{refused:?}");
    timeout(PATIENCE, async {
        while descriptors() > before {
            yield_now().await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{} descriptors are left, {before} were there", descriptors()));
    let grown = resident().saturating_sub(memory);
    println!("{refused:?}; {before} descriptors as before; memory grown by {} KiB", grown >> 10);
    assert!(grown < 64 << 20, "{grown} bytes more are held");
}
