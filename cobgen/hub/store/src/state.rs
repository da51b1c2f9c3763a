//! The content of an embedded store, and what a request does to it. Pure: no clock, no file.
//!
//! A request is evaluated on a state and gives a [`Record`]; the same record, applied to an equal state, makes the same
//! change. So the writer, the readers' state and the next process agree.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;

use crate::bounds::{ENTRY_COST, MAX_LEASES, MAX_STORE};
use crate::entry::{Change, Entry, Event, Key, LeaseId, Prefix, Revision};
use crate::error::{Refusal, StoreError};
use crate::history::Past;
use crate::record::{LeaseEvent, Record, Write};
use crate::txn::{Op, Response, Txn, TxnAnswer};

/// The content.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) revision: Revision,
    pub(crate) entries: BTreeMap<Key, Entry>,
    pub(crate) leases: BTreeMap<LeaseId, Granted>,
    /// The id of the next lease.
    pub(crate) next_lease: u64,
    /// The bytes of all entries, as [`MAX_STORE`] counts them.
    bytes: u64,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    /// Seconds.
    pub(crate) ttl: u64,
    /// The keys that end with it.
    pub(crate) keys: BTreeSet<Key>,
}

impl Granted {
    /// A lease without keys.
    pub(crate) fn new(ttl: u64) -> Self {
        Self { ttl, keys: BTreeSet::new() }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new(Revision(1), 1, BTreeMap::new())
    }
}

impl State {
    /// A state without entries.
    pub(crate) fn new(revision: Revision, next_lease: u64, leases: BTreeMap<LeaseId, Granted>) -> Self {
        Self { revision, entries: BTreeMap::new(), leases, next_lease, bytes: 0 }
    }

    /// Does a transaction. The record is absent if nothing has changed.
    pub(crate) fn txn(&mut self, txn: &Txn) -> Result<(TxnAnswer, Option<(Record, Past)>), StoreError> {
        let succeeded = txn.compares.iter().all(|compare| compare.holds(self.entries.get(&compare.key)));
        let branch = if succeeded { &txn.then } else { &txn.or_else };
        self.admit(branch)?;
        let (mut writes, mut past) = (Vec::new(), Past::new(self.revision.next()));
        let mut responses = Vec::with_capacity(branch.len());
        for op in branch {
            responses.push(self.perform(op, &mut writes, &mut past));
        }
        let record = (!writes.is_empty()).then(|| {
            self.revision = past.change.revision;
            (Record { revision: self.revision.0, writes, lease: None }, past)
        });
        Ok((TxnAnswer { succeeded, revision: self.revision, responses }, record))
    }

    /// Whether all operations of a branch can be done: then none of them fails half-way.
    fn admit(&self, branch: &[Op]) -> Result<(), StoreError> {
        let mut more = 0;
        for op in branch {
            if let Op::Put { key, value, lease } = op {
                if let Some(lease) = lease.filter(|lease| !self.leases.contains_key(lease)) {
                    return Err(StoreError::NoLease(lease));
                }
                let before = self.entries.get(key).map_or(0, cost);
                more += (ENTRY_COST + (key.as_bytes().len() + value.len()) as u64).saturating_sub(before);
            }
        }
        // What shrinks the store is done at any size.
        if more > 0 && self.bytes + more > MAX_STORE {
            return Err(StoreError::Full { because: format!("it may have {MAX_STORE} bytes") });
        }
        Ok(())
    }

    fn perform(&mut self, op: &Op, writes: &mut Vec<Write>, past: &mut Past) -> Response {
        let mut delete = |state: &mut Self, keys: Vec<Key>| {
            let count = keys.len() as u64;
            for key in keys {
                let write = Write { key, put: None };
                state.write(&write, past);
                writes.push(write);
            }
            Response::Deleted(count)
        };
        match op {
            Op::Put { key, value, lease } => {
                let write = Write { key: key.clone(), put: Some((value.clone(), *lease)) };
                self.write(&write, past);
                writes.push(write);
                Response::Put
            }
            Op::Delete(key) => {
                let keys = self.entries.contains_key(key).then(|| key.clone()).into_iter().collect();
                delete(self, keys)
            }
            Op::DeletePrefix(prefix) => {
                let keys = self.under(prefix, None).map(|entry| entry.key.clone()).collect();
                delete(self, keys)
            }
            Op::Get(key) => Response::Got(self.entries.get(key).cloned()),
            Op::List { prefix, limit } => {
                let (entries, more) = page(self.under(prefix, None), *limit);
                Response::Listed { entries, more }
            }
        }
    }

    /// Grants a lease.
    pub(crate) fn grant(&mut self, ttl: u64) -> Result<(LeaseId, Record), StoreError> {
        if self.leases.len() >= MAX_LEASES {
            return Err(Refusal::Leases.into());
        }
        let id = LeaseId(self.next_lease);
        let record = Record {
            revision: self.revision.0,
            writes: Vec::new(),
            lease: Some(LeaseEvent::Granted { id: id.0, ttl }),
        };
        self.lease_event(record.lease);
        Ok((id, record))
    }

