//! A flood: strangers open connections from 2,000 addresses at a steady rate, start a handshake and never continue.
//! Hosts and operators get through all the time, for any addresses of the strangers.
//!
//! `COB_FLOOD_RATE` is the number of connections per second.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cob_tests::cluster::Cluster;
use cob_trust::SecretKey;
use cob_trust::tls::{HTTP, Identity};
use cob_types::trust::{Operator, Role};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::attackers::{Target, client_hello, shake};
use super::{DESCRIPTORS, HOSTS, MODEL, limit_descriptors};
use crate::enrol::Site;
use crate::kills::from_environment;
use crate::{CHECK, PATIENCE, QUICK};

/// The number of source addresses of strangers.
const SOURCES: u64 = 2000;
/// How long a stranger holds its connection.
const HELD: Duration = Duration::from_millis(3500);
/// Requests of an honest caller during a flood, and how many may fail: a machine that stops for a moment is no
/// starvation.
const QUESTIONS: usize = 20;
const LOST: usize = 3;
/// The time limit for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The honest caller's address; the strangers' addresses are all below or all above it.
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 1);

/// Strangers at the ports of `targets`, until this is dropped.
struct Flood {
    enough: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// From 127.`network`.x.y.
    fn begin(targets: Vec<Target>, network: u8) -> Self {
        let rate = from_environment("COB_FLOOD_RATE", 300);
        let (enough, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, count) = (enough.clone(), opened.clone());
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(pour(&targets, network, rate, &over, &count));
        });
        Self { enough, opened, thread: Some(thread) }
    }

    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn pour(targets: &[Target], network: u8, rate: u64, enough: &AtomicBool, opened: &AtomicU64) {
    let hellos: Vec<_> = targets.iter().map(|target| Arc::new(client_hello(target, None))).collect();
    let mut held: VecDeque<(Instant, tokio::task::JoinHandle<Option<TcpStream>>)> = VecDeque::new();
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    let (begin, mut number) = (Instant::now(), 0_u64);
    while !enough.load(Ordering::Relaxed) {
        tick.tick().await;
        while number < u64::try_from(begin.elapsed().as_millis()).expect("short") * rate / 1000 {
            number += 1;
            let at = usize::try_from(number).expect("few") % targets.len();
            let from = u16::try_from(number % SOURCES).expect("few").to_be_bytes();
            let (to, hello) = (targets[at].address, hellos[at].clone());
            let source = SocketAddrV4::new(Ipv4Addr::new(127, network, from[0], from[1].max(1)), 0);
            let task = tokio::spawn(async move {
                let mut stream = connect(source, to).await.ok()?;
                stream.write_all(&hello).await.ok()?;
                Some(stream)
            });
            held.push_back((Instant::now(), task));
            opened.store(number, Ordering::Relaxed);
        }
        while held.front().is_some_and(|(since, _)| since.elapsed() > HELD) {
            if let Some((_, task)) = held.pop_front() {
                task.abort();
                drop(task.await);
            }
        }
    }
}

async fn connect(from: SocketAddrV4, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(from.into())?;
    socket.connect(to).await
}

/// A request of an honest caller: the status of its answer, or `None`.
async fn ask(target: &Target, key: &Identity, path: &str) -> Option<String> {
    let asked = async {
        let stream = connect(SocketAddrV4::new(HONEST, 0), target.address).await.ok()?;
        let mut stream = shake(stream, target, Some(key), HTTP).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", target.address);
        stream.write_all(request.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).split_whitespace().nth(1).map(str::to_owned)
    };
    timeout(ANSWER, asked).await.ok().flatten()
}

/// How many requests of an honest caller are answered during the flood.
fn answered(target: &Target, key: &Identity, path: &str, flood: &Flood) -> (usize, Duration) {
    // Wait for the full rate first.
    while flood.opened() < 1000 {
        std::thread::yield_now();
    }
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut slowest = Duration::ZERO;
    let good = (0..QUESTIONS).filter(|_| {
        let begin = Instant::now();
        let status = runtime.block_on(ask(target, key, path));
        slowest = slowest.max(begin.elapsed());
        status.as_deref() == Some("200")
    });
    (good.count(), slowest)
}

#[test]
fn a_flood_from_2000_addresses_keeps_no_host_and_no_operator_out() {
    limit_descriptors(None, DESCRIPTORS);
    let mut cluster = Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &HOSTS);
    let operator = SecretKey::from_seed(&[0x0B; 32]);
    let folder = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
    let mut draft = cluster.load(&folder);
    let olga = Operator { role: Role::Operate, keys: vec![operator.public()], token: None };
    draft.operators.insert("olga".to_owned(), olga);
    let first = cluster.publish_draft(&draft);
    cluster.start_all();
    cluster.switch_all(first);
    cluster.wait_converged(first, PATIENCE);
    let operator = Identity::new(&operator).expect("an identity");
    let target = |host: &str| Target {
        name: host.to_owned(),
        address: cluster.address(host),
        key: cluster.host_key(host).public(),
    };
    let targets = HOSTS.map(target).to_vec();
    // First all strangers have lower addresses than the operator, then all have higher addresses.
    for (number, network) in [(1_u64, 64), (2, 200)] {
        let flood = Flood::begin(targets[1..2].to_vec(), network);
        let (good, slowest) = answered(&targets[1], &operator, "/v1/status", &flood);
        println!("127.{network}/16: {good} of {QUESTIONS} answered, the slowest after {slowest:.1?}");
        assert!(
            good + LOST >= QUESTIONS,
            "127.{network}/16: {good} of {QUESTIONS} questions of an operator are answered"
        );
        // A restarted daemon gets its links, and hosts that depend on each other switch.
        cluster.stop("n2");
        cluster.start("n2");
        for cob in draft.cobs.values_mut() {
            cob.value.content["round"] = number.into();
        }
        let next = cluster.publish_draft(&draft);
        cluster.switch_all(next);
        let begin = Instant::now();
        cluster.wait_converged(next, PATIENCE);
        println!("127.{network}/16: switched after {:.1?}; {} strangers", begin.elapsed(), flood.opened());
    }
}

#[test]
fn a_flood_from_2000_addresses_keeps_no_enrolled_host_from_the_depot_s_server() {
    limit_descriptors(None, DESCRIPTORS);
    let site = Site::new(&[]);
    let key = SecretKey::from_seed(&[0x0C; 32]);
    site.publish(&[("h1", &key)], &[]);
    site.until("h1 is known", || site.get(&key, "/v1/generations").is_some());
    let target = Target { name: "server".to_owned(), address: site.address(), key: site.server_key() };
    let key = Identity::new(&key).expect("an identity");
    for network in [64, 200] {
        let flood = Flood::begin(vec![target.clone()], network);
        let (good, slowest) = answered(&target, &key, "/v1/generations", &flood);
        println!("127.{network}/16: {good} of {QUESTIONS} answered, the slowest after {slowest:.1?}");
        assert!(good + LOST >= QUESTIONS, "127.{network}/16: {good} of {QUESTIONS} questions of a host are answered");
        // A new host is enrolled in the meantime.
        let host = format!("new{network}");
        let joined = site.join(&site.enroll(&host, "1h"), &host);
        assert!(joined.status.success(), "{joined:?}");
    }
}
