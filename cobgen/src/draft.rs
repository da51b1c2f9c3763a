//! A model after expansion: every change object with explicit dependencies, and where each came from.
//!
//! Made by `expand`, read by `generation` (which makes bundles of it) and, for positions only, by
//! `check` (which reads the finished generation and must not trust what made it).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use cob_types::generation::Security;
use cob_types::kind::PayloadFile;
use cob_types::secret::SecretId;
use cob_types::switch::SwitchPolicy;
use cob_types::trust::{Operator, PublicKey};
use cob_types::{BlobHash, CobId, HostName, Kind, KindName, Need, StateName};

/// A place in the user's files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as the user named it (relative to where the command was given).
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
    /// Where it was written.
    pub place: Place,
}

/// A whole expanded model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// How links are protected.
    pub security: Security,
    /// Keys that are no longer to be believed.
    pub revoked: BTreeSet<PublicKey>,
    /// How hosts behave in a switch to it.
    pub policy: SwitchPolicy,
    /// Who may give orders from afar.
    pub operators: BTreeMap<String, Operator>,
    /// All hosts.
    pub hosts: BTreeMap<HostName, At<DraftHost>>,
    /// All kinds that some change object is of; built-in ones too.
    pub kinds: BTreeMap<KindName, At<Kind>>,
    /// All change objects.
    pub cobs: BTreeMap<CobId, At<DraftCob>>,
    /// Contents of the files that kinds and change objects carry.
    pub blobs: BTreeMap<BlobHash, Vec<u8>>,
    /// The secrets that contents name, by the id in their marks: an id made of the name alone as long as
    /// nobody has looked for the value.
    pub secrets: BTreeMap<SecretId, At<DraftSecret>>,
    /// For each host the values of the secrets that its contents name, encrypted for it; nothing as long
    /// as nobody has looked for the values.
    pub sealed: BTreeMap<HostName, BTreeMap<SecretId, Vec<u8>>>,
}

/// A secret that is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftSecret {
    /// Its name.
    pub name: String,
    /// Where its value is to be found.
    pub source: SecretSource,
}

/// Where a secret's value is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In a file.
    File(PathBuf),
    /// In a variable of the environment.
    Env(String),
    /// Here, in an armoured age file.
    Age(String),
    /// In what a command prints.
    Command {
        /// The program and its arguments.
        words: Vec<String>,
        /// Where it is executed.
        folder: PathBuf,
    },
}

/// A host of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftHost {
    /// `tcp://IP:PORT`.
    pub address: Option<String>,
    /// The keys by which it proves that it is this host; empty under `loopback-only`.
    pub keys: Vec<PublicKey>,
}

/// A change object with explicit dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftCob {
    /// Its kind.
    pub kind: KindName,
    /// Where it goes when nobody asks for anything else.
    pub preferred: StateName,
    /// What the kind asks for.
    pub content: serde_json::Value,
    /// Files of its own.
    pub files: BTreeMap<String, PayloadFile>,
    /// What it names in `restarts_on` (resolved).
    pub restarts_on: Vec<CobId>,
    /// The budget that it takes a token of before it is disturbed, and where it is named.
    pub budget: Option<At<Need>>,
    /// It is a budget: so many tokens.
    pub at_most: Option<u32>,
    /// It leaves the model as it is.
    pub keep: bool,
    /// It is checked and never moved.
    pub observe: bool,
    /// Every dependency, in the order written.
    pub arrows: Vec<Arrow>,
}

/// One dependency of the change object that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrow {
    /// On whom.
    pub on: CobId,
    /// All else: what one word says is the same on every node.
    pub said: Arc<Said>,
}

/// What a word says of the change objects on both of its sides, whichever these are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Of which move or promise.
    pub when: When,
    /// The states that serve, never empty.
    pub states: Vec<StateName>,
    /// The words that it came from, as the user wrote them: `requires: [db/server]`, or the explicit form.
    pub words: Arc<str>,
    /// Where they stand.
    pub place: Place,
}

impl Arrow {
    /// Of which move or promise, and on whom: what tells two arrows of one change object apart.
    #[must_use]
    pub fn guards(&self) -> (&When, &CobId) {
        (&self.said.when, &self.on)
    }

    /// What it asks for.
    #[must_use]
    pub fn need(&self) -> Need {
        Need { cob: self.on.clone(), states: self.said.states.clone() }
    }
}

/// What a dependency guards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// `(A, from, to) <- need`.
    Transition {
        /// The state left.
        from: StateName,
        /// The state entered.
        to: StateName,
    },
    /// `(C, state) <- need`.
    Lock {
        /// The state promised.
        state: StateName,
    },
}
