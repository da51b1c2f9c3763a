//! Which change objects need which others, from the depot.

use std::collections::{BTreeMap, BTreeSet};

use cob_types::{CobId, GenerationNumber, Need, StateName};

use crate::failure::Failure;
use crate::targets::Targets;

/// The change objects of a generation, and pairs of one and another one that it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// All of them, in one order.
    pub cobs: BTreeSet<CobId>,
    /// The pairs.
    pub pairs: BTreeSet<(CobId, CobId)>,
}

impl Needs {
    /// Reads them. A need counts if the needed one is in its preferred state then: the reverse needs, which order stops, are
    /// left out. `None`: no depot is known.
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

    /// Only the change objects for which this holds, and the ones that need them or are needed by them.
    #[must_use]
    pub fn near(&self, is_named: impl Fn(&CobId) -> bool) -> Self {
        let pairs: BTreeSet<_> = self.pairs.iter().filter(|(a, b)| is_named(a) || is_named(b)).cloned().collect();
        let ends = pairs.iter().flat_map(|(a, b)| [a.clone(), b.clone()]);
        Self { cobs: self.cobs.iter().filter(|id| is_named(id)).cloned().chain(ends).collect(), pairs }
    }
}
