//! What can be seen of a simulated cluster from outside.

use cob_types::{CobId, GenerationNumber, HostName, StateName};

/// What is really there, whoever plays it.
pub trait Scene {
    /// The real state of a change object.
    fn state_of(&self, cob: &CobId) -> Option<&StateName>;

    /// The generation that a host lives by; while its daemon is down, the one on its disk.
    fn generation_of(&self, host: &HostName) -> Option<GenerationNumber>;

    /// It was told to go back.
    fn has_turned(&self, host: &HostName) -> bool;
}
