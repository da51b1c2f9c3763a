//! The store in etcd, through its JSON gateway. etcd's own locks are not used: they are not safe without the compares
//! that a [`Txn`] makes anyway.
//!
//! Reads go on to another member if one does not answer. A write whose answer is lost is [`StoreError::Unknown`] and is
//! never sent again here: the caller reads, and sees by its compares whether it has happened.
//!
//! etcd has to compact its history itself (`--auto-compaction-retention`), and its peers have to protect their
//! connections: this client speaks HTTP without TLS, so the members listen on a protected network or on loopback.

mod http;
mod messages;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::entry::{Entry, Key, LeaseId, Prefix, Revision};
use crate::error::{Refusal, StoreError};
use crate::txn::{Op, Query, Range, Txn, TxnAnswer};
use crate::writer::whole_seconds;
use crate::{Lease, Store};

use http::{Failed, Members, NOT_FOUND, OUT_OF_RANGE, RESOURCE_EXHAUSTED, Refused};
use messages::{LeaseReply, RangeAnswer, Streamed, TxnReply};
pub use watch::EtcdWatch;

/// The most entries of one answer of etcd; longer ranges are read in pages at one revision.
const PAGE: usize = 1000;

/// A store in etcd.
#[derive(Debug, Clone)]
pub struct Etcd(Arc<Members>);

impl Etcd {
    /// A store at these members, each as `http://HOST:PORT`. Each member has `timeout` for an answer, before a read
    /// goes on to the next member. Connects with the first call.
    ///
    /// # Errors
    /// [`Refusal::Member`] for another address, or if there is none.
    pub fn new(members: &[String], timeout: Duration) -> Result<Self, Refusal> {
        let authority = |member: &String| {
            let authority = member.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
            let is_whole = |authority: &&str| {
                let port =
                    authority.rsplit_once(':').map(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
                port == Some(true) && !authority.contains(['/', '@', '?', '#', ' '])
            };
            authority.filter(is_whole).map(str::to_owned).ok_or_else(|| Refusal::Member(member.clone()))
        };
        let authorities: Vec<_> = members.iter().map(authority).collect::<Result<_, _>>()?;
        if authorities.is_empty() {
            return Err(Refusal::Member(String::new()));
        }
        Ok(Self(Arc::new(Members::new(authorities, timeout))))
    }

    /// Asks something that does no harm if it is done twice.
    async fn read<T: DeserializeOwned>(&self, path: &str, request: &Value) -> Result<T, Failed> {
        let answer = self.0.post(path, body(request), true).await?;
        understood(&answer).map_err(Failed::NotSent)
    }

    /// Asks for a change.
    async fn write<T: DeserializeOwned>(&self, path: &str, request: &Value) -> Result<T, Failed> {
        let answer = self.0.post(path, body(request), false).await?;
        understood(&answer).map_err(Failed::Lost)
    }

    /// Reads one page of at most this many entries. If its values are too long for one answer, this and later pages are
    /// shorter.
    async fn page(&self, query: &Query, most: &mut usize) -> Result<RangeAnswer, StoreError> {
        loop {
            let limit = query.limit.min(*most);
            let request = messages::range(&Query { limit, ..query.clone() });
            match self.read::<RangeAnswer>("/v3/kv/range", &request).await {
                Err(Failed::TooLong) if limit > 1 => *most = limit.div_ceil(8),
                // The revision is either gone or not there yet.
                Err(Failed::Refused(Refused { code: OUT_OF_RANGE, .. })) => {
                    let asked = query.at.unwrap_or_default();
                    let now = self.read::<RangeAnswer>("/v3/kv/range", &json!({"key": "AA=="})).await;
                    let newest = Revision(now.map_err(not_done)?.header.revision.0);
                    return Err(match asked > newest {
                        true => StoreError::Future { asked, newest },
                        false => StoreError::Compacted { asked, oldest: asked.next() },
                    });
                }
                answer => return answer.map_err(not_done),
            }
        }
    }
}

fn body(request: &Value) -> Bytes {
    request.to_string().into()
}

fn understood<T: DeserializeOwned>(answer: &[u8]) -> Result<T, String> {
    serde_json::from_slice(answer).map_err(|error| format!("the answer of etcd is not understood: {error}"))
}

fn unexpected(what: String) -> StoreError {
    StoreError::Unavailable { because: format!("the answer of etcd is not understood: {what}") }
}

/// The error of a request that changes nothing.
fn not_done(failed: Failed) -> StoreError {
    match failed {
        Failed::NotSent(because) | Failed::Lost(because) => StoreError::Unavailable { because },
        other @ (Failed::Refused(_) | Failed::TooLong) => changed(other),
    }
}

/// The error of a request that changes something.
fn changed(failed: Failed) -> StoreError {
    match failed {
        Failed::NotSent(because) => StoreError::Unavailable { because },
        Failed::Lost(because) => StoreError::Unknown { because },
        Failed::TooLong => StoreError::unknown("the answer of etcd is too long"),
        // Its disk, or its queue of requests.
        Failed::Refused(Refused { code: RESOURCE_EXHAUSTED, message }) => StoreError::Full { because: message },
        Failed::Refused(Refused { message, .. }) => StoreError::Unavailable { because: message },
    }
}

fn is_no_lease(failed: &Failed) -> bool {
    matches!(failed, Failed::Refused(Refused { code: NOT_FOUND, .. }))
}

impl Store for Etcd {
    type Watch = EtcdWatch;

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let answer = self.read::<RangeAnswer>("/v3/kv/range", &messages::get(key)).await.map_err(not_done)?;
        Ok(messages::entries(answer.kvs).map_err(unexpected)?.pop())
    }

