//! Measurements of real daemons: ten daemons with a thousand change objects, a chain across them, an idle daemon. Run
//! with `cargo bench -p cob-tests --bench cluster`; `COB_TEST_DIR` names the folder (and so the disk) of the state
//! folders. `-- ten`, `-- chain`, `-- idle` or `-- trees` measures only that case.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

use std::time::{Duration, Instant};

use cob_tests::cluster::Cluster;
use cob_tests::large::{self, Large};
use cob_types::history::HistoryEntry;
use cob_types::{Bundle, GenerationNumber, HostName};

const PROGRAM: &str = env!("CARGO_BIN_EXE_cob");

type Bundles = std::collections::BTreeMap<HostName, std::sync::Arc<Bundle>>;

/// Starts daemons for the bundles, switches, and waits; returns the cluster and the merged history.
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

/// The cost of a step in a chain: from the end of an action to the end of the next, which waits for it on another host,
/// and the part of that time inside the action.
fn chain() {
    let bundles = large::chain(10, 100);
    let (_cluster, history, _) = converge(&bundles);
    let stamps = |event: &str| -> Vec<u64> {
        let mut all: Vec<u64> = history.iter().filter(|e| e.event == event).map(|e| e.ts_ns).collect();
        all.sort_unstable();
        all
    };
    let (starts, ends) = (stamps("start"), stamps("end"));
    let mut transitions: Vec<f64> = ends.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
    let own: u64 = starts.iter().zip(&ends).skip(1).map(|(start, end)| end - start).sum();
    let (all, own) = (transitions.iter().sum::<f64>(), own as f64 / 1e6);
    transitions.sort_by(f64::total_cmp);
    println!(
        "chain of 100 over 10 daemons: {:.3} ms a transition (median {:.3}, slowest {:.3}), of these {:.3} ms between the start \
         and the end of its action",
        all / transitions.len() as f64,
        transitions[transitions.len() / 2],
        transitions[transitions.len() - 1],
        own / transitions.len() as f64
    );
}

/// File trees with a file each on a single host: the time from the switch to the last end, and from the daemon's
/// restart until every file is checked. In a chain each file needs the previous; the model lists the last first.
fn trees(count: usize, chain: bool) {
    let mut cluster = Cluster::new(PROGRAM, &["n1"]);
    let root = cluster.path("host");
    let text = |n: usize| format!("file number {n}\nkey={}\nvalue={}\n", n * 7919 % 10007, "x".repeat(40));
    let mut model = "security: loopback-only\nhosts: {n1: {address: \"tcp://127.0.0.1:1\"}}\ncobs:\n".to_owned();
    for n in (0..count).rev() {
        let path = root.join(format!("f{n}"));
        let content = text(n).replace('\n', "\\n");
        let needs = if chain && n > 0 { format!(", requires: [n1/f{}]", n - 1) } else { String::new() };
        model.push_str(&format!(
            "  n1/f{n}: {{kind: file-tree, content: {{files: {{{}: {{content: \"{content}\", mode: \"0644\"}}}}}}{needs}}}\n",
            path.display()
        ));
    }
    let model = cluster.write_model("model", &[("model.yaml", &model)]);
    let generation = cluster.generate(&model);
    cluster.start_all();
    let body = format!("{{\"generation\": {generation}}}");
    cluster.http("n1", "POST", "/v1/prepare", &body).expect("prepared");
    let converged = |cluster: &Cluster| {
        let limit = Instant::now() + Duration::from_secs(300);
        while !cluster.is_converged(generation) {
            assert!(Instant::now() < limit, "not converged");
            // Each query costs the daemon a list of all change objects.
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    cluster.switch_all(generation);
    converged(&cluster);
    let first = span_ms(&cluster.merged_history(), "go", "end");
    for n in 0..count {
        assert_eq!(std::fs::read_to_string(root.join(format!("f{n}"))).expect("there"), text(n));
    }
    let pid = cluster.pid("n1").expect("runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default().to_owned();
    cluster.kill("n1");
    let begin = Instant::now();
    cluster.start("n1");
    converged(&cluster);
    let second = begin.elapsed().as_secs_f64();
    let shape = if chain { "in a chain" } else { "independent" };
    println!(
        "{count} file trees of one file, {shape}: {:.2} s from go to the last end; {second:.2} s from the daemon's return \
         until all were looked at; {peak}",
        first / 1000.0
    );
}

/// An `fdatasync` of a small append on the disk of the state folders: without pauses, and with a pause before each, as
/// by a daemon that waits for another.
fn disk() {
    use std::io::Write as _;
    let dir = std::env::var_os("COB_TEST_DIR").map_or_else(std::env::temp_dir, std::path::PathBuf::from);
    for (how, pause) in [("one after the other", None), ("after a pause of 0.5 ms", Some(Duration::from_micros(500)))] {
        let mut file = tempfile::tempfile_in(&dir).expect("a file");
        let mut all = Duration::ZERO;
        for _ in 0..200 {
            pause.into_iter().for_each(std::thread::sleep);
            let begin = Instant::now();
            file.write_all(&[0; 200]).expect("written");
            file.sync_data().expect("synced");
            all += begin.elapsed();
        }
        println!("one sync of this disk, {how}: {:.3} ms", all.as_secs_f64() * 1000.0 / 200.0);
    }
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
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    disk();
    for (name, measure) in [
        ("ten", ten_daemons as fn()),
        ("chain", chain),
        ("idle", idle),
        ("trees", || {
            for (count, chain) in [(1000, false), (1000, true), (10_000, false), (10_000, true)] {
                trees(count, chain);
            }
        }),
        ("few-trees", || [false, true].into_iter().for_each(|chain| trees(1000, chain))),
    ] {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            measure();
        }
    }
}
