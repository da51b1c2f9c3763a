//! The durable state of the hub: one key for each cluster, job, rule and credential.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cob_hub_api::Name;
use cob_hub_store::bounds::{MAX_OPS, MAX_TXN, MAX_VALUE};
use cob_hub_store::{
    Change, Compare, Embedded, Etcd, Event, Key, Op, Options, Prefix, Query, Range, Revision, Store, StoreError, Txn,
    TxnAnswer,
};
use cob_jobs::{Drain, Job, JobId, Limits, Queue, Rule, State as QueueState};
use cob_permissions::{Directory, UserId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::HubError;
use super::records::{ClusterKey, ClusterRecord, Clusters, Credential, HubLock, Password, Payload};
use super::user_text;
use crate::circle::Circle;

const CLUSTERS: &str = "clusters/";
const JOBS: &str = "jobs/";
const CREDENTIALS: &str = "credentials/";
const PASSWORDS: &str = "passwords/";
const DIRECTORY: &str = "directory";
const QUEUE: &str = "queue";
const RULES: &str = "rules/";

/// What belongs to the queue beside its jobs and rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct QueueHead {
    next: JobId,
    #[serde(default)]
    drain: Option<Drain>,
}

/// All that the hub keeps.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) clusters: Clusters,
    pub(crate) queue: Queue<Payload, HubLock>,
    pub(crate) directory: Directory,
    /// By the hash of the token, in hexadecimal.
    pub(crate) credentials: BTreeMap<String, Credential>,
    /// By the user as `TENANT/USER` or `USER`.
    pub(crate) passwords: BTreeMap<String, Password>,
}

/// Changes that have to be durable together: keys with their new values, or with none.
#[derive(Debug, Default)]
pub(crate) struct Changes(BTreeMap<String, Option<Vec<u8>>>);

/// A set of changes that the store takes at once.
type Part = Vec<(String, Option<Vec<u8>>)>;

/// The most operations of a part.
const MOST_OPS: usize = MAX_OPS - 8;
/// The most bytes of a part, besides its last value.
const MOST_BYTES: usize = MAX_TXN - MAX_VALUE - MOST_OPS * 128;

/// The store with the hub's keys.
#[derive(Debug, Clone)]
pub(crate) struct Book {
    shelf: Shelf,
    /// What keys begin with.
    prefix: String,
    /// The values as the store had them last, in a circle of hubs: what they say is true also when the store is gone.
    known: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// The condition of each write, in a circle of hubs; absent: this hub does not lead.
    fence: Arc<Mutex<Option<Compare>>>,
}

#[derive(Debug, Clone)]
enum Shelf {
    Embedded(Embedded),
    Etcd(Etcd),
}

impl Shelf {
    async fn range(&self, query: &Query) -> Result<Range, StoreError> {
        match self {
            Self::Embedded(store) => store.range(query).await,
            Self::Etcd(store) => store.range(query).await,
        }
    }

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, StoreError> {
        match self {
            Self::Embedded(store) => store.txn(txn).await,
            Self::Etcd(store) => store.txn(txn).await,
        }
    }
}

/// The value of a mutex: a thread that panicked leaves a whole value.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: impl std::fmt::Display) -> HubError {
    HubError::Store(error.to_string())
}

fn cluster_key((tenant, name): &ClusterKey) -> String {
    format!("{CLUSTERS}{tenant}/{name}")
}

/// Numbers with leading zeros: the order of keys is the order of jobs.
fn job_key(id: JobId) -> String {
    format!("{JOBS}{:020}", id.0)
}

/// A value of the store. A value that is too long is refused before anything has changed.
fn value(value: &impl Serialize) -> Result<Vec<u8>, HubError> {
    let text = serde_json::to_vec(value).map_err(failed)?;
    if text.len() > MAX_VALUE {
        return Err(HubError::Bad(format!("this would be {} bytes; the hub keeps at most {MAX_VALUE}", text.len())));
    }
    Ok(text)
}

