//! Hostile or broken peers: each connection is closed with a single log line, and the links of others continue.

use std::time::Duration;

use bytes::Bytes;
use cob_types::link::{Frame, LinkHello};
use cob_types::message::{MAX_BATCH, PROTOCOL};
use cob_types::status::RefusalCounts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::testing::{Lines, TestHost, dealer_handshake, host, life, quick, talk, within, zmtp};
use super::{Limits, LinkEvent, PendingLimits};

/// A connection that speaks ZMTP by hand.
struct Raw(TcpStream);

impl Raw {
    async fn connect(to: &TestHost) -> Self {
        Self(TcpStream::connect(to.address()).await.expect("connects"))
    }

    async fn write(&mut self, bytes: &[u8]) {
        // The other side may have closed the connection already.
        let _ = self.0.write_all(bytes).await;
    }

    /// Waits until the other side has closed the connection.
    async fn until_cut(mut self) {
        within("the cut", async {
            let mut piece = [0; 4096];
            while self.0.read(&mut piece).await.is_ok_and(|read| read > 0) {}
        })
        .await;
    }
}

fn greeting() -> Vec<u8> {
    dealer_handshake()[..64].to_vec()
}

fn handshake(then: &[u8]) -> Vec<u8> {
    [&dealer_handshake(), then].concat()
}

fn long_header(flags: u8, length: u64) -> Vec<u8> {
    [&[flags], &length.to_be_bytes()[..]].concat()
}

/// The hello of the hostile host, which is in the roster under this name.
fn hello() -> LinkHello {
    let (from, to) = (host("0evil"), host("b"));
    LinkHello { newest: PROTOCOL, oldest: PROTOCOL, from, to, session: life(66, 1), stream: 6, received: None }
}

fn said(hello: LinkHello) -> Vec<u8> {
    handshake(&zmtp(&Frame::Hello(hello)))
}

/// Two linked hosts `a` and `b`; the roster of `b` has two more hosts, which do not run.
struct Stage {
    a: TestHost,
    b: TestHost,
    lines: Lines,
}

impl Stage {
    async fn set() -> Self {
        Self::set_with(quick()).await
    }

    async fn set_with(limits: Limits) -> Self {
        let lines = Lines::capture();
        let mut a = TestHost::start("a", life(1, 1)).await;
        let mut b = TestHost::start_with("b", life(2, 1), limits, 64).await;
        let nowhere = "127.0.0.1:9".parse().expect("address");
        a.roster(&[("b", b.address())]);
        b.roster(&[("a", a.address()), ("0evil", nowhere)]);
        a.up().await;
        b.up().await;
        Self { a, b, lines }
    }

    /// The link of the two hosts still works, and is the same link.
    async fn goes_on(&mut self) {
        talk(&mut self.a, &mut self.b, 10).await;
    }

    /// Exactly one line was logged that contains both texts.
    #[track_caller]
    fn said_once(&self, start: &str, why: &str) {
        let lines = self.lines.with(start);
        assert!(lines.len() == 1 && lines[0].contains(why), "not once {why:?}: {:?}", self.lines.with(""));
    }
}

/// Sends these bytes to a host that has a link with another.
async fn cut_in_setup(bytes: &[u8], why: &str) {
    cut_on(Stage::set().await, bytes, why).await;
}

