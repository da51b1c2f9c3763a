//! Links between hosts in the same process, over loopback.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names the event that it waits for")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::testing::{Cut, Lines, Proxy, TestHost, host, life, quick, talk, two, within};
use super::{HttpStream, Limits, LinkConfig, LinkError, LinkEvent, Links, Protection};

/// Either of two hosts that send each other numbered batches.
struct Talker {
    host: TestHost,
    to: &'static str,
    said: u64,
    heard: u64,
    ups: u64,
}

impl Talker {
    fn new(host: TestHost, to: &'static str) -> Self {
        Self { host, to, said: 0, heard: 0, ups: 0 }
    }

    /// Keeps a few hundred batches under way, with lengths between 8 bytes and a few kilobytes.
    fn say(&mut self, last: u64, heard_there: u64) {
        while self.said < last && self.said < heard_there + 400 {
            self.said += 1;
            let mut batch = self.said.to_be_bytes().to_vec();
            batch.resize(8 + (self.said * 37 % 3000) as usize, self.said as u8);
            self.host.links.send(&host(self.to), batch.into());
        }
    }

    fn hear(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Received { bytes, .. } => {
                let number = u64::from_be_bytes(bytes[..8].try_into().expect("8 bytes"));
                assert_eq!(number, self.heard + 1, "{} heard out of order", self.host.name);
                assert_eq!(bytes.len(), 8 + (number * 37 % 3000) as usize);
                self.heard = number;
            }
            LinkEvent::Up { .. } => self.ups += 1,
            LinkEvent::Down { .. } => {}
            LinkEvent::Resync { .. } | LinkEvent::Http(_) => panic!("{}: {event:?}", self.host.name),
        }
    }
}

#[tokio::test]
async fn ten_thousand_batches_both_ways_survive_cut_links() {
    const LAST: u64 = 10_000;
    let mut a = TestHost::start("a", life(1, 1)).await;
    let mut b = TestHost::start("b", life(2, 1)).await;
    let proxy = Proxy::start(b.address()).await;
    a.roster(&[("b", proxy.address)]);
    b.roster(&[("a", a.address())]);
    let (mut a, mut b) = (Talker::new(a, "b"), Talker::new(b, "a"));
    let mut cuts = 0;
    within("all batches", async {
        while a.heard < LAST || b.heard < LAST {
            a.say(LAST, b.heard);
            b.say(LAST, a.heard);
            tokio::select! {
                Some(event) = a.host.events.recv() => a.hear(event),
                Some(event) = b.host.events.recv() => b.hear(event),
            }
            if a.heard + b.heard > (cuts + 1) * 500 {
                cuts += 1;
                proxy.cut(if cuts % 2 == 0 { Cut::Reset } else { Cut::Close });
            }
        }
    })
    .await;
    assert!(a.ups > 10 && b.ups > 10, "links came up {} and {} times for {cuts} cuts", a.ups, b.ups);
    let counters = a.host.links.counters();
    assert!(counters.resent > 0, "{counters:?}");
    assert_eq!((counters.received, counters.dropped, counters.doubles), (LAST, 0, 0));
    assert_eq!(counters.sent, LAST + counters.resent);
    assert_eq!((a.host.sockets(), b.host.sockets()), (0, 0), "names are unlinked");
}

#[tokio::test]
async fn a_restarted_host_gets_no_message_for_its_earlier_incarnation() {
    let (mut a, b) = two().await;
    let b_address = b.address();
    drop(b);
    // Closed or reset, depending on timing.
    let why = a.down().await;
    assert!(why.contains("the connection"), "{why}");
    a.send("b", "for its first life");

    let mut b = TestHost::start("b", life(2, 2)).await;
    a.roster(&[("b", b.address())]);
    assert_ne!(b.address(), b_address);
    b.roster(&[("a", a.address())]);
    assert_eq!(a.up().await.1, life(2, 2));
    assert_eq!(b.up().await.1, life(1, 1));
    a.send("b", "for its second");
    assert_eq!(b.received().await, "for its second");
    assert_eq!(a.links.counters().dropped, 1);
}

