//! A round of checks that an operator has requested, and its results.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{CobId, GenerationNumber, HostName, StateName};

/// The most change objects in each list of a round; the others are only counted.
pub const LISTED: usize = 1000;

/// A round of checks on a host, so far.
///
/// `looked` = `as_wanted` + `differ` + `not_known`; when the round has ended, `asked` = `looked` + `moving`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRound {
    /// The host.
    pub host: HostName,
    /// The number of the round: unique on a host.
    pub round: u64,
    /// The generation with which the states are compared; zero: there is no generation yet.
    pub generation: GenerationNumber,
    /// Change objects of the request.
    pub asked: u64,
    /// Change objects with a finished check that began after the request.
    pub looked: u64,
    /// Checked change objects that are as the generation wants.
    pub as_wanted: u64,
    /// Checked change objects that differ.
    pub differ: u64,
    /// Checked change objects whose check could not tell.
    pub not_known: u64,
    /// Change objects that were not checked because of a transition or departure.
    pub moving: u64,
    /// The round has ended.
    pub ended: bool,
    /// Change objects in another state than wanted, or changed by others; the first thousand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differing: Vec<Differing>,
    /// Change objects whose check could not tell, and why; the first thousand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<Unknown>,
}

/// A change object that is not as the generation wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Differing {
    /// Its id.
    pub cob: CobId,
    /// The state found.
    pub found: StateName,
    /// The wanted state.
    pub wanted: StateName,
    /// The difference, for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// A change object whose check could not tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unknown {
    /// Its id.
    pub cob: CobId,
    /// The reason.
    pub why: String,
}

impl CheckRound {
    /// A round without results.
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

    /// Whether all change objects were checked against a generation and are as wanted.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.ended && self.generation != GenerationNumber(0) && self.as_wanted == self.asked
    }
}