impl Changes {
    /// A cluster, or its end.
    pub(crate) fn cluster(&mut self, id: &ClusterKey, record: Option<&ClusterRecord>) -> Result<(), HubError> {
        self.0.insert(cluster_key(id), record.map(value).transpose()?);
        Ok(())
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts that the store takes at once, what belongs to jobs last.
    fn parts(self) -> Vec<Part> {
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_by_key(|(key, _)| key.starts_with(JOBS));
        let mut parts = Vec::new();
        let (mut part, mut bytes) = (Part::new(), 0);
        for (key, value) in all {
            if part.len() == MOST_OPS || bytes > MOST_BYTES {
                parts.push(std::mem::take(&mut part));
                bytes = 0;
            }
            bytes += value.as_ref().map_or(0, Vec::len);
            part.push((key, value));
        }
        parts.push(part);
        parts
    }

    /// The numbers and the drain of the queue.
    pub(crate) fn head(&mut self, queue: &Queue<Payload, HubLock>) -> Result<(), HubError> {
        let head = QueueHead { next: queue.next_id(), drain: queue.drained().cloned() };
        self.0.insert(QUEUE.to_owned(), Some(value(&head)?));
        Ok(())
    }

    /// A rule, or its end.
    pub(crate) fn rule(&mut self, id: &str, rule: Option<&Rule>) -> Result<(), HubError> {
        self.0.insert(format!("{RULES}{id}"), rule.map(value).transpose()?);
        Ok(())
    }

    /// The jobs that have changed since the last call, and the numbers of the queue.
    pub(crate) fn queue(&mut self, queue: &mut Queue<Payload, HubLock>) -> Result<(), HubError> {
        let changed = queue.take_changed();
        if changed.is_empty() {
            return Ok(());
        }
        for id in changed {
            self.0.insert(job_key(id), queue.job(id).map(value).transpose()?);
        }
        self.head(queue)
    }

    /// The directory.
    pub(crate) fn directory(&mut self, directory: &Directory) -> Result<(), HubError> {
        self.0.insert(DIRECTORY.to_owned(), Some(value(directory)?));
        Ok(())
    }

    /// A credential, or its end.
    pub(crate) fn credential(&mut self, hash: &str, credential: Option<&Credential>) -> Result<(), HubError> {
        self.0.insert(format!("{CREDENTIALS}{hash}"), credential.map(value).transpose()?);
        Ok(())
    }

    /// The password of a user, or its end.
    pub(crate) fn password(&mut self, user: &UserId, password: Option<&Password>) -> Result<(), HubError> {
        self.0.insert(format!("{PASSWORDS}{}", user_text(user)), password.map(value).transpose()?);
        Ok(())
    }
}

impl Book {
    /// Opens the store of a single hub.
    pub(crate) fn open(folder: &Path) -> Result<Self, HubError> {
        let store = Embedded::open(folder, Options::default()).map_err(failed)?;
        Ok(Self::on(Shelf::Embedded(store), String::new()))
    }

    /// The store of a circle of hubs.
    pub(crate) fn shared(circle: &Circle) -> Result<Self, HubError> {
        let store = circle.store().map_err(failed)?;
        Ok(Self::on(Shelf::Etcd(store), format!("{}book/", circle.prefix)))
    }

    fn on(shelf: Shelf, prefix: String) -> Self {
        Self { shelf, prefix, known: Arc::default(), fence: Arc::default() }
    }

    /// Permits writes under a condition, or forbids writes.
    pub(crate) fn set_fence(&self, fence: Option<Compare>) {
        *locked(&self.fence) = fence;
    }

    /// Makes changes durable: all or none, if the store takes them at once. Of a larger set, a crash may leave a first
    /// part: then the other jobs are as before, and what changed them happens again.
    pub(crate) async fn write(&self, changes: Changes) -> Result<(), HubError> {
        let fence = locked(&self.fence).clone();
        let is_shared = matches!(self.shelf, Shelf::Etcd(_));
        if is_shared && fence.is_none() {
            return Err(HubError::Store("this hub does not lead, and writes nothing".to_owned()));
        }
        for part in changes.parts() {
            let mut txn = Txn { compares: fence.clone().into_iter().collect(), ..Txn::default() };
            for (name, value) in &part {
                let key = Key::new(format!("{}{name}", self.prefix)).map_err(failed)?;
                txn = txn.then(match value {
                    Some(value) => Op::put(key, value.clone()),
                    None => Op::Delete(key),
                });
            }
            if !self.shelf.txn(txn).await.map_err(failed)?.succeeded {
                return Err(HubError::Store("another hub leads: this hub writes nothing".to_owned()));
            }
            if is_shared {
                let mut known = locked(&self.known);
                for (name, value) in part {
                    match value {
                        Some(value) => known.insert(name, value),
                        None => known.remove(&name),
                    };
                }
            }
        }
        Ok(())
    }