#[tokio::test]
async fn a_newer_link_replaces_the_older_link() {
    let (mut a, mut b) = two().await;
    // A second daemon of host a, as after a crash that the system has not noticed yet.
    let mut newer = TestHost::start("a", life(1, 2)).await;
    newer.roster(&[("b", b.address())]);
    newer.up().await;
    assert!(b.down().await.contains("takes its place"));
    assert_eq!(b.up().await.1, life(1, 2));
    // The older daemon is refused from then on.
    let why = a.down().await;
    assert!(why.contains("the connection"), "{why}");
    newer.send("b", "from the newer");
    assert_eq!(b.received().await, "from the newer");
    within("the refusal", async {
        while !b.links.status()[0].up || a.links.status()[0].up {
            tokio::task::yield_now().await;
        }
    })
    .await;
    b.send("a", "to the newer");
    assert_eq!(newer.received().await, "to the newer");
}

#[tokio::test]
async fn a_silent_network_is_detected_and_the_link_is_cut() {
    let mut a = TestHost::start("a", life(1, 1)).await;
    let mut b = TestHost::start("b", life(2, 1)).await;
    let proxy = Proxy::start(b.address()).await;
    a.roster(&[("b", proxy.address)]);
    b.roster(&[("a", a.address())]);
    a.up().await;
    b.up().await;
    // Only one side asks for short intervals; the other must follow, and both notice the silence.
    a.links.busy(&host("b"), true);
    a.send("b", "before");
    assert_eq!(b.received().await, "before");
    let start = Instant::now();
    proxy.silence(true);
    assert!(a.down().await.contains("was silent for 0.2 s"), "after {:?}", start.elapsed());
    assert!(a.links.status()[0].error.is_some());
    a.send("b", "after");
    proxy.silence(false);
    proxy.cut(Cut::Close);
    b.down().await;
    a.up().await;
    b.up().await;
    assert_eq!(b.received().await, "after");
}

#[tokio::test]
async fn a_link_without_traffic_stays_up() {
    let beats =
        Limits { heartbeat_busy: Duration::from_millis(40), heartbeat_idle: Duration::from_millis(100), ..quick() };
    let mut a = TestHost::start_with("a", life(1, 1), beats.clone(), 64).await;
    let mut b = TestHost::start_with("b", life(2, 1), beats.clone(), 64).await;
    a.roster(&[("b", b.address())]);
    b.roster(&[("a", a.address())]);
    a.up().await;
    b.up().await;
    for busy in [false, true] {
        a.links.busy(&host("b"), busy);
        tokio::select! {
            event = a.events.recv() => panic!("{event:?}"),
            event = b.events.recv() => panic!("{event:?}"),
            () = tokio::time::sleep(beats.heartbeat_idle * 6) => {}
        }
    }
}

#[tokio::test]
async fn a_slow_host_holds_back_only_itself() {
    let small = Limits { window_messages: 16, outbox_messages: 32, ..quick() };
    let mut a = TestHost::start_with("a", life(1, 1), small, 64).await;
    let mut slow = TestHost::start_with("slow", life(2, 1), quick(), 1).await;
    let mut other = TestHost::start("x", life(3, 1)).await;
    a.roster(&[("slow", slow.address()), ("x", other.address())]);
    slow.roster(&[("a", a.address())]);
    other.roster(&[("a", a.address())]);
    a.up().await;
    a.up().await;
    slow.up().await;
    other.up().await;
    for number in 0..1000 {
        a.links.send(&host("slow"), Bytes::from(vec![7; 64 << 10]));
        a.send("x", &number.to_string());
        assert_eq!(other.received().await, number.to_string());
    }
    let dropped = a.links.counters().dropped;
    assert!(dropped > 900, "{dropped}");
    // Longer than four heartbeats: a slow host is not a lost host.
    tokio::time::sleep(quick().heartbeat_busy * 8).await;
    let mut received = 0;
    let resync = within("the resync", async {
        loop {
            tokio::select! {
                event = slow.events.recv() => match event {
                    Some(LinkEvent::Received { .. }) => received += 1,
                    other => panic!("{other:?}"),
                },
                event = a.events.recv() => break event,
            }
        }
    })
    .await;
    assert!(matches!(&resync, Some(LinkEvent::Resync { host }) if *host == "slow"), "{resync:?}");
    assert_eq!(received + a.links.counters().dropped, 1000);
    a.send("slow", "again");
    assert_eq!(slow.received().await, "again");
}

