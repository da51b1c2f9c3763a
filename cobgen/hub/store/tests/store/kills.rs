//! A process that writes is killed at a random moment, many times: each answered write is there, and none is half there.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cob_hub_store::{Compare, Embedded, Op, Prefix, Query, Revision, Store, Txn, Watch as _};

use crate::embedded::{SHORT, lines, open};
use crate::suite::{key, prefix};

/// Names the folder for the child.
const FOLDER: &str = "COB_STORE_KILLED";
const WRITERS: u64 = 4;

/// `COB_ROUNDS` sets the number of kills.
fn rounds() -> u64 {
    std::env::var("COB_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_loses_no_answered_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut answered: BTreeMap<u64, u64> = BTreeMap::new();
    let mut writes = 0;
    for round in 0..rounds() {
        let delay = Duration::from_micros(u64::from(getrandom::u32().expect("random") % 60_000));
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "kills::writes_until_it_is_killed", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let mut said = lines(child.stdout.take().expect("piped"));
        // The test harness says something first.
        said.by_ref().find(|line| line == "open").expect("the store opens");
        std::thread::sleep(delay);
        child.kill().expect("killed");
        // What it has said was answered before; the last line may be cut.
        for line in said.filter_map(|line| line.strip_suffix('.').map(str::to_owned)) {
            let (writer, n) = line.split_once(' ').expect("two numbers");
            answered.insert(writer.parse().expect("a writer"), n.parse().expect("a number"));
            writes += 1;
        }
        child.wait().expect("ended");
        let checked = check(folder.path(), &answered).await;
        // The next child goes on from what is there, which may be a write that was not answered.
        answered = checked.unwrap_or_else(|what| panic!("round {round}, killed after {delay:?}: {what}"));
    }
    assert!(writes > rounds(), "{writes} answered writes in {} rounds", rounds());
    println!("{writes} answered writes survived {} kills", rounds());
}

/// Returns the last write of each writer.
async fn check(folder: &Path, answered: &BTreeMap<u64, u64>) -> Result<BTreeMap<u64, u64>, String> {
    let store = open(folder, SHORT);
    let read = store.range(&Query::all(Prefix::default())).await.expect("read");
    let values: BTreeMap<String, u64> = read
        .entries
        .iter()
        .map(|e| (e.key.to_string(), String::from_utf8_lossy(&e.value).parse().expect("n")))
        .collect();
    let mut last = BTreeMap::new();
    for writer in 0..WRITERS {
        let own = |what: &str| values.get(&format!("{writer}/{what}")).copied();
        let acknowledged = answered.get(&writer).copied().unwrap_or(0);
        let (a, b) = (own("a").unwrap_or(0), own("b").unwrap_or(0));
        if a != b {
            return Err(format!("writer {writer}: half a write, {a} and {b}"));
        }
        if a < acknowledged || a > acknowledged + 1 {
            return Err(format!("writer {writer}: {acknowledged} was answered, {a} is there"));
        }
        // Each write moves one key on: its former name is gone.
        let moved = values.keys().filter(|name| name.starts_with(&format!("{writer}/at/"))).collect::<Vec<_>>();
        if a > 0 && moved != [&format!("{writer}/at/{a}")] {
            return Err(format!("writer {writer}: {moved:?} at {a}"));
        }
        let versions = read.entries.iter().find(|e| e.key == key(&format!("{writer}/a"))).map_or(0, |e| e.version);
        if versions != a {
            return Err(format!("writer {writer}: version {versions} after {a} writes"));
        }
        last.insert(writer, a);
    }
    // The history that is left leads to the newest revision, without a gap.
    let newest = store.revision();
    let mut from = Revision(newest.0.saturating_sub(5).max(2));
    let Ok(mut watch) = store.watch(&prefix(""), from).await else { return Ok(last) };
    while from <= newest {
        let change = watch.next().await.map_err(|error| error.to_string())?;
        if change.revision != from {
            return Err(format!("{} follows where {from} should", change.revision));
        }
        from = from.next();
    }
    Ok(last)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of `a_kill_loses_no_answered_write`"]
async fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store = open(Path::new(&folder), SHORT);
    say("open");
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))).collect();
    for writer in writers {
        writer.await.expect("it writes until the end");
    }
}

async fn write(store: Embedded, writer: u64) {
    let at = |what: &str| key(&format!("{writer}/{what}"));
    let found = store.get(&at("a")).await.expect("read");
    let mut n: u64 = found.map_or(0, |entry| String::from_utf8_lossy(&entry.value).parse().expect("a number"));
    loop {
        let mut txn =
            Txn::new().then(Op::put(at("a"), (n + 1).to_string())).then(Op::put(at("b"), (n + 1).to_string()));
        if n == 0 {
            txn = txn.when(Compare::absent(at("a")));
        } else {
            txn = txn.when(Compare::value(at("a"), n.to_string())).then(Op::Delete(at(&format!("at/{n}"))));
        }
        n += 1;
        let answer = store.txn(txn.then(Op::put(at(&format!("at/{n}")), n.to_string()))).await.expect("written");
        assert!(answer.succeeded);
        say(&format!("{writer} {n}."));
    }
}

/// Writes a line at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).expect("said");
}
