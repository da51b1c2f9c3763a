//! Transactions and ranges.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::bounds::{MAX_OPS, MAX_RANGE, MAX_TXN, MAX_VALUE};
use crate::entry::{Entry, Key, LeaseId, Prefix, Revision};
use crate::error::Refusal;

/// A request: if all compares hold, the operations of `then` are done, otherwise those of `or_else`.
///
/// ```
/// # fn main() -> Result<(), cob_hub_store::Refusal> {
/// use cob_hub_store::{Compare, Key, Op, Txn};
///
/// // A job is claimed once: of two claims, the first succeeds.
/// let owner = Key::new("jobs/17/owner")?;
/// let claim = Txn::new().when(Compare::absent(owner.clone())).then(Op::put(owner.clone(), "hub-a")).or_else(Op::Get(owner));
/// # assert_eq!(claim.then.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    /// The compares; none: `then` is done.
    pub compares: Vec<Compare>,
    /// The operations if all compares hold.
    pub then: Vec<Op>,
    /// The operations otherwise.
    pub or_else: Vec<Op>,
}

/// A condition on an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key of the entry.
    pub key: Key,
    /// The condition.
    pub test: Test,
}

/// What a compare tests. An absent key has revisions and version 0, and no value: no test of its value holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// The revision at which the key was created.
    Created(Relation, Revision),
    /// The revision at which the key was put last.
    Modified(Relation, Revision),
    /// How often the key was put since it was created.
    Version(Relation, u64),
    /// The value.
    Value(Relation, Bytes),
}

/// How the entry relates to the given value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// It is equal.
    Equal,
    /// It is not equal.
    NotEqual,
    /// It is less.
    Less,
    /// It is greater.
    Greater,
}

/// An operation of a transaction. It sees the operations before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Puts a value. Without a lease the key loses the lease that it had.
    Put {
        /// The key.
        key: Key,
        /// The value.
        value: Bytes,
        /// The lease that deletes the key when it ends.
        lease: Option<LeaseId>,
    },
    /// Deletes a key.
    Delete(Key),
    /// Deletes all keys with a prefix.
    DeletePrefix(Prefix),
    /// Reads an entry.
    Get(Key),
    /// Reads the first entries under a prefix.
    List {
        /// The prefix.
        prefix: Prefix,
        /// The most entries.
        limit: usize,
    },
}

/// The answer to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// It is put.
    Put,
    /// The number of deleted keys.
    Deleted(u64),
    /// The entry.
    Got(Option<Entry>),
    /// The entries.
    Listed {
        /// In the order of their keys.
        entries: Vec<Entry>,
        /// Whether there are further entries.
        more: bool,
    },
}

/// The answer to a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxnAnswer {
    /// Whether all compares held.
    pub succeeded: bool,
    /// The revision of the changes; without changes, the newest revision.
    pub revision: Revision,
    /// The answers to the operations that were done, in their order.
    pub responses: Vec<Response>,
}

/// A request for entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The prefix.
    pub prefix: Prefix,
    /// Only keys after this key: the last key of the page before.
    pub after: Option<Key>,
    /// The revision to read; the newest if absent.
    pub at: Option<Revision>,
    /// The most entries, up to [`MAX_RANGE`].
    pub limit: usize,
}

/// Entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The newest revision at the time of the answer: the next page reads at it, a watch starts after it.
    pub revision: Revision,
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    /// Whether there are further entries.
    pub more: bool,
}

impl Compare {
    /// The key does not exist.
    #[must_use]
    pub fn absent(key: Key) -> Self {
        Self { key, test: Test::Created(Relation::Equal, Revision(0)) }
    }

    /// The key exists.
    #[must_use]
    pub fn present(key: Key) -> Self {
        Self { key, test: Test::Created(Relation::Greater, Revision(0)) }
    }

    /// The key was put last at this revision: nobody has changed it since.
    #[must_use]
    pub fn unchanged(key: Key, since: Revision) -> Self {
        Self { key, test: Test::Modified(Relation::Equal, since) }
    }

