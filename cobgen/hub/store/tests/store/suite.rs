//! The semantics that each store has. Each test uses keys of its own, so that all can share a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cob_hub_store::bounds::{MAX_KEY, MAX_OPS, MAX_RANGE, MAX_VALUE};
use cob_hub_store::{
    Change, Compare, Entry, Event, Key, LeaseId, Op, Prefix, Query, Refusal, Relation, Response, Revision, Store,
    StoreError, Test, Txn, TxnAnswer, Watch as _,
};

use crate::linear::{Call, Done, is_linearizable};
use crate::watches;

/// The whole suite.
pub(crate) async fn all<S: Store>(store: &S) {
    revisions_and_versions(store).await;
    every_compare(store).await;
    operations_see_those_before(store).await;
    ranges(store).await;
    earlier_revisions(store).await;
    refusals(store).await;
    largest_requests(store).await;
    watches::a_watch_tells_each_change_once(store).await;
    watches::a_watch_under_load_is_complete(store).await;
    leases(store).await;
    a_lapsed_lease_deletes_its_keys_together(store).await;
    swaps_are_linearizable(store, 8).await;
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text.to_owned()).expect("a key")
}

pub(crate) fn prefix(text: &str) -> Prefix {
    Prefix::new(text.to_owned()).expect("a prefix")
}

pub(crate) async fn put<S: Store>(store: &S, at: &str, value: &str) -> TxnAnswer {
    store.txn(Txn::new().then(Op::put(key(at), value.to_owned()))).await.expect("put")
}

async fn entry<S: Store>(store: &S, at: &str) -> Option<Entry> {
    store.get(&key(at)).await.expect("read")
}

async fn list<S: Store>(store: &S, query: Query) -> (Vec<String>, bool) {
    let range = store.range(&query).await.expect("read");
    (range.entries.iter().map(|entry| entry.key.to_string()).collect(), range.more)
}

async fn revisions_and_versions<S: Store>(store: &S) {
    assert_eq!(entry(store, "rv/a").await, None);
    let first = put(store, "rv/a", "1").await;
    assert!(first.succeeded && first.responses == [Response::Put]);
    let second = put(store, "rv/a", "2").await;
    assert_eq!(second.revision, first.revision.next());
    let found = entry(store, "rv/a").await.expect("there");
    assert_eq!((found.value.as_ref(), found.version), (b"2".as_slice(), 2));
    assert_eq!((found.create_revision, found.mod_revision), (first.revision, second.revision));
    // The same value again is a change, too.
    assert_eq!(put(store, "rv/a", "2").await.revision, second.revision.next());
    let deleted = store.txn(Txn::new().then(Op::Delete(key("rv/a")))).await.expect("deleted");
    assert_eq!(deleted.responses, [Response::Deleted(1)]);
    // What changes nothing makes no revision.
    let nothing = Txn::new().then(Op::Delete(key("rv/a"))).then(Op::Get(key("rv/a")));
    let nothing = store.txn(nothing).await.expect("done");
    assert_eq!(nothing.revision, deleted.revision);
    assert_eq!(nothing.responses, [Response::Deleted(0), Response::Got(None)]);
    let again = put(store, "rv/a", "3").await;
    let found = entry(store, "rv/a").await.expect("there");
    assert_eq!((found.create_revision, found.version), (again.revision, 1), "a new life");
}

