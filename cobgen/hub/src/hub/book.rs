//! The durable state of the hub: one key for each cluster, job, rule and credential.

use std::collections::BTreeMap;
use std::path::Path;

use cob_hub_api::Name;
use cob_hub_store::bounds::{MAX_OPS, MAX_TXN, MAX_VALUE};
use cob_hub_store::{Embedded, Key, Op, Options, Prefix, Query, Store, Txn};
use cob_jobs::{Drain, Job, JobId, Limits, Queue, Rule, State as QueueState};
use cob_permissions::{Directory, UserId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::HubError;
use super::records::{ClusterKey, ClusterRecord, Clusters, Credential, HubLock, Password, Payload};
use super::user_text;

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
pub(crate) struct Changes(BTreeMap<Key, Option<Vec<u8>>>);

/// The most operations of a part.
const MOST_OPS: usize = MAX_OPS - 8;
/// The most bytes of a part, besides its last value.
const MOST_BYTES: usize = MAX_TXN - MAX_VALUE - MOST_OPS * 128;

/// The store with the hub's keys.
#[derive(Debug, Clone)]
pub(crate) struct Book(Embedded);

fn failed(error: impl std::fmt::Display) -> HubError {
    HubError::Store(error.to_string())
}

fn key(text: String) -> Result<Key, HubError> {
    Key::new(text).map_err(failed)
}

fn cluster_key((tenant, name): &ClusterKey) -> Result<Key, HubError> {
    key(format!("{CLUSTERS}{tenant}/{name}"))
}

/// Numbers with leading zeros: the order of keys is the order of jobs.
fn job_key(id: JobId) -> Result<Key, HubError> {
    key(format!("{JOBS}{:020}", id.0))
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
        let key = cluster_key(id)?;
        self.0.insert(key, record.map(value).transpose()?);
        Ok(())
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts that the store takes at once, what belongs to jobs last.
    fn parts(self) -> Vec<Txn> {
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_by_key(|(key, _)| key.as_bytes().starts_with(JOBS.as_bytes()));
        let mut parts = Vec::new();
        let (mut part, mut ops, mut bytes) = (Txn::new(), 0, 0);
        for (key, value) in all {
            if ops == MOST_OPS || bytes > MOST_BYTES {
                parts.push(std::mem::replace(&mut part, Txn::new()));
                (ops, bytes) = (0, 0);
            }
            (ops, bytes) = (ops + 1, bytes + value.as_ref().map_or(0, Vec::len));
            part = part.then(match value {
                Some(value) => Op::put(key, value),
                None => Op::Delete(key),
            });
        }
        parts.push(part);
        parts
    }

    /// The numbers and the drain of the queue.
    pub(crate) fn head(&mut self, queue: &Queue<Payload, HubLock>) -> Result<(), HubError> {
        let head = QueueHead { next: queue.next_id(), drain: queue.drained().cloned() };
        self.0.insert(key(QUEUE.to_owned())?, Some(value(&head)?));
        Ok(())
    }

    /// A rule, or its end.
    pub(crate) fn rule(&mut self, id: &str, rule: Option<&Rule>) -> Result<(), HubError> {
        let key = key(format!("{RULES}{id}"))?;
        self.0.insert(key, rule.map(value).transpose()?);
        Ok(())
    }

    /// The jobs that have changed since the last call, and the numbers of the queue.
    pub(crate) fn queue(&mut self, queue: &mut Queue<Payload, HubLock>) -> Result<(), HubError> {
        let changed = queue.take_changed();
        if changed.is_empty() {
            return Ok(());
        }
        for id in changed {
            self.0.insert(job_key(id)?, queue.job(id).map(value).transpose()?);
        }
        self.head(queue)
    }

    /// The directory.
    pub(crate) fn directory(&mut self, directory: &Directory) -> Result<(), HubError> {
        self.0.insert(key(DIRECTORY.to_owned())?, Some(value(directory)?));
        Ok(())
    }

    /// A credential, or its end.
    pub(crate) fn credential(&mut self, hash: &str, credential: Option<&Credential>) -> Result<(), HubError> {
        let key = key(format!("{CREDENTIALS}{hash}"))?;
        self.0.insert(key, credential.map(value).transpose()?);
        Ok(())
    }

    /// The password of a user, or its end.
    pub(crate) fn password(&mut self, user: &UserId, password: Option<&Password>) -> Result<(), HubError> {
        let key = key(format!("{PASSWORDS}{}", user_text(user)))?;
        self.0.insert(key, password.map(value).transpose()?);
        Ok(())
    }
}

impl Book {
    /// Opens the store of a hub.
    pub(crate) fn open(folder: &Path) -> Result<Self, HubError> {
        Embedded::open(folder, Options::default()).map(Self).map_err(failed)
    }

    /// Makes changes durable: all or none, if the store takes them at once. Of a larger set, a crash may leave a first
    /// part: then the other jobs are as before, and what changed them happens again.
    pub(crate) async fn write(&self, changes: Changes) -> Result<(), HubError> {
        for part in changes.parts() {
            self.0.txn(part).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Reads all.
    pub(crate) async fn load(&self, limits: impl FnOnce(&Directory) -> Limits) -> Result<State, HubError> {
        let jobs: Vec<Job<Payload, HubLock>> = self.values(JOBS).await?.into_values().collect();
        let rules = self.values(RULES).await?.into_values().collect();
        let head = self.one::<QueueHead>(QUEUE).await?.unwrap_or(QueueHead { next: JobId(1), drain: None });
        let queue = QueueState { next: head.next, drain: head.drain, rules, jobs };
        let mut clusters = Clusters::new();
        for (id, record) in self.values::<ClusterRecord>(CLUSTERS).await? {
            let key = (record.tenant.clone(), record.name.clone());
            if id != format!("{}/{}", key.0, key.1) {
                return Err(failed(format!("the cluster {}/{} stands under the key {id}", key.0, key.1)));
            }
            clusters.insert(key, record);
        }
        let directory = self.one(DIRECTORY).await?.unwrap_or_default();
        Ok(State {
            clusters,
            queue: Queue::load(queue, limits(&directory)).map_err(failed)?,
            directory,
            credentials: self.values(CREDENTIALS).await?,
            passwords: self.values(PASSWORDS).await?,
        })
    }

    async fn one<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, HubError> {
        let entry = self.0.get(&key(name.to_owned())?).await.map_err(failed)?;
        entry.map(|entry| serde_json::from_slice(&entry.value)).transpose().map_err(|e| failed(format!("{name}: {e}")))
    }

    /// The values under a prefix, by the rest of their keys.
    async fn values<T: DeserializeOwned>(&self, prefix: &str) -> Result<BTreeMap<String, T>, HubError> {
        let mut values = BTreeMap::new();
        let mut query = Query::all(Prefix::new(prefix.to_owned()).map_err(failed)?);
        loop {
            let range = self.0.range(&query).await.map_err(failed)?;
            for entry in &range.entries {
                let name = String::from_utf8_lossy(entry.key.as_bytes()).into_owned();
                let value = serde_json::from_slice(&entry.value).map_err(|e| failed(format!("{name}: {e}")))?;
                values.insert(name.strip_prefix(prefix).unwrap_or(&name).to_owned(), value);
            }
            if !range.more {
                return Ok(values);
            }
            query.after = range.entries.last().map(|entry| entry.key.clone());
            query.at = Some(range.revision);
        }
    }
}

/// The key of a cluster in the queue: jobs of one cluster run one after the other.
pub(crate) fn queue_name(tenant: &Name, cluster: &Name) -> String {
    format!("{tenant}/{cluster}")
}
