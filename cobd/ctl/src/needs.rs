//! The needs of change objects, from the depot.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::{CobId, GenerationNumber, Need, StateName};

use crate::failure::Failure;
use crate::targets::Targets;

/// The change objects of a generation, and their needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// All change objects, sorted.
    pub cobs: BTreeSet<CobId>,
    /// Pairs of a change object and another change object that the first needs.
    pub pairs: BTreeSet<(CobId, CobId)>,
}

impl Needs {
    /// Reads the needs of a generation. A need counts if it accepts the preferred state of the needed change object. The
    /// reverse needs, which order stops, are left out. `None`: no depot is known.
    ///
    /// # Errors
    /// [`Failure`] if the depot can't be read, or the generation is not accepted.
    pub fn read(targets: &Targets, generation: GenerationNumber) -> Result<Option<Self>, Failure> {
        let Some(depot) = targets.open_depot()? else { return Ok(None) };
        let whole = depot.whole(generation)?;
        let cobs = || whole.bundles.values().flat_map(|bundle| bundle.cobs.values());
        let preferred: BTreeMap<&CobId, &StateName> = cobs().map(|cob| (&cob.id, &cob.preferred)).collect();
        let is_need = |need: &&Need| preferred.get(&need.cob).is_some_and(|state| need.states.contains(state));
        let pairs = cobs().flat_map(|cob| cob.needs().filter(is_need).map(|need| (cob.id.clone(), need.cob.clone())));
        Ok(Some(Self { cobs: cobs().map(|cob| cob.id.clone()).collect(), pairs: pairs.collect() }))
    }

    /// Only the named change objects, their needs and their dependents.
    #[must_use]
    pub fn near(&self, is_named: impl Fn(&CobId) -> bool) -> Self {
        let pairs: BTreeSet<_> = self.pairs.iter().filter(|(a, b)| is_named(a) || is_named(b)).cloned().collect();
        let ends = pairs.iter().flat_map(|(a, b)| [a.clone(), b.clone()]);
        Self { cobs: self.cobs.iter().filter(|id| is_named(id)).cloned().chain(ends).collect(), pairs }
    }
}