    async fn range(&self, query: &Query) -> Result<Range, StoreError> {
        query.check()?;
        let (mut rest, mut entries, mut revision, mut most) = (query.clone(), Vec::new(), None, PAGE);
        loop {
            let page = self.page(&rest, &mut most).await?;
            let newest = *revision.get_or_insert(Revision(page.header.revision.0));
            let read = messages::entries(page.kvs).map_err(unexpected)?;
            rest.limit = rest.limit.saturating_sub(read.len());
            rest.at = rest.at.or(Some(newest));
            let last = read.last().map(|entry| entry.key.clone());
            entries.extend(read);
            match last {
                Some(last) if page.more && rest.limit > 0 => rest.after = Some(last),
                _ => return Ok(Range { revision: newest, entries, more: page.more }),
            }
        }
    }

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, StoreError> {
        txn.check()?;
        let request = messages::txn(&txn);
        let reply: Result<TxnReply, _> = match txn.is_read_only() {
            true => self.read("/v3/kv/txn", &request).await,
            false => self.write("/v3/kv/txn", &request).await,
        };
        let lease = |op: &Op| if let Op::Put { lease, .. } = op { *lease } else { None };
        let reply = match reply {
            Err(failed) if is_no_lease(&failed) => {
                let lease = txn.then.iter().chain(&txn.or_else).find_map(lease);
                return Err(lease.map_or_else(|| changed(failed), StoreError::NoLease));
            }
            Err(failed) if txn.is_read_only() => return Err(not_done(failed)),
            reply => reply.map_err(changed)?,
        };
        let branch = if reply.succeeded { &txn.then } else { &txn.or_else };
        if branch.len() != reply.responses.len() {
            return Err(StoreError::unknown("the answer of etcd has another number of operations"));
        }
        let responses = reply.responses.into_iter().zip(branch).map(|(reply, op)| reply.response(op));
        let responses = responses.collect::<Result<_, _>>().map_err(StoreError::unknown)?;
        Ok(TxnAnswer { succeeded: reply.succeeded, revision: Revision(reply.header.revision.0), responses })
    }

    async fn watch(&self, prefix: &Prefix, from: Revision) -> Result<EtcdWatch, StoreError> {
        if from == Revision(0) {
            return Err(Refusal::Zero.into());
        }
        EtcdWatch::begin(self.0.clone(), prefix.clone(), from).await
    }

    async fn lease(&self, ttl: Duration) -> Result<Lease, StoreError> {
        let ttl = whole_seconds(ttl)?;
        // A lease that is granted twice holds no key, and lapses.
        let request = json!({"TTL": ttl.as_secs().to_string()});
        let reply: LeaseReply = self.read("/v3/lease/grant", &request).await.map_err(not_done)?;
        Ok(Lease { id: LeaseId(reply.id.0), ttl: Duration::from_secs(reply.ttl.0) })
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        let request = json!({"ID": lease.to_string()});
        let reply: Streamed<LeaseReply> = self.read("/v3/lease/keepalive", &request).await.map_err(not_done)?;
        match reply {
            Streamed { result: Some(LeaseReply { ttl, .. }), .. } if ttl.0 > 0 => Ok(Duration::from_secs(ttl.0)),
            Streamed { result: Some(_), .. } => Err(StoreError::NoLease(lease)),
            Streamed { error, .. } => Err(StoreError::unavailable(error.unwrap_or_default().message)),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let revoked: Result<Value, _> = self.write("/v3/lease/revoke", &json!({"ID": lease.to_string()})).await;
        match revoked {
            Ok(_) => Ok(()),
            Err(failed) if is_no_lease(&failed) => Err(StoreError::NoLease(lease)),
            Err(failed) => Err(changed(failed)),
        }
    }
}
