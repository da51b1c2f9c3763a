//! Change objects as in a bundle: kind, content, dependencies, ranks.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use thin_vec::ThinVec;

use crate::id::{CobId, KindName, StateName};
use crate::kind::PayloadFile;

/// Hash of a change object's kind and content (and of the contents named in `restarts_on`). Dependencies are not part
/// of it: they can change without a transition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(#[serde(with = "serde_bytes")] pub [u8; 16]);

impl Fingerprint {
    /// Of no content at all.
    pub const NOTHING: Self = Self([0; 16]);
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A change object of a host, complete. A bundle has tens of thousands, most without dependencies: empty fields take
/// little space.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cob {
    /// `HOST/NAME`.
    pub id: CobId,
    /// A kind of the same bundle.
    pub kind: KindName,
    /// Its state if there is no request.
    pub preferred: StateName,
    /// The content that the kind defines: canonical JSON (sorted keys, no spaces).
    pub content: String,
    /// Of kind and content.
    pub fingerprint: Fingerprint,
    /// Hash over the fingerprints of the change objects in `restarts_on`, if it names any. When it changes, the change
    /// object is `outdated` although its own content is the same.
    pub rests_on: Option<Fingerprint>,
    /// Transition dependencies.
    #[serde(default, skip_serializing_if = "ThinVec::is_empty")]
    pub transitions: ThinVec<TransitionNeeds>,
    /// Lock dependencies.
    #[serde(default, skip_serializing_if = "ThinVec::is_empty")]
    pub locks: ThinVec<LockNeeds>,
    /// The rank of the goal (this change object, state), for every state of the kind.
    pub ranks: BTreeMap<StateName, u64>,
    /// The fingerprint of each depended-on change object in this generation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expects: BTreeMap<CobId, Fingerprint>,
    /// Its own files that travel with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, PayloadFile>,
    /// The budget from which it takes a token before it leaves its preferred state or `outdated`: a state lock, kept
    /// until it is back.
    pub budget: Option<Box<Need>>,
    /// The most grants at a time; `None`: no limit. A budget has a limit.
    pub at_most: Option<u32>,
    /// When it departs, it stays as it is, without a transition to its pre-remove state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// It is checked and never changed: `mode: observe`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
}

impl Cob {
    /// Whether its departure needs no transition.
    #[must_use]
    pub fn leaves_as_it_is(&self) -> bool {
        self.keep || self.observe
    }

    /// All needs of all dependencies, and its budget's token.
    pub fn needs(&self) -> impl Iterator<Item = &Need> {
        let moves = self.transitions.iter().flat_map(|t| &t.needs);
        moves.chain(self.locks.iter().flat_map(|l| &l.needs)).chain(self.budget.as_deref())
    }
}

/// `(A, from, to) <- needs`: the transition starts only under these state locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionNeeds {
    /// The state before the transition.
    pub from: StateName,
    /// The state after the transition.
    pub to: StateName,
    /// At most a single need for each depended-on change object.
    pub needs: Vec<Need>,
}

/// `(C, state) <- needs`: this state is granted only under these state locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockNeeds {
    /// The granted state.
    pub state: StateName,
    /// At most a single need for each depended-on change object.
    pub needs: Vec<Need>,
}

/// A depended-on change object and its acceptable states; the first is requested when it is in another state. Written
/// `HOST/NAME@state|state`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Need {
    /// The depended-on change object.
    pub cob: CobId,
    /// The acceptable states, never empty.
    pub states: Vec<StateName>,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.cob)?;
        for (i, state) in self.states.iter().enumerate() {
            write!(f, "{}{state}", if i == 0 { "" } else { "|" })?;
        }
        Ok(())
    }
}
