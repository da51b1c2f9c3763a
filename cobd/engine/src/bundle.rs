//! A bundle as part of a switch.

use std::sync::Arc;

use cob_types::{GenerationNumber, Packed, SwitchOrder};

/// The target of a switch.
#[derive(Debug, Clone)]
pub(crate) struct SwitchTarget {
    pub(crate) generation: GenerationNumber,
    pub(crate) bundle: ActiveBundle,
    pub(crate) order: Arc<SwitchOrder>,
}

/// A generation's data for this host.
#[derive(Debug, Clone)]
pub(crate) struct ActiveBundle {
    pub(crate) bundle: Arc<Packed>,
    pub(crate) in_process: Vec<String>,
}

impl ActiveBundle {
    /// Whether its backends run where the target's do: inside or outside the daemon.
    pub(crate) fn runs_as(&self, target: &Self) -> bool {
        let alike = |backend: &String| self.in_process.contains(backend) == target.in_process.contains(backend);
        self.bundle.kinds().values().all(|kind| alike(&kind.backend))
    }
}