#[tokio::test]
async fn a_shutdown_delivers_all_messages_and_announces_itself() {
    let (mut a, mut b) = two().await;
    let reader = async {
        let mut texts = Vec::new();
        loop {
            match b.next().await {
                LinkEvent::Received { bytes, .. } => texts.push(String::from_utf8(bytes.to_vec()).expect("text")),
                LinkEvent::Down { why, .. } => return (texts, why),
                other => panic!("{other:?}"),
            }
        }
    };
    for number in 0..1000 {
        a.send("b", &number.to_string());
    }
    let (missing, (texts, why)) = tokio::join!(a.links.shutdown(Duration::from_secs(60)), reader);
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(texts, (0..1000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(why, "the other side shut down");
}

#[tokio::test]
async fn a_shutdown_names_the_hosts_that_did_not_acknowledge() {
    let (mut a, b) = two().await;
    a.roster(&[("b", b.address()), ("gone", "127.0.0.1:1".parse().expect("address"))]);
    a.send("gone", "anybody there?");
    a.send("b", "bye");
    let start = Instant::now();
    assert_eq!(a.links.shutdown(Duration::from_millis(200)).await, [host("gone")]);
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn both_hosts_may_shut_down_at_once() {
    let (mut a, mut b) = two().await;
    for number in 0..500 {
        a.send("b", &number.to_string());
        b.send("a", &number.to_string());
    }
    // No task reads the events any more.
    let limit = Duration::from_secs(60);
    let (a_missing, b_missing) =
        within("both ends", async { tokio::join!(a.links.shutdown(limit), b.links.shutdown(limit)) }).await;
    assert_eq!((a_missing, b_missing), (vec![], vec![]));
}

#[tokio::test]
async fn only_loopback_addresses_are_used() {
    let folder = tempfile::tempdir().expect("folder");
    let config = LinkConfig {
        me: host("a"),
        listen: "0.0.0.0:0".parse().expect("address"),
        awaits_address: false,
        socket_dir: folder.path().to_owned(),
        protection: Protection::LoopbackOnly,
        session: life(1, 1),
        limits: quick(),
    };
    let error = Links::start(config, tokio::sync::mpsc::channel(1).0).await.expect_err("refused");
    assert!(matches!(error, LinkError::NotLoopback { .. }));
    assert!(error.to_string().starts_with("refusing to listen: 0.0.0.0:0 is not a loopback address"), "{error}");

    let mut a = TestHost::start("a", life(1, 1)).await;
    a.roster(&[("b", "192.0.2.1:7000".parse().expect("address"))]);
    within("the refusal", async {
        while a.links.status()[0].error.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let error = a.links.status()[0].error.clone().expect("an error");
    assert!(error.starts_with("host b at 192.0.2.1:7000 is not a loopback address"), "{error}");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let a = TestHost::start("a", life(1, 1)).await;
    let folder = tempfile::tempdir().expect("folder");
    let config = LinkConfig {
        me: host("b"),
        listen: a.address(),
        awaits_address: false,
        socket_dir: folder.path().to_owned(),
        protection: Protection::LoopbackOnly,
        session: life(2, 1),
        limits: quick(),
    };
    let error = Links::start(config, tokio::sync::mpsc::channel(1).0).await.expect_err("refused").to_string();
    assert!(error.contains("another program listens there, perhaps another cobd"), "{error}");
}

#[tokio::test]
async fn an_address_that_is_away_can_be_awaited() {
    let folder = tempfile::tempdir().expect("folder");
    // No machine has addresses for documentation.
    for address in ["192.0.2.1:0", "[2001:db8::1]:0"] {
        let start = |awaits_address| {
            let config = LinkConfig {
                me: host("a"),
                listen: address.parse().expect("address"),
                awaits_address,
                socket_dir: folder.path().to_owned(),
                protection: Protection::Identities(None),
                session: life(1, 1),
                limits: quick(),
            };
            Links::start(config, tokio::sync::mpsc::channel(1).0)
        };
        let error = start(false).await.expect_err("it is away").to_string();
        assert!(error.contains("this machine does not have the address"), "{error}");
        let links = start(true).await.expect("it listens");
        assert_eq!(links.address().ip().to_string(), address.trim_end_matches(":0").trim_matches(['[', ']']));
    }
}

#[tokio::test]
async fn an_http_connection_is_handed_over_intact() {
    let (mut a, mut b) = two().await;
    let mut client = TcpStream::connect(b.address()).await.expect("connects");
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("writes");
    let LinkEvent::Http(HttpStream::Plain(mut server)) = b.next().await else { panic!("no HTTP") };
    let mut request = [0; 18];
    within("the request", server.read_exact(&mut request)).await.expect("reads");
    assert_eq!(&request, b"GET / HTTP/1.1\r\n\r\n");
    server.write_all(b"HTTP/1.1 200 OK").await.expect("writes");
    drop(server);
    let mut answer = String::new();
    within("the answer", client.read_to_string(&mut answer)).await.expect("reads");
    assert_eq!(answer, "HTTP/1.1 200 OK");
    a.send("b", "the link goes on");
    assert_eq!(b.received().await, "the link goes on");
}

#[tokio::test]
async fn a_host_that_leaves_the_roster_is_cut_and_may_return() {
    let (mut a, mut b) = two().await;
    a.send("b", "1");
    assert_eq!(b.received().await, "1");
    b.send("a", "2");
    assert_eq!(a.received().await, "2");
    let (a_address, b_address) = (a.address(), b.address());
    b.roster(&[]);
    assert!(b.down().await.contains("not in the roster"));
    assert!(b.links.status().is_empty());
    a.down().await;
    b.send("a", "to nobody");
    // Host a dials on in vain, and host b has forgotten the session.
    a.roster(&[("a", a_address), ("b", b_address)]);
    b.roster(&[("a", a_address), ("b", b_address)]);
    a.up().await;
    b.up().await;
    b.send("a", "3");
    loop {
        match a.next().await {
            LinkEvent::Received { bytes, .. } => break assert_eq!(bytes, "3"),
            LinkEvent::Resync { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    a.send("b", "4");
    assert_eq!(b.received().await, "4");
}

#[tokio::test]
async fn a_link_survives_a_new_address_and_the_next_link_uses_it() {
    let mut a = TestHost::start("a", life(1, 1)).await;
    let mut b = TestHost::start("b", life(2, 1)).await;
    let (old, new) = (Proxy::start(b.address()).await, Proxy::start(b.address()).await);
    a.roster(&[("b", old.address)]);
    b.roster(&[("a", a.address())]);
    a.up().await;
    b.up().await;
    a.roster(&[("b", new.address)]);
    talk(&mut a, &mut b, 3).await;
    for proxy in [old, new] {
        proxy.cut(Cut::Close);
        for host in [&mut a, &mut b] {
            host.down().await;
        }
        for host in [&mut a, &mut b] {
            host.up().await;
        }
        talk(&mut a, &mut b, 3).await;
    }
}

#[tokio::test]
async fn an_unreachable_host_is_named_once_and_dialled_again() {
    let lines = Lines::capture();
    let mut a = TestHost::start("a", life(1, 1)).await;
    let [port] = cob_processes::free_ports().expect("free");
    let address = ([127, 0, 0, 1], port).into();
    a.roster(&[("b", address)]);
    within("some attempts", async {
        while a.links.status()[0].error.is_none() {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(quick().redial_max * 4).await;
    })
    .await;
    assert_eq!(lines.with("no link").len(), 1, "{:?}", lines.with(""));
    let error = a.links.status()[0].error.clone().expect("an error");
    assert!(error.contains(&format!("can't reach it at {address}")), "{error}");
}
