//! What 500 links over TLS cost a daemon: time until all are up, memory, descriptors.
//!
//! `cargo test -p cobd --release --test many_links -- --ignored --nocapture`. One test, alone in its process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cob_trust::SecretKey;
use cob_trust::tls::Identity;
use cob_types::{HostName, Incarnation, PublicKey};
use cobd::peer::{Limits, LinkConfig, LinkEvent, Links, Protection, Roster, RosterHost, Transport};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

const LINKS: u16 = 500;

struct Host {
    key: SecretKey,
    links: Links,
    events: mpsc::Receiver<LinkEvent>,
    _folder: TempDir,
}

fn name(number: u16) -> HostName {
    HostName::new(&format!("n{number:05}")).expect("a name")
}

impl Host {
    async fn start(number: u16) -> Self {
        let mut seed = [7; 32];
        seed[..2].copy_from_slice(&number.to_be_bytes());
        let key = SecretKey::from_seed(&seed);
        let folder = tempfile::tempdir().expect("a folder");
        let config = LinkConfig {
            me: name(number),
            listen: "127.0.0.1:0".parse().expect("address"),
            socket_dir: folder.path().join("sockets"),
            protection: shows(&key),
            session: Incarnation { id: u64::from(number), start: 1 },
            limits: Limits::default(),
        };
        let (events_in, events) = mpsc::channel(1024);
        Self { links: Links::start(config, events_in).await.expect("starts"), key, events, _folder: folder }
    }

    fn entry(&self) -> RosterHost {
        let keys: [PublicKey; 1] = [self.key.public()];
        RosterHost { address: Some(self.links.address()), keys: keys.into() }
    }

    fn meet(&mut self, hosts: BTreeMap<HostName, RosterHost>) {
        let protection = shows(&self.key);
        self.links.roster(Roster { hosts, protection, ..Roster::default() });
    }
}

fn shows(key: &SecretKey) -> Protection {
    Protection::Identities(Some(Identity::new(key).expect("an identity")))
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("lists").count()
}

fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    pages.split(' ').nth(1).expect("a second field").parse::<usize>().expect("a number") * 4096
}

#[tokio::test]
#[ignore = "a measurement"]
async fn five_hundred_links_of_one_daemon() {
    // The highest name: everybody dials it.
    let mut hub = Host::start(LINKS).await;
    let mut others = Vec::new();
    for number in 0..LINKS {
        others.push(Host::start(number).await);
    }
    let (before, memory) = (descriptors(), resident());
    let everybody = (0..).zip(&others).map(|(number, host)| (name(number), host.entry()));
    let everybody: BTreeMap<_, _> = everybody.collect();
    let start = Instant::now();
    hub.meet(everybody);
    for host in &mut others {
        host.meet([(name(LINKS), hub.entry())].into());
    }
    let mut up = 0;
    timeout(Duration::from_secs(120), async {
        while up < LINKS {
            up += u16::from(matches!(hub.events.recv().await, Some(LinkEvent::Up { .. })));
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{up} of {LINKS} links are up; refused: {:?}", hub.links.refused()));
    println!(
        "{LINKS} links up after {:?}; both ends of one: {} KiB, {:.1} descriptors; refused: {:?}",
        start.elapsed(),
        (resident() - memory) / usize::from(LINKS) / 1024,
        (descriptors() - before) as f64 / f64::from(LINKS),
        hub.links.refused()
    );
}
