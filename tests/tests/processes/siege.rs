//! A siege: many types of strangers and a host that was taken over attack the ports of three daemons at once. The
//! daemons prove their keys, while an operator has them switch from generation to generation.
//!
//! `COB_HOSTILE_TRIES` is the number of connections, `COB_SEED` the seed.

mod attackers;
mod flood;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use attackers::{Attackers, SORTS, Target, must_be_cut, shake};
use cob_engine::sim::Random;
use cob_tests::cluster::Cluster;
use cob_tests::processes;
use cob_tests::wait::comes_true;
use cob_trust::SecretKey;
use cob_trust::tls::{HTTP, Identity};
use cob_types::GenerationNumber;
use cob_types::status::RefusalCounts;
use cob_types::trust::{Operator, Role};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use crate::kills::from_environment;
use crate::{CHECK, PATIENCE, QUICK};

const HOSTS: [&str; 3] = ["n1", "n2", "n3"];
/// Open and silent connections at a time.
const SILENT: usize = 1000;
/// The number of clients for that: some are just about to reconnect.
const SILENT_SLOTS: u64 = 1100;
/// Busy attackers at a time.
const BUSY: u64 = 80;
/// Connections to the API that are accepted and stay silent: more than each daemon has slots for.
const AT_API: u64 = 360;
/// Descriptors of this process: both crowds, the cluster's own, and descriptors of tests that run in parallel.
const DESCRIPTORS: u64 = 4096;
/// The default limit of a daemon.
const DAEMON_DESCRIPTORS: u64 = 1024;
/// Attempts, and additional silent connections, before memory is measured.
const WARM: (usize, [u64; 2]) = (150, [200, 50]);
/// The most that a daemon may grow after that, in KiB: 64 handshakes and some 200 connections to the API.
const GROWTH: u64 = 32 << 10;
/// The least number of switches.
const SWITCHES: u64 = 5;

/// a0 has no daemon: the attackers have its key.
const MODEL: &str = r#"
security: loopback-only
hosts:
  a0: {address: "tcp://127.0.0.1:1"}
  n1: {address: "tcp://127.0.0.1:2"}
  n2: {address: "tcp://127.0.0.1:3"}
  n3: {address: "tcp://127.0.0.1:4"}
cobs:
  n1/a: {kind: quick}
  n2/b: {kind: quick, requires: [n1/a]}
  n3/c: {kind: quick, requires: [n2/b]}
"#;

/// The resources of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    sockets: usize,
    resident_kib: u64,
}

struct Besieged {
    cluster: Cluster,
    draft: cobgen::draft::Draft,
    operator: Identity,
    runtime: Runtime,
    targets: Vec<Target>,
    newest: GenerationNumber,
    /// The longest duration of an order, from its first attempt.
    slowest_order: Duration,
    orders_again: usize,
    slowest_switch: Duration,
}