    /// Ends a lease and deletes its keys.
    pub(crate) fn end(&mut self, lease: LeaseId) -> Result<(Record, Past), StoreError> {
        let granted = self.leases.get(&lease).ok_or(StoreError::NoLease(lease))?;
        let writes: Vec<_> = granted.keys.iter().map(|key| Write { key: key.clone(), put: None }).collect();
        let revision = if writes.is_empty() { self.revision } else { self.revision.next() };
        let record = Record { revision: revision.0, writes, lease: Some(LeaseEvent::Ended { id: lease.0 }) };
        let past = self.redo(&record);
        Ok((record, past))
    }

    /// Applies a record that another state of the same content has made.
    ///
    /// # Errors
    /// A description, if the record does not follow on this state.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<Past, String> {
        let expected = if record.writes.is_empty() { self.revision } else { self.revision.next() };
        if record.revision != expected.0 {
            return Err(format!("it makes revision {} of revision {}", record.revision, self.revision));
        }
        Ok(self.redo(record))
    }

    fn redo(&mut self, record: &Record) -> Past {
        let mut past = Past::new(Revision(record.revision));
        for write in &record.writes {
            self.write(write, &mut past);
        }
        self.revision = past.change.revision;
        self.lease_event(record.lease);
        past
    }

    fn lease_event(&mut self, event: Option<LeaseEvent>) {
        match event {
            Some(LeaseEvent::Granted { id, ttl }) => {
                self.leases.insert(LeaseId(id), Granted::new(ttl));
                self.next_lease = self.next_lease.max(id.saturating_add(1));
            }
            Some(LeaseEvent::Ended { id }) => {
                self.leases.remove(&LeaseId(id));
            }
            None => {}
        }
    }

    fn write(&mut self, write: &Write, past: &mut Past) {
        let before = self.entries.remove(&write.key);
        if let Some(before) = &before {
            self.bytes -= cost(before);
            self.detach(before);
        }
        let event = match &write.put {
            Some((value, lease)) => {
                let entry = Entry {
                    key: write.key.clone(),
                    value: value.clone(),
                    create_revision: before.as_ref().map_or(past.change.revision, |before| before.create_revision),
                    mod_revision: past.change.revision,
                    version: before.as_ref().map_or(1, |before| before.version + 1),
                    lease: *lease,
                };
                self.insert(entry.clone());
                Event::Put(entry)
            }
            None => Event::Deleted(write.key.clone()),
        };
        past.push(event, before);
    }

    /// Adds an entry whose key is absent.
    pub(crate) fn insert(&mut self, entry: Entry) {
        if let Some(granted) = entry.lease.and_then(|lease| self.leases.get_mut(&lease)) {
            granted.keys.insert(entry.key.clone());
        }
        self.bytes += cost(&entry);
        self.entries.insert(entry.key.clone(), entry);
    }

    fn detach(&mut self, entry: &Entry) {
        if let Some(granted) = entry.lease.and_then(|lease| self.leases.get_mut(&lease)) {
            granted.keys.remove(&entry.key);
        }
    }

    /// The entries under a prefix, after a key.
    pub(crate) fn under<'s>(&'s self, prefix: &Prefix, after: Option<&Key>) -> impl Iterator<Item = &'s Entry> {
        let prefix = prefix.clone();
        // An empty key can't exist: the bound is for the type alone.
        let start = Key::new(Bytes::copy_from_slice(prefix.as_bytes())).ok();
        let first = match (start, after) {
            (Some(start), Some(after)) if *after < start => Bound::Included(start),
            (_, Some(after)) => Bound::Excluded(after.clone()),
            (Some(start), None) => Bound::Included(start),
            (None, None) => Bound::Unbounded,
        };
        let entries = self.entries.range((first, Bound::Unbounded)).map(|(_, entry)| entry);
        entries.take_while(move |entry| prefix.matches(&entry.key))
    }

    /// The bytes of all entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn cost(entry: &Entry) -> u64 {
    ENTRY_COST + (entry.key.as_bytes().len() + entry.value.len()) as u64
}

/// The first entries, and whether there are more.
pub(crate) fn page<'e>(mut entries: impl Iterator<Item = &'e Entry>, limit: usize) -> (Vec<Entry>, bool) {
    let page = entries.by_ref().take(limit).cloned().collect();
    (page, entries.next().is_some())
}

/// The events of a change under a prefix; `None`: there are none.
pub(crate) fn under(change: &Change, prefix: &Prefix) -> Option<Change> {
    let events: Vec<_> = change.events.iter().filter(|event| prefix.matches(event.key())).cloned().collect();
    (!events.is_empty()).then_some(Change { revision: change.revision, events })
}
