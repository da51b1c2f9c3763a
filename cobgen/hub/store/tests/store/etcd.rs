//! The store in a real etcd: one member, then three of which one is killed. Needs the program `etcd` (`etcd-server`).

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use cob_hub_store::{Compare, Etcd, Op, Prefix, Query, Refusal, Revision, Store, StoreError, Txn, Watch as _};

use crate::members::Members;
use crate::suite::{self, key, prefix, put};

impl Members {
    fn store(&self) -> Etcd {
        Etcd::new(&self.addresses, Duration::from_secs(2)).expect("addresses")
    }
}

#[test]
fn only_addresses_are_taken() {
    for wrong in
        ["", "127.0.0.1:2379", "https://a:1", "http://a", "http://:1", "http://a:b", "http://a/b:1", "http://u@a:1"]
    {
        let refused = Etcd::new(&[wrong.to_owned()], Duration::from_secs(1)).expect_err(wrong);
        assert_eq!(refused, Refusal::Member(wrong.to_owned()));
    }
    assert!(Etcd::new(&[], Duration::from_secs(1)).is_err());
    assert!(Etcd::new(&["http://[::1]:2379/".to_owned()], Duration::from_secs(1)).is_ok());
}

/// A member that takes each request and closes the connection. Returns its address and the number of requests.
fn silent_member() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let (address, taken) = (listener.local_addr().expect("an address"), Arc::new(AtomicUsize::new(0)));
    let count = taken.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let read = stream.read(&mut [0; 4096]).expect("a request");
            // The client goes on when the connection closes.
            count.fetch_add(usize::from(read > 0), SeqCst);
        }
    });
    (format!("http://{address}"), taken)
}

