//! The attackers of a daemon's port: many types of strangers, and a host that was taken over.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cob_engine::sim::Random;
use cob_tests::cluster::host;
use cob_trust::SecretKey;
use cob_trust::tls::{self, HTTP, Identity, LINK};
use cob_types::PublicKey;
use cob_types::link::{Frame, LinkHello};
use cob_types::message::{Incarnation, PROTOCOL};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The longest that the daemon may take to close a connection that broke a rule of the link. With a crowd of
/// connections that takes some time, and longer on a busy machine.
const CUT: Duration = Duration::from_secs(30);
/// Source addresses of strangers: enough that no limit for a single source helps.
const SOURCES: u64 = 24;

/// A type of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sort {
    /// Random bytes.
    Noise,
    /// Random bytes after the start of a TLS record.
    NoiseAsTls,
    /// A frame of 64 TiB after ZeroMQ's handshake, in clear.
    HugeInClear,
    /// The same frame inside bytes that claim to be a TLS record.
    HugeAsTls,
    /// The start of a valid handshake.
    HalfHandshake,
    /// A valid handshake, a byte at a time.
    SlowHandshake,
    /// A valid handshake without its last message.
    NoFinish,
    /// A key that no generation names, and then a frame of 64 TiB.
    UnknownKey,
    /// No key where a host's key is due.
    NoKey,
    /// A silent connection to the API.
    SilentApi,
    /// A request to the API with an endless head.
    EndlessHead,
    /// A request to the API with a body of 64 TiB.
    HugeRequest,
    /// A host's key, and noise.
    ProvedNoise,
    /// A host's key, and half a greeting of ZeroMQ.
    ProvedHalf,
    /// A host's key, and a frame of 64 TiB instead of a READY.
    ProvedHugeReady,
    /// A host's key, and a frame of 64 TiB instead of a hello.
    ProvedHuge,
    /// A host's key, and another host's name.
    ProvedForeignName,
    /// A link that is up, and then a frame of 64 TiB.
    LinkedHuge,
}

/// All types of attacks, except silence.
pub(super) const SORTS: [Sort; 18] = [
    Sort::Noise,
    Sort::NoiseAsTls,
    Sort::HugeInClear,
    Sort::HugeAsTls,
    Sort::HalfHandshake,
    Sort::SlowHandshake,
    Sort::NoFinish,
    Sort::UnknownKey,
    Sort::NoKey,
    Sort::SilentApi,
    Sort::EndlessHead,
    Sort::HugeRequest,
    Sort::ProvedNoise,
    Sort::ProvedHalf,
    Sort::ProvedHugeReady,
    Sort::ProvedHuge,
    Sort::ProvedForeignName,
    Sort::LinkedHuge,
];

/// A daemon under attack.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) key: PublicKey,
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The daemon closed it.
    Cut,
    /// It did not get to its attack: it had to make room for others.
    SentAway,
    /// It left by itself.
    Left,
}

/// The results of a type of attack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) cut: usize,
    pub(super) sent_away: usize,
    pub(super) left: usize,
    /// The daemon should have closed it and did not.
    pub(super) let_be: usize,
}

/// All attackers, and their progress.
#[derive(Debug)]
pub(super) struct Attackers {
    targets: Vec<Target>,
    /// The key of a host that was taken over, in the handshake of a link.
    taken_over: Identity,
    unknown: Identity,
    /// Attempts so far, without silent attackers and attackers that occupy the API.
    pub(super) tries: AtomicUsize,
    /// How many are silent now, and the most at any time.
    pub(super) silent: AtomicUsize,
    pub(super) most_silent: AtomicUsize,
    pub(super) silent_ever: AtomicUsize,
    /// Connections to the API that were accepted and then stayed silent.
    pub(super) at_api: AtomicUsize,
    pub(super) enough: AtomicBool,
    tallies: Mutex<BTreeMap<Sort, Tally>>,
    lives: AtomicU32,
}

