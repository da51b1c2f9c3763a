//! The visible part of a simulated cluster.

use cob_types::{CobId, GenerationNumber, HostName, StateName};

/// The real states, in any simulation.
pub trait Scene {
    /// The real state of a change object.
    fn state_of(&self, cob: &CobId) -> Option<&StateName>;

    /// The active generation of a host; while its daemon is down, the generation on its disk.
    fn generation_of(&self, host: &HostName) -> Option<GenerationNumber>;

    /// Whether it was ordered to roll back.
    fn has_turned(&self, host: &HostName) -> bool;
}
