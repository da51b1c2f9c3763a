//! What is special to the embedded store: the folder, a new start, the length of the journal, a full disk.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cob_hub_store::bounds::{ENTRY_COST, MAX_HISTORY, MAX_STORE, MAX_VALUE};
use cob_hub_store::{
    Embedded, Op, OpenError, Options, Prefix, Query, Range, Revision, Store, StoreError, Txn, Watch as _,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::suite::{self, key, prefix, put};

/// A journal that is rewritten often.
pub(crate) const SHORT: Options = Options { segment_bytes: 20_000 };

/// Opens the store as soon as its lock is free: a process that another test is just starting holds every lock of this
/// process, for the moment between fork and exec.
pub(crate) fn open(folder: &Path, options: Options) -> Embedded {
    try_open(folder, options).expect("opens")
}

fn try_open(folder: &Path, options: Options) -> Result<Embedded, OpenError> {
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        match Embedded::open(folder, options) {
            Err(error) if error.to_string().contains("in use") && Instant::now() < limit => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

async fn everything(store: &Embedded) -> Range {
    store.range(&Query::all(Prefix::default())).await.expect("read")
}

/// The only segment. A journal that is being rewritten has two for a moment, also after the answer to the last change.
fn segment(folder: &Path) -> PathBuf {
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        let files = fs::read_dir(folder).expect("listed").map(|entry| entry.expect("an entry").path());
        let mut segments: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "journal")).collect();
        if segments.len() == 1 {
            return segments.remove(0);
        }
        assert!(Instant::now() < limit, "{segments:?}");
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_embedded_store_passes_the_suite() {
    for options in [Options::default(), SHORT] {
        let folder = tempfile::tempdir().expect("a folder");
        let store = open(folder.path(), options);
        suite::all(&store).await;
        let before = everything(&store).await;
        drop(store);
        assert_eq!(everything(&open(folder.path(), options)).await, before, "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_histories_of_swaps_are_linearizable() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), SHORT);
    for _ in 0..20 {
        suite::swaps_are_linearizable(&store, 6).await;
    }
}

#[tokio::test]
async fn a_new_start_keeps_entries_revisions_and_leases() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), Options::default());
    let first = put(&store, "a", "1").await.revision;
    put(&store, "a", "2").await;
    let lease = store.lease(Duration::from_secs(3)).await.expect("granted");
    store.txn(Txn::new().then(Op::put_leased(key("leased"), "x", lease.id))).await.expect("put");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = everything(&store).await;
    drop(store);
    let store = open(folder.path(), Options::default());
    let begun = Instant::now();
    assert_eq!(everything(&store).await, before);
    let mut watch = store.watch(&Prefix::default(), first).await.expect("the journal has the history");
    for _ in 0..3 {
        watch.next().await.expect("an earlier change");
    }
    assert_eq!(watch.next().await.expect("the end of the lease").revision, before.revision.next());
    let lapsed = begun.elapsed();
    assert!(lapsed >= Duration::from_millis(2900), "the lease has its whole time again: {lapsed:?}");
    let again = store.lease(Duration::from_secs(9)).await.expect("granted");
    assert!(again.id > lease.id, "an id is not given out again");
}

#[tokio::test]
async fn a_folder_has_one_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), Options::default());
    let clone = store.clone();
    drop(store);
    let error = Embedded::open(folder.path(), Options::default()).expect_err("in use").to_string();
    assert!(error.contains("in use") && error.contains(&std::process::id().to_string()), "{error}");
    drop(clone);
    open(folder.path(), Options::default());
}

#[tokio::test]
async fn a_torn_end_is_cut_and_other_damage_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), Options::default());
    for n in 0..20 {
        put(&store, "a", &n.to_string()).await;
    }
    drop(store);
    let path = segment(folder.path());
    let whole = fs::read(&path).expect("read");
    fs::write(&path, &whole[..whole.len() - 3]).expect("torn");
    let store = open(folder.path(), Options::default());
    assert_eq!(store.get(&key("a")).await.expect("read").expect("there").value, "18");
    drop(store);
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&path, &damaged).expect("damaged");
    let error = try_open(folder.path(), Options::default()).expect_err("damaged").to_string();
    for word in [path.to_str().expect("text"), "damaged at byte", "Way out: check the disk; restore this file"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    assert_eq!(fs::read(&path).expect("read"), damaged, "nothing is changed");
    fs::write(&path, &whole).expect("restored");
    let store = open(folder.path(), Options::default());
    assert_eq!(store.get(&key("a")).await.expect("read").expect("there").value, "19");
}

