//! A store in one process: the journal in a folder is the truth, a map in memory answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use cob_journal::{FileJournal, Keep};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::entry::{Change, Entry, Key, LeaseId, Prefix, Revision};
use crate::error::{OpenError, Refusal, StoreError};
use crate::history::History;
use crate::record::replay;
use crate::state::{State, page, under};
use crate::txn::{Query, Range, Txn, TxnAnswer};
use crate::writer::{Request, Writer, whole_seconds};
use crate::{Lease, Store, Watch};

/// The most requests that wait for the writer; further callers wait for room.
const QUEUE: usize = 1024;
/// The pause before the end of a lease is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The longest sleep of the task that ends leases.
const LONG: Duration = Duration::from_secs(3600);

/// How an embedded store is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The journal is rewritten when it has grown by this many bytes, or by the size of the content if that is more.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20 }
    }
}

/// A store that one process keeps in a folder.
///
/// Writes go to a thread that makes them durable together; reads are answered from memory. The store closes when the
/// last clone is dropped, after the writes that wait.
///
/// If the disk fails, the write fails and the store keeps its content. Later writes are refused until the disk takes
/// them again. After a new start each lease has its whole time again.
#[derive(Debug, Clone)]
pub struct Embedded(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    /// Absent while the store closes.
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
    lapses: AbortHandle,
}

/// What the writer shows to readers.
#[derive(Debug)]
pub(crate) struct Shared {
    published: RwLock<Published>,
    pub(crate) newest: watch::Sender<Revision>,
    deadlines: Mutex<BTreeMap<LeaseId, Deadline>>,
    /// A lease has begun, which may be the first to lapse.
    begun: Notify,
}

#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) state: State,
    pub(crate) history: History,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    ttl: Duration,
}

impl Embedded {
    /// Opens the store in a folder, or starts it. Reads the whole journal; call it within a tokio runtime with time.
    ///
    /// # Errors
    /// [`OpenError::Journal`] if another process has the folder, or a durable record is damaged. A torn end, which
    /// holds no answered write, is cut off.
    pub fn open(folder: &Path, options: Options) -> Result<Self, OpenError> {
        let runtime = Handle::try_current().map_err(|error| OpenError::Thread(error.to_string()))?;
        let opened = FileJournal::open(folder, Keep { segments: 0, bytes: 0 })?;
        if let Some(torn) = &opened.torn {
            info!(file = %torn.file.display(), offset = torn.offset, bytes = torn.bytes, "unanswered writes are dropped");
        }
        let (state, history) = replay(&opened.entries)?;
        drop(opened.entries);
        let shared = Arc::new(Shared {
            newest: watch::Sender::new(state.revision),
            deadlines: Mutex::default(),
            begun: Notify::new(),
            published: RwLock::new(Published { state: state.clone(), history }),
        });
        for (id, granted) in &state.leases {
            shared.begin_lease(Lease { id: *id, ttl: Duration::from_secs(granted.ttl) }, Instant::now());
        }
        let (sender, requests) = mpsc::channel(QUEUE);
        let lapses = runtime.spawn(end_lapsed(shared.clone(), sender.downgrade())).abort_handle();
        let writer = Writer {
            rotate_at: options.segment_bytes.max(state.bytes()),
            journal: opened.journal,
            ahead: state,
            requests,
            shared: shared.clone(),
            segment_bytes: options.segment_bytes,
            stopped: None,
        };
        let run = move || {
            // The clock of leases is that of the runtime.
            let _runtime = runtime.enter();
            writer.run();
        };
        let writer = std::thread::Builder::new().name("hub-store".to_owned()).spawn(run);
        let writer = writer.map_err(|error| OpenError::Thread(error.to_string()))?;
        Ok(Self(Arc::new(Inner { shared, requests: Some(sender), writer: Some(writer), lapses })))
    }