impl Attackers {
    /// The attackers hold the key of the host `a0`.
    pub(super) fn new(targets: Vec<Target>, taken_over: &SecretKey) -> Self {
        let unknown = SecretKey::from_seed(&[0xBA; 32]);
        Self {
            targets,
            taken_over: Identity::new(taken_over).expect("an identity"),
            unknown: Identity::new(&unknown).expect("an identity"),
            tries: AtomicUsize::new(0),
            silent: AtomicUsize::new(0),
            most_silent: AtomicUsize::new(0),
            silent_ever: AtomicUsize::new(0),
            at_api: AtomicUsize::new(0),
            enough: AtomicBool::new(false),
            tallies: Mutex::default(),
            lives: AtomicU32::new(1),
        }
    }

    pub(super) fn tallies(&self) -> BTreeMap<Sort, Tally> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has_enough(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }

    /// Waits, but ends early when the test has enough.
    async fn pause(&self, milliseconds: u64) {
        let end = tokio::time::Instant::now() + Duration::from_millis(milliseconds);
        while !self.has_enough() && tokio::time::Instant::now() < end {
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Attempts of random types, one after the other, until the test has enough.
    pub(super) async fn attack(&self, seed: u64) {
        let mut random = Random::new(seed);
        while !self.has_enough() {
            let (sort, target) = (*random.pick(&SORTS), random.pick(&self.targets).clone());
            self.tries.fetch_add(1, Ordering::Relaxed);
            let end = self.attempt(sort, &target, &mut random).await;
            let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
            let tally = tallies.entry(sort).or_default();
            match end {
                Ok(End::Cut) => tally.cut += 1,
                // Refused or reset before its first byte.
                Ok(End::SentAway) | Err(_) => tally.sent_away += 1,
                Ok(End::Left) if must_be_cut(sort) => tally.let_be += 1,
                Ok(End::Left) => tally.left += 1,
            }
        }
    }

    /// Connects and stays silent. When it is closed, it connects again.
    pub(super) async fn be_silent(&self, seed: u64) {
        let mut random = Random::new(seed);
        while !self.has_enough() {
            let target = random.pick(&self.targets).clone();
            self.silent_ever.fetch_add(1, Ordering::Relaxed);
            if let Ok(stream) = connect(target.address, &mut random).await {
                let now = self.silent.fetch_add(1, Ordering::Relaxed) + 1;
                self.most_silent.fetch_max(now, Ordering::Relaxed);
                // It does not check whether the daemon has closed it in the meantime.
                self.pause(random.between(2000, 6000)).await;
                drop(stream);
                self.silent.fetch_sub(1, Ordering::Relaxed);
            }
            sleep(Duration::from_millis(random.below(100))).await;
        }
    }

    /// Shakes hands without a key, like a host with a token, and then stays silent towards the API.
    pub(super) async fn occupy_api(&self, seed: u64) {
        let mut random = Random::new(seed);
        while !self.has_enough() {
            let target = random.pick(&self.targets).clone();
            let shaken = match connect(target.address, &mut random).await {
                Ok(stream) => shake(stream, &target, None, HTTP).await,
                Err(error) => Err(error),
            };
            if let Ok(mut stream) = shaken {
                self.at_api.fetch_add(1, Ordering::Relaxed);
                tokio::select! {
                    () = until_cut(&mut stream) => {}
                    () = self.pause(20_000) => {}
                }
            }
            self.pause(random.below(1000)).await;
        }
    }

    async fn attempt(&self, sort: Sort, target: &Target, random: &mut Random) -> io::Result<End> {
        let mut stream = connect(target.address, random).await?;
        let huge = [&greeting()[..], &ready(), &header(1 << 46)].concat();
        match sort {
            Sort::Noise => say(stream, &noise(random), random).await,
            Sort::NoiseAsTls => say(stream, &[&[0x16, 3, 1, 2, 0], &noise(random)[..]].concat(), random).await,
            Sort::HugeInClear => say(stream, &huge, random).await,
            Sort::HugeAsTls => say(stream, &[&[0x16, 3, 1, 0xFF, 0xFF], &huge[..]].concat(), random).await,
            Sort::HalfHandshake => {
                let hello = self.client_hello(target);
                let end = random.between(1, hello.len() as u64 - 1) as usize;
                say(stream, &hello[..end], random).await
            }
            Sort::SlowHandshake => {
                for byte in self.client_hello(target) {
                    stream.write_all(&[byte]).await?;
                    sleep(Duration::from_millis(random.below(15))).await;
                    if self.has_enough() {
                        break;
                    }
                }
                say(stream, &[], random).await
            }
            Sort::NoFinish => say(stream, &self.client_hello(target), random).await,
            Sort::UnknownKey => {
                let stream = shake(stream, target, Some(&self.unknown), LINK).await?;
                Ok(insist(stream, &huge).await)
            }
            Sort::NoKey => {
                let stream = shake(stream, target, None, LINK).await?;
                Ok(insist(stream, &huge).await)
            }
            Sort::SilentApi => say(shake(stream, target, None, HTTP).await?, b"", random).await,
            Sort::EndlessHead => {
                let stream = shake(stream, target, None, HTTP).await?;
                let words = format!("POST /v1/switch HTTP/1.1\r\nhost: {}\r\nx: ", target.address);
                say(stream, &[words.as_bytes(), &vec![b'x'; random.below(100_000) as usize]].concat(), random).await
            }
            Sort::HugeRequest => {
                let stream = shake(stream, target, Some(&self.taken_over), HTTP).await?;
                let head = format!(
                    "POST /v1/switch HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    target.address,
                    1_u64 << 46
                );
                say(stream, &[head.as_bytes(), &vec![b' '; random.below(100_000) as usize]].concat(), random).await
            }
            Sort::ProvedNoise
            | Sort::ProvedHalf
            | Sort::ProvedHugeReady
            | Sort::ProvedHuge
            | Sort::ProvedForeignName
            | Sort::LinkedHuge => {
                let stream = shake(stream, target, Some(&self.taken_over), LINK).await?;
                self.misuse(stream, sort, target, random).await
            }
        }
    }

    /// The attack of a host that was taken over, on a connection with its key.
    async fn misuse<S>(&self, mut stream: S, sort: Sort, target: &Target, random: &mut Random) -> io::Result<End>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let start = self.lives.fetch_add(1, Ordering::Relaxed);
        let hello = |from: &str| {
            let session = Incarnation { id: 0xBAD, start };
            let (from, to) = (host(from), host(&target.name));
            Frame::Hello(LinkHello { newest: PROTOCOL, oldest: PROTOCOL, from, to, session, stream: 7, received: None })
        };
        let another = self.targets.iter().find(|t| t.name != target.name).expect("two targets");
        let greeted = [greeting(), ready()].concat();
        let words = match sort {
            Sort::ProvedHalf => greeted[..random.between(1, 63) as usize].to_vec(),
            Sort::ProvedHugeReady => [&greeting()[..], &[6], &(1_u64 << 46).to_be_bytes()].concat(),
            Sort::ProvedHuge => [greeted, header(1 << 46)].concat(),
            Sort::ProvedForeignName => [greeted, message(&hello(&another.name))].concat(),
            Sort::LinkedHuge => {
                stream.write_all(&[greeted, message(&hello("a0"))].concat()).await?;
                // The link is up when the daemon has sent more than its own greeting and READY; a newer link of the
                // same host may have replaced it before.
                let mut heard = vec![0; 160];
                if stream.read_exact(&mut heard).await.is_err() {
                    return Ok(End::SentAway);
                }
                header(1 << 46)
            }
            Sort::Noise
            | Sort::NoiseAsTls
            | Sort::HugeInClear
            | Sort::HugeAsTls
            | Sort::HalfHandshake
            | Sort::SlowHandshake
            | Sort::NoFinish
            | Sort::UnknownKey
            | Sort::NoKey
            | Sort::SilentApi
            | Sort::EndlessHead
            | Sort::HugeRequest
            | Sort::ProvedNoise => noise(random),
        };
        // A daemon that waits for 64 TiB gets a part.
        let huge = matches!(sort, Sort::ProvedHuge | Sort::ProvedHugeReady | Sort::LinkedHuge);
        let more = if huge { random.below(200_000) } else { 0 };
        Ok(insist(stream, &[words, vec![0x55; more as usize]].concat()).await)
    }

    fn client_hello(&self, target: &Target) -> Vec<u8> {
        client_hello(target, Some(&self.taken_over))
    }
}

/// The first bytes of a valid client.
pub(super) fn client_hello(target: &Target, key: Option<&Identity>) -> Vec<u8> {
    let config = tls::client(key, &[target.key], LINK).expect("settings");
    let mut client = rustls::ClientConnection::new(config, tls::name()).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("written");
    hello
}

/// Sends the bytes, and stays until the connection is closed.
async fn insist<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, words: &[u8]) -> End {
    let all = async {
        let _ = stream.write_all(words).await;
        let _ = stream.flush().await;
        until_cut(&mut stream).await;
    };
    if timeout(CUT, all).await.is_ok() { End::Cut } else { End::Left }
}

