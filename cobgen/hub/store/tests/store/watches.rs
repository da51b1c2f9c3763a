//! Watches: each change once, in order, whatever happens at the same time.

use std::collections::BTreeMap;

use cob_hub_store::{Change, Compare, Event, Key, Op, Prefix, Revision, Store, Txn, Watch};

use crate::suite::{key, prefix, put};

pub(crate) async fn a_watch_tells_each_change_once<S: Store>(store: &S) {
    let first = put(store, "wt/a", "1").await.revision;
    let txn = Txn::new().then(Op::put(key("wt/b"), "2")).then(Op::put(key("other"), "2")).then(Op::Delete(key("wt/a")));
    let second = store.txn(txn).await.expect("done").revision;
    put(store, "wx", "not watched").await;
    // From the past into the future.
    let mut watch = store.watch(&prefix("wt/"), first).await.expect("watched");
    let mut later = store.watch(&prefix("wt/"), Revision(second.0 + 2)).await.expect("watched");
    let change = watch.next().await.expect("the first");
    assert_eq!((change.revision, change.events.len()), (first, 1));
    let Event::Put(entry) = &change.events[0] else { panic!("{change:?}") };
    assert_eq!(Some(entry.mod_revision), Some(first));
    assert_eq!((entry.value.as_ref(), entry.version), (b"1".as_slice(), 1));
    let change = watch.next().await.expect("the second");
    assert_eq!((change.revision, change.events.len()), (second, 2), "only what is watched");
    assert!(matches!(&change.events[0], Event::Put(entry) if entry.key == key("wt/b")));
    assert_eq!(change.events[1], Event::Deleted(key("wt/a")));
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            put(&store, "wt/c", "3").await.revision
        })
    };
    let change = watch.next().await.expect("the third");
    assert_eq!(change.revision, writer.await.expect("written"));
    assert_eq!(later.next().await.expect("the third"), change);
}

/// Writers write at the same time; a watch from before them and watches that begin among them see everything.
pub(crate) async fn a_watch_under_load_is_complete<S: Store>(store: &S) {
    const WRITERS: usize = 6;
    const TXNS: usize = 50;
    let before = put(store, "load/", "begin").await.revision;
    let mut early = store.watch(&prefix("load/"), before.next()).await.expect("watched");
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut written = BTreeMap::new();
            for n in 0..TXNS {
                let at = |what: &str| key(&format!("load/{writer}/{what}"));
                let txn = match n % 4 {
                    // Changes nothing.
                    0 => {
                        Txn::new().when(Compare::absent(at("a"))).then(Op::Delete(at("none"))).or_else(Op::Get(at("a")))
                    }
                    1 => Txn::new().then(Op::put(at("a"), n.to_string())).then(Op::put(at("b"), n.to_string())),
                    2 => Txn::new().then(Op::DeletePrefix(prefix(&format!("load/{writer}/")))),
                    _ => Txn::new().then(Op::put(key("load/shared"), format!("{writer} {n}"))),
                };
                let events = [0, 2, 2, 1][n % 4];
                let answer = store.txn(txn).await.expect("done");
                if events > 0 {
                    assert_eq!(written.insert(answer.revision, events), None);
                }
            }
            written
        })
    });
    let writers: Vec<_> = writers.collect();
    let middle = early.next().await.expect("a change");
    let mut late = store.watch(&prefix("load/"), middle.revision).await.expect("watched");
    let mut expected = BTreeMap::new();
    for writer in writers {
        expected.extend(writer.await.expect("ended"));
    }
    assert_eq!(expected.len(), WRITERS * 37, "no two writes have the same revision");
    let seen = read(&mut early, expected.len() - 1).await;
    let mut all = vec![middle];
    all.extend(seen);
    assert_eq!(read(&mut late, expected.len()).await, all, "two watches tell the same");
    assert!(all.is_sorted_by(|a, b| a.revision < b.revision));
    assert_eq!(all.iter().map(|c| (c.revision, c.events.len())).collect::<BTreeMap<_, _>>(), expected);
    consistent(&all);
    // And once more from the past, when all is over.
    let mut again = store.watch(&Prefix::default(), before.next()).await.expect("watched");
    let mut found = Vec::new();
    while found.len() < all.len() {
        let mut change = again.next().await.expect("a change");
        change.events.retain(|event| prefix("load/").matches(event.key()));
        found.extend((!change.events.is_empty()).then_some(change));
    }
    assert_eq!(found, all);
}

async fn read<W: Watch>(watch: &mut W, count: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..count {
        changes.push(watch.next().await.expect("a change"));
    }
    changes
}

/// The versions in the events count on from each other.
fn consistent(changes: &[Change]) {
    let mut versions: BTreeMap<&Key, u64> = BTreeMap::new();
    for change in changes {
        for event in &change.events {
            match event {
                Event::Put(entry) => {
                    let version = versions.entry(&entry.key).or_default();
                    *version += 1;
                    assert_eq!((entry.version, entry.mod_revision), (*version, change.revision));
                }
                Event::Deleted(key) => {
                    assert!(versions.remove(key).is_some(), "{key} was there");
                }
            }
        }
    }
}