#[tokio::test]
async fn a_write_is_not_sent_again_when_its_answer_is_lost() {
    let ((one, first), (two, second)) = (silent_member(), silent_member());
    let [port] = cob_processes::free_ports().expect("free");
    let gone = format!("http://127.0.0.1:{port}");
    let store = Etcd::new(&[gone.clone(), one, two], Duration::from_secs(2)).expect("addresses");
    let taken = || first.load(SeqCst) + second.load(SeqCst);
    let write = Txn::new().when(Compare::absent(key("a"))).then(Op::put(key("a"), "x"));
    let error = store.txn(write.clone()).await.expect_err("lost");
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    assert_eq!(taken(), 1, "the first member can't be reached, the second takes it, the third is not asked");
    let error = store.get(&key("a")).await.expect_err("lost");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert_eq!(taken(), 1 + 4, "a read asks each member twice");
    let nobody = Etcd::new(&[gone], Duration::from_secs(2)).expect("an address");
    let error = nobody.txn(write).await.expect_err("not sent");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_store_in_etcd_passes_the_suite() {
    let Some(cluster) = Members::start(1) else { return };
    let store = cluster.store();
    suite::all(&store).await;
    for _ in 0..3 {
        suite::swaps_are_linearizable(&store, 6).await;
    }
    long_ranges(&cluster, &store).await;
    compaction(&cluster, &store).await;
}

/// Ranges are read in pages, also where a page of values is too long for one answer.
async fn long_ranges(cluster: &Members, store: &Etcd) {
    for n in 0..25 {
        let mut txn = Txn::new();
        for m in 0..100 {
            txn = txn.then(Op::put(key(&format!("long/{n:02}{m:02}")), "x"));
        }
        store.txn(txn).await.expect("put");
    }
    let all = store.range(&Query::all(prefix("long/"))).await.expect("read");
    assert_eq!((all.entries.len(), all.more), (2500, false));
    assert!(all.entries.is_sorted_by(|a, b| a.key < b.key));
    let some = store.range(&Query { limit: 2499, ..Query::all(prefix("long/")) }).await.expect("read");
    assert_eq!((some.entries.len(), some.more), (2499, true));
    for n in 0..60 {
        let value = bytes::Bytes::from(vec![n; 1 << 20]);
        store.txn(Txn::new().then(Op::put(key(&format!("heavy/{n:02}")), value))).await.expect("put");
    }
    // The first page is 80 MB of JSON, which etcd makes before it is refused: that takes seconds on a busy machine.
    let patient = Etcd::new(&cluster.addresses, Duration::from_secs(20)).expect("addresses");
    let heavy = patient.range(&Query::all(prefix("heavy/"))).await.expect("read");
    assert_eq!((heavy.entries.len(), heavy.more), (60, false));
    // One message of a watch for each: more than etcd puts into one message.
    let mut watch = store.watch(&prefix("heavy/"), heavy.entries[0].mod_revision).await.expect("watched");
    for entry in heavy.entries {
        assert_eq!(watch.next().await.expect("a change").revision, entry.mod_revision);
    }
}

async fn compaction(cluster: &Members, store: &Etcd) {
    let old = put(store, "cp/a", "1").await.revision;
    let newest = put(store, "cp/a", "2").await.revision;
    compact(&cluster.addresses[0], newest);
    let at = Query { at: Some(old), ..Query::all(prefix("cp/")) };
    assert!(matches!(store.range(&at).await, Err(StoreError::Compacted { asked, .. }) if asked == old));
    let gone = match store.watch(&prefix("cp/"), old).await {
        Ok(mut watch) => watch.next().await.expect_err("gone"),
        Err(error) => error,
    };
    assert!(matches!(gone, StoreError::Compacted { asked, oldest } if asked == old && oldest == newest), "{gone}");
    let mut watch = store.watch(&prefix("cp/"), newest.next()).await.expect("watched");
    let next = put(store, "cp/a", "3").await.revision;
    assert_eq!(watch.next().await.expect("a change").revision, next);
}

/// The store has no call for it: etcd compacts by itself.
fn compact(address: &str, revision: Revision) {
    let mut stream = std::net::TcpStream::connect(address.trim_start_matches("http://")).expect("connected");
    let body = format!("{{\"revision\":\"{revision}\",\"physical\":true}}");
    let length = body.len();
    write!(stream, "POST /v3/kv/compaction HTTP/1.0\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.contains("200 OK"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn three_members_survive_the_loss_of_one() {
    let Some(mut cluster) = Members::start(3) else { return };
    let store = cluster.store();
    let first = put(&store, "n", "begin").await.revision;
    let mut watches = Vec::new();
    for member in 0..3 {
        // Begins at this member, goes on at another.
        let mut addresses = cluster.addresses.clone();
        addresses.rotate_left(member);
        let from = Etcd::new(&addresses, Duration::from_secs(2)).expect("addresses");
        watches.push(from.watch(&Prefix::default(), first).await.expect("watched"));
    }
    let swaps = {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..3 {
                suite::swaps_are_linearizable(&store, 6).await;
            }
        })
    };
    let lease = store.lease(Duration::from_secs(30)).await.expect("granted");
    tokio::time::sleep(Duration::from_millis(200)).await;
    // Of three members one is asked first: whether it is the leader or not, the calls go on.
    cluster.members[0].kill().expect("killed");
    cluster.members[0].wait().expect("ended");
    let begun = Instant::now();
    // A write says what it knows; the caller finds out the rest, and writes again.
    let mut attempts = 0;
    let claim = Txn::new().when(Compare::absent(key("owner"))).then(Op::put_leased(key("owner"), "us", lease.id));
    loop {
        attempts += 1;
        match store.txn(claim.clone()).await {
            Ok(_) => break,
            Err(StoreError::Unknown { .. } | StoreError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "no member answers");
    }
    println!("a write {:?} after the loss of a member, at attempt {attempts}", begun.elapsed());
    assert_eq!(store.get(&key("owner")).await.expect("read").expect("there").value, "us");
    swaps.await.expect("all histories are linearizable");
    store.keep_alive(lease.id).await.expect("alive");
    let last = put(&store, "n", "end").await.revision;
    let mut told = Vec::new();
    for watch in &mut watches {
        let mut changes = vec![watch.next().await.expect("a change")];
        while changes.last().is_some_and(|change| change.revision < last) {
            changes.push(watch.next().await.expect("a change"));
        }
        assert!(changes.iter().zip(first.0..).all(|(change, expected)| change.revision == Revision(expected)));
        told.push(changes);
    }
    assert!(told.iter().all(|changes| *changes == told[0]), "three watches tell the same");
    // Without a majority nothing is done, and each call ends.
    cluster.members[1].kill().expect("killed");
    cluster.members[1].wait().expect("ended");
    let begun = Instant::now();
    let write = store.txn(Txn::new().then(Op::put(key("n"), "lost"))).await.expect_err("no majority");
    assert!(matches!(write, StoreError::Unknown { .. } | StoreError::Unavailable { .. }), "{write}");
    assert!(matches!(store.get(&key("n")).await, Err(StoreError::Unavailable { .. })));
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}