impl Besieged {
    fn new() -> Self {
        let mut cluster = Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &HOSTS);
        let operator = SecretKey::from_seed(&[0x0B; 32]);
        let folder = cluster.write_model("model", &[("model.yaml", MODEL), QUICK, CHECK]);
        let mut draft = cluster.load(&folder);
        let olga = Operator { role: Role::Operate, keys: vec![operator.public()], token: None };
        draft.operators.insert("olga".to_owned(), olga);
        let newest = cluster.publish_draft(&draft);
        cluster.start_all();
        for host in HOSTS {
            limit_descriptors(cluster.pid(host), DAEMON_DESCRIPTORS);
        }
        cluster.switch_all(newest);
        cluster.wait_converged(newest, PATIENCE);
        let target = |name: &str| Target {
            name: name.to_owned(),
            address: cluster.address(name),
            key: cluster.host_key(name).public(),
        };
        let targets = HOSTS.map(target).to_vec();
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let operator = Identity::new(&operator).expect("an identity");
        let (slowest_order, slowest_switch) = (Duration::ZERO, Duration::ZERO);
        Self { cluster, draft, operator, runtime, targets, newest, slowest_order, orders_again: 0, slowest_switch }
    }

    /// Switches all hosts to a new generation, by orders over TLS, and waits until they have converged.
    fn switch(&mut self) {
        let next = self.newest.0 + 1;
        for cob in self.draft.cobs.values_mut() {
            cob.value.content["round"] = next.into();
        }
        self.newest = self.cluster.publish_draft(&self.draft);
        let begin = Instant::now();
        for target in self.targets.clone() {
            self.order(&target, &format!("{{\"generation\": {next}}}"));
        }
        self.cluster.wait_converged(self.newest, PATIENCE);
        self.slowest_switch = self.slowest_switch.max(begin.elapsed());
    }

    /// If an operator's connection has to make room for the crowd, it is tried again.
    fn order(&mut self, target: &Target, body: &str) {
        let begin = Instant::now();
        loop {
            let asked = self.runtime.block_on(async {
                tokio::time::timeout(Duration::from_secs(10), post(target, &self.operator, body)).await
            });
            match asked {
                Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200") => break,
                Ok(Ok(answer)) if !answer.is_empty() => panic!("{}: {answer}", target.name),
                Ok(Ok(_) | Err(_)) | Err(_) => self.orders_again += 1,
            }
            assert!(begin.elapsed() < PATIENCE, "no order gets through to {}", target.name);
        }
        self.slowest_order = self.slowest_order.max(begin.elapsed());
    }

    fn held(&self) -> Vec<Held> {
        let held = |host: &str| {
            let pid = self.cluster.pid(host).expect("runs");
            let sockets = fs::read_dir(self.cluster.path(host).join("sockets")).map_or(0, Iterator::count);
            Held { descriptors: processes::descriptors(pid), sockets, resident_kib: processes::resident_kib(pid) }
        };
        HOSTS.map(held).to_vec()
    }

    /// The resources of the idle daemons: the least of a second's samples.
    fn at_rest(&self) -> Vec<Held> {
        let mut least = self.held();
        comes_true(Duration::from_secs(1), || {
            for (least, now) in least.iter_mut().zip(self.held()) {
                if (now.descriptors, now.sockets) < (least.descriptors, least.sockets) {
                    *least = now;
                }
            }
            false
        });
        least
    }

    /// Waits until no daemon has more descriptors and sockets than before.
    fn wait_as_before(&self, before: &[Held]) -> Vec<Held> {
        let as_before = |now: &[Held]| {
            now.iter().zip(before).all(|(now, then)| now.descriptors <= then.descriptors && now.sockets <= then.sockets)
        };
        let mut now = Vec::new();
        let gone = comes_true(PATIENCE, || {
            now = self.held();
            as_before(&now)
        });
        let open = |host: &str| processes::open_files(self.cluster.pid(host).expect("runs"));
        assert!(gone, "left behind: {now:#?}, before: {before:#?}\n{:#?}", HOSTS.map(open));
        now
    }

    /// The number of log lines, without debug lines.
    fn lines(&self) -> Vec<usize> {
        let count = |log: String| log.lines().filter(|line| !line.contains(" DEBUG ")).count();
        HOSTS.map(|host| count(self.cluster.log(host))).to_vec()
    }

    fn peaks(&self) -> Vec<u64> {
        HOSTS.map(|host| processes::peak_kib(self.cluster.pid(host).expect("runs"))).to_vec()
    }
}

async fn post(target: &Target, key: &Identity, body: &str) -> std::io::Result<String> {
    let stream = TcpStream::connect(target.address).await?;
    let mut stream = shake(stream, target, Some(key), HTTP).await?;
    let request = format!(
        "POST /v1/switch HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        target.address,
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Runs all attackers, in a separate thread, until the test has enough.
fn besiege(attackers: &Arc<Attackers>, seed: u64, [silent, at_api]: [u64; 2]) -> JoinHandle<()> {
    let attackers = attackers.clone();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let all = LocalSet::new();
        let mut seeds = Random::new(seed);
        for number in 0..BUSY.max(silent).max(at_api) {
            let seed = seeds.bits();
            let [busy, quiet, at] = [(); 3].map(|()| attackers.clone());
            if number < BUSY {
                all.spawn_local(async move { busy.attack(seed).await });
            }
            if number < silent {
                all.spawn_local(async move { quiet.be_silent(seed ^ 1).await });
            }
            if number < at_api {
                all.spawn_local(async move { at.occupy_api(seed ^ 2).await });
            }
        }
        runtime.block_on(all);
    })
}

fn limit_descriptors(pid: Option<u32>, wanted: u64) {
    let pid = pid.map(|pid| Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("not 0"));
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.map_or(wanted, |most| most.min(wanted)));
    prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).expect("a limit");
}

