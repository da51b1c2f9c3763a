//! Measurements of a real hub: lists and searches of many clusters, the start of a job, many parallel jobs. Run with
//! `cargo bench -p cob-tests --bench hub`; `COB_CLUSTERS` is the number of clusters (10,000), `COB_JOBS` the number of
//! parallel jobs (200), and `TMPDIR` names the folder (and so the disk). `-- many` or `-- jobs` measures only that case.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]

#[path = "../tests/hub/yard.rs"]
#[expect(dead_code, reason = "the tests of the hub use the rest")]
mod yard;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use cob_hub_store::{Embedded, Key, Op, Options, Store as _, Txn};
use cob_tests::processes;
use cob_tests::wait::comes_true;
use serde_json::{Value, json};

use yard::{PATIENCE, Yard, from_environment, list, text};

const USER: &str = "many/ann";
const NODES: usize = 10;

/// The median and the longest of several times in milliseconds.
fn times(mut measure: impl FnMut()) -> String {
    let mut all: Vec<f64> = Vec::new();
    for _ in 0..21 {
        let began = Instant::now();
        measure();
        all.push(began.elapsed().as_secs_f64() * 1e3);
    }
    all.sort_by(f64::total_cmp);
    format!("{:.1} ms (longest {:.1} ms)", all[all.len() / 2], all[all.len() - 1])
}

/// The record of a cluster, and the file with its machines.
fn cluster(name: &str) -> (Value, Value) {
    let record = json!({
        "tenant": "many", "name": name, "owner": "ann",
        "shape": { "wanted": { "template": "shop", "nodes": NODES, "config": { "colour": "blue" } }, "catalogue": "0" },
        "former": null, "state": "active", "generation": 3, "created_ms": 1, "lease_ends_ms": null, "keep_failed": false,
    });
    let machine = |n: usize| {
        let token = format!("{name}-{n:032}");
        json!({
            "token": token, "provider": "process", "sort": "process", "state": "confirmed", "id": token,
            "address": format!("tcp://127.1.{}.{}:7001", n / 250, n % 250),
        })
    };
    let machines: BTreeMap<String, Value> = (1..=NODES).map(|n| (format!("{name}-{n}"), machine(n))).collect();
    (record, json!(machines))
}

/// Puts clusters into the store and the folders of a stopped hub.
fn plant(folder: &Path, count: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    let store = Embedded::open(&folder.join("store"), Options::default()).expect("a store");
    let names: Vec<String> = (0..count).map(|n| format!("cluster{n:05}")).collect();
    for names in names.chunks(100) {
        let mut txn = Txn::new();
        for name in names {
            let (record, machines) = cluster(name);
            let own = folder.join("clusters/many").join(name);
            fs::create_dir_all(&own).expect("a folder");
            fs::write(own.join("machines.json"), machines.to_string()).expect("written");
            let key = Key::new(format!("clusters/many/{name}")).expect("a key");
            txn = txn.then(Op::put(key, record.to_string()));
        }
        runtime.block_on(store.txn(txn)).expect("written");
    }
}

/// The memory of the hub and its jobs in megabytes, without the files that they share.
fn memory(yard: &Yard) -> u64 {
    let of = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let value = |line: &str| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok();
        status.lines().find_map(value).unwrap_or(0)
    };
    processes::mentioning(&yard.folder().display().to_string()).into_iter().map(of).sum::<u64>() / 1024
}

