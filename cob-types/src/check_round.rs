//! A round of checks: what an operator has asked to be looked at now, and what was found.

use serde::{Deserialize, Serialize};

use crate::id::{CobId, GenerationNumber, HostName, StateName};

/// So many change objects are named in each list of a round; the others are counted.
pub const LISTED: usize = 1000;

/// A round of checks on one host, so far.
///
/// `looked` is `as_wanted`, `differ` and `not_known` together; when the round has ended, `asked` is `looked` and `moving`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRound {
    /// Whose it is.
    pub host: HostName,
    /// Which round: never twice on a host.
    pub round: u64,
    /// The generation by which it is judged; zero: there is none yet.
    pub generation: GenerationNumber,
    /// Change objects that it is about.
    pub asked: u64,
    /// Those of which a check that began after the question has ended.
    pub looked: u64,
    /// Those of them that are as the generation wants them.
    pub as_wanted: u64,
    /// Those of them that are not.
    pub differ: u64,
    /// Those of them whose check could not tell.
    pub not_known: u64,
    /// Those that were not looked at because they are being moved, or have left.
    pub moving: u64,
    /// Nothing more is to come.
    pub ended: bool,
    /// What differs: found in another state than wanted, or changed by others; the first [`LISTED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing: Vec<Differing>,
    /// What is not known, and why; the first [`LISTED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<Unknown>,
}

/// A change object that is not as the generation wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differing {
    /// Which.
    pub cob: CobId,
    /// The state that it was found in.
    pub found: StateName,
    /// The state that is wanted.
    pub wanted: StateName,
    /// In what it differs, for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A change object of which its check could not tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// Which.
    pub cob: CobId,
    /// Why.
    pub why: String,
}

impl CheckRound {
    /// A round of which nothing has been looked at yet.
    #[must_use]
    pub fn new(host: HostName, round: u64, generation: GenerationNumber) -> Self {
        Self {
            host,
            round,
            generation,
            asked: 0,
            looked: 0,
            as_wanted: 0,
            differ: 0,
            not_known: 0,
            moving: 0,
            ended: false,
            differing: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Whether everything was looked at and is as wanted: there was something to look at, and nothing is left out.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.ended && self.generation != GenerationNumber(0) && self.as_wanted == self.asked
    }
}