async fn cut_on(mut stage: Stage, bytes: &[u8], why: &str) {
    let mut raw = Raw::connect(&stage.b).await;
    raw.write(bytes).await;
    raw.until_cut().await;
    within("the line", async {
        while stage.lines.with("connection cut").is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stage.said_once("connection cut", why);
    stage.goes_on().await;
    assert_eq!(stage.b.sockets(), 0, "{why}");
}

#[tokio::test]
async fn a_connection_with_another_protocol_is_cut() {
    cut_in_setup(b"\x16\x03\x01\x02\x00", "its first byte is 0x16").await;
    cut_in_setup(b"get / http/1.1", "its first byte is 0x67").await;
    cut_in_setup(b"\0\0\0\0", "its first byte is 0x00").await;
    cut_in_setup(&[0xFF; 200], "the greeting is not that of ZMTP 3").await;
}

#[tokio::test]
async fn a_connection_that_falls_silent_during_setup_is_cut_in_time() {
    let limits = Limits { setup_time: Duration::from_millis(400), first_word: Duration::from_millis(400), ..quick() };
    let whole = said(hello());
    for spoken in [0, 100, whole.len() - 1] {
        cut_on(Stage::set_with(limits.clone()).await, &whole[..spoken], "no data within 0.4 s").await;
    }
}

#[tokio::test]
async fn a_connection_closed_within_a_message_leaves_no_socket() {
    let mut stage = Stage::set().await;
    let whole = said(hello());
    for end in [1, 64, 70, 100, whole.len() - 1] {
        let mut raw = Raw::connect(&stage.b).await;
        raw.write(&whole[..end]).await;
        drop(raw);
    }
    stage.goes_on().await;
    within("the sockets' end", async {
        while stage.b.sockets() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_too_long_frame_is_refused_before_memory_is_reserved() {
    let before = resident();
    for (length, text) in [(1 << 30, "1073741824 bytes"), (1 << 46, "70368744177664 bytes"), (1 << 63, "92233720368")] {
        cut_in_setup(&[greeting(), long_header(6, length)].concat(), &format!("a READY of {text}")).await;
        cut_in_setup(&handshake(&long_header(2, length)), &format!("a frame of {text}")).await;
    }
    let more = 1 + cob_types::link::MAX_FRAME as u64;
    cut_in_setup(&handshake(&long_header(2, more)), "at most 1048594 are allowed").await;
    // Other tests run in parallel; 1 GB would be noticed.
    assert!(resident() < before + (200 << 20));
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("statm");
    pages.split(' ').nth(1).expect("a second field").parse::<usize>().expect("a number") * 4096
}

#[tokio::test]
async fn a_repeated_handshake_or_split_message_cuts_the_connection() {
    let ready = &handshake(b"")[64..];
    cut_in_setup(&handshake(ready), "flags 0x04").await;
    cut_in_setup(&handshake(&[0x01, 1, 0].repeat(1000)), "flags 0x01").await;
    cut_in_setup(&handshake(b"\x04\x05\x04PING"), "flags 0x04").await;
    let mut named = greeting();
    named.extend(b"\x04\x2a\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x01a");
    cut_in_setup(&named, "names an identity").await;
    let mut router = greeting();
    router.extend(b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER");
    cut_in_setup(&router, "no DEALER").await;
}

#[tokio::test]
async fn a_hello_that_is_wrong_is_refused() {
    cut_in_setup(&handshake(b"\x00\x04\xde\xad\xbe\xef"), "link format 222").await;
    cut_in_setup(&handshake(b"\x00\x00"), "a frame of 0 bytes").await;
    cut_in_setup(&handshake(b"\x00\x05\x01\x01\xff\xff\xff"), "the hello is not understood").await;
    cut_in_setup(&handshake(&zmtp(&Frame::Ack { ack: 0 })), "a frame of kind ack where a hello was due").await;
    cut_in_setup(&said(LinkHello { newest: 9, oldest: 8, ..hello() }), "it speaks the protocol versions 8 to 9").await;
    cut_in_setup(&said(LinkHello { to: host("c"), ..hello() }), "its hello is meant for host c").await;
    cut_in_setup(&said(LinkHello { from: host("0nobody"), ..hello() }), "host 0nobody, which is not in the roster")
        .await;
    cut_in_setup(&said(LinkHello { from: host("b"), ..hello() }), "host b, which is not in the roster").await;
}

#[tokio::test]
async fn a_host_with_the_higher_name_must_not_dial() {
    let mut stage = Stage::set().await;
    let mut raw = Raw::connect(&stage.a).await;
    raw.write(&said(LinkHello { from: host("b"), to: host("a"), ..hello() })).await;
    raw.until_cut().await;
    stage.said_once("connection cut", "must wait to be dialled");
    stage.goes_on().await;
}

/// Sends these bytes on a link that is up; the link is closed, and that counts as a broken rule.
async fn cut_when_up(bytes: &[u8], why: &str) {
    let refused = ended_when_up(bytes, why).await;
    assert_eq!(refused, RefusalCounts { broken: 1, ..RefusalCounts::default() }, "{why}");
}

/// Like [`cut_when_up`]; returns the counters.
async fn ended_when_up(bytes: &[u8], why: &str) -> RefusalCounts {
    let mut stage = Stage::set().await;
    let mut raw = Raw::connect(&stage.b).await;
    raw.write(&said(hello())).await;
    assert_eq!(stage.b.up().await.1, life(66, 1));
    raw.write(bytes).await;
    raw.until_cut().await;
    let told = stage.b.down().await;
    assert!(told.contains(why), "not {why:?}: {told}");
    stage.said_once("link down", why);
    let status = stage.b.links.status().into_iter().find(|peer| peer.host == "0evil").expect("in the roster");
    assert!(!status.up && status.error.is_some_and(|error| error == told));
    stage.goes_on().await;
    stage.b.links.refused()
}

#[tokio::test]
async fn a_host_that_breaks_the_link_protocol_is_cut() {
    let data = |number, ack, len| zmtp(&Frame::Data { number, ack, payload: &vec![7; len] });
    cut_when_up(&zmtp(&Frame::Hello(hello())), "a second hello").await;
    cut_when_up(&data(2, 0, 1), "a gap: number 2 came where 1 was due").await;
    cut_when_up(&data(u64::MAX, 0, 1), "a gap").await;
    cut_when_up(&zmtp(&Frame::Ack { ack: 1 }), "it acknowledges number 1; 0 to 0 could be").await;
    cut_when_up(&zmtp(&Frame::Beat { ack: u64::MAX, interval_ms: 0 }), "it acknowledges number 18446744073709551615")
        .await;
    cut_when_up(b"\x00\x02\x01\x09", "no frame of kind 9").await;
    cut_when_up(b"\x01\x00", "flags 0x01").await;
    cut_when_up(&long_header(2, 1 << 63), "a frame of 9223372036854775808 bytes").await;
    cut_when_up(&data(1, 0, MAX_BATCH + 1), "a frame of 1048595 bytes").await;
}

#[tokio::test]
async fn a_silent_or_closing_host_breaks_no_rule() {
    let beat = zmtp(&Frame::Beat { ack: 0, interval_ms: 30 });
    let silent = ended_when_up(&[&beat[..], b"\x00\xff\x01\x02"].concat(), "was silent for 0.12 s").await;
    let bye = ended_when_up(&zmtp(&Frame::Bye), "the other side shut down").await;
    assert!(silent.is_nothing() && bye.is_nothing(), "{silent:?}, {bye:?}");
}

#[tokio::test]
async fn an_earlier_incarnation_cannot_replace_a_link() {
    let mut stage = Stage::set().await;
    let mut raw = Raw::connect(&stage.b).await;
    raw.write(&said(LinkHello { session: life(66, 5), ..hello() })).await;
    stage.b.up().await;
    let mut late = Raw::connect(&stage.b).await;
    late.write(&said(LinkHello { session: life(66, 4), ..hello() })).await;
    late.until_cut().await;
    stage.said_once("no link", "an earlier incarnation (4)");
    assert_eq!(stage.b.links.refused(), RefusalCounts { replayed: 1, ..RefusalCounts::default() });
    raw.write(&zmtp(&Frame::Data { number: 1, ack: 0, payload: b"still here" })).await;
    assert_eq!(stage.b.received().await, "still here");
}

#[tokio::test]
async fn a_flood_on_one_link_does_not_stop_another() {
    let mut stage = Stage::set().await;
    let mut raw = Raw::connect(&stage.b).await;
    raw.write(&said(hello())).await;
    stage.b.up().await;
    // Duplicates, each of which causes an acknowledgement that is never read.
    raw.write(&zmtp(&Frame::Data { number: 1, ack: 0, payload: b"flood" })).await;
    assert_eq!(stage.b.received().await, "flood");
    let doubles = zmtp(&Frame::Data { number: 1, ack: 0, payload: b"" }).repeat(1000);
    let flood = async {
        loop {
            raw.write(&doubles).await;
        }
    };
    let others = async {
        for _ in 0..20 {
            stage.goes_on().await;
        }
    };
    tokio::select! {
        () = flood => {}
        () = within("the others' talk", others) => {}
    }
    assert!(stage.b.links.counters().doubles > 1000, "{:?}", stage.b.links.counters());
}

#[tokio::test]
async fn silent_connections_do_not_block_hosts() {
    let pending = PendingLimits { waiting: 8, slots: 4, ..PendingLimits::default() };
    let limits = Limits { pending, ..quick() };
    let mut b = TestHost::start_with("b", life(2, 1), limits, 64).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(Raw::connect(&b).await);
    }
    let mut a = TestHost::start("a", life(1, 1)).await;
    a.roster(&[("b", b.address())]);
    b.roster(&[("a", a.address())]);
    a.up().await;
    b.up().await;
}

#[tokio::test]
async fn a_daemon_that_does_not_read_holds_back_its_sender() {
    let mut a = TestHost::start("a", life(1, 1)).await;
    let mut b = TestHost::start_with("b", life(2, 1), quick(), 1).await;
    a.roster(&[("b", b.address())]);
    b.roster(&[("a", a.address())]);
    a.up().await;
    b.up().await;
    for _ in 0..500 {
        a.links.send(&host("b"), Bytes::from_static(b"x"));
    }
    within("the window's end", async {
        while a.links.counters().sent < quick().window_messages as u64 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(a.links.counters().sent <= quick().window_messages as u64 + 1);
    for _ in 0..500 {
        assert!(matches!(b.next().await, LinkEvent::Received { .. }));
    }
    assert_eq!(a.links.counters().dropped, 0);
}
