//! The thread that writes an embedded store: it collects the requests that wait, does them on a state of its own, makes
//! them durable with one commit, shows them to the readers, and answers.
//!
//! If a commit fails, its requests have not happened: the writer's state goes back to what the readers see, and the
//! journal to the last commit. Until the journal can do that, later writes are refused; each of them tries again.

use std::time::Duration;

use cob_journal::{FileJournal, Journal as _, JournalError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::embedded::Shared;
use crate::entry::LeaseId;
use crate::error::StoreError;
use crate::history::Past;
use crate::record::{Record, write_snapshot};
use crate::state::State;
use crate::txn::{Txn, TxnAnswer};
use crate::{Lease, Refusal};

/// The most requests in one commit.
const MAX_BATCH: usize = 512;
/// The bytes from which a commit takes no more requests.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// The pause between two attempts to write a new segment, after a disk has failed.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A request for the writer.
pub(crate) enum Request {
    Txn(Txn, Reply<TxnAnswer>),
    Grant(Duration, Reply<Lease>),
    /// Ends a lease.
    End(LeaseId, Reply<()>),
}

/// The answer to a request that is done in memory. It waits for the commit: a refusal may rest on the requests before it.
enum Done {
    Txn(Reply<TxnAnswer>, Result<TxnAnswer, StoreError>),
    Grant(Reply<Lease>, Result<Lease, StoreError>),
    End(Reply<()>, Result<LeaseId, StoreError>),
}

pub(crate) struct Writer {
    pub(crate) journal: FileJournal,
    /// The state with the requests of the current commit.
    pub(crate) ahead: State,
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) shared: std::sync::Arc<Shared>,
    /// The length of a segment from which a new one is begun.
    pub(crate) segment_bytes: u64,
    /// The length of the current segment from which a new one is begun.
    pub(crate) rotate_at: u64,
    /// Set while the journal accepts no records.
    pub(crate) stopped: Option<Stop>,
}

/// Why the journal accepts no records.
pub(crate) struct Stop {
    because: String,
    tried: std::time::Instant,
}

impl Writer {
    /// Runs until all senders of requests are gone.
    pub(crate) fn run(mut self) {
        while let Some(first) = self.requests.blocking_recv() {
            let mut bytes = first.size();
            let mut batch = vec![first];
            while batch.len() < MAX_BATCH
                && bytes < MAX_BATCH_BYTES
                && let Ok(request) = self.requests.try_recv()
            {
                bytes += request.size();
                batch.push(request);
            }
            if let Err(error) = self.usable() {
                batch.into_iter().for_each(|request| request.refuse(error.clone()));
                continue;
            }
            self.write(batch);
            self.rotate_if_long();
        }
    }

    fn write(&mut self, batch: Vec<Request>) {
        let (mut done, mut pasts) = (Vec::with_capacity(batch.len()), Vec::new());
        let mut failed = None;
        for request in batch {
            if failed.is_none() {
                failed = self.take(request, &mut done, &mut pasts).err();
            } else {
                request.refuse(StoreError::unavailable("the write before it failed"));
            }
        }
        let committed = match failed {
            None => self.journal.commit().map_err(|error| error.to_string()),
            Some(because) => Err(because),
        };
        match committed {
            Ok(()) => {
                self.publish(pasts);
                done.into_iter().for_each(|done| self.answer(done));
            }
            Err(because) => {
                warn!(because, "the store can't write");
                self.ahead = self.shared.state();
                let error = match self.resume(&because) {
                    Ok(()) => StoreError::Unavailable { because },
                    Err(_) => StoreError::Unknown { because },
                };
                done.into_iter().for_each(|done| done.refuse(error.clone()));
            }
        }
    }

    /// Does a request on the writer's state, and appends its record. Returns why the journal does not take it.
    fn take(&mut self, request: Request, done: &mut Vec<Done>, pasts: &mut Vec<Change>) -> Result<(), String> {
        let change = match request {
            Request::Txn(txn, reply) => {
                let (answer, change) = self.ahead.txn(&txn).map_or_else(|e| (Err(e), None), |(a, c)| (Ok(a), c));
                done.push(Done::Txn(reply, answer));
                change.map(|(record, past)| (record, Some(past)))
            }
            Request::Grant(ttl, reply) => {
                let (id, record) =
                    self.ahead.grant(ttl.as_secs()).map_or_else(|e| (Err(e), None), |(i, r)| (Ok(i), Some(r)));
                done.push(Done::Grant(reply, id.map(|id| Lease { id, ttl })));
                record.map(|record| (record, None))
            }
            Request::End(lease, reply) => {
                let (ended, change) = self.ahead.end(lease).map_or_else(|e| (Err(e), None), |c| (Ok(lease), Some(c)));
                done.push(Done::End(reply, ended));
                change.map(|(record, past)| (record, Some(past)))
            }
        };
        if let Some((record, past)) = change {
            let payload = record.encode().map_err(|error| error.to_string())?;
            self.journal.append(&payload).map_err(|error| error.to_string())?;
            pasts.push(Change { record, past });
        }
        Ok(())
    }