    /// The key was created at this revision: a claim still stands.
    #[must_use]
    pub fn created(key: Key, at: Revision) -> Self {
        Self { key, test: Test::Created(Relation::Equal, at) }
    }

    /// The key has this value.
    #[must_use]
    pub fn value(key: Key, value: impl Into<Bytes>) -> Self {
        Self { key, test: Test::Value(Relation::Equal, value.into()) }
    }

    /// Whether the condition holds for the entry under the key.
    pub(crate) fn holds(&self, entry: Option<&Entry>) -> bool {
        let revision = |of: fn(&Entry) -> Revision| entry.map_or(Revision(0), of);
        match &self.test {
            Test::Created(relation, given) => relation.holds(&revision(|e| e.create_revision), given),
            Test::Modified(relation, given) => relation.holds(&revision(|e| e.mod_revision), given),
            Test::Version(relation, given) => relation.holds(&entry.map_or(0, |e| e.version), given),
            Test::Value(relation, given) => entry.is_some_and(|e| relation.holds(&e.value, given)),
        }
    }
}

impl Relation {
    fn holds<T: Ord>(self, left: &T, right: &T) -> bool {
        match self {
            Relation::Equal => left == right,
            Relation::NotEqual => left != right,
            Relation::Less => left < right,
            Relation::Greater => left > right,
        }
    }
}

impl Op {
    /// Puts a value without a lease.
    #[must_use]
    pub fn put(key: Key, value: impl Into<Bytes>) -> Self {
        Self::Put { key, value: value.into(), lease: None }
    }

    /// Puts a value that a lease deletes.
    #[must_use]
    pub fn put_leased(key: Key, value: impl Into<Bytes>, lease: LeaseId) -> Self {
        Self::Put { key, value: value.into(), lease: Some(lease) }
    }

    /// Whether it writes.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Op::Put { .. } | Op::Delete(_) | Op::DeletePrefix(_) => true,
            Op::Get(_) | Op::List { .. } => false,
        }
    }

    fn size(&self) -> usize {
        match self {
            Op::Put { key, value, .. } => key.as_bytes().len() + value.len(),
            Op::Delete(key) | Op::Get(key) => key.as_bytes().len(),
            Op::DeletePrefix(prefix) | Op::List { prefix, .. } => prefix.as_bytes().len(),
        }
    }
}

impl Txn {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a compare.
    #[must_use]
    pub fn when(mut self, compare: Compare) -> Self {
        self.compares.push(compare);
        self
    }

    /// Adds an operation for the case that all compares hold.
    #[must_use]
    pub fn then(mut self, op: Op) -> Self {
        self.then.push(op);
        self
    }

    /// Adds an operation for the other case.
    #[must_use]
    pub fn or_else(mut self, op: Op) -> Self {
        self.or_else.push(op);
        self
    }

    /// Whether it changes nothing, whatever the compares say: then it may be repeated.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        !self.then.iter().chain(&self.or_else).any(Op::is_write)
    }

    /// The bytes of all keys and values.
    pub(crate) fn size(&self) -> usize {
        let compared = self.compares.iter().map(|compare| match &compare.test {
            Test::Value(_, value) => compare.key.as_bytes().len() + value.len(),
            Test::Created(..) | Test::Modified(..) | Test::Version(..) => compare.key.as_bytes().len(),
        });
        compared.chain(self.then.iter().chain(&self.or_else).map(Op::size)).sum()
    }

    /// # Errors
    /// [`Refusal`] if it is outside the bounds, or a branch writes a key twice.
    pub fn check(&self) -> Result<(), Refusal> {
        let len = self.compares.len().max(self.then.len()).max(self.or_else.len());
        if len > MAX_OPS {
            return Err(Refusal::Ops { len });
        }
        for branch in [&self.then, &self.or_else] {
            check_branch(branch)?;
        }
        match self.size() {
            len if len > MAX_TXN => Err(Refusal::Txn { len }),
            _ => Ok(()),
        }
    }
}

