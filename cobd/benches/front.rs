//! The capacity of a daemon's port: TLS handshakes a second, and a thousand links of a host, with their memory and the
//! time until they are up again after a restart.
//!
//! `cargo bench -p cobd --bench front`, or with `-- handshakes` or `-- links`. Callers and daemon run on the same
//! machine and share its cores. The daemon whose links are counted is a separate process: its memory and descriptors
//! are those of its end alone.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cob_trust::SecretKey;
use cob_trust::tls::{self, HTTP, Identity};
use cob_types::{HostName, Incarnation};
use cobd::peer::{Limits, LinkConfig, LinkEvent, Links, PendingLimits, Protection, Rate, Roster, RosterHost};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

/// Links of the hub host. Its name is the highest, so all others dial it.
const LINKS: u16 = 1000;
/// How often the hub is restarted.
const RESTARTS: u32 = 5;
/// How long handshakes are counted.
const COUNT: Duration = Duration::from_secs(5);
/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(120);
/// Passes the daemon's process its incarnation and its listening address.
const LIFE: &str = "COB_BENCH_LIFE";
const LISTEN: &str = "COB_BENCH_LISTEN";
/// The folder of its sockets: it is killed, and can't clean up after itself.
const FOLDER: &str = "COB_BENCH_FOLDER";

fn main() -> ExitCode {
    if let [Ok(life), Ok(listen), Ok(folder)] = [LIFE, LISTEN, FOLDER].map(std::env::var) {
        one_host(life.parse().expect("a number"), listen.parse().expect("an address"), Path::new(&folder));
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores, shared by callers and daemon; dev profile: {}", cfg!(debug_assertions));
    for (name, measure) in [("handshakes", handshakes as fn()), ("links", links)] {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            measure();
        }
    }
    ExitCode::SUCCESS
}

/// The name of a host; its key is derived from its number, too.
fn name(number: u16) -> HostName {
    HostName::new(&format!("n{number:05}")).expect("a name")
}

fn key(number: u16) -> SecretKey {
    let mut seed = [7; 32];
    seed[..2].copy_from_slice(&number.to_be_bytes());
    SecretKey::from_seed(&seed)
}

fn protection(number: u16) -> Protection {
    Protection::Identities(Some(Identity::new(&key(number)).expect("an identity")))
}

fn entry(number: u16, address: SocketAddr) -> (HostName, RosterHost) {
    (name(number), RosterHost { address: Some(address), keys: [key(number).public()].into() })
}

/// The limits of a daemon, except that all callers have the same address and count as many.
fn limits() -> Limits {
    let pending = PendingLimits::default();
    let (rate, slots, waiting) = (pending.total_rate, pending.slots, pending.waiting);
    let pending = PendingLimits { source_rate: rate, slots_per_source: slots, waiting_per_source: waiting, ..pending };
    Limits { pending, ..Limits::default() }
}

async fn start(
    number: u16,
    life: u32,
    at: (SocketAddr, &Path),
    limits: Limits,
    told: mpsc::Sender<LinkEvent>,
) -> Links {
    let (listen, folder) = at;
    let config = LinkConfig {
        me: name(number),
        listen,
        awaits_address: false,
        socket_dir: folder.join(number.to_string()),
        protection: protection(number),
        session: Incarnation { id: u64::from(number), start: life },
        limits,
    };
    Links::start(config, told).await.expect("starts")
}

