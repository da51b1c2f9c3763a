//! The records of an embedded store in its journal: CBOR.
//!
//! A change is one record, so it is there whole or not at all. A snapshot is a sequence of values: a head, then the
//! entries in the order of their keys.

use std::io;

use bytes::Bytes;
use cob_journal::{Entry as Journaled, What};
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, Key, LeaseId, Revision};
use crate::error::OpenError;
use crate::history::History;
use crate::state::{Granted, State};

/// The format of snapshots and records.
const FORMAT: u16 = 1;

/// A change of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The revision after it.
    pub(crate) revision: u64,
    /// In their order.
    pub(crate) writes: Vec<Write>,
    pub(crate) lease: Option<LeaseEvent>,
}

/// A write to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) key: Key,
    /// The new value and its lease; `None`: the key is deleted.
    pub(crate) put: Option<(Bytes, Option<LeaseId>)>,
}

/// The beginning or end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LeaseEvent {
    /// It begins.
    #[serde(rename = "g")]
    Granted {
        /// The id.
        id: u64,
        /// Seconds.
        ttl: u64,
    },
    /// It ends.
    #[serde(rename = "e")]
    Ended {
        /// The id.
        id: u64,
    },
}

/// A record on disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk<'a> {
    #[serde(rename = "r")]
    revision: u64,
    #[serde(rename = "w", borrow)]
    writes: Vec<(Raw<'a>, Option<StoredPut<'a>>)>,
    #[serde(rename = "l")]
    lease: Option<LeaseEvent>,
}

/// The value and the lease of a put.
#[derive(Debug, Serialize, Deserialize)]
struct StoredPut<'a>(#[serde(borrow)] Raw<'a>, Option<u64>);

/// Bytes that are not copied.
#[derive(Debug, Serialize, Deserialize)]
struct Raw<'a>(#[serde(with = "serde_bytes", borrow)] &'a [u8]);

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: u16,
    revision: u64,
    next_lease: u64,
    /// Ids and seconds.
    leases: Vec<(u64, u64)>,
    entries: u64,
}

/// An entry in a snapshot: key, value, revisions of creation and change, version, lease.
#[derive(Debug, Serialize, Deserialize)]
struct Stored<'a>(#[serde(borrow)] Raw<'a>, Raw<'a>, u64, u64, u64, Option<u64>);

impl Record {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, serde_cbor::Error> {
        let writes = self.writes.iter().map(|write| {
            let put = write.put.as_ref().map(|(value, lease)| StoredPut(Raw(value), lease.map(|lease| lease.0)));
            (Raw(write.key.as_bytes()), put)
        });
        let on_disk = OnDisk { revision: self.revision, writes: writes.collect(), lease: self.lease };
        serde_cbor::to_vec(&on_disk)
    }

    fn decode(payload: &Bytes) -> Result<Self, String> {
        let on_disk: OnDisk<'_> = serde_cbor::from_slice(payload).map_err(|error| error.to_string())?;
        let mut writes = Vec::with_capacity(on_disk.writes.len());
        for (key, put) in on_disk.writes {
            // Copied: a slice would keep the whole journal in memory.
            let key = Key::new(Bytes::copy_from_slice(key.0)).map_err(|refusal| refusal.to_string())?;
            let put = put.map(|StoredPut(value, lease)| (Bytes::copy_from_slice(value.0), lease.map(LeaseId)));
            writes.push(Write { key, put });
        }
        Ok(Self { revision: on_disk.revision, writes, lease: on_disk.lease })
    }
}

/// Writes a snapshot.
pub(crate) fn write_snapshot(state: &State, mut to: &mut dyn io::Write) -> io::Result<()> {
    let head = Head {
        format: FORMAT,
        revision: state.revision.0,
        next_lease: state.next_lease,
        leases: state.leases.iter().map(|(id, granted)| (id.0, granted.ttl)).collect(),
        entries: state.entries.len() as u64,
    };
    serde_cbor::to_writer(&mut to, &head).map_err(io::Error::other)?;
    for entry in state.entries.values() {
        let stored = Stored(
            Raw(entry.key.as_bytes()),
            Raw(&entry.value),
            entry.create_revision.0,
            entry.mod_revision.0,
            entry.version,
            entry.lease.map(|lease| lease.0),
        );
        serde_cbor::to_writer(&mut to, &stored).map_err(io::Error::other)?;
    }
    Ok(())
}

fn read_snapshot(payload: &Bytes) -> Result<State, String> {
    let failed = |error: serde_cbor::Error| error.to_string();
    let mut values = serde_cbor::Deserializer::from_slice(payload);
    let head = Head::deserialize(&mut values).map_err(failed)?;
    if head.format > FORMAT {
        return Err(format!("format {}, this program knows {FORMAT}", head.format));
    }
    let leases = head.leases.into_iter().map(|(id, ttl)| (LeaseId(id), Granted::new(ttl)));
    let mut state = State::new(Revision(head.revision), head.next_lease, leases.collect());
    for _ in 0..head.entries {
        let Stored(key, value, create, modified, version, lease) = Stored::deserialize(&mut values).map_err(failed)?;
        state.insert(Entry {
            key: Key::new(Bytes::copy_from_slice(key.0)).map_err(|refusal| refusal.to_string())?,
            value: Bytes::copy_from_slice(value.0),
            create_revision: Revision(create),
            mod_revision: Revision(modified),
            version,
            lease: lease.map(LeaseId),
        });
    }
    values.end().map_err(failed)?;
    Ok(state)
}

/// The state and the history that the records of a journal describe.
///
/// # Errors
/// [`OpenError::Record`].
pub(crate) fn replay(entries: &[Journaled]) -> Result<(State, History), OpenError> {
    let mut state = State::default();
    let mut history = History::after(state.revision);
    for entry in entries {
        let applied = match entry.what {
            What::Snapshot => read_snapshot(&entry.payload).map(|read| {
                history = History::after(read.revision);
                state = read;
            }),
            What::Change => {
                Record::decode(&entry.payload).and_then(|record| state.apply(&record)).map(|past| history.push(past))
            }
        };
        applied.map_err(|what| OpenError::Record { seq: entry.seq, what })?;
    }
    Ok((state, history))
}
