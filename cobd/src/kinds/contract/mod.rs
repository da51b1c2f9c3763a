//! The contract test: what every kind promises, tried on a real one.
//!
//! A [`Case`] is a kind, a content and the folders to watch; [`run`] tries every rule in a scratch folder and
//! says in a [`Report`] what held and what did not. Kinds' own tests, `cobctl test-kind` and authors of
//! plug-ins use the same.
//!
//! ```text
//!   Case ── run ──> rules ── check, move, kill ──> Subject ──> Kinds (the daemon's own)
//!                     └───── before and after ───> World: watched folders, and what a probe sees
//! ```
//!
//! The rules: a check changes nothing and says the same twice; a move ends in its state, by check; made twice it
//! ends as if made once; killed at any point and made again it ends as if it had not been killed; and the way
//! back, gone as by one that leaves its model, gives the first check's answer and world again.

mod report;
mod rules;
mod subject;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::{BlobHash, Cob, CobId, Kind, Ranks, SmallMap, StateName, canonical};
use serde_bytes::ByteBuf;

pub use report::{Report, Rule, Trial, Verdict};
pub use rules::run;

/// How often each move is killed, where nobody says otherwise.
pub const KILLS: u32 = 8;

/// What is looked at beside files: a text that must be the same when nothing has changed.
pub type Probe = Arc<dyn Fn() -> String + Send + Sync>;

/// A kind and a change object of it, to be tried.
#[derive(Clone)]
pub struct Case {
    pub(super) kind: Kind,
    pub(super) cob: Cob,
    pub(super) blobs: BTreeMap<BlobHash, ByteBuf>,
    pub(super) other: Option<String>,
    pub(super) watched: Vec<PathBuf>,
    pub(super) probe: Option<Probe>,
    pub(super) arranged: BTreeMap<StateName, String>,
    pub(super) kills: u32,
    pub(super) seed: u64,
    /// Takes the place of the back end of its name.
    #[cfg(test)]
    pub(in crate::kinds) backend: Option<Arc<dyn super::Backend>>,
}

impl Case {
    /// A change object with this content, canonical JSON, on a host that does not exist.
    #[must_use]
    pub fn new(kind: Kind, content: &str) -> Self {
        let cob = Cob {
            id: CobId::new("test/cob").expect("well formed"),
            kind: kind.name.clone(),
            preferred: kind.preferred.clone(),
            content: content.to_owned(),
            fingerprint: canonical::fingerprint(&[content.as_bytes()]),
            rests_on: None,
            transitions: Default::default(),
            locks: Default::default(),
            ranks: Ranks::default(),
            expects: SmallMap::new(),
            budget: None,
            at_most: None,
            keep: false,
            observe: false,
            files: BTreeMap::new(),
        };
        Self::of(kind, cob, BTreeMap::new())
    }

    /// A change object of a bundle, with the contents of the files that travel with it.
    #[must_use]
    pub fn of(kind: Kind, cob: Cob, blobs: BTreeMap<BlobHash, ByteBuf>) -> Self {
        Self {
            kind,
            cob,
            blobs,
            other: None,
            watched: Vec::new(),
            probe: None,
            arranged: BTreeMap::new(),
            kills: KILLS,
            seed: 1,
            #[cfg(test)]
            backend: None,
        }
    }

    /// Watches a file or folder that the kind acts on. Its own folder (`COB_STATE_DIR`) and its working folder
    /// are watched always.
    #[must_use]
    pub fn watching(mut self, path: impl Into<PathBuf>) -> Self {
        self.watched.push(path.into());
        self
    }

    /// Looks at something that is no file.
    #[must_use]
    pub fn probing(mut self, probe: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.probe = Some(Arc::new(probe));
        self
    }

    /// Another content: what was moved on with it is found outdated with the content under test.
    #[must_use]
    pub fn other(mut self, content: &str) -> Self {
        self.other = Some(content.to_owned());
        self
    }

    /// A command for `/bin/sh` that brings it from its preferred state into one that no move leads to, as
    /// somebody or an accident would: kills a service, say.
    #[must_use]
    pub fn arranging(mut self, state: StateName, command: impl Into<String>) -> Self {
        self.arranged.insert(state, command.into());
        self
    }

    /// How often each move is killed; none: the rule is left out.
    #[must_use]
    pub fn kills(mut self, kills: u32) -> Self {
        self.kills = kills;
        self
    }

    /// What the moments of the kills are drawn from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The same change object with the other content.
    fn with_other(&self) -> Option<Cob> {
        let content = self.other.clone()?;
        let fingerprint: Fingerprint = canonical::fingerprint(&[content.as_bytes()]);
        Some(Cob { content, fingerprint, ..self.cob.clone() })
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("kind", &self.kind.name)
            .field("content", &self.cob.content)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "contract_test.rs"]
pub(in crate::kinds) mod tests;
