//! Links in memory keep the guarantees of links over TCP.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names the event that it waits for")]

use super::super::testing::{host, life, within};
use super::*;

struct TestHost {
    links: MemoryLinks,
    events: mpsc::Receiver<LinkEvent>,
}

fn join(hub: &Hub, name: &str, session: Incarnation) -> TestHost {
    let (events_in, events) = mpsc::channel(4);
    let mut links = hub.join(host(name), session, events_in);
    let anywhere = "127.0.0.1:1".parse().expect("address");
    links.roster(Roster::loopback_only(["a", "b", "c"].map(|name| (host(name), anywhere))));
    TestHost { links, events }
}

impl TestHost {
    fn send(&mut self, to: &str, text: &'static str) {
        self.links.send(&host(to), Bytes::from_static(text.as_bytes()));
    }

    async fn next(&mut self) -> LinkEvent {
        within("an event", self.events.recv()).await.expect("the links live")
    }

    async fn up(&mut self) -> Incarnation {
        match self.next().await {
            LinkEvent::Up { incarnation, .. } => incarnation,
            other => panic!("not up: {other:?}"),
        }
    }

    async fn down(&mut self) -> String {
        match self.next().await {
            LinkEvent::Down { why, .. } => why,
            other => panic!("not down: {other:?}"),
        }
    }

    async fn received(&mut self) -> Bytes {
        match self.next().await {
            LinkEvent::Received { bytes, .. } => bytes,
            other => panic!("not received: {other:?}"),
        }
    }
}

async fn two(hub: &Hub) -> (TestHost, TestHost) {
    let (mut a, mut b) = (join(hub, "a", life(1, 1)), join(hub, "b", life(2, 1)));
    assert_eq!((a.up().await, b.up().await), (life(2, 1), life(1, 1)));
    (a, b)
}

#[tokio::test]
async fn batches_arrive_in_order_across_a_cut() {
    let hub = Hub::new(Limits::default());
    let (mut a, mut b) = two(&hub).await;
    a.send("b", "1");
    assert_eq!(b.received().await, "1");
    hub.cut(&host("b"), &host("a"));
    assert_eq!(a.down().await, "the connection was cut");
    b.down().await;
    a.send("b", "2");
    a.send("b", "3");
    assert!(!a.links.status()[0].up);
    hub.heal(&host("a"), &host("b"));
    a.up().await;
    b.up().await;
    assert_eq!(b.received().await, "2");
    assert_eq!(b.received().await, "3");
    assert_eq!((a.links.counters().sent, b.links.counters().received), (3, 3));
}

#[tokio::test]
async fn another_life_gets_nothing_that_was_meant_for_the_last() {
    let hub = Hub::new(Limits::default());
    let (mut a, b) = two(&hub).await;
    drop(b);
    assert_eq!(a.down().await, "the other side closed the connection");
    a.send("b", "for its first life");
    let mut b = join(&hub, "b", life(2, 2));
    assert_eq!((a.up().await, b.up().await), (life(2, 2), life(1, 1)));
    a.send("b", "for its second");
    assert_eq!(b.received().await, "for its second");
}

#[tokio::test]
async fn a_newer_life_takes_the_place_of_an_older() {
    let hub = Hub::new(Limits::default());
    let (mut a, b) = two(&hub).await;
    let mut newer = join(&hub, "b", life(2, 2));
    assert_eq!(a.down().await, "a newer link of the same host takes its place");
    assert_eq!((a.up().await, newer.up().await), (life(2, 2), life(1, 1)));
    drop(b);
    newer.send("a", "still here");
    assert_eq!(a.received().await, "still here");
}

#[tokio::test]
async fn too_much_is_dropped_and_a_resync_follows() {
    let hub = Hub::new(Limits { window_messages: 3, outbox_messages: 2, ..Limits::default() });
    let (mut a, mut b) = two(&hub).await;
    hub.cut(&host("a"), &host("b"));
    a.down().await;
    b.down().await;
    for _ in 0..7 {
        a.send("b", "x");
    }
    assert_eq!(a.links.counters().dropped, 7);
    hub.heal(&host("a"), &host("b"));
    a.up().await;
    b.up().await;
    assert!(matches!(a.next().await, LinkEvent::Resync { host } if host == "b"));
    a.send("b", "again");
    assert_eq!(b.received().await, "again");
}

#[tokio::test]
async fn a_shutdown_names_who_did_not_take_everything() {
    let hub = Hub::new(Limits::default());
    let (mut a, mut b) = two(&hub).await;
    a.send("b", "last");
    a.send("c", "anybody there?");
    let limit = Duration::from_millis(50);
    let (missing, last) = tokio::join!(a.links.shutdown(limit), b.received());
    assert_eq!((missing, last), (vec![host("c")], Bytes::from_static(b"last")));
    assert_eq!(b.down().await, "the other side shut down");
}
