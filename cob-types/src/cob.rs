//! Change objects as they stand in a bundle: kind, content, dependencies, ranks.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use crate::id::{CobId, KindName, StateName};
use crate::kind::PayloadFile;
use crate::ranks::Ranks;
use crate::small::SmallMap;

/// Hash of a change object's kind and content (and of the content that it rests on through
/// `restarts_on`). Dependencies are not part of it: they are adopted in place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(#[serde(with = "serde_bytes")] pub [u8; 16]);

impl Fingerprint {
    /// Stands for nothing at all: no content has it.
    pub const NOTHING: Self = Self([0; 16]);
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A change object of one host, complete. There are tens of thousands of them in a bundle, most without dependencies: what is
/// empty takes little room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cob {
    /// `HOST/NAME`.
    pub id: CobId,
    /// A kind of the same bundle.
    pub kind: KindName,
    /// Where it goes when nobody asks for anything else.
    pub preferred: StateName,
    /// What the kind asks for: canonical JSON (sorted keys, no spaces).
    pub content: String,
    /// Kind and content.
    pub fingerprint: Fingerprint,
    /// Hash over the fingerprints of what it names in `restarts_on`; none when it names nothing.
    /// When it changes, the change object is `outdated` though its own content is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rests_on: Option<Fingerprint>,
    /// Transition dependencies.
    #[serde(default, skip_serializing_if = "ThinVec::is_empty")]
    pub transitions: ThinVec<TransitionNeeds>,
    /// Lock dependencies.
    #[serde(default, skip_serializing_if = "ThinVec::is_empty")]
    pub locks: ThinVec<LockNeeds>,
    /// The rank of the goal (this, state), for every state of the kind.
    pub ranks: Ranks,
    /// The fingerprint that each depended-on change object has in this generation.
    #[serde(default, skip_serializing_if = "SmallMap::is_empty")]
    pub expects: SmallMap<CobId, Fingerprint>,
    /// Files of its own that travel with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, PayloadFile>,
    /// The budget that it takes a token of before it leaves its preferred state, or `outdated`: a state
    /// lock, kept until it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Box<Need>>,
    /// It promises its state to so many at a time, and no more; none: to everybody. A budget has this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u32>,
    /// When it leaves the model it stays as it is: it is not moved to its pre-remove state before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// It is checked and never moved: `mode: observe`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
}

impl Cob {
    /// Nothing is done for it when it leaves the model.
    #[must_use]
    pub fn leaves_as_it_is(&self) -> bool {
        self.keep || self.observe
    }

    /// Every need, in whatever dependency, and the token of its budget.
    pub fn needs(&self) -> impl Iterator<Item = &Need> {
        let moves = self.transitions.iter().flat_map(|t| &t.needs);
        moves.chain(self.locks.iter().flat_map(|l| &l.needs)).chain(self.budget.as_deref())
    }
}

/// `(A, from, to) <- needs`: the move is made only under these state locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionNeeds {
    /// The state that is left.
    pub from: StateName,
    /// The state that is entered.
    pub to: StateName,
    /// At most one for each depended-on change object.
    pub needs: Vec<Need>,
}

/// `(C, state) <- needs`: locks in this state are granted only under these state locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockNeeds {
    /// The state that is granted.
    pub state: StateName,
    /// At most one for each depended-on change object.
    pub needs: Vec<Need>,
}

/// A depended-on change object and the states of it that serve, the first being the one that it is
/// asked for when it is in none. Written `HOST/NAME@state|state`.
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