async fn every_compare<S: Store>(store: &S) {
    let created = put(store, "cmp/a", "1").await.revision;
    let modified = put(store, "cmp/a", "2").await.revision;
    let holds = async |at: &str, test: Test| {
        let txn = Txn::new().when(Compare { key: key(at), test });
        store.txn(txn).await.expect("compared").succeeded
    };
    let relations = [Relation::Equal, Relation::NotEqual, Relation::Less, Relation::Greater];
    for relation in relations {
        let expected = |order: std::cmp::Ordering| match relation {
            Relation::Equal => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::Less => order.is_lt(),
            Relation::Greater => order.is_gt(),
        };
        for given in [Revision(0), created, modified, modified.next()] {
            assert_eq!(holds("cmp/a", Test::Created(relation, given)).await, expected(created.cmp(&given)));
            assert_eq!(holds("cmp/a", Test::Modified(relation, given)).await, expected(modified.cmp(&given)));
            assert_eq!(holds("cmp/none", Test::Created(relation, given)).await, expected(Revision(0).cmp(&given)));
            assert_eq!(holds("cmp/none", Test::Modified(relation, given)).await, expected(Revision(0).cmp(&given)));
        }
        for given in 0..4 {
            assert_eq!(holds("cmp/a", Test::Version(relation, given)).await, expected(2.cmp(&given)));
            assert_eq!(holds("cmp/none", Test::Version(relation, given)).await, expected(0.cmp(&given)));
        }
        for given in ["", "1", "2", "20", "3"] {
            let test = || Test::Value(relation, Bytes::copy_from_slice(given.as_bytes()));
            assert_eq!(holds("cmp/a", test()).await, expected("2".cmp(given)), "{relation:?} {given}");
            assert!(!holds("cmp/none", test()).await, "an absent key has no value");
        }
    }
    // All compares have to hold.
    let txn = Txn::new()
        .when(Compare::present(key("cmp/a")))
        .when(Compare::value(key("cmp/a"), "1"))
        .then(Op::put(key("cmp/a"), "then"))
        .or_else(Op::put(key("cmp/b"), "else"));
    assert!(!store.txn(txn).await.expect("done").succeeded);
    assert_eq!(entry(store, "cmp/a").await.expect("there").value, "2");
    assert_eq!(entry(store, "cmp/b").await.expect("there").value, "else");
}

async fn operations_see_those_before<S: Store>(store: &S) {
    put(store, "ops/a", "1").await;
    put(store, "ops/b", "1").await;
    let all = || Op::List { prefix: prefix("ops/"), limit: 10 };
    let txn = Txn::new()
        .then(all())
        .then(Op::put(key("ops/c"), "2"))
        .then(Op::Get(key("ops/c")))
        .then(Op::Delete(key("ops/a")))
        .then(Op::Delete(key("ops/a")))
        .then(all())
        .then(Op::List { prefix: prefix("ops/"), limit: 1 });
    let answer = store.txn(txn).await.expect("done");
    let names = |response: &Response| match response {
        Response::Listed { entries, more } => (entries.iter().map(|e| e.key.to_string()).collect::<Vec<_>>(), *more),
        Response::Put | Response::Deleted(_) | Response::Got(_) => panic!("{response:?}"),
    };
    assert_eq!(names(&answer.responses[0]), (vec!["ops/a".into(), "ops/b".into()], false));
    let Response::Got(Some(got)) = &answer.responses[2] else { panic!("{answer:?}") };
    assert_eq!((got.value.as_ref(), got.mod_revision), (b"2".as_slice(), answer.revision));
    assert_eq!(answer.responses[3..5], [Response::Deleted(1), Response::Deleted(0)]);
    assert_eq!(names(&answer.responses[5]), (vec!["ops/b".into(), "ops/c".into()], false));
    assert_eq!(names(&answer.responses[6]), (vec!["ops/b".into()], true));
    let cleared = store.txn(Txn::new().then(Op::DeletePrefix(prefix("ops/")))).await.expect("done");
    assert_eq!((cleared.responses, cleared.revision), (vec![Response::Deleted(2)], answer.revision.next()));
    assert_eq!(list(store, Query::all(prefix("ops/"))).await, (Vec::new(), false));
}