    /// The newest revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        *self.0.shared.newest.borrow()
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let closed = || StoreError::unavailable("the store is closed");
        let requests = self.0.requests.as_ref().ok_or_else(closed)?;
        requests.send(request(reply)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| StoreError::unknown("the store's thread has ended"))?
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.lapses.abort();
        self.requests = None;
        // The folder is free when the last clone is dropped. A writer that has panicked has ended too.
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Shared {
    /// Reads what is durable. No code panics while it holds the lock.
    fn read<T>(&self, read: impl FnOnce(&Published) -> T) -> T {
        read(&self.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Published)) {
        change(&mut self.published.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// A copy of the durable state.
    pub(crate) fn state(&self) -> State {
        self.read(|published| published.state.clone())
    }

    pub(crate) fn deadlines(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Deadline>> {
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the time of a lease.
    pub(crate) fn begin_lease(&self, lease: Lease, now: Instant) {
        self.deadlines().insert(lease.id, Deadline { at: now + lease.ttl, ttl: lease.ttl });
        self.begun.notify_one();
    }

    /// Takes out the leases whose time is over; otherwise returns the next deadline.
    fn lapsed(&self, now: Instant) -> Result<Vec<(LeaseId, Deadline)>, Instant> {
        let mut deadlines = self.deadlines();
        let lapsed: Vec<_> = deadlines.iter().filter(|(_, d)| d.at <= now).map(|(id, d)| (*id, *d)).collect();
        if lapsed.is_empty() {
            return Err(deadlines.values().map(|deadline| deadline.at).min().unwrap_or(now + LONG));
        }
        for (id, _) in &lapsed {
            deadlines.remove(id);
        }
        Ok(lapsed)
    }
}

/// Ends each lease whose time is over. From the moment that it is taken out, nobody can keep it alive.
async fn end_lapsed(shared: Arc<Shared>, requests: mpsc::WeakSender<Request>) {
    loop {
        let lapsed = match shared.lapsed(Instant::now()) {
            Ok(lapsed) => lapsed,
            Err(next) => {
                tokio::select! {
                    () = tokio::time::sleep_until(next) => {}
                    () = shared.begun.notified() => {}
                }
                continue;
            }
        };
        for (id, deadline) in lapsed {
            let (reply, answer) = oneshot::channel();
            let sent = match requests.upgrade() {
                // The strong sender must not live on while this task waits: it would keep the store open.
                Some(requests) => requests.try_send(Request::End(id, reply)).is_ok(),
                None => return,
            };
            let ended = match sent {
                true => answer.await.unwrap_or_else(|_| Err(StoreError::unavailable("the store is closed"))),
                false => Err(StoreError::unavailable("too many requests wait")),
            };
            match ended {
                Ok(()) | Err(StoreError::NoLease(_)) => {}
                Err(error) => {
                    warn!(%id, %error, "a lease that has lapsed could not be ended yet");
                    let again = Deadline { at: Instant::now() + RETRY, ..deadline };
                    shared.deadlines().insert(id, again);
                }
            }
        }
    }
}

impl Store for Embedded {
    type Watch = EmbeddedWatch;

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        Ok(self.0.shared.read(|published| published.state.entries.get(key).cloned()))
    }

    async fn range(&self, query: &Query) -> Result<Range, StoreError> {
        query.check()?;
        self.0.shared.read(|Published { state, history }| {
            let newest = state.revision;
            let (entries, more) = match query.at {
                Some(asked) if asked > newest => return Err(StoreError::Future { asked, newest }),
                Some(at) if at < newest => history.read(state, query, at)?,
                Some(_) | None => page(state.under(&query.prefix, query.after.as_ref()), query.limit),
            };
            Ok(Range { revision: newest, entries, more })
        })
    }

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, StoreError> {
        txn.check()?;
        self.ask(|reply| Request::Txn(txn, reply)).await
    }

    async fn watch(&self, prefix: &Prefix, from: Revision) -> Result<EmbeddedWatch, StoreError> {
        if from == Revision(0) {
            return Err(Refusal::Zero.into());
        }
        let shared = &self.0.shared;
        shared.read(|published| published.history.since(from).map(drop))?;
        Ok(EmbeddedWatch {
            newest: shared.newest.subscribe(),
            shared: Arc::downgrade(shared),
            prefix: prefix.clone(),
            from,
        })
    }

    async fn lease(&self, ttl: Duration) -> Result<Lease, StoreError> {
        let ttl = whole_seconds(ttl)?;
        self.ask(|reply| Request::Grant(ttl, reply)).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        let mut deadlines = self.0.shared.deadlines();
        let deadline = deadlines.get_mut(&lease).ok_or(StoreError::NoLease(lease))?;
        deadline.at = Instant::now() + deadline.ttl;
        Ok(deadline.ttl)
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.ask(|reply| Request::End(lease, reply)).await
    }
}

/// A watch of an embedded store. It reads the store's own list of changes, so it costs no memory while it waits.
#[derive(Debug)]
pub struct EmbeddedWatch {
    shared: std::sync::Weak<Shared>,
    newest: watch::Receiver<Revision>,
    prefix: Prefix,
    /// The next revision.
    from: Revision,
}

impl EmbeddedWatch {
    /// The next change that is there already.
    fn ready(&mut self) -> Result<Option<Change>, StoreError> {
        let newest = *self.newest.borrow_and_update();
        let shared = self.shared.upgrade().ok_or_else(|| StoreError::unavailable("the store is closed"))?;
        if newest < self.from {
            return Ok(None);
        }
        let found = shared.read(|published| {
            let mut changes = published.history.since(self.from)?;
            Ok::<_, StoreError>(changes.find_map(|change| under(change, &self.prefix)))
        })?;
        self.from = found.as_ref().map_or(newest, |change| change.revision).next();
        Ok(found)
    }
}

impl Watch for EmbeddedWatch {
    async fn next(&mut self) -> Result<Change, StoreError> {
        loop {
            if let Some(change) = self.ready()? {
                return Ok(change);
            }
            self.newest.changed().await.map_err(|_| StoreError::unavailable("the store is closed"))?;
        }
    }
}
