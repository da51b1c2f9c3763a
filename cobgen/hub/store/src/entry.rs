//! Keys, entries and changes.

use std::fmt;

use bytes::Bytes;

use crate::bounds::MAX_KEY;
use crate::error::Refusal;

/// A key: 1 to [`MAX_KEY`] bytes, usually text such as `jobs/17`. Keys are ordered by their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

impl Key {
    /// # Errors
    /// [`Refusal::Key`] for an empty or long key.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, Refusal> {
        let bytes = bytes.into();
        if bytes.is_empty() || bytes.len() > MAX_KEY {
            return Err(Refusal::Key { len: bytes.len() });
        }
        Ok(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The beginning of keys; empty: of all keys.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Prefix(Bytes);

impl Prefix {
    /// # Errors
    /// [`Refusal::Key`] if it is longer than any key.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, Refusal> {
        let bytes = bytes.into();
        if bytes.len() > MAX_KEY {
            return Err(Refusal::Key { len: bytes.len() });
        }
        Ok(Self(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether a key begins with it.
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        key.0.starts_with(&self.0)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*", self.0.escape_ascii())
    }
}

/// A number of the store, which grows with each change. A new store has revision 1, the first change makes 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this revision.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a lease. An id is not given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Bytes,
    /// The revision at which the key was put after it was absent.
    pub create_revision: Revision,
    /// The revision at which the key was put last.
    pub mod_revision: Revision,
    /// How often the key was put since it was created.
    pub version: u64,
    /// The lease that deletes the key when it ends.
    pub lease: Option<LeaseId>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, create_revision, mod_revision, version, lease } = self;
        write!(f, "{key}={} ({create_revision}, {mod_revision}, {version}", value.escape_ascii())?;
        lease.map_or(Ok(()), |lease| write!(f, ", lease {lease}"))?;
        f.write_str(")")
    }
}

/// What happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It was put.
    Put(Entry),
    /// It was deleted.
    Deleted(Key),
}

impl Event {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Event::Put(entry) => &entry.key,
            Event::Deleted(key) => key,
        }
    }
}

/// All events of one revision under the watched prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision.
    pub revision: Revision,
    /// The events, in the order of the operations.
    pub events: Vec<Event>,
}
