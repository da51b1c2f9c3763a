//! Links in a model with identities: accepted and refused callers, and the fate of links after a key changes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cob_trust::tls::{self, HTTP, LINK};
use cob_types::link::{Frame, LinkHello};
use cob_types::message::PROTOCOL;
use cob_types::status::RefusalCounts;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::task::Owned;
use super::testing::{
    Cut, Lines, OPERATOR, Proxy, TestHost, dealer_handshake, host, identity, life, quick, secret, shows, talk,
    two_secure, within, zmtp,
};
use super::{HttpStream, Limits, LinkEvent, PendingLimits, Roster};

const NOWHERE: &str = "127.0.0.1:9";
/// The key of the hostile host `0evil`, which is in the roster.
const EVIL: u8 = 66;

/// Two linked hosts; `b` knows a third host, whose key the tests have.
struct Stage {
    a: TestHost,
    b: TestHost,
    lines: Lines,
}

impl Stage {
    async fn set() -> Self {
        let lines = Lines::capture();
        let (mut a, mut b) = two_secure().await;
        let nowhere = NOWHERE.parse().expect("address");
        let hosts: &[(&str, SocketAddr, &[u8])] =
            &[("a", a.address(), &[1]), ("b", b.address(), &[2]), ("0evil", nowhere, &[EVIL])];
        a.trust(1, &hosts[..2], &[]);
        b.trust(2, hosts, &[]);
        Self { a, b, lines }
    }

    async fn goes_on(&mut self) {
        talk(&mut self.a, &mut self.b, 5).await;
    }

