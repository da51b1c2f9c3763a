//! The cost of the embedded store: durable writes by one and by many callers, and lists of 10,000 clusters.
//!
//! `cargo bench -p cob-hub-store`; the disk of the folder for temporary files decides the numbers.

use cob_hub_store::{Embedded, Key, Op, Options, Prefix, Query, Store as _, Txn};
use divan::Bencher;
use divan::counter::ItemsCount;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

fn main() {
    divan::main();
}

/// Each with 10 nodes.
const CLUSTERS: usize = 10_000;
/// The writes of a caller in one measurement.
const WRITES: usize = 20;

struct Begun {
    runtime: Runtime,
    store: Embedded,
    folder: TempDir,
}

fn begin() -> Begun {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let store = runtime.block_on(async { Embedded::open(folder.path(), Options::default()) }).expect("opens");
    Begun { runtime, store, folder }
}

fn key(text: String) -> Key {
    Key::new(text).expect("a key")
}

#[divan::bench(args = [1, 64], sample_count = 20)]
fn durable_writes(bencher: Bencher<'_, '_>, callers: usize) {
    let Begun { runtime, store, folder: _folder } = begin();
    bencher.counter(ItemsCount::new(callers * WRITES)).bench_local(|| {
        runtime.block_on(async {
            let callers = (0..callers).map(|caller| {
                let store = store.clone();
                tokio::spawn(async move {
                    for n in 0..WRITES {
                        let put = Op::put(key(format!("jobs/{caller}")), vec![n as u8; 200]);
                        store.txn(Txn::new().then(put)).await.expect("written");
                    }
                })
            });
            for caller in callers.collect::<Vec<_>>() {
                caller.await.expect("ended");
            }
        });
    });
}

/// A store with clusters, a key each, and with their nodes, a key each.
fn filled() -> Begun {
    let begun = begin();
    begun.runtime.block_on(async {
        for hundred in 0..CLUSTERS / 10 {
            let mut txn = Txn::new();
            for cluster in hundred * 10..hundred * 10 + 10 {
                txn = txn.then(Op::put(key(format!("clusters/{cluster:05}")), vec![b'c'; 400]));
                for node in 0..10 {
                    txn = txn.then(Op::put(key(format!("nodes/{cluster:05}/{node}")), vec![b'n'; 200]));
                }
            }
            begun.store.txn(txn).await.expect("written");
        }
    });
    begun
}

#[divan::bench(args = [100, 10_000], sample_count = 20)]
fn list_clusters(bencher: Bencher<'_, '_>, limit: usize) {
    let Begun { runtime, store, folder: _folder } = filled();
    let query = Query { limit, ..Query::all(Prefix::new("clusters/").expect("a prefix")) };
    bencher.bench_local(|| {
        let range = runtime.block_on(store.range(&query)).expect("read");
        assert_eq!(range.entries.len(), limit);
        range
    });
}

#[divan::bench(sample_count = 5)]
fn open_with_all_clusters(bencher: Bencher<'_, '_>) {
    let Begun { runtime, store, folder } = filled();
    drop(store);
    bencher
        .bench_local(|| runtime.block_on(async { Embedded::open(folder.path(), Options::default()) }).expect("opens"));
}