/// Whether the daemon must close the connection: the attacker breaks a rule after its handshake, or shows no known key.
pub(super) fn must_be_cut(sort: Sort) -> bool {
    matches!(
        sort,
        Sort::ProvedNoise
            | Sort::ProvedHalf
            | Sort::ProvedHugeReady
            | Sort::ProvedHuge
            | Sort::ProvedForeignName
            | Sort::LinkedHuge
            | Sort::UnknownKey
            | Sort::NoKey
    )
}

async fn connect(to: SocketAddr, random: &mut Random) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let source = 1 + u8::try_from(random.below(SOURCES)).expect("few");
    socket.bind(SocketAddr::from(([127, 66, 6, source], 0)))?;
    socket.connect(to).await
}

pub(super) async fn shake(
    stream: TcpStream,
    target: &Target,
    key: Option<&Identity>,
    alpn: &[u8],
) -> io::Result<TlsStream<TcpStream>> {
    let config = tls::client(key, &[target.key], alpn).expect("settings");
    timeout(CUT, TlsConnector::from(config).connect(tls::name(), stream)).await?
}

/// Sends the bytes, and stays for a time, or disconnects at once in the middle.
async fn say<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, words: &[u8], random: &mut Random) -> io::Result<End> {
    // The daemon may close before all bytes are sent.
    let _ = timeout(CUT, stream.write_all(words)).await;
    let _ = timeout(CUT, stream.flush()).await;
    let stays = if random.permille(300) { 0 } else { random.between(1, 8000) };
    let end = timeout(Duration::from_millis(stays), until_cut(&mut stream)).await;
    Ok(if end.is_ok() { End::Cut } else { End::Left })
}

async fn until_cut<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut piece = [0; 4096];
    while stream.read(&mut piece).await.is_ok_and(|read| read > 0) {}
}

fn noise(random: &mut Random) -> Vec<u8> {
    let length = random.between(1, 3000);
    (0..length).map(|_| random.below(256) as u8).collect()
}

/// The greeting of ZMTP 3.0 without security.
fn greeting() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0] = 0xFF;
    bytes[9] = 0x7F;
    bytes[10] = 3;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

/// The READY of a DEALER.
fn ready() -> Vec<u8> {
    b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER".to_vec()
}

/// The header of a message of this length, without the message.
fn header(length: u64) -> Vec<u8> {
    [&[2][..], &length.to_be_bytes()].concat()
}

fn message(frame: &Frame<'_>) -> Vec<u8> {
    let body = frame.encode().expect("encodes");
    [header(body.len() as u64), body].concat()
}
