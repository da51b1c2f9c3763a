//! A bundle as the engine receives it: whole, or packed; and as part of a switch.

use std::collections::BTreeMap;
use std::sync::Arc;

use cob_types::beside::Difference;
use cob_types::{Askers, Bundle, Cob, CobId, GenerationNumber, Kind, KindName, Packed, SwitchOrder};

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
    pub(crate) bundle: AnyBundle,
    pub(crate) in_process: Vec<String>,
}

impl ActiveBundle {
    /// Whether its backends run where the target's do: inside or outside the daemon.
    pub(crate) fn runs_as(&self, target: &Self) -> bool {
        let alike = |backend: &String| self.in_process.contains(backend) == target.in_process.contains(backend);
        self.bundle.kinds().values().all(|kind| alike(&kind.backend))
    }
}

/// A host's part of a generation: whole in a plan, which iterates over it often, or packed in a daemon.
#[derive(Debug, Clone)]
pub enum AnyBundle {
    /// The bundle as the generator made it.
    Whole(Arc<Bundle>),
    /// The bundle unpacks a change object on access.
    Packed(Arc<Packed>),
}

impl AnyBundle {
    /// The kinds of its change objects, by name.
    #[must_use]
    pub fn kinds(&self) -> &BTreeMap<KindName, Kind> {
        match self {
            Self::Whole(bundle) => &bundle.kinds,
            Self::Packed(bundle) => bundle.kinds(),
        }
    }

    /// Which change objects of other hosts may ask its own; `None`: the bundle does not say.
    #[must_use]
    pub fn askers(&self) -> Option<&Arc<Askers>> {
        match self {
            Self::Whole(bundle) => bundle.askers.as_ref(),
            Self::Packed(bundle) => bundle.askers(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole(bundle) => bundle.cobs.len(),
            Self::Packed(bundle) => bundle.len(),
        }
    }

    pub(crate) fn has(&self, id: &CobId) -> bool {
        match self {
            Self::Whole(bundle) => bundle.cobs.contains_key(id),
            Self::Packed(bundle) => bundle.has(id),
        }
    }

    pub(crate) fn get(&self, id: &CobId) -> Option<Arc<Cob>> {
        match self {
            Self::Whole(bundle) => bundle.cobs.get(id).cloned(),
            Self::Packed(bundle) => bundle.get(id),
        }
    }

    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = (&CobId, Arc<Cob>)> + '_> {
        match self {
            Self::Whole(bundle) => Box::new(bundle.cobs.iter().map(|(id, cob)| (id, cob.clone()))),
            Self::Packed(bundle) => Box::new(bundle.iter()),
        }
    }

    /// As [`Bundle::differences`].
    pub(crate) fn differences<'a>(&'a self, before: &'a Self) -> Box<dyn Iterator<Item = Difference> + 'a> {
        match (self, before) {
            (Self::Whole(now), Self::Whole(before)) => Box::new(now.differences(before)),
            (Self::Packed(now), Self::Packed(before)) => Box::new(now.differences(before)),
            // The result is the same; no caller mixes the two forms.
            _ => Box::new(self.whole().differences(&before.whole()).collect::<Vec<_>>().into_iter()),
        }
    }

    fn whole(&self) -> Arc<Bundle> {
        match self {
            Self::Whole(bundle) => bundle.clone(),
            Self::Packed(bundle) => Arc::new(bundle.whole()),
        }
    }
}

impl From<Arc<Bundle>> for AnyBundle {
    fn from(bundle: Arc<Bundle>) -> Self {
        Self::Whole(bundle)
    }
}

impl From<Arc<Packed>> for AnyBundle {
    fn from(bundle: Arc<Packed>) -> Self {
        Self::Packed(bundle)
    }
}