    /// Shows durable changes to readers and watches.
    fn publish(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let revision = self.ahead.revision;
        self.shared.change(|published| {
            for Change { record, past } in changes {
                match published.state.apply(&record) {
                    Ok(again) => published.history.push(past.unwrap_or(again)),
                    Err(what) => unreachable!("both states had the same content: {what}"),
                }
            }
        });
        self.shared.newest.send_replace(revision);
    }

    fn answer(&self, done: Done) {
        // A caller that no longer waits needs no answer.
        match done {
            Done::Txn(reply, answer) => drop(reply.send(answer)),
            Done::Grant(reply, lease) => {
                if let Ok(lease) = &lease {
                    self.shared.begin_lease(*lease, Instant::now());
                }
                drop(reply.send(lease));
            }
            Done::End(reply, ended) => {
                if let Ok(lease) = &ended {
                    self.shared.deadlines().remove(lease);
                }
                drop(reply.send(ended.map(drop)));
            }
        }
    }

    /// Whether the journal accepts records, if need be after another attempt.
    fn usable(&mut self) -> Result<(), StoreError> {
        let Some(stop) = &self.stopped else { return Ok(()) };
        let because = stop.because.clone();
        if stop.tried.elapsed() < PAUSE {
            return Err(StoreError::Unavailable { because });
        }
        self.resume(&because).map_err(StoreError::unavailable)
    }

    /// Brings the journal back to the last commit.
    fn resume(&mut self, because: &str) -> Result<(), JournalError> {
        let state = &self.ahead;
        let resumed = self.journal.resume(&mut |to| write_snapshot(state, to));
        let again = self.stopped.is_some();
        self.stopped = resumed.is_err().then(|| Stop { because: because.to_owned(), tried: std::time::Instant::now() });
        if again && resumed.is_ok() {
            info!("the store can write again");
        }
        resumed
    }

    fn rotate_if_long(&mut self) {
        if self.stopped.is_some() || self.journal.segment_bytes() < self.rotate_at {
            return;
        }
        let state = &self.ahead;
        if let Err(error) = self.journal.rotate_with(&mut |to| write_snapshot(state, to)) {
            let because = error.to_string();
            warn!(because, "the store's journal could not be rewritten");
            // The journal is usable as before, or needs to resume: this decides.
            if self.resume(&because).is_err() {
                return;
            }
        }
        // A segment with a long snapshot may grow by as much; a failed attempt is repeated later.
        self.rotate_at = self.journal.segment_bytes() + self.segment_bytes.max(self.ahead.bytes());
    }
}

/// A change in the journal.
struct Change {
    record: Record,
    past: Option<Past>,
}

impl Request {
    fn size(&self) -> usize {
        match self {
            Request::Txn(txn, _) => txn.size(),
            Request::Grant(..) | Request::End(..) => 0,
        }
    }

    pub(crate) fn refuse(self, error: StoreError) {
        match self {
            Request::Txn(_, reply) => drop(reply.send(Err(error))),
            Request::Grant(_, reply) => drop(reply.send(Err(error))),
            Request::End(_, reply) => drop(reply.send(Err(error))),
        }
    }
}

impl Done {
    fn refuse(self, error: StoreError) {
        match self {
            Done::Txn(reply, _) => drop(reply.send(Err(error))),
            Done::Grant(reply, _) => drop(reply.send(Err(error))),
            Done::End(reply, _) => drop(reply.send(Err(error))),
        }
    }
}

/// The time of a lease in whole seconds.
pub(crate) fn whole_seconds(ttl: Duration) -> Result<Duration, Refusal> {
    let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    let whole = Duration::from_secs(seconds);
    if seconds == 0 || whole > crate::bounds::MAX_TTL { Err(Refusal::Ttl(ttl)) } else { Ok(whole) }
}