    /// Reads all.
    pub(crate) async fn load(&self, limits: impl FnOnce(&Directory) -> Limits) -> Result<State, HubError> {
        let (_, values) = self.read().await?;
        parse(&values, limits)
    }

    /// Reads all, and keeps it. Returns the revision.
    pub(crate) async fn refresh(&self) -> Result<Revision, HubError> {
        let (revision, values) = self.read().await?;
        *locked(&self.known) = values;
        Ok(revision)
    }

    /// The state as the store had it last.
    pub(crate) fn last(&self, limits: impl FnOnce(&Directory) -> Limits) -> Result<State, HubError> {
        parse(&locked(&self.known), limits)
    }

    /// Follows a change of the store. Returns whether it concerns the book.
    pub(crate) fn follow(&self, change: &Change) -> bool {
        let mut known = locked(&self.known);
        let mut concerns = false;
        for event in &change.events {
            let text = String::from_utf8_lossy(event.key().as_bytes()).into_owned();
            let Some(name) = text.strip_prefix(&self.prefix) else { continue };
            concerns = true;
            match event {
                Event::Put(entry) => known.insert(name.to_owned(), entry.value.to_vec()),
                Event::Deleted(_) => known.remove(name),
            };
        }
        concerns
    }

    async fn read(&self) -> Result<(Revision, BTreeMap<String, Vec<u8>>), HubError> {
        let mut values = BTreeMap::new();
        let mut query = Query::all(Prefix::new(self.prefix.clone()).map_err(failed)?);
        loop {
            let range = self.shelf.range(&query).await.map_err(failed)?;
            for entry in &range.entries {
                let name = String::from_utf8_lossy(entry.key.as_bytes()).into_owned();
                let name = name.strip_prefix(&self.prefix).map(str::to_owned).unwrap_or(name);
                values.insert(name, entry.value.to_vec());
            }
            if !range.more {
                return Ok((query.at.unwrap_or(range.revision), values));
            }
            query.after = range.entries.last().map(|entry| entry.key.clone());
            query.at = query.at.or(Some(range.revision));
        }
    }
}

type Values = BTreeMap<String, Vec<u8>>;

/// The state that the values say.
fn parse(all: &Values, limits: impl FnOnce(&Directory) -> Limits) -> Result<State, HubError> {
    let jobs: Vec<Job<Payload, HubLock>> = values(all, JOBS)?.into_values().collect();
    let rules = values(all, RULES)?.into_values().collect();
    let head = one::<QueueHead>(all, QUEUE)?.unwrap_or(QueueHead { next: JobId(1), drain: None });
    let queue = QueueState { next: head.next, drain: head.drain, rules, jobs };
    let mut clusters = Clusters::new();
    for (id, record) in values::<ClusterRecord>(all, CLUSTERS)? {
        let key = (record.tenant.clone(), record.name.clone());
        if id != format!("{}/{}", key.0, key.1) {
            return Err(failed(format!("the cluster {}/{} stands under the key {id}", key.0, key.1)));
        }
        clusters.insert(key, record);
    }
    let directory = one(all, DIRECTORY)?.unwrap_or_default();
    Ok(State {
        clusters,
        queue: Queue::load(queue, limits(&directory)).map_err(failed)?,
        directory,
        credentials: values(all, CREDENTIALS)?,
        passwords: values(all, PASSWORDS)?,
    })
}

fn one<T: DeserializeOwned>(all: &Values, name: &str) -> Result<Option<T>, HubError> {
    let value = all.get(name).map(|value| serde_json::from_slice(value));
    value.transpose().map_err(|e| failed(format!("{name}: {e}")))
}

/// The values under a prefix, by the rest of their keys.
fn values<T: DeserializeOwned>(all: &Values, prefix: &str) -> Result<BTreeMap<String, T>, HubError> {
    let under = all.range(prefix.to_owned()..).take_while(|(name, _)| name.starts_with(prefix));
    let one = |(name, value): (&String, &Vec<u8>)| -> Result<(String, T), HubError> {
        let value = serde_json::from_slice(value).map_err(|e| failed(format!("{name}: {e}")))?;
        Ok((name[prefix.len()..].to_owned(), value))
    };
    under.map(one).collect()
}

/// The key of a cluster in the queue: jobs of one cluster run one after the other.
pub(crate) fn queue_name(tenant: &Name, cluster: &Name) -> String {
    format!("{tenant}/{cluster}")
}
