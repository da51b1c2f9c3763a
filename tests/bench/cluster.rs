//! Figures of real daemons: ten of them with a thousand change objects, a chain over them, an idle
//! one. Run with `cargo bench -p cob-tests --bench cluster`; `COB_TEST_DIR` names the folder (and so
//! the disk) of the state folders.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

use std::time::{Duration, Instant};

use cob_tests::cluster::Cluster;
use cob_tests::large::{self, Large};
use cob_types::history::HistoryEntry;
use cob_types::{Bundle, GenerationNumber, HostName};

const PROGRAM: &str = env!("CARGO_BIN_EXE_cob");

type Bundles = std::collections::BTreeMap<HostName, std::sync::Arc<Bundle>>;

/// Starts daemons for the bundles, switches, waits; returns the cluster and the merged history.
fn converge(bundles: &Bundles) -> (Cluster, Vec<HistoryEntry>, GenerationNumber) {
    let names: Vec<String> = bundles.keys().map(ToString::to_string).collect();
    let mut cluster = Cluster::new(PROGRAM, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let generation = cluster.publish(bundles);
    cluster.start_all();
    names.iter().for_each(|h| {
        let body = format!("{{\"generation\": {generation}}}");
        cluster.http(h, "POST", "/v1/prepare", &body).expect("prepared");
    });
    cluster.switch_all(generation);
    let limit = Instant::now() + Duration::from_secs(60);
    while !cluster.is_converged(generation) {
        assert!(Instant::now() < limit, "not converged after a minute");
        std::thread::sleep(Duration::from_millis(200));
    }
    let history = cluster.merged_history();
    (cluster, history, generation)
}

fn span_ms(history: &[HistoryEntry], first: &str, last: &str) -> f64 {
    let begin = history.iter().filter(|e| e.event == first).map(|e| e.ts_ns).min().unwrap_or(0);
    let end = history.iter().filter(|e| e.event == last).map(|e| e.ts_ns).max().unwrap_or(0);
    (end - begin) as f64 / 1e6
}

fn ten_daemons() {
    let large = Large { hosts: 10, per_host: 100, dependencies: 3, across: 667, seed: 1 };
    let (bundles, dependencies) = large::bundles(&large);
    let (cluster, history, _) = converge(&bundles);
    let go = span_ms(&history, "go", "end");
    let mut sent = (0, 0);
    for host in cluster.hosts() {
        let status = cluster.status(&host).expect("answers");
        sent.0 += status.links.map_or(0, |l| l.sent);
        sent.1 += status.links.map_or(0, |l| l.sent_bytes);
    }
    println!(
        "10 daemons, 1,000 change objects, {dependencies} dependencies: {go:.0} ms from the first go to the last end; \
         {:.2} batches and {:.0} bytes a dependency",
        sent.0 as f64 / dependencies as f64,
        sent.1 as f64 / dependencies as f64
    );
}

fn chain() {
    let bundles = large::chain(10, 100);
    let (_cluster, history, _) = converge(&bundles);
    let actions: u64 = {
        let starts: u64 = history.iter().filter(|e| e.event == "start").map(|e| e.ts_ns).sum();
        let ends: u64 = history.iter().filter(|e| e.event == "end").map(|e| e.ts_ns).sum();
        ends.saturating_sub(starts)
    };
    let all = span_ms(&history, "start", "end");
    let own = actions as f64 / 1e6;
    println!(
        "chain of 100 over 10 daemons: {all:.1} ms, of these {own:.1} ms inside the actions: {:.3} ms a hop",
        (all - own) / 99.0
    );
}

/// One `fdatasync` of a small append on the disk of the state folders.
fn disk() {
    use std::io::Write as _;
    let dir = std::env::var_os("COB_TEST_DIR").map_or_else(std::env::temp_dir, std::path::PathBuf::from);
    let mut file = tempfile::tempfile_in(dir).expect("a file");
    let begin = Instant::now();
    for _ in 0..200 {
        file.write_all(&[0; 200]).expect("written");
        file.sync_data().expect("synced");
    }
    println!("one sync of this disk: {:.3} ms", begin.elapsed().as_secs_f64() * 1000.0 / 200.0);
}

fn idle() {
    let large = Large { hosts: 1, per_host: 50, dependencies: 2, across: 0, seed: 1 };
    let (bundles, _) = large::bundles(&large);
    let (cluster, _, _) = converge(&bundles);
    let pid = cluster.pid("h0").expect("runs");
    std::thread::sleep(Duration::from_secs(1));
    let ticks = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        fields[11].parse::<u64>().unwrap_or(0) + fields[12].parse::<u64>().unwrap_or(0)
    };
    let (before, seconds) = (ticks(), 20);
    std::thread::sleep(Duration::from_secs(seconds));
    let used = (ticks() - before) as f64 / 100.0;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = |f: &str| status.lines().find(|l| l.starts_with(f)).unwrap_or_default().to_owned();
    println!(
        "idle daemon, 50 change objects: {:.3} % of a core; {}; {}",
        used / seconds as f64 * 100.0,
        line("VmRSS"),
        line("RssAnon")
    );
}

fn main() {
    disk();
    ten_daemons();
    chain();
    idle();
}