#[test]
fn daemons_go_on_switching_under_siege() {
    limit_descriptors(None, DESCRIPTORS);
    let tries = usize::try_from(from_environment("COB_HOSTILE_TRIES", 800)).expect("a number");
    let seed = from_environment("COB_SEED", u64::from(std::process::id()));
    println!("COB_SEED={seed} COB_HOSTILE_TRIES={tries}");
    let mut site = Besieged::new();
    // The first query of the history opens the index.
    HOSTS.iter().for_each(|host| drop(site.cluster.history(host)));
    let before = site.at_rest();
    // Memory is measured after the first attackers have made it grow to its working size.
    let first = Arc::new(Attackers::new(site.targets.clone(), &site.cluster.host_key("a0")));
    let warm = besiege(&first, !seed, WARM.1);
    site.switch();
    site.cluster.until(PATIENCE, || first.tries.load(Ordering::Relaxed) > WARM.0, "the first have tried");
    first.enough.store(true, Ordering::Relaxed);
    warm.join().expect("the first attackers");
    let warm = site.wait_as_before(&before);
    let (begin, first_generation, lines) = (Instant::now(), site.newest, site.lines());

    let attackers = Arc::new(Attackers::new(site.targets.clone(), &site.cluster.host_key("a0")));
    let all = besiege(&attackers, seed, [SILENT_SLOTS, AT_API]);
    site.cluster.until(PATIENCE, || attackers.silent.load(Ordering::Relaxed) >= SILENT, "a thousand are silent");
    site.cluster.until(PATIENCE, || attackers.at_api.load(Ordering::Relaxed) >= 300, "the API is crowded");
    while site.newest.0 < first_generation.0 + SWITCHES || attackers.tries.load(Ordering::Relaxed) < tries {
        site.switch();
    }
    let refused = HOSTS.map(|host| site.cluster.status(host).expect("answers").refused);
    attackers.enough.store(true, Ordering::Relaxed);
    all.join().expect("the attackers");
    let (elapsed, peaks, generations) = (begin.elapsed(), site.peaks(), site.newest.0 - first_generation.0);
    let after = site.wait_as_before(&before);

    println!(
        "{} tries in {elapsed:.1?}, {} more that were silent (at most {} at a time), {} that occupied the API; \
         {generations} generations, the slowest {:.1?}; the slowest order {:.1?}, {} had to come again",
        attackers.tries.load(Ordering::Relaxed),
        attackers.silent_ever.load(Ordering::Relaxed),
        attackers.most_silent.load(Ordering::Relaxed),
        attackers.at_api.load(Ordering::Relaxed),
        site.slowest_switch,
        site.slowest_order,
        site.orders_again,
    );
    for (sort, tally) in attackers.tallies() {
        println!("  {sort:?}: {tally:?}");
        assert_eq!(tally.let_be, 0, "{sort:?}: {tally:?}");
        assert!(!must_be_cut(sort) || tally.cut > 0, "{sort:?} never came to what it had in mind: {tally:?}");
    }
    assert_eq!(attackers.tallies().len(), SORTS.len(), "everything was tried");
    // Besides some lines a minute for each reason, and a line for each switch, a link of the hostile host may be logged
    // as up and down once a second.
    let most_lines = 40 + 3 * elapsed.as_secs() + 8 * generations;
    for (n, host) in HOSTS.iter().enumerate() {
        let written = site.lines()[n] - lines[n];
        println!(
            "{host}: {} KiB at first, {} warm, {} at most, {} after; {} descriptors before and after; {written} lines; {:?}",
            before[n].resident_kib,
            warm[n].resident_kib,
            peaks[n],
            after[n].resident_kib,
            after[n].descriptors,
            refused[n]
        );
        assert!(peaks[n] < warm[n].resident_kib + GROWTH, "{host} has grown to {} KiB", peaks[n]);
        assert!(written as u64 <= most_lines, "{written} lines in the log of {host}, at most {most_lines}");
        let RefusalCounts { stranger, not_tls, foreign_name, slow, broken, .. } = refused[n];
        let counts = [stranger, not_tls, foreign_name, slow, broken];
        assert!(counts.iter().all(|count| *count > 0), "{host}: {:?}", refused[n]);
    }
}
