//! Random transactions against a list of all past contents: reads of each revision, watches, and what a new start reads
//! from the records.

use std::collections::BTreeMap;

use bytes::Bytes;
use cob_journal::{Entry as Journaled, What};
use proptest::prelude::*;

use crate::entry::{Entry, Event, Key, Prefix, Revision};
use crate::history::History;
use crate::record::{replay, write_snapshot};
use crate::state::State;
use crate::txn::{Compare, Op, Query, Txn};

type Content = BTreeMap<Key, Entry>;

fn key(n: u8) -> Key {
    Key::new(vec![b'a' + n / 3, b'a' + n % 3]).expect("a key")
}

#[derive(Debug, Clone)]
enum Step {
    Txn(Txn),
    Grant,
    End(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let op = prop_oneof![
        4 => (0..9u8, any::<u8>()).prop_map(|(n, value)| Op::put(key(n), vec![value])),
        2 => (0..9u8, 1..4u64).prop_map(|(n, id)| Op::put_leased(key(n), "leased", crate::LeaseId(id))),
        2 => (0..9u8).prop_map(|n| Op::Delete(key(n))),
        1 => (0..3u8).prop_map(|n| Op::DeletePrefix(Prefix::new(vec![b'a' + n]).expect("short"))),
    ];
    let ops = || prop::collection::vec(op.clone(), 0..4);
    let txn = (0..9u8, ops(), ops()).prop_map(|(n, then, or_else)| Txn {
        compares: vec![Compare::present(key(n))],
        then,
        or_else,
    });
    let step = prop_oneof![8 => txn.prop_map(Step::Txn), 1 => Just(Step::Grant), 1 => (1..4u64).prop_map(Step::End)];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn readers_watches_and_a_new_start_agree(steps in steps(), snapshot_after in 0..40usize) {
        let (mut state, mut history) = (State::default(), History::after(Revision(1)));
        let mut contents: BTreeMap<Revision, Content> = BTreeMap::from([(Revision(1), Content::new())]);
        let mut journal: Vec<Journaled> = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            if at == snapshot_after {
                let mut bytes = Vec::new();
                write_snapshot(&state, &mut bytes).expect("written");
                journal = vec![Journaled { seq: 1, what: What::Snapshot, payload: bytes.into() }];
            }
            let before = state.revision;
            let made = match step {
                Step::Txn(txn) if txn.check().is_err() => None,
                Step::Txn(txn) => state.txn(txn).ok().and_then(|(_, made)| made),
                Step::Grant => state.grant(9).ok().map(|(_, record)| (record, crate::history::Past::new(before))),
                Step::End(id) => state.end(crate::LeaseId(*id)).ok(),
            };
            let Some((record, past)) = made else {
                prop_assert_eq!(state.revision, before);
                continue;
            };
            let payload = Bytes::from(record.encode().expect("encoded"));
            journal.push(Journaled { seq: journal.len() as u64 + 1, what: What::Change, payload });
            // The events lead from the content before to the content after.
            let mut content = contents.last_key_value().expect("one").1.clone();
            for event in &past.change.events {
                match event {
                    Event::Put(entry) => drop(content.insert(entry.key.clone(), entry.clone())),
                    Event::Deleted(key) => prop_assert!(content.remove(key).is_some()),
                }
            }
            prop_assert_eq!(&content, &state.entries);
            contents.insert(state.revision, content);
            history.push(past);
        }
        let query = Query::all(Prefix::default());
        for (at, content) in contents.range(..state.revision) {
            let (entries, more) = history.read(&state, &query, *at).expect("known");
            prop_assert_eq!(entries, content.values().cloned().collect::<Vec<_>>());
            prop_assert!(!more);
        }
        let (again, _) = replay(&journal).expect("understood");
        prop_assert_eq!(again.revision, state.revision);
        prop_assert_eq!(&again.entries, &state.entries);
        prop_assert_eq!(&again.leases, &state.leases);
        prop_assert_eq!((again.next_lease, again.bytes()), (state.next_lease, state.bytes()));
    }

    #[test]
    fn any_bytes_in_a_record_are_read_without_panic(payload in prop::collection::vec(any::<u8>(), 0..60), is_change: bool) {
        let what = if is_change { What::Change } else { What::Snapshot };
        let _ = replay(&[Journaled { seq: 1, what, payload: payload.into() }]);
    }
}
