//! The messages of etcd's JSON gateway. Bytes are base64, numbers of 64 bits are texts, and zeros are left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::entry::{Entry, Event, Key, LeaseId, Prefix, Revision};
use crate::txn::{Compare, Op, Query, Relation, Response, Test, Txn};

/// Bytes, or a number, that a message may leave out.
#[derive(Debug, Default, Clone)]
pub(super) struct Raw(pub(super) Bytes);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    pub(super) revision: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    key: Raw,
    value: Raw,
    create_revision: Number,
    pub(super) mod_revision: Number,
    version: Number,
    lease: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RangeAnswer {
    pub(super) header: Header,
    pub(super) kvs: Vec<KeyValue>,
    pub(super) more: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TxnReply {
    pub(super) header: Header,
    pub(super) succeeded: bool,
    pub(super) responses: Vec<OpReply>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OpReply {
    response_range: Option<RangeAnswer>,
    response_delete_range: Option<DeleteReply>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DeleteReply {
    deleted: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseReply {
    #[serde(rename = "ID")]
    pub(super) id: Number,
    #[serde(rename = "TTL")]
    pub(super) ttl: Number,
}

/// A message of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct Streamed<T> {
    pub(super) result: Option<T>,
    pub(super) error: Option<super::http::Refused>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchReply {
    pub(super) canceled: bool,
    pub(super) cancel_reason: String,
    pub(super) compact_revision: Number,
    /// Whether the rest of these events follows.
    pub(super) fragment: bool,
    pub(super) events: Vec<WatchEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchEvent {
    r#type: String,
    pub(super) kv: KeyValue,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(|bytes| Self(bytes.into())).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl KeyValue {
    pub(super) fn entry(self) -> Result<Entry, String> {
        Ok(Entry {
            key: Key::new(self.key.0).map_err(|refusal| refusal.to_string())?,
            value: self.value.0,
            create_revision: Revision(self.create_revision.0),
            mod_revision: Revision(self.mod_revision.0),
            version: self.version.0,
            lease: Some(self.lease.0).filter(|lease| *lease != 0).map(LeaseId),
        })
    }
}

impl WatchEvent {
    pub(super) fn event(self) -> Result<Event, String> {
        if self.r#type == "DELETE" {
            return Key::new(self.kv.key.0).map(Event::Deleted).map_err(|refusal| refusal.to_string());
        }
        self.kv.entry().map(Event::Put)
    }
}

pub(super) fn entries(kvs: Vec<KeyValue>) -> Result<Vec<Entry>, String> {
    kvs.into_iter().map(KeyValue::entry).collect()
}

fn text(bytes: &[u8]) -> Value {
    STANDARD.encode(bytes).into()
}

/// The end of the keys with a prefix.
fn end(prefix: &[u8]) -> Value {
    let mut end = prefix.to_vec();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    match end.last_mut() {
        Some(last) => *last += 1,
        // No key comes after them.
        None => end.push(0),
    }
    text(&end)
}

/// The first key with a prefix.
fn begin(prefix: &[u8]) -> &[u8] {
    if prefix.is_empty() { &[0] } else { prefix }
}

pub(super) fn get(key: &Key) -> Value {
    json!({"key": text(key.as_bytes())})
}

pub(super) fn range(query: &Query) -> Value {
    let prefix = query.prefix.as_bytes();
    // The smallest key after another key has one more byte.
    let after = query.after.as_ref().map(|after| [after.as_bytes(), &[0]].concat());
    let begin = after.filter(|after| after.as_slice() > prefix).unwrap_or_else(|| begin(prefix).to_vec());
    let at = query.at.map_or(0, |at| at.0).to_string();
    json!({"key": text(&begin), "range_end": end(prefix), "limit": query.limit.to_string(), "revision": at})
}

pub(super) fn txn(txn: &Txn) -> Value {
    let ops = |branch: &[Op]| branch.iter().map(op).collect::<Vec<_>>();
    let compares: Vec<_> = txn.compares.iter().map(compare).collect();
    json!({"compare": compares, "success": ops(&txn.then), "failure": ops(&txn.or_else)})
}

fn compare(compare: &Compare) -> Value {
    let (relation, target, field, given) = match &compare.test {
        Test::Created(relation, given) => (relation, "CREATE", "create_revision", given.to_string().into()),
        Test::Modified(relation, given) => (relation, "MOD", "mod_revision", given.to_string().into()),
        Test::Version(relation, given) => (relation, "VERSION", "version", given.to_string().into()),
        Test::Value(relation, given) => (relation, "VALUE", "value", text(given)),
    };
    let result = match relation {
        Relation::Equal => "EQUAL",
        Relation::NotEqual => "NOT_EQUAL",
        Relation::Less => "LESS",
        Relation::Greater => "GREATER",
    };
    json!({"key": text(compare.key.as_bytes()), "target": target, "result": result, field: given})
}

fn op(op: &Op) -> Value {
    match op {
        Op::Put { key, value, lease } => {
            let lease = lease.map_or(0, |lease| lease.0).to_string();
            json!({"request_put": {"key": text(key.as_bytes()), "value": text(value), "lease": lease}})
        }
        Op::Delete(key) => json!({"request_delete_range": get(key)}),
        Op::DeletePrefix(prefix) => {
            let prefix = prefix.as_bytes();
            json!({"request_delete_range": {"key": text(begin(prefix)), "range_end": end(prefix)}})
        }
        Op::Get(key) => json!({"request_range": get(key)}),
        Op::List { prefix, limit } => {
            let query = Query { limit: *limit, ..Query::all(prefix.clone()) };
            json!({"request_range": range(&query)})
        }
    }
}

pub(super) fn watch(prefix: &Prefix, from: Revision) -> Value {
    let prefix = prefix.as_bytes();
    let from = from.to_string();
    let create =
        json!({"key": text(begin(prefix)), "range_end": end(prefix), "start_revision": from, "fragment": true});
    json!({"create_request": create})
}

impl OpReply {
    /// The answer to an operation.
    pub(super) fn response(self, op: &Op) -> Result<Response, String> {
        let range = self.response_range.unwrap_or_default();
        Ok(match op {
            Op::Put { .. } => Response::Put,
            Op::Delete(_) | Op::DeletePrefix(_) => {
                Response::Deleted(self.response_delete_range.unwrap_or_default().deleted.0)
            }
            Op::Get(_) => Response::Got(entries(range.kvs)?.pop()),
            Op::List { .. } => Response::Listed { entries: entries(range.kvs)?, more: range.more },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_its_keys() {
        for (prefix, expected) in [(&b"ab"[..], &b"ac"[..]), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")] {
            assert_eq!(end(prefix), text(expected), "{prefix:?}");
        }
    }

    #[test]
    fn what_a_message_leaves_out_is_zero() {
        let reply: TxnReply = serde_json::from_str(r#"{"header":{"revision":"7"},"responses":[{}]}"#).expect("JSON");
        assert!(!reply.succeeded && reply.header.revision == Number(7));
        let key = Key::new("k").expect("a key");
        let responses = reply.responses.into_iter().map(|reply| reply.response(&Op::Get(key.clone())));
        assert_eq!(responses.collect::<Result<Vec<_>, _>>(), Ok(vec![Response::Got(None)]));
        assert!(serde_json::from_str::<RangeAnswer>(r#"{"kvs":[{"key":"!"}]}"#).is_err());
        assert!(serde_json::from_str::<Header>(r#"{"revision":"-1"}"#).is_err());
    }
}