/// etcd refuses a branch that puts a key twice, or puts a key that it also deletes.
fn check_branch(branch: &[Op]) -> Result<(), Refusal> {
    let mut put = BTreeSet::new();
    for op in branch {
        match op {
            Op::Put { key, value, .. } => {
                if value.len() > MAX_VALUE {
                    return Err(Refusal::Value { key: key.clone(), len: value.len() });
                }
                if !put.insert(key) {
                    return Err(Refusal::Twice(key.clone()));
                }
            }
            Op::List { limit, .. } => check_limit(*limit)?,
            Op::Delete(_) | Op::DeletePrefix(_) | Op::Get(_) => {}
        }
    }
    let deleted = |key: &Key| {
        branch.iter().any(|op| match op {
            Op::Delete(other) => other == key,
            Op::DeletePrefix(prefix) => prefix.matches(key),
            Op::Put { .. } | Op::Get(_) | Op::List { .. } => false,
        })
    };
    match put.into_iter().find(|key| deleted(key)) {
        Some(key) => Err(Refusal::Twice(key.clone())),
        None => Ok(()),
    }
}

fn check_limit(limit: usize) -> Result<(), Refusal> {
    if limit == 0 || limit > MAX_RANGE { Err(Refusal::Limit(limit)) } else { Ok(()) }
}

impl Query {
    /// All entries under a prefix, at the newest revision, as far as one range returns them.
    #[must_use]
    pub fn all(prefix: Prefix) -> Self {
        Self { prefix, after: None, at: None, limit: MAX_RANGE }
    }

    /// # Errors
    /// [`Refusal::Limit`].
    pub fn check(&self) -> Result<(), Refusal> {
        check_limit(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::MAX_KEY;

    fn key(text: &'static str) -> Key {
        Key::new(text).expect("a key")
    }

    #[test]
    fn bounds_are_refused_by_type() {
        assert_eq!(Key::new(""), Err(Refusal::Key { len: 0 }));
        assert!(Key::new(vec![b'k'; MAX_KEY]).is_ok());
        assert_eq!(Key::new(vec![b'k'; MAX_KEY + 1]), Err(Refusal::Key { len: MAX_KEY + 1 }));
        let long = Txn::new().then(Op::put(key("k"), vec![0; MAX_VALUE + 1]));
        assert_eq!(long.check(), Err(Refusal::Value { key: key("k"), len: MAX_VALUE + 1 }));
        let two = Txn::new().then(Op::put(key("k"), vec![0; MAX_VALUE])).or_else(Op::put(key("k"), vec![0; MAX_VALUE]));
        assert!(matches!(two.check(), Err(Refusal::Txn { .. })));
        let many = |n| Txn { then: vec![Op::Get(key("k")); n], ..Txn::default() };
        assert_eq!(many(MAX_OPS).check(), Ok(()));
        assert_eq!(many(MAX_OPS + 1).check(), Err(Refusal::Ops { len: MAX_OPS + 1 }));
        let compares = Txn { compares: vec![Compare::absent(key("k")); MAX_OPS + 1], ..Txn::default() };
        assert_eq!(compares.check(), Err(Refusal::Ops { len: MAX_OPS + 1 }));
        let list = Txn::new().then(Op::List { prefix: Prefix::default(), limit: 0 });
        assert_eq!(list.check(), Err(Refusal::Limit(0)));
    }

    #[test]
    fn a_branch_writes_a_key_once() {
        let put = || Op::put(key("ab"), "x");
        for second in [put(), Op::Delete(key("ab")), Op::DeletePrefix(Prefix::new("a").expect("short"))] {
            assert_eq!(Txn::new().then(put()).then(second.clone()).check(), Err(Refusal::Twice(key("ab"))));
            assert_eq!(Txn::new().then(second).or_else(put()).check(), Ok(()), "in two branches");
        }
    }

    #[test]
    fn an_absent_key_has_revision_zero_and_no_value() {
        assert!(Compare::absent(key("k")).holds(None) && !Compare::present(key("k")).holds(None));
        for relation in [Relation::Equal, Relation::NotEqual, Relation::Less, Relation::Greater] {
            let compare = Compare { key: key("k"), test: Test::Value(relation, Bytes::new()) };
            assert!(!compare.holds(None), "{relation:?}");
        }
    }
}