fn many_clusters() {
    let count = from_environment("COB_CLUSTERS", 10_000);
    let mut yard = Yard::new(&[]);
    yard.catalogue();
    yard.tenant("many", &["ann", "other"]);
    yard.kill();
    plant(&yard.folder(), count);
    let began = Instant::now();
    yard.start();
    println!(
        "{count} clusters of {NODES} machines: the hub answers {:.2} s after its start",
        began.elapsed().as_secs_f64()
    );
    let get = |user: &str, path: &str| {
        let (status, answer) = yard.user(user, "GET", path, None);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let last = format!("cluster{:05}", count - 1);
    for (what, path, expected) in [
        ("first page of 100", "/v1/clusters?limit=100".to_owned(), count.min(100)),
        ("last page", format!("/v1/clusters?limit=100&after=cluster{:05}", count - 51), 50),
        ("search for one", format!("/v1/clusters?search={last}"), 1),
        ("search in vain", "/v1/clusters?search=nothing".to_owned(), 0),
        ("incomplete ones", "/v1/clusters?state=incomplete".to_owned(), 0),
        ("first page of 1,000", "/v1/clusters".to_owned(), count.min(1000)),
    ] {
        assert_eq!(list(get("many/adm", &path)).len(), expected, "{path}");
        println!("  {what}: {}", times(|| drop(get("many/adm", &path))));
    }
    assert_eq!(list(get("many/other", "/v1/clusters")).len(), 0, "a user without grants");
    println!("  a user without rights: {}", times(|| drop(get("many/other", "/v1/clusters"))));
    println!("  one cluster: {}", times(|| drop(get("many/adm", &format!("/v1/clusters/{last}")))));
    println!("  use of quotas: {}", times(|| drop(get("many/adm", "/v1/usage"))));
    let began = Instant::now();
    let machines = yard.machines().len();
    println!("  {machines} machines: {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
    println!("  memory of the hub: {} MB", memory(&yard));
}

/// Jobs that a callback holds up, so that all run at a time.
fn many_jobs() {
    let count = from_environment("COB_JOBS", 200);
    let dir = tempfile::tempdir().expect("a folder");
    let (callback, gate) = (dir.path().join("callback"), dir.path().join("open"));
    let script = format!("#!/bin/sh\nuntil [ -e {} ]; do sleep 0.5; done\n", gate.display());
    fs::write(&callback, script).expect("written");
    fs::set_permissions(&callback, fs::Permissions::from_mode(0o755)).expect("permitted");
    let parallel = count.to_string();
    let mut yard = Yard::new(&["--parallel-jobs", &parallel, "--callback", callback.to_str().expect("a path")]);
    yard.catalogue();
    yard.tenant("many", &["ann"]);
    fs::write(&gate, "").expect("written");
    let first = yard.create(USER, "first", "shop", 1);
    yard.succeeds(USER, first);
    let mut waits: Vec<u64> = Vec::new();
    for colour in 0..11 {
        let configure = json!({ "operation": "configure", "config": { "colour": colour } });
        let id = yard.operate(USER, "first", configure);
        let ended = yard.succeeds(USER, id);
        let at = |name: &str| ended[name].as_u64().expect("a time");
        waits.push(at("started_ms") - at("submitted_ms"));
    }
    waits.sort_unstable();
    println!("a job starts {} ms after its request (longest {} ms)", waits[waits.len() / 2], waits[waits.len() - 1]);
    fs::remove_file(&gate).expect("removed");
    let began = Instant::now();
    let ids: Vec<u64> = (0..count).map(|n| yard.create(USER, &format!("c{n:03}"), "shop", 1)).collect();
    let accepted = began.elapsed();
    let running = || list(yard.user(USER, "GET", "/v1/jobs?state=running", None).1).len();
    let all = comes_true(PATIENCE, || running() == count);
    assert!(all, "{} of {count} jobs run\n{}", running(), yard.log());
    println!(
        "{count} jobs: accepted after {:.2} s, all run after {:.2} s",
        accepted.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    println!("  memory of the hub and the jobs: {} MB", memory(&yard));
    println!("  the list of jobs meanwhile: {}", times(|| _ = running()));
    println!("  a cluster meanwhile: {}", times(|| drop(yard.cluster(USER, "first"))));
    let began = Instant::now();
    for id in ids {
        let (status, answer) = yard.user(USER, "POST", &format!("/v1/jobs/{id}/cancel"), None);
        assert_eq!(status, 202, "{answer}");
    }
    fs::write(&gate, "").expect("written");
    let open = || list(yard.user(USER, "GET", "/v1/jobs?open=true", None).1).len();
    assert!(comes_true(4 * PATIENCE, || open() == 0), "{} jobs do not end\n{}", open(), yard.log());
    println!("  all canceled and ended after {:.2} s", began.elapsed().as_secs_f64());
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for job in list(yard.user(USER, "GET", "/v1/jobs", None).1) {
        *outcomes.entry(text(&job["state"])).or_default() += 1;
    }
    println!("  outcomes of all jobs: {outcomes:?}");
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    if wanted("many") {
        many_clusters();
    }
    if wanted("jobs") {
        many_jobs();
    }
}
