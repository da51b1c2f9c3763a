//! A model after expansion: every change object with explicit dependencies, and the source of each.
//!
//! `expand` makes the draft, `generation` makes bundles from it, and `check` reads only its positions: it checks the
//! finished generation and must not trust the draft.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use cob_types::generation::Security;
use cob_types::groups::Services;
use cob_types::kind::PayloadFile;
use cob_types::maintenance::Timetable;
use cob_types::secret::SecretId;
use cob_types::switch::SwitchPolicy;
use cob_types::trust::{Operator, PublicKey};
use cob_types::{BlobHash, CobId, HostName, Kind, KindName, Need, StateName};

/// A place in the user's files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, by the user's name for it (relative to the working directory of the command).
    pub file: Arc<PathBuf>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its place in the model.
    pub place: Place,
}

/// A whole expanded model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The protection of links.
    pub security: Security,
    /// Revoked keys.
    pub revoked: BTreeSet<PublicKey>,
    /// The behaviour of hosts in a switch to it.
    pub policy: SwitchPolicy,
    /// Maintenance windows and schedules of hosts.
    pub timetable: Timetable,
    /// The operators with the right to give orders remotely.
    pub operators: BTreeMap<String, Operator>,
    /// All hosts.
    pub hosts: BTreeMap<HostName, At<DraftHost>>,
    /// The hosts of each label.
    pub labels: BTreeMap<String, BTreeSet<HostName>>,
    /// The services of each cluster with their hosts.
    pub clusters: BTreeMap<String, Services>,
    /// All kinds in use, including built-in kinds.
    pub kinds: BTreeMap<KindName, At<Kind>>,
    /// All change objects.
    pub cobs: BTreeMap<CobId, At<DraftCob>>,
    /// Contents of the payload files of kinds and change objects.
    pub blobs: BTreeMap<BlobHash, Vec<u8>>,
    /// The secrets that contents name, by the id in their marks: before the values are read, an id is made from the
    /// name alone.
    pub secrets: BTreeMap<SecretId, At<DraftSecret>>,
    /// For each host the values of the secrets that its contents name, encrypted for it; empty before the values are
    /// read.
    pub sealed: BTreeMap<HostName, BTreeMap<SecretId, Vec<u8>>>,
}

/// A secret in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftSecret {
    /// Its name.
    pub name: String,
    /// The source of its value.
    pub source: SecretSource,
}

/// The source of a secret's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// The text itself, an armoured age file.
    Age(String),
    /// The output of a command.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// Its working folder.
        folder: PathBuf,
    },
}

/// A host of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftHost {
    /// `tcp://IP:PORT`.
    pub address: Option<String>,
    /// The keys that prove its identity; empty under `loopback-only`.
    pub keys: Vec<PublicKey>,
}

/// A change object with explicit dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftCob {
    /// Its kind.
    pub kind: KindName,
    /// Its state without requests for other states.
    pub preferred: StateName,
    /// The content for its kind.
    pub content: serde_json::Value,
    /// Files of its own.
    pub files: BTreeMap<String, PayloadFile>,
    /// The resolved names in `restarts_on`.
    pub restarts_on: Vec<CobId>,
    /// The budget that it takes a token of before it is disturbed, with the place of the statement.
    pub budget: Option<At<Need>>,
    /// It is a budget with this number of tokens.
    pub at_most: Option<u32>,
    /// It departs without a change.
    pub keep: bool,
    /// It is checked and never changed.
    pub observe: bool,
    /// Every dependency, in the order written.
    pub arrows: Vec<Arrow>,
}

/// A dependency of the change object that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrow {
    /// The change object that it depends on.
    pub on: CobId,
    /// The rest, which is equal on all nodes if a word of the model has made it.
    pub said: Arc<Said>,
}

/// A dependency without its two change objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The transition or grant that it guards.
    pub when: When,
    /// The states that satisfy the need, never empty.
    pub states: Vec<StateName>,
    /// The user's words: `requires: [db/server]`, or the explicit form.
    pub words: Arc<str>,
    /// The place of these words.
    pub place: Place,
}

impl Arrow {
    /// The guarded transition or grant, and the change object depended on: the key of an arrow.
    #[must_use]
    pub fn guards(&self) -> (&When, &CobId) {
        (&self.said.when, &self.on)
    }

    /// Its need.
    #[must_use]
    pub fn need(&self) -> Need {
        Need { cob: self.on.clone(), states: self.said.states.clone() }
    }
}

/// The event that a dependency guards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// `(A, from, to) <- need`.
    Transition {
        /// The state before.
        from: StateName,
        /// The state after.
        to: StateName,
    },
    /// `(C, state) <- need`.
    Lock {
        /// The granted state.
        state: StateName,
    },
}