#[tokio::test]
async fn the_journal_stays_short_and_the_history_has_an_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), SHORT);
    let first = put(&store, "a", "first").await.revision;
    let mut asleep = store.watch(&prefix("a"), first).await.expect("watched");
    for n in 0..MAX_HISTORY / 100 {
        let many = (0..100).map(|m| {
            let store = store.clone();
            tokio::spawn(async move { put(&store, "a", &format!("{n} {m}")).await })
        });
        for put in many.collect::<Vec<_>>() {
            put.await.expect("put");
        }
    }
    let length = segment(folder.path()).metadata().expect("there").len();
    assert!(length < 2 * SHORT.segment_bytes, "{length}");
    let gone = |error: StoreError| matches!(error, StoreError::Compacted { asked, oldest } if asked == first && oldest > first);
    assert!(gone(asleep.next().await.expect_err("too far behind")));
    assert!(gone(store.watch(&prefix("a"), first).await.expect_err("gone")));
    let old = Query { at: Some(Revision(first.0 - 1)), ..Query::all(prefix("a")) };
    assert!(matches!(store.range(&old).await, Err(StoreError::Compacted { .. })));
    let newest = store.revision();
    drop(store);
    // A new start knows the changes since the journal was rewritten.
    let store = open(folder.path(), SHORT);
    assert!(store.watch(&prefix("a"), newest.next()).await.is_ok());
    let error = store.watch(&prefix("a"), Revision(newest.0 - 1000)).await.expect_err("rewritten since");
    assert!(matches!(error, StoreError::Compacted { .. }));
}

#[tokio::test]
async fn a_full_store_refuses_growth_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), Options::default());
    let value = bytes::Bytes::from(vec![7; MAX_VALUE]);
    let fits = MAX_STORE / (MAX_VALUE as u64 + ENTRY_COST + 4);
    for n in 0..fits {
        store.txn(Txn::new().then(Op::put(key(&format!("{n:04}")), value.clone()))).await.expect("fits");
    }
    let one_more = Txn::new().then(Op::put(key("more"), value.clone()));
    assert!(matches!(store.txn(one_more.clone()).await, Err(StoreError::Full { .. })));
    assert!(matches!(store.get(&key("more")).await, Ok(None)));
    store.txn(Txn::new().then(Op::put(key("0000"), value.clone()))).await.expect("in place of its former value");
    store.txn(Txn::new().then(Op::Delete(key("0001")))).await.expect("deleted");
    store.txn(one_more).await.expect("there is room again");
    drop(store);
    assert_eq!(everything(&open(folder.path(), Options::default())).await.entries.len() as u64, fits);
}

/// Names the folder for the child.
const FOLDER: &str = "COB_STORE_FOLDER";

/// A disk takes only so many bytes: here by a limit on the length of files, which cuts a write in the middle.
#[test]
fn a_full_disk_loses_nothing() {
    for options in ["default", "short"] {
        let folder = tempfile::tempdir().expect("a folder");
        let program = std::env::current_exe().expect("this program");
        // Without the trap, the system would end the process.
        let child = Command::new("sh")
            .args(["-c", "trap '' XFSZ; exec \"$0\" --exact embedded::on_a_small_disk --ignored --nocapture"])
            .arg(program)
            .env(FOLDER, folder.path())
            .env("COB_STORE_OPTIONS", options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let output = child.wait_with_output().expect("ended");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("the disk was full"), "{options}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of `a_full_disk_loses_nothing`"]
async fn on_a_small_disk() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let options = match std::env::var("COB_STORE_OPTIONS").as_deref() {
        Ok("short") => SHORT,
        Ok(_) | Err(_) => Options::default(),
    };
    let store = open(Path::new(&folder), options);
    let limit = getrlimit(Resource::Fsize);
    let set = |bytes: Option<u64>| setrlimit(Resource::Fsize, Rlimit { current: bytes, ..limit });
    set(Some(60_000)).expect("limited");
    let (mut kept, mut refused) = (0, 0);
    while refused < 5 {
        match store.txn(Txn::new().then(Op::put(key(&format!("{kept:05}")), vec![b'x'; 1000]))).await {
            Ok(_) => kept += 1,
            // The failed write is cut off, so it has not happened.
            Err(StoreError::Unavailable { because }) => {
                assert!(because.contains("writing") || because.contains("committing"), "{because}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(kept < 100);
    }
    assert_eq!(everything(&store).await.entries.len(), kept, "readers see what is durable");
    // A small write has room still.
    let small = store.txn(Txn::new().then(Op::put(key("small"), "x"))).await;
    set(limit.current).expect("there is room again");
    store.txn(Txn::new().then(Op::put(key("after"), "x"))).await.expect("written");
    let before = everything(&store).await;
    assert_eq!(before.entries.len(), kept + 1 + usize::from(small.is_ok()));
    drop(store);
    assert_eq!(everything(&open(Path::new(&folder), options)).await, before);
    println!("the disk was full");
}

/// Reads the lines of a child.
pub(crate) fn lines(from: impl std::io::Read) -> impl Iterator<Item = String> {
    BufReader::new(from).lines().map_while(Result::ok)
}