    /// Host `b` has refused a connection for this reason only, and logged it.
    async fn refused(&mut self, why: &str, counted: RefusalCounts) {
        within(why, async {
            while self.b.links.refused().is_nothing() || self.lines.with("connection cut").is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let lines = self.lines.with("connection cut");
        assert!(lines.len() == 1 && lines[0].contains(why), "not once {why:?}: {lines:?}");
        assert_eq!(self.b.links.refused(), counted, "{why}");
        self.goes_on().await;
        assert_eq!(self.b.sockets(), 0, "{why}");
    }
}

/// A handshake by hand, with the key of this number.
async fn shake(to: SocketAddr, key: Option<u8>, server: u8, alpn: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
    let own = key.map(identity);
    let config = tls::client(own.as_ref(), &[secret(server).public()], alpn).expect("settings");
    let stream = TcpStream::connect(to).await?;
    TlsConnector::from(config).connect(tls::name(), stream).await
}

async fn until_cut(mut stream: impl AsyncReadExt + Unpin) {
    within("the cut", async {
        let mut piece = [0; 4096];
        while stream.read(&mut piece).await.is_ok_and(|read| read > 0) {}
    })
    .await;
}

fn hello(from: &str) -> Vec<u8> {
    let (from, to) = (host(from), host("b"));
    let hello =
        LinkHello { newest: PROTOCOL, oldest: PROTOCOL, from, to, session: life(66, 1), stream: 6, received: None };
    [dealer_handshake(), zmtp(&Frame::Hello(hello))].concat()
}

#[tokio::test]
async fn batches_survive_cut_links_over_tls() {
    let mut a = TestHost::secure("a", life(1, 1), 1).await;
    let mut b = TestHost::secure("b", life(2, 1), 2).await;
    let proxy = Proxy::start(b.address()).await;
    let hosts: &[(&str, SocketAddr, &[u8])] = &[("a", a.address(), &[1]), ("b", proxy.address, &[2])];
    a.trust(1, hosts, &[]);
    b.trust(2, hosts, &[]);
    a.up().await;
    b.up().await;
    let (mut sent, mut heard, mut ups) = (0, 0, 0);
    within("all batches", async {
        while heard < 2000 {
            while sent < 2000 && sent < heard + 200 {
                a.send("b", &sent.to_string());
                sent += 1;
            }
            tokio::select! {
                Some(_) = a.events.recv() => {}
                Some(event) = b.events.recv() => match event {
                    LinkEvent::Received { bytes, .. } => {
                        assert_eq!(bytes, heard.to_string());
                        heard += 1;
                        if heard % 100 == 0 {
                            proxy.cut(if heard % 200 == 0 { Cut::Reset } else { Cut::Close });
                        }
                    }
                    LinkEvent::Up { .. } => ups += 1,
                    LinkEvent::Down { .. } | LinkEvent::Resync { .. } | LinkEvent::Http(_) => {}
                },
            }
        }
    })
    .await;
    assert!(ups > 5, "{ups}");
    assert_eq!((a.links.refused(), b.links.refused()), (RefusalCounts::default(), RefusalCounts::default()));
}

#[tokio::test]
async fn a_key_in_no_generation_is_refused_and_named() {
    let mut stage = Stage::set().await;
    let stream = shake(stage.b.address(), Some(99), 2, LINK).await;
    if let Ok(stream) = stream {
        until_cut(stream).await;
    }
    let why = format!("its key {} is in no known generation", secret(99).public());
    stage.refused(&why, RefusalCounts { stranger: 1, ..RefusalCounts::default() }).await;
}

/// A removed host whose daemon still runs, or a host with a newer generation, calls repeatedly.
#[tokio::test]
async fn a_host_of_another_generation_is_refused_but_is_no_stranger() {
    for young in [false, true] {
        let mut stage = Stage::set().await;
        let mut roster = Roster { young, protection: shows(2), ..Roster::default() };
        if !young {
            roster.former.insert(host("gone"), [secret(98).public()].into());
        }
        stage.b.links.roster(roster);
        if let Ok(stream) = shake(stage.b.address(), Some(98), 2, LINK).await {
            until_cut(stream).await;
        }
        within("the sockets' end", async {
            while stage.b.sockets() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(stage.lines.with("connection cut"), [""; 0], "young: {young}");
        assert_eq!(stage.b.links.refused(), RefusalCounts::default(), "young: {young}");
    }
}

#[tokio::test]
async fn a_link_needs_the_key_of_a_host() {
    for key in [None, Some(OPERATOR)] {
        let mut stage = Stage::set().await;
        let stream = shake(stage.b.address(), key, 2, LINK).await.expect("the door looks at it afterwards");
        until_cut(stream).await;
        stage.refused("shows no key of a host", RefusalCounts { stranger: 1, ..RefusalCounts::default() }).await;
    }
}

#[tokio::test]
async fn a_host_that_claims_another_name_is_refused() {
    let mut stage = Stage::set().await;
    let mut stream = shake(stage.b.address(), Some(EVIL), 2, LINK).await.expect("shakes hands");
    stream.write_all(&hello("a")).await.expect("writes");
    until_cut(stream).await;
    let why = "the peer claims to be host a, but it shows the key of host 0evil";
    stage.refused(why, RefusalCounts { foreign_name: 1, ..RefusalCounts::default() }).await;
}

#[tokio::test]
async fn an_unencrypted_connection_is_refused() {
    for bytes in [&dealer_handshake()[..], b"GET / HTTP/1.1\r\n\r\n", b"\xff\0\0\0\0\0\0\x40\0", b"\0"] {
        let mut stage = Stage::set().await;
        let mut stream = TcpStream::connect(stage.b.address()).await.expect("connects");
        stream.write_all(bytes).await.expect("writes");
        until_cut(stream).await;
        stage.refused("which is not TLS", RefusalCounts { not_tls: 1, ..RefusalCounts::default() }).await;
    }
}

/// A ClientHello of TLS 1.2: it has no list of versions, so it offers 1.2.
fn tls_1_2() -> Vec<u8> {
    let extensions: &[u8] = &[0, 13, 0, 4, 0, 2, 8, 7, 0, 10, 0, 4, 0, 2, 0, 29];
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xC0, 0x2B, 1, 0, 0, extensions.len() as u8]);
    body.extend(extensions);
    let mut bytes = vec![0x16, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    bytes.extend(body);
    bytes
}

#[tokio::test]
async fn older_tls_is_refused() {
    let mut stage = Stage::set().await;
    let mut stream = TcpStream::connect(stage.b.address()).await.expect("connects");
    stream.write_all(&tls_1_2()).await.expect("writes");
    until_cut(stream).await;
    stage.refused("the TLS handshake failed", RefusalCounts { not_tls: 1, ..RefusalCounts::default() }).await;
}

/// A proxy that records the dialler's bytes.
struct Tap {
    address: SocketAddr,
    said: Arc<Mutex<Vec<u8>>>,
    _task: Owned<()>,
}

impl Tap {
    async fn on(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("bound");
        let said = Arc::new(Mutex::new(Vec::new()));
        let written = said.clone();
        let task = Owned::spawn(async move {
            let (near, _) = listener.accept().await.expect("accepts");
            let far = TcpStream::connect(target).await.expect("connects");
            let (mut near_read, mut near_write) = near.into_split();
            let (mut far_read, mut far_write) = far.into_split();
            let _back = Owned::spawn(async move { tokio::io::copy(&mut far_read, &mut near_write).await });
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = near_read.read(&mut piece).await {
                written.lock().expect("lock").extend(&piece[..read]);
                if far_write.write_all(&piece[..read]).await.is_err() {
                    return;
                }
            }
        });
        Self { address, said, _task: task }
    }
}

/// All bytes of a host with a valid key until its link is up, including a batch.
async fn recorded(stage: &mut Stage) -> Vec<u8> {
    let tap = Tap::on(stage.b.address()).await;
    let mut stream = shake(tap.address, Some(EVIL), 2, LINK).await.expect("shakes hands");
    stream.write_all(&hello("0evil")).await.expect("writes");
    let data = zmtp(&Frame::Data { number: 1, ack: 0, payload: b"once" });
    stream.write_all(&data).await.expect("writes");
    stage.b.up().await;
    assert_eq!(stage.b.received().await, "once");
    drop(stream);
    stage.b.down().await;
    tap.said.lock().expect("lock").clone()
}

#[tokio::test]
async fn a_replayed_handshake_is_refused() {
    let mut stage = Stage::set().await;
    let said = recorded(&mut stage).await;
    let mut stream = TcpStream::connect(stage.b.address()).await.expect("connects");
    let _ = stream.write_all(&said).await;
    until_cut(stream).await;
    stage.refused("the TLS handshake failed", RefusalCounts { replayed: 1, ..RefusalCounts::default() }).await;
}

#[tokio::test]
async fn an_injected_record_cuts_the_link_and_is_counted() {
    let mut stage = Stage::set().await;
    let mut stream = shake(stage.b.address(), Some(EVIL), 2, LINK).await.expect("shakes hands");
    stream.write_all(&hello("0evil")).await.expect("writes");
    stage.b.up().await;
    // A TLS record that was not encrypted with this connection's keys.
    let record = [&[0x17, 3, 3, 0, 40][..], &[7; 40]].concat();
    stream.get_mut().0.write_all(&record).await.expect("writes");
    until_cut(stream).await;
    stage.b.down().await;
    assert_eq!(stage.b.links.refused(), RefusalCounts { replayed: 1, ..RefusalCounts::default() });
    stage.goes_on().await;
}

#[tokio::test]
async fn half_and_damaged_handshakes_leave_no_sockets() {
    let mut stage = Stage::set().await;
    let said = recorded(&mut stage).await;
    for end in [1, 3, 5, 6, 50, 100, said.len() / 2, said.len() - 1] {
        let mut stream = TcpStream::connect(stage.b.address()).await.expect("connects");
        stream.write_all(&said[..end.min(said.len())]).await.expect("writes");
        drop(stream);
    }
    // Each byte of the ClientHello in turn, altered; and mere noise after a valid start.
    for at in (0..200).step_by(7) {
        let mut bent = said.clone();
        bent[at] ^= 0x55;
        let mut stream = TcpStream::connect(stage.b.address()).await.expect("connects");
        let _ = stream.write_all(&bent).await;
        drop(stream);
        let mut stream = TcpStream::connect(stage.b.address()).await.expect("connects");
        let noise: Vec<u8> =
            (0..500_u32).map(|n| (n.wrapping_mul(2_654_435_761).rotate_left(at as u32) >> 9) as u8).collect();
        let _ = stream.write_all(&[&said[..5], &noise].concat()).await;
        drop(stream);
    }
    stage.goes_on().await;
    within("the sockets' end", async {
        while stage.b.sockets() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let refused = stage.b.links.refused();
    assert_eq!((refused.stranger, refused.foreign_name, refused.revoked), (0, 0, 0), "{refused:?}");
}

#[tokio::test]
async fn a_frame_of_64_tib_is_refused_before_and_after_authentication() {
    let huge = [&dealer_handshake()[..], &[2], &(1_u64 << 46).to_be_bytes()].concat();
    let mut stage = Stage::set().await;
    let mut stream = shake(stage.b.address(), Some(EVIL), 2, LINK).await.expect("shakes hands");
    stream.write_all(&huge).await.expect("writes");
    until_cut(stream).await;
    stage.refused("a frame of 70368744177664 bytes", RefusalCounts { broken: 1, ..RefusalCounts::default() }).await;

    let mut stage = Stage::set().await;
    let mut stream = TcpStream::connect(stage.b.address()).await.expect("connects");
    // The length of a TLS record has 16 bits; little more than 2^14 is allowed.
    stream.write_all(&[&[0x16, 3, 1, 0xFF, 0xFF], &huge[..]].concat()).await.expect("writes");
    until_cut(stream).await;
    stage.refused("the TLS handshake failed", RefusalCounts { not_tls: 1, ..RefusalCounts::default() }).await;
}

#[tokio::test]
async fn a_revoked_key_is_cut_at_once_and_stays_refused() {
    let mut stage = Stage::set().await;
    let (a, b) = (stage.a.address(), stage.b.address());
    stage.goes_on().await;
    let hosts: &[(&str, SocketAddr, &[u8])] = &[("a", a, &[1]), ("b", b, &[2])];
    stage.b.trust(2, hosts, &[1]);
    let why = stage.b.down().await;
    assert!(why.contains("revoked or replaced"), "{why}");
    stage.a.down().await;
    within("refused redials", async {
        while stage.b.links.refused().revoked < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!stage.b.links.status().iter().any(|peer| peer.up));
    let told = within("the reason at the dialler", async {
        loop {
            match stage.a.links.status()[0].error.clone() {
                Some(error) if error.contains("does not accept the key") => break error,
                _ => tokio::task::yield_now().await,
            }
        }
    });
    assert!(told.await.contains(&secret(1).public().to_string()));
    // The link that the next key makes delivers the batches sent in the meantime.
    stage.a.send("b", "with the new key");
    let hosts: &[(&str, SocketAddr, &[u8])] = &[("a", a, &[3]), ("b", b, &[2])];
    stage.b.trust(2, hosts, &[1]);
    stage.a.trust(3, hosts, &[1]);
    stage.a.up().await;
    stage.b.up().await;
    assert_eq!(stage.b.received().await, "with the new key");
}

#[tokio::test]
async fn a_link_cut_for_a_revoked_key_gives_that_reason() {
    for (revoked, why) in [(&[1][..], "revoked or replaced"), (&[], "not in the roster any more")] {
        let mut stage = Stage::set().await;
        let hosts: &[(&str, SocketAddr, &[u8])] = &[("b", stage.b.address(), &[2])];
        stage.b.trust(2, hosts, revoked);
        let told = stage.b.down().await;
        assert!(told.contains(why), "not {why:?}: {told}");
    }
}

#[tokio::test]
async fn a_key_rolls_over_while_batches_flow() {
    let (mut a, mut b) = two_secure().await;
    let (at_a, at_b) = (a.address(), b.address());
    let both: &[(&str, SocketAddr, &[u8])] = &[("a", at_a, &[1, 3]), ("b", at_b, &[2, 4])];
    let new: &[(&str, SocketAddr, &[u8])] = &[("a", at_a, &[3]), ("b", at_b, &[4])];
    a.trust(1, both, &[]);
    b.trust(2, both, &[]);
    a.trust(3, both, &[]);
    b.trust(4, both, &[]);
    a.send("b", "1");
    assert_eq!(b.received().await, "1", "the link stays as it is");
    // The old keys are removed: the link comes back with the new keys, in any order of the rosters.
    b.trust(4, new, &[]);
    assert!(b.down().await.contains("revoked or replaced"));
    a.send("b", "2");
    b.up().await;
    assert_eq!(b.received().await, "2");
    a.down().await;
    a.up().await;
    a.trust(3, new, &[1, 2]);
    b.send("a", "3");
    assert_eq!(a.received().await, "3", "that link had the new keys at both ends");
    assert_eq!((a.links.refused(), b.links.refused()), (RefusalCounts::default(), RefusalCounts::default()));
}

#[tokio::test]
async fn a_dialler_accepts_only_the_key_of_the_dialled_host() {
    let mut a = TestHost::secure("a", life(1, 1), 1).await;
    let mut c = TestHost::secure("c", life(3, 1), 3).await;
    // The host at the address of b is c, which has a valid key of its own.
    let hosts: &[(&str, SocketAddr, &[u8])] = &[("a", a.address(), &[1]), ("b", c.address(), &[2])];
    a.trust(1, hosts, &[]);
    c.trust(3, &[("a", a.address(), &[1]), ("c", c.address(), &[3])], &[]);
    within("the refusal", async {
        while a.links.refused().wrong_key == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let error = a.links.status()[0].error.clone().unwrap_or_default();
    assert!(error.contains("does not hold the key of this host"), "{error}");
}

#[tokio::test]
async fn identities_take_over_from_loopback_only() {
    let (mut a, mut b) = super::testing::two().await;
    let hosts: &[(&str, SocketAddr, &[u8])] = &[("a", a.address(), &[1]), ("b", b.address(), &[2])];
    a.send("b", "in clear");
    assert_eq!(b.received().await, "in clear");
    a.trust(1, hosts, &[]);
    assert!(a.down().await.contains("protected otherwise"));
    b.down().await;
    a.send("b", "over TLS");
    b.trust(2, hosts, &[]);
    b.up().await;
    assert_eq!(b.received().await, "over TLS");
    a.up().await;
}

#[tokio::test]
async fn http_is_handed_over_with_the_key_that_was_shown() {
    let mut stage = Stage::set().await;
    for (key, alpn) in [(None, HTTP), (Some(OPERATOR), HTTP), (Some(EVIL), HTTP)] {
        let mut client = shake(stage.b.address(), key, 2, alpn).await.expect("shakes hands");
        client.write_all(b"GET").await.expect("writes");
        let LinkEvent::Http(HttpStream::Tls { mut stream, key: shown, .. }) = stage.b.next().await else {
            panic!("no HTTP")
        };
        assert_eq!(shown, key.map(|n| secret(n).public()));
        let mut word = [0; 3];
        within("the request", stream.read_exact(&mut word)).await.expect("reads");
        assert_eq!(&word, b"GET");
    }
    if let Ok(stream) = shake(stage.b.address(), Some(99), 2, HTTP).await {
        until_cut(stream).await;
    }
    stage.refused("is in no known generation", RefusalCounts { stranger: 1, ..RefusalCounts::default() }).await;
}

#[tokio::test]
async fn half_handshakes_do_not_block_hosts() {
    let pending =
        PendingLimits { slots: 4, slots_per_source: 4, grace: Duration::from_millis(50), ..PendingLimits::default() };
    let limits = Limits { pending, setup_time: Duration::from_secs(20), ..quick() };
    let protection = super::Protection::Identities(Some(identity(2)));
    let mut b = TestHost::start_as("b", life(2, 1), limits, 64, protection).await;
    let mut half = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(b.address()).await.expect("connects");
        stream.write_all(&tls_1_2()[..20]).await.expect("writes");
        half.push(stream);
    }
    let mut a = TestHost::secure("a", life(1, 1), 1).await;
    let hosts: &[(&str, SocketAddr, &[u8])] = &[("a", a.address(), &[1]), ("b", b.address(), &[2])];
    a.trust(1, hosts, &[]);
    b.trust(2, hosts, &[]);
    a.up().await;
    b.up().await;
    // The half-open handshakes make room for each other; a host gets the slots reserved for its address.
    within("half handshakes that make room", async {
        while b.links.refused().slow <= 10 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
