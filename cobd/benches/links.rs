//! The cost of a link: round trips and batches per second between two daemons' links on loopback, in clear and over
//! TLS.
//!
//! `cargo bench -p cobd --bench links`

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use cob_trust::SecretKey;
use cob_trust::tls::Identity;
use cob_types::{HostName, Incarnation};
use cobd::peer::{Limits, LinkConfig, LinkEvent, Links, Protection, Roster, RosterHost};
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

fn main() {
    divan::main();
}

struct Host {
    links: Links,
    events: mpsc::Receiver<LinkEvent>,
    _folder: TempDir,
}

impl Host {
    async fn start(name: &str, secure: bool) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let config = LinkConfig {
            me: host(name),
            listen: "127.0.0.1:0".parse().expect("address"),
            awaits_address: false,
            socket_dir: folder.path().join("sockets"),
            protection: protection(name, secure),
            session: Incarnation { id: 1, start: 1 },
            limits: Limits::default(),
        };
        let (events_in, events) = mpsc::channel(256);
        Self { links: Links::start(config, events_in).await.expect("starts"), events, _folder: folder }
    }

    async fn batch(&mut self) -> Bytes {
        match self.events.recv().await {
            Some(LinkEvent::Received { bytes, .. }) => bytes,
            other => panic!("no batch: {other:?}"),
        }
    }
}

/// A host's key is derived from its name.
fn key(name: &str) -> SecretKey {
    SecretKey::from_seed(&[name.as_bytes()[0]; 32])
}

fn protection(name: &str, secure: bool) -> Protection {
    if !secure {
        return Protection::LoopbackOnly;
    }
    Protection::Identities(Some(Identity::new(&key(name)).expect("an identity")))
}

fn host(name: &str) -> HostName {
    HostName::new(name).expect("host")
}

/// Two independent hosts on the same thread, like a daemon's links.
struct Pair {
    runtime: Runtime,
    a: Host,
    b: Host,
    secure: bool,
}

fn strangers(secure: bool) -> Pair {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (a, b) = runtime.block_on(async { (Host::start("a", secure).await, Host::start("b", secure).await) });
    Pair { runtime, a, b, secure }
}

/// Waits until both hosts know that the link is up.
fn link(pair: &mut Pair) {
    let Pair { runtime, a, b, secure } = pair;
    let at = [("a", a.links.address()), ("b", b.links.address())];
    let entry = |(name, address): (&str, SocketAddr)| {
        let keys = if *secure { [key(name).public()].into() } else { BTreeSet::new() };
        (host(name), RosterHost { address: Some(address), keys })
    };
    runtime.block_on(async {
        for (name, end) in [("a", &mut *a), ("b", &mut *b)] {
            let hosts = at.map(entry).into();
            end.links.roster(Roster { hosts, protection: protection(name, *secure), ..Roster::default() });
        }
        for end in [a, b] {
            assert!(matches!(end.events.recv().await, Some(LinkEvent::Up { .. })));
        }
    });
}

fn pair(secure: bool) -> Pair {
    let mut hosts = strangers(secure);
    link(&mut hosts);
    hosts
}

/// Lengths of batches, in clear and over TLS.
const KINDS: [(usize, bool); 4] = [(200, false), (200, true), (20_000, false), (20_000, true)];

#[divan::bench(args = KINDS, sample_count = 2000)]
fn round_trip(bencher: Bencher<'_, '_>, (len, secure): (usize, bool)) {
    let Pair { runtime, mut a, mut b, .. } = pair(secure);
    let batch = Bytes::from(vec![7; len]);
    bencher.bench_local(|| {
        runtime.block_on(async {
            a.links.send(&host("b"), batch.clone());
            let heard = b.batch().await;
            b.links.send(&host("a"), heard);
            a.batch().await
        })
    });
}

#[divan::bench(args = KINDS, sample_count = 20)]
fn one_way(bencher: Bencher<'_, '_>, (len, secure): (usize, bool)) {
    const BATCHES: usize = 10_000;
    let Pair { runtime, mut a, mut b, .. } = pair(secure);
    let batch = Bytes::from(vec![7; len]);
    bencher.counter(ItemsCount::new(BATCHES)).counter(BytesCount::new(BATCHES * len)).bench_local(|| {
        runtime.block_on(async {
            let (mut sent, mut received) = (0, 0);
            while received < BATCHES {
                while sent < BATCHES && sent < received + 300 {
                    a.links.send(&host("b"), batch.clone());
                    sent += 1;
                }
                b.batch().await;
                received += 1;
            }
        });
    });
}

#[divan::bench(args = [false, true], sample_count = 100)]
fn set_up(bencher: Bencher<'_, '_>, secure: bool) {
    bencher.with_inputs(|| strangers(secure)).bench_local_refs(link);
}