/// A daemon's links run on a single thread.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Full handshakes with an operator's key, each on a new connection to the daemon's port: the rate with as many callers
/// as cores, and the cost per handshake on the daemon's thread.
fn handshakes() {
    const OPERATOR: u16 = 1;
    let server = runtime();
    let (told, mut events) = mpsc::channel(1024);
    // Without the limits that protect the daemon's time from strangers.
    let unlimited = Rate { per_second: 1_000_000, burst: 1_000_000 };
    let pending = PendingLimits { source_rate: unlimited, total_rate: unlimited, ..limits().pending };
    let limits = Limits { pending, ..Limits::default() };
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = server.block_on(start(LINKS, 1, (anywhere(), folder.path()), limits, told));
    let context = server.enter();
    daemon.roster(Roster {
        operators: [key(OPERATOR).public()].into(),
        hosts: [entry(LINKS, daemon.address())].into(),
        protection: protection(LINKS),
        ..Roster::default()
    });
    drop(context);
    let (address, enough, asked) = (daemon.address(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let callers = std::thread::available_parallelism().map_or(1, usize::from) * 4;
    let caller = {
        let (enough, asked) = (enough.clone(), asked.clone());
        std::thread::spawn(move || {
            runtime().block_on(async move {
                let identity = Identity::new(&key(OPERATOR)).expect("an identity");
                let config = tls::client(Some(&identity), &[key(LINKS).public()], HTTP).expect("settings");
                let calls = (0..callers).map(|_| {
                    let (config, enough, asked) = (config.clone(), enough.clone(), asked.clone());
                    tokio::spawn(async move {
                        while !enough.load(Ordering::Relaxed) {
                            let stream = TcpStream::connect(address).await.expect("connects");
                            if TlsConnector::from(config.clone()).connect(tls::name(), stream).await.is_ok() {
                                asked.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    })
                });
                for call in calls.collect::<Vec<_>>() {
                    call.await.expect("a caller");
                }
            });
        })
    };
    let (taken, elapsed, busy) = server.block_on(async {
        // Warm-up.
        for _ in 0..100 {
            events.recv().await;
        }
        let (mut taken, begin, before) = (0_u32, Instant::now(), busy());
        while begin.elapsed() < COUNT {
            match events.recv().await {
                Some(LinkEvent::Http(_)) => taken += 1,
                other => panic!("no client of the API: {other:?}"),
            }
        }
        (taken, begin.elapsed(), busy() - before)
    });
    enough.store(true, Ordering::Relaxed);
    server.block_on(async {
        while !caller.is_finished() {
            let _ = tokio::time::timeout(Duration::from_millis(20), events.recv()).await;
        }
    });
    caller.join().expect("the callers");
    println!(
        "handshakes: {:.0} a second taken by one daemon from {callers} callers on one other thread; the daemon's thread \
         was busy {:.0} us for each ({:.0} a second if it had a core to itself)",
        f64::from(taken) / elapsed.as_secs_f64(),
        busy.as_secs_f64() * 1e6 / f64::from(taken),
        f64::from(taken) / busy.as_secs_f64(),
    );
}

/// The time that this thread has been on a core.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number"))
}

/// A thousand hosts in this process, each with a link to the hub in a separate process.
fn links() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("a limit");
    let runtime = runtime();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |address| (address, folder.path());
    let mut hub = Hub::start(1, at(anywhere()));
    let (empty, few) = (hub.resident_kib(), hub.descriptors());
    let (told, mut events) = mpsc::channel(4096);
    let mut others = Vec::new();
    for number in 0..LINKS {
        others.push(runtime.block_on(start(number, 1, at(anywhere()), Limits::default(), told.clone())));
    }
    let begin = Instant::now();
    {
        let _context = runtime.enter();
        for (number, links) in (0..LINKS).zip(&mut others) {
            let hosts: BTreeMap<_, _> = [entry(LINKS, hub.address), entry(number, links.address())].into();
            links.roster(Roster { hosts, protection: protection(number), ..Roster::default() });
        }
    }
    runtime.block_on(all_up(&mut events, || errors(&others)));
    hub.wait_all_up();
    println!(
        "links: {LINKS} up after {:.2?}; memory of the one host {} KiB without, {} KiB with them: {:.1} KiB a link, \
         {:.1} descriptors a link",
        begin.elapsed(),
        empty,
        hub.resident_kib(),
        (hub.resident_kib() - empty) as f64 / f64::from(LINKS),
        (hub.descriptors() - few) as f64 / f64::from(LINKS),
    );
    let address = hub.address;
    for life in 2..2 + RESTARTS {
        hub.kill();
        let begin = Instant::now();
        hub = Hub::start(life, at(address));
        runtime.block_on(all_up(&mut events, || errors(&others)));
        hub.wait_all_up();
        println!(
            "links: all up again {:.2?} after the start of life {life}; {} KiB",
            begin.elapsed(),
            hub.resident_kib()
        );
    }
    hub.kill();
}

/// The errors of the links that are down, with counts.
fn errors(others: &[Links]) -> String {
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    let down = others.iter().flat_map(Links::status).filter(|peer| !peer.up);
    down.for_each(|peer| *all.entry(peer.error.unwrap_or_default()).or_default() += 1);
    format!("{all:#?}")
}

/// Waits until all links have reported that they are up.
async fn all_up(events: &mut mpsc::Receiver<LinkEvent>, why: impl Fn() -> String) {
    let mut up = 0;
    let all = async {
        while up < LINKS {
            match events.recv().await {
                Some(LinkEvent::Up { .. }) => up += 1,
                Some(_) => {}
                None => panic!("the links have ended"),
            }
        }
    };
    assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "only {up} of {LINKS} links are up: {}", why());
}

/// The hub's process, as its parent sees it.
struct Hub {
    process: Child,
    says: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl Hub {
    fn start(life: u32, (listen, folder): (SocketAddr, &Path)) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(LIFE, life.to_string()).env(LISTEN, listen.to_string()).env(FOLDER, folder);
        command.stdout(Stdio::piped());
        let mut process = command.spawn().expect("this program once more");
        let mut says = BufReader::new(process.stdout.take().expect("piped")).lines();
        let address = says.next().expect("a line").expect("text").parse().expect("an address");
        Self { process, says, address }
    }

    fn wait_all_up(&mut self) {
        assert_eq!(self.says.next().expect("a line").expect("text"), "all up");
    }

    fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("waited for");
    }

    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("a process");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).expect("a process").count()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The hub: reports its listening address, and when all links are up; runs until it is killed.
fn one_host(life: u32, listen: SocketAddr, folder: &Path) {
    let runtime = runtime();
    let (told, mut events) = mpsc::channel(4096);
    let mut links = runtime.block_on(start(LINKS, life, (listen, folder), limits(), told));
    // The hub never dials the others: their names are lower.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let hosts = (0..LINKS).map(|number| entry(number, nowhere)).chain([entry(LINKS, links.address())]).collect();
    let context = runtime.enter();
    links.roster(Roster { hosts, protection: protection(LINKS), ..Roster::default() });
    drop(context);
    say(&links.address().to_string());
    runtime.block_on(async {
        all_up(&mut events, || format!("{:?}", links.refused())).await;
        say("all up");
        while events.recv().await.is_some() {}
    });
}

fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{words}").and_then(|()| out.flush()).expect("said");
}
