//! The two generations of a switch, loaded as far as needed.
//!
//! A host whose bundle has the same hash in both is decoded only when a change object on it is requested.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cob_depot::{Depot, DepotError};
use cob_engine::route::first_step;
use cob_types::secret::SecretId;
use cob_types::{Bundle, Cob, CobId, Generation, GenerationNumber, HostName, Kind, Manifest, StateName, SwitchOrder};

use crate::diff::Compared;
use crate::switch_order::{self, NoOrder, switch_order};

/// A generation of the two.
#[derive(Debug)]
pub(crate) struct Side {
    /// The part that all hosts share.
    pub(crate) manifest: Manifest,
    /// The loaded bundles.
    pub(crate) bundles: BTreeMap<HostName, Arc<Bundle>>,
}

/// The source of a generation's bundles.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A generation in a depot.
    Depot(&'a Depot, GenerationNumber),
    /// A generation in memory: just made, or empty.
    Made(&'a Generation),
}

/// Both generations.
#[derive(Debug)]
pub struct Sides<'a> {
    sources: [Source<'a>; 2],
    /// The active generation.
    pub(crate) from: Side,
    /// The target generation.
    pub(crate) to: Side,
    /// Hosts with equal bundles in both, not loaded.
    alike: BTreeSet<HostName>,
    /// The names of the secrets of a generation in memory.
    names: BTreeMap<SecretId, String>,
}

/// The loaded parts of the two, without their sources.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Both<'s> {
    from: &'s Side,
    to: &'s Side,
}

impl<'s> Both<'s> {
    /// Like [`Sides::find`].
    pub(crate) fn find(self, id: &CobId) -> Option<Known<'s>> {
        self.to.find(id).or_else(|| self.from.find(id))
    }
}

/// A change object with its kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) cob: &'a Arc<Cob>,
    pub(crate) kind: &'a Kind,
}

impl Side {
    pub(crate) fn find(&self, id: &CobId) -> Option<Known<'_>> {
        let bundle = self.bundles.get(id.host_str())?;
        let cob = bundle.cobs.get(id)?;
        Some(Known { cob, kind: bundle.kinds.get(&cob.kind)? })
    }

    /// The loaded part, for a comparison.
    pub(crate) fn looked_at(&self) -> Compared<'_> {
        let bundles = self.bundles.iter().map(|(host, bundle)| (host, bundle.as_ref())).collect();
        Compared { manifest: &self.manifest, bundles }
    }
}

impl<'a> Source<'a> {
    fn manifest(&self) -> Result<Manifest, DepotError> {
        match self {
            Source::Depot(depot, number) => depot.read_manifest(*number),
            Source::Made(generation) => Ok(generation.manifest.clone()),
        }
    }

    /// The view for the computation of the switch order.
    fn side<'s>(&'s self, side: &'s Side) -> switch_order::Side<'s> {
        match self {
            Source::Depot(depot, _) => switch_order::Side::partly_read(depot, &side.manifest, side.bundles.clone()),
            Source::Made(generation) => switch_order::Side::of(generation),
        }
    }

    fn bundles(&self, hosts: &BTreeSet<HostName>) -> Result<BTreeMap<HostName, Arc<Bundle>>, DepotError> {
        match self {
            Source::Depot(depot, number) => Ok(shared(depot.read_bundles(*number, hosts)?)),
            Source::Made(generation) => {
                let found = hosts.iter().filter_map(|host| generation.bundles.get_key_value(host));
                Ok(found.map(|(host, bundle)| (host.clone(), Arc::new(bundle.clone()))).collect())
            }
        }
    }
}

impl<'a> Sides<'a> {
    /// Loads all hosts whose bundles differ.
    ///
    /// # Errors
    /// When the depot can't be read.
    pub fn open(from: Source<'a>, to: Source<'a>) -> Result<Self, DepotError> {
        let (old, new) = (from.manifest()?, to.manifest()?);
        let same = |host: &HostName| {
            let of = |manifest: &Manifest| manifest.hosts.get(host).map(|entry| entry.bundle);
            of(&old) == of(&new)
        };
        let all: BTreeSet<HostName> = old.hosts.keys().chain(new.hosts.keys()).cloned().collect();
        let (alike, differ): (BTreeSet<HostName>, BTreeSet<HostName>) = all.into_iter().partition(same);
        let only = |manifest: &Manifest| differ.iter().filter(|h| manifest.hosts.contains_key(*h)).cloned().collect();
        let (of_old, of_new): (BTreeSet<HostName>, BTreeSet<HostName>) = (only(&old), only(&new));
        let [before, after] = match (&from, &to) {
            (Source::Depot(depot, old), Source::Depot(other, new)) if std::ptr::eq(*depot, *other) => {
                depot.read_both([*old, *new], [&of_old, &of_new])?.map(shared)
            }
            _ => [from.bundles(&of_old)?, to.bundles(&of_new)?],
        };
        let before = Side { bundles: before, manifest: old };
        let after = Side { bundles: after, manifest: new };
        Ok(Self { sources: [from, to], from: before, to: after, alike, names: BTreeMap::new() })
    }

    /// Sets the names of the secrets of the generation in memory.
    #[must_use]
    pub fn naming(self, names: BTreeMap<SecretId, String>) -> Self {
        Self { names, ..self }
    }