async fn ranges<S: Store>(store: &S) {
    let names = ["rg/", "rg/a", "rg/a/1", "rg/b", "rg/\u{10ffff}", "rh", "rf/z"];
    for name in names {
        put(store, name, "x").await;
    }
    // Any bytes, also those after which no byte comes.
    let wild = |bytes: &[u8]| Key::new(bytes.to_vec()).expect("a key");
    for bytes in [&b"\xff\xff"[..], b"\xff\xffa", b"\xff\xff\xff", b"\xff\xfe\x00"] {
        store.txn(Txn::new().then(Op::put(wild(bytes), bytes.to_vec()))).await.expect("put");
    }
    let under = Prefix::new(b"\xff\xff".to_vec()).expect("a prefix");
    let found = store.range(&Query::all(under)).await.expect("read").entries;
    assert_eq!(found.iter().map(|e| e.value.len()).collect::<Vec<_>>(), [2, 3, 3]);
    let query = Query::all(prefix("rg/"));
    let all = list(store, query.clone()).await;
    assert_eq!(all.0[..4], ["rg/", "rg/a", "rg/a/1", "rg/b"]);
    assert_eq!((all.0.len(), all.1), (5, false));
    for limit in 1..6 {
        // In pages at one revision, while others write.
        let (mut pages, mut page) = (Vec::new(), Query { limit, ..query.clone() });
        loop {
            let range = store.range(&page).await.expect("read");
            put(store, "rg/new", "x").await;
            page.at = page.at.or(Some(range.revision));
            page.after = range.entries.last().map(|entry| entry.key.clone());
            assert!(range.entries.len() == limit || !range.more);
            pages.extend(range.entries.into_iter().map(|entry| entry.key.to_string()));
            if !range.more {
                break;
            }
        }
        assert_eq!(pages, all.0, "{limit}");
        store.txn(Txn::new().then(Op::Delete(key("rg/new")))).await.expect("deleted");
    }
    let everything = store.range(&Query::all(Prefix::default())).await.expect("read").entries;
    assert!(everything.is_sorted_by(|a, b| a.key < b.key) && everything.len() > 9);
}

async fn earlier_revisions<S: Store>(store: &S) {
    let mut revisions = Vec::new();
    for n in 0..5 {
        revisions.push(put(store, "old/a", &n.to_string()).await.revision);
    }
    store.txn(Txn::new().then(Op::Delete(key("old/a"))).then(Op::put(key("old/b"), "b"))).await.expect("done");
    for (n, at) in revisions.iter().enumerate() {
        let query = Query { at: Some(*at), ..Query::all(prefix("old/")) };
        let found = store.range(&query).await.expect("read").entries;
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].value.as_ref(), found[0].version), (n.to_string().as_bytes(), n as u64 + 1));
        assert_eq!((found[0].create_revision, found[0].mod_revision), (revisions[0], *at));
    }
    assert_eq!(list(store, Query::all(prefix("old/"))).await.0, ["old/b"]);
    let newest = store.range(&Query::all(prefix("old/"))).await.expect("read").revision;
    let future = Query { at: Some(Revision(newest.0 + 1000)), ..Query::all(prefix("old/")) };
    assert!(matches!(store.range(&future).await, Err(StoreError::Future { .. })));
}

