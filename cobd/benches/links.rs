//! What a link costs: round trips and batches per second between two daemons' links on loopback.
//!
//! `cargo bench -p cobd --bench links`

use bytes::Bytes;
use cob_types::{HostName, Incarnation};
use cobd::peer::{Limits, LinkConfig, LinkEvent, Links, Protection, Roster, Transport};
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
    async fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let config = LinkConfig {
            me: host(name),
            listen: "127.0.0.1:0".parse().expect("address"),
            socket_dir: folder.path().join("sockets"),
            protection: Protection::LoopbackOnly,
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

fn host(name: &str) -> HostName {
    HostName::new(name).expect("host")
}

/// Two hosts on one thread, as a daemon's links are, that know nothing of each other.
fn strangers() -> (Runtime, Host, Host) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (a, b) = runtime.block_on(async { (Host::start("a").await, Host::start("b").await) });
    (runtime, a, b)
}

/// Waits until each knows that the link is up.
fn link((runtime, a, b): &mut (Runtime, Host, Host)) {
    let roster = Roster::loopback_only([(host("a"), a.links.address()), (host("b"), b.links.address())]);
    runtime.block_on(async {
        a.links.roster(roster.clone());
        b.links.roster(roster);
        for end in [a, b] {
            assert!(matches!(end.events.recv().await, Some(LinkEvent::Up { .. })));
        }
    });
}

fn pair() -> (Runtime, Host, Host) {
    let mut hosts = strangers();
    link(&mut hosts);
    hosts
}

#[divan::bench(args = [200, 20_000], sample_count = 2000)]
fn round_trip(bencher: Bencher<'_, '_>, len: usize) {
    let (runtime, mut a, mut b) = pair();
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

#[divan::bench(args = [200, 20_000], sample_count = 20)]
fn one_way(bencher: Bencher<'_, '_>, len: usize) {
    const BATCHES: usize = 10_000;
    let (runtime, mut a, mut b) = pair();
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

#[divan::bench(sample_count = 100)]
fn set_up(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(strangers).bench_local_refs(link);
}