    /// The names of the secrets of both, as far as they are known.
    pub(crate) fn names(&self) -> Result<[BTreeMap<SecretId, String>; 2], DepotError> {
        let of = |source: &Source<'_>| match source {
            Source::Depot(depot, number) => depot.secret_names(*number),
            Source::Made(_) => Ok(self.names.clone()),
        };
        Ok([of(&self.sources[0])?, of(&self.sources[1])?])
    }

    /// The intermediate generations of the switch, if it is not direct; generations in `without` are avoided.
    pub(crate) fn steps(&self, without: &BTreeSet<GenerationNumber>) -> Vec<GenerationNumber> {
        let [Source::Depot(depot, active), _] = self.sources else { return Vec::new() };
        let manifest = |g| depot.read_manifest(g).ok().filter(|_| !without.contains(&g)).map(Arc::new);
        let next = |at: &GenerationNumber| first_step(&self.to.manifest, *at, manifest);
        std::iter::successors(next(&active), next).collect()
    }

    /// The two generations of a leg; the original sources at the ends.
    pub(crate) fn leg(&self, from: GenerationNumber, to: GenerationNumber) -> Result<Sides<'a>, DepotError> {
        let [old, new] = self.sources;
        let source = |number: GenerationNumber| match old {
            Source::Depot(depot, _) if number != self.to.manifest.generation => Source::Depot(depot, number),
            Source::Depot(..) | Source::Made(_) => new,
        };
        Ok(Sides::open(source(from), source(to))?.naming(self.names.clone()))
    }

    /// The order of the switch: from either manifest, else computed by the same rules.
    ///
    /// # Errors
    /// When the depot can't be read, or there is no order.
    pub(crate) fn order(&self) -> Result<SwitchOrder, NoOrder> {
        let (old, new) = (&self.from.manifest, &self.to.manifest);
        let (from, to) = (old.generation, new.generation);
        if let Some(order) = [new, old].into_iter().find_map(|manifest| manifest.switch_order(from, to)) {
            return Ok(order.clone());
        }
        let before = self.sources[0].side(&self.from);
        let after = self.sources[1].side(&self.to);
        switch_order(&before, &after, to < from)
    }

    /// Loads these hosts too.
    pub(crate) fn look_at(&mut self, hosts: &BTreeSet<HostName>) -> Result<(), DepotError> {
        let wanted: BTreeSet<HostName> = hosts.intersection(&self.alike).cloned().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for (host, bundle) in self.sources[0].bundles(&wanted)? {
            self.to.bundles.insert(host.clone(), bundle.clone());
            self.from.bundles.insert(host, bundle);
        }
        self.alike.retain(|host| !wanted.contains(host));
        Ok(())
    }

    /// Drops all data in the background, because there are millions of small parts.
    pub(crate) fn let_go(self) {
        let Self { from, to, .. } = self;
        rayon::spawn(move || drop((from, to)));
    }

    /// All loaded change objects of both generations.
    pub(crate) fn looked_at(&self) -> BTreeSet<CobId> {
        let bundles = self.from.bundles.values().chain(self.to.bundles.values());
        bundles.flat_map(|bundle| bundle.cobs.keys()).cloned().collect()
    }

    /// Hosts that are not loaded.
    pub(crate) fn not_looked_at(&self) -> &BTreeSet<HostName> {
        &self.alike
    }

    /// Whether a change object may be on a host that is not loaded.
    pub(crate) fn is_unseen(&self, id: &CobId) -> bool {
        self.alike.contains(id.host_str())
    }

    /// Its versions in the active and in the target generation.
    pub(crate) fn in_both(&self, id: &CobId) -> [Option<Known<'_>>; 2] {
        [self.from.find(id), self.to.find(id)]
    }

    /// Its version in the target generation, else in the active generation.
    pub(crate) fn find(&self, id: &CobId) -> Option<Known<'_>> {
        self.both().find(id)
    }

    /// The data without the depot, for many threads.
    pub(crate) fn both(&self) -> Both<'_> {
        Both { from: &self.from, to: &self.to }
    }

    /// Its state before the switch: preferred or exit state.
    pub(crate) fn home_before(&self, id: &CobId) -> Option<&StateName> {
        home_before(&self.in_both(id))
    }

    /// Its state after the switch: preferred or exit state.
    pub(crate) fn home_after(&self, id: &CobId) -> Option<&StateName> {
        home_after(&self.in_both(id))
    }
}

fn shared(bundles: BTreeMap<HostName, Bundle>) -> BTreeMap<HostName, Arc<Bundle>> {
    bundles.into_iter().map(|(host, bundle)| (host, Arc::new(bundle))).collect()
}

/// The state of a change object before the switch.
pub(crate) fn home_before<'a>([old, new]: &[Option<Known<'a>>; 2]) -> Option<&'a StateName> {
    match (old, new) {
        (Some(known), _) => Some(&known.cob.preferred),
        (None, Some(known)) => Some(if known.cob.observe { &known.cob.preferred } else { &known.kind.pre_remove }),
        (None, None) => None,
    }
}

/// The state of a change object after the switch.
pub(crate) fn home_after<'a>([old, new]: &[Option<Known<'a>>; 2]) -> Option<&'a StateName> {
    match (old, new) {
        (_, Some(known)) => Some(&known.cob.preferred),
        (Some(known), None) => {
            let kept = known.cob.leaves_as_it_is();
            Some(if kept { &known.cob.preferred } else { &known.kind.pre_remove })
        }
        (None, None) => None,
    }
}