async fn refusals<S: Store>(store: &S) {
    let refused = async |txn: Txn| match store.txn(txn).await {
        Err(StoreError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let twice = Txn::new().then(Op::put(key("no/a"), "1")).then(Op::put(key("no/a"), "2"));
    assert_eq!(refused(twice).await, Refusal::Twice(key("no/a")));
    let overlap = Txn::new().then(Op::DeletePrefix(prefix("no/"))).then(Op::put(key("no/a"), "2"));
    assert_eq!(refused(overlap).await, Refusal::Twice(key("no/a")));
    let long = Txn::new().then(Op::put(key("no/a"), vec![0; MAX_VALUE + 1]));
    assert_eq!(refused(long).await, Refusal::Value { key: key("no/a"), len: MAX_VALUE + 1 });
    let many = Txn { then: vec![Op::Get(key("no/a")); MAX_OPS + 1], ..Txn::default() };
    assert_eq!(refused(many).await, Refusal::Ops { len: MAX_OPS + 1 });
    for limit in [0, MAX_RANGE + 1] {
        let query = Query { limit, ..Query::all(prefix("no/")) };
        assert!(matches!(store.range(&query).await, Err(StoreError::Refused(Refusal::Limit(_)))));
    }
    assert!(matches!(store.watch(&prefix("no/"), Revision(0)).await, Err(StoreError::Refused(Refusal::Zero))));
    for ttl in [Duration::ZERO, Duration::MAX] {
        assert!(matches!(store.lease(ttl).await, Err(StoreError::Refused(Refusal::Ttl(_)))));
    }
    let none = LeaseId(i64::MAX as u64);
    let leased = Txn::new().then(Op::put(key("no/b"), "1")).then(Op::put_leased(key("no/c"), "1", none));
    assert!(matches!(store.txn(leased).await, Err(StoreError::NoLease(lease)) if lease == none));
    assert!(matches!(store.keep_alive(none).await, Err(StoreError::NoLease(_))));
    assert!(matches!(store.revoke(none).await, Err(StoreError::NoLease(_))));
    assert_eq!(list(store, Query::all(prefix("no/"))).await.0, Vec::<String>::new(), "nothing was done");
}

async fn largest_requests<S: Store>(store: &S) {
    let longest = format!("big/{}", "k".repeat(MAX_KEY - 4));
    let value: Bytes = (0..MAX_VALUE).map(|n| (n % 251) as u8).collect();
    store.txn(Txn::new().then(Op::put(key(&longest), value.clone()))).await.expect("taken");
    assert_eq!(entry(store, &longest).await.expect("there").value, value);
    let mut full = Txn::new();
    for n in 0..MAX_OPS {
        let at = key(&format!("big/{n:04}"));
        full = full.when(Compare::absent(at.clone())).then(Op::put(at.clone(), "x")).or_else(Op::Get(at));
    }
    let answer = store.txn(full.clone()).await.expect("taken");
    assert!(answer.succeeded && answer.responses.len() == MAX_OPS);
    let answer = store.txn(full).await.expect("taken");
    assert!(!answer.succeeded && answer.responses.iter().all(|r| matches!(r, Response::Got(Some(_)))));
    store.txn(Txn::new().then(Op::DeletePrefix(prefix("big/")))).await.expect("deleted");
}

async fn leases<S: Store>(store: &S) {
    let lease = store.lease(Duration::from_secs(60)).await.expect("granted");
    assert!(lease.ttl >= Duration::from_secs(60));
    let other = store.lease(Duration::from_millis(59_001)).await.expect("granted");
    assert!(other.ttl >= Duration::from_secs(60) && other.id != lease.id);
    let leased = |at: &str| Op::put_leased(key(at), "x", lease.id);
    let txn = Txn::new().then(leased("ls/a")).then(leased("ls/b")).then(leased("ls/c")).then(leased("ls/d"));
    let from = store.txn(txn).await.expect("put").revision.next();
    assert_eq!(entry(store, "ls/a").await.expect("there").lease, Some(lease.id));
    // A key belongs to the lease of its last put.
    put(store, "ls/b", "without").await;
    assert_eq!(entry(store, "ls/b").await.expect("there").lease, None);
    store.txn(Txn::new().then(Op::put_leased(key("ls/c"), "x", other.id))).await.expect("put");
    assert_eq!(store.keep_alive(lease.id).await.expect("alive"), lease.ttl);
    let mut watch = store.watch(&prefix("ls/"), from).await.expect("watched");
    store.revoke(lease.id).await.expect("revoked");
    for _ in 0..2 {
        watch.next().await.expect("the puts");
    }
    let mut gone = watch.next().await.expect("the end of the lease");
    gone.events.sort_by_key(|event| event.key().clone());
    assert_eq!(gone.events, [Event::Deleted(key("ls/a")), Event::Deleted(key("ls/d"))], "together");
    assert_eq!(list(store, Query::all(prefix("ls/"))).await.0, ["ls/b", "ls/c"]);
    assert!(matches!(store.keep_alive(lease.id).await, Err(StoreError::NoLease(_))));
    assert!(matches!(store.revoke(lease.id).await, Err(StoreError::NoLease(_))));
    store.revoke(other.id).await.expect("revoked");
    assert_eq!(list(store, Query::all(prefix("ls/"))).await.0, ["ls/b"]);
}

async fn a_lapsed_lease_deletes_its_keys_together<S: Store>(store: &S) {
    // etcd gives no lease of less than about two seconds.
    let short = store.lease(Duration::from_secs(2)).await.expect("granted");
    let kept = store.lease(Duration::from_secs(2)).await.expect("granted");
    let mut txn = Txn::new().then(Op::put_leased(key("lp/kept"), "x", kept.id));
    for n in 0..20 {
        txn = txn.then(Op::put_leased(key(&format!("lp/{n}")), "x", short.id));
    }
    let from = store.txn(txn).await.expect("put").revision.next();
    let mut watch = store.watch(&prefix("lp/"), from).await.expect("watched");
    let begun = Instant::now();
    let change: Change = loop {
        tokio::select! {
            change = watch.next() => break change.expect("a change"),
            () = tokio::time::sleep(Duration::from_millis(300)) => {
                store.keep_alive(kept.id).await.expect("alive");
            }
        }
        assert!(begun.elapsed() < short.ttl * 5, "it does not lapse");
    };
    assert!(begun.elapsed() + Duration::from_millis(200) >= short.ttl, "too early: {:?}", begun.elapsed());
    assert_eq!(change.events.len(), 20, "all at one revision");
    assert!(change.events.iter().all(|event| matches!(event, Event::Deleted(_))));
    assert!(matches!(store.keep_alive(short.id).await, Err(StoreError::NoLease(_))));
    assert_eq!(list(store, Query::all(prefix("lp/"))).await.0, ["lp/kept"]);
    store.revoke(kept.id).await.expect("revoked");
}

/// Concurrent callers swap and read one key; the answers have to fit a single order. A caller without an answer goes on.
pub(crate) async fn swaps_are_linearizable<S: Store>(store: &S, callers: u64) {
    const CALLS: u64 = 40;
    let clock = Arc::new(AtomicU64::new(0));
    let at = key(&format!("swap/{}", put(store, "swap/begin", "x").await.revision));
    let callers = (0..callers).map(|caller| {
        let (store, clock, at) = (store.clone(), clock.clone(), at.clone());
        tokio::spawn(async move {
            let (mut calls, mut known) = (Vec::new(), 0);
            for n in 0..CALLS {
                let begun = clock.fetch_add(1, SeqCst);
                // Mostly what the caller knows, sometimes a guess that is wrong.
                let (from, to) = (if n % 5 == 4 { known + 1 } else { known }, 1 + caller * 1000 + n);
                let answer = if n % 3 == 0 { read(&store, &at).await } else { swap(&store, &at, from, to).await };
                let ended = clock.fetch_add(1, SeqCst);
                let (what, ended) = match answer {
                    Ok((what, now)) => {
                        known = now;
                        (what, ended)
                    }
                    Err(StoreError::Unknown { .. }) => (Done::Swap { from, to, succeeded: None }, u64::MAX),
                    // It has not happened.
                    Err(StoreError::Unavailable { .. }) => continue,
                    Err(error) => panic!("{error}"),
                };
                calls.push(Call { begun, ended, what });
            }
            calls
        })
    });
    let mut calls = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        calls.extend(caller.await.expect("ended"));
    }
    assert!(calls.iter().any(|call| matches!(call.what, Done::Swap { succeeded: Some(true), .. })));
    assert!(is_linearizable(&calls), "{calls:?}");
}

async fn read<S: Store>(store: &S, at: &Key) -> Result<(Done, u64), StoreError> {
    let value = number(store.get(at).await?.as_ref());
    Ok((Done::Read(value), value))
}

/// Returns also the value afterwards.
async fn swap<S: Store>(store: &S, at: &Key, from: u64, to: u64) -> Result<(Done, u64), StoreError> {
    let expected = match from {
        0 => Compare::absent(at.clone()),
        _ => Compare::value(at.clone(), from.to_string()),
    };
    let txn = Txn::new().when(expected).then(Op::put(at.clone(), to.to_string())).or_else(Op::Get(at.clone()));
    let answer = store.txn(txn).await?;
    let now = match answer.responses.as_slice() {
        [Response::Put] => to,
        [Response::Got(entry)] => number(entry.as_ref()),
        other => panic!("{other:?}"),
    };
    Ok((Done::Swap { from, to, succeeded: Some(answer.succeeded) }, now))
}

fn number(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, |entry| String::from_utf8_lossy(&entry.value).parse().expect("a number"))
}
