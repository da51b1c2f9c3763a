//! The contract test: the rules for every kind, tried on a real change object.
//!
//! A [`Case`] is a kind, a content and the folders to watch. [`run`] tries every rule in a scratch folder and returns a
//! [`Report`] of the rules that held and the broken rules. The kinds' own tests, `cobctl test-kind` and authors of
//! plug-ins use the same test.
//!
//! ```text
//!   Case ── run ──> rules ── check, move, kill ──> Subject ──> Kinds (the daemon's own)
//!                     └───── before and after ───> World: watched folders, and what a probe sees
//! ```
//!
//! The rules: a check changes nothing, and a second check gives the same answer. A transition ends in its state, as a
//! check shows; made twice it ends as if made once; killed at any point and repeated it ends as if it had not been
//! killed. After the departure, the first check's answer and world are back.

mod report;
mod rules;
mod subject;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use cob_types::cob::Fingerprint;
use cob_types::{BlobHash, Cob, CobId, Kind, StateName, canonical};
use serde_bytes::ByteBuf;

pub use report::{Report, Rule, Trial, Verdict};
pub use rules::run;

/// The default number of kills of each transition.
pub const KILLS: u32 = 8;

/// Reads state that is not in files: a text that must stay the same while the world does not change.
pub type Probe = Arc<dyn Fn() -> String + Send + Sync>;

/// A kind and a change object of it, to test.
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
    /// Replaces the back end of the same name.
    #[cfg(test)]
    pub(in crate::kinds) backend: Option<Arc<dyn super::Backend>>,
}

impl Case {
    /// A change object with this content in canonical JSON, on a host that does not exist.
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
            ranks: BTreeMap::new(),
            expects: BTreeMap::new(),
            budget: None,
            at_most: None,
            keep: false,
            observe: false,
            files: BTreeMap::new(),
        };
        Self::of(kind, cob, BTreeMap::new())
    }

    /// A change object of a bundle, with the contents of its files.
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

    /// Watches a file or folder on which the kind acts. The own folder (`COB_STATE_DIR`) and the working folder are
    /// always watched.
    #[must_use]
    pub fn watching(mut self, path: impl Into<PathBuf>) -> Self {
        self.watched.push(path.into());
        self
    }

    /// Watches the result of a probe.
    #[must_use]
    pub fn probing(mut self, probe: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.probe = Some(Arc::new(probe));
        self
    }

    /// Adds another content. A change object that was switched on with it is outdated with the content under test.
    #[must_use]
    pub fn other(mut self, content: &str) -> Self {
        self.other = Some(content.to_owned());
        self
    }

    /// Adds a command for `/bin/sh` that brings the change object from its preferred state into a state without
    /// incoming transitions, as a user or an accident would: it kills a service, for example.
    #[must_use]
    pub fn arranging(mut self, state: StateName, command: impl Into<String>) -> Self {
        self.arranged.insert(state, command.into());
        self
    }

    /// Sets the number of kills of each transition. Zero leaves the rule out.
    #[must_use]
    pub fn kills(mut self, kills: u32) -> Self {
        self.kills = kills;
        self
    }

    /// Sets the seed for the moments of the kills.
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
