//! The way from a model to a checked generation, for all commands.
//!
//! Whatever a command does with a model, it goes this way, so that all of them find the same wrong
//! with it: load and expand, assemble, check. Faults of one stage keep the next one from running,
//! because what that one would say follows from them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_depot::enrolled::{self, Enrolments};
use cob_depot::{Depot, DepotError};
use cob_types::generation::WayBack;
use cob_types::outcome::SwitchOutcome;
use cob_types::secret::SecretId;
use cob_types::{BlobHash, CobId, Generation, GenerationId, GenerationNumber, HostName, Manifest, PublicKey};

use crate::check;
use crate::diagnostic::{Diagnostic, Severity};
use crate::expand::{self, Expansion, Keys, Known};
use crate::generation::{Assembled, assemble};
use crate::model::Sources;
use crate::secrets::{self, Vault};
use crate::solve::{self, Barred, Given, LayoutNode, Layouts};
use crate::switches::DIRECTLY;

/// The generation that a new one comes after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct After {
    /// Its number; zero: none.
    pub number: GenerationNumber,
    /// The new one gets a number above this one, too: hosts know it.
    pub above: GenerationNumber,
    /// Its change objects: what is placed on the `first` node stays where it is.
    pub cobs: BTreeSet<CobId>,
    /// The keys of hosts that have enrolled in the depot; none: there is no depot to ask.
    pub enrolled: Option<Enrolments>,
    /// The keys that its manifest names for hosts, without those that it revokes.
    pub keys: Keys,
    /// The generations to which the new one may name ways back, the newest first.
    pub back: Vec<Earlier>,
    /// Hosts can go directly from the empty generation to the new one, and back.
    pub begins: bool,
    /// The new one mends a hole: neither it nor a later one names a way back to an earlier one.
    pub mends: bool,
    /// The sealed secrets of its bundles: what did not change is taken over.
    pub sealed: BTreeMap<HostName, BTreeMap<SecretId, Vec<u8>>>,
    /// The layouts of its clusters with templates: what is there stays where it is.
    pub layouts: Layouts,
    /// Layouts that are not to be found again: they have failed.
    pub excluded: Vec<Layouts>,
    /// Services that are not to be on named nodes again, by cluster: the outcomes of switches say that they gave up there.
    pub barred: BTreeMap<String, Barred>,
    /// The layouts in which they were there.
    pub failed: Vec<Layouts>,
    /// Its number and content; none: it is in no depot.
    pub id: Option<GenerationId>,
}

/// A generation to which a new one may name a way back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    way: WayBack,
    manifest: Manifest,
}

/// What came of a model.
#[derive(Debug)]
pub struct Made {
    /// The generation; none when the model could not be expanded or assembled. It is there also when
    /// the check refused it, so that it can be looked at.
    pub assembled: Option<Assembled>,
    /// All that was found: what loading says in the order of the files, then what the check says.
    pub diagnostics: Vec<Diagnostic>,
    /// The files, for showing the lines.
    pub sources: Sources,
    /// The files beside the model that travel with it, by name; the bundles have the contents of
    /// those in use.
    pub beside: BTreeMap<String, Vec<u8>>,
    /// The layouts of clusters with templates.
    pub layouts: Layouts,
}

impl After {
    /// What a generation leaves to the next one.
    #[must_use]
    pub fn of(generation: &Generation) -> Self {
        let cobs = generation.bundles.values().flat_map(|bundle| bundle.cobs.keys().cloned()).collect();
        let sealed =
            generation.bundles.iter().filter(|(_, bundle)| !bundle.secrets.is_empty()).map(|(host, bundle)| {
                (host.clone(), bundle.secrets.iter().map(|(id, bytes)| (*id, bytes.to_vec())).collect())
            });
        let sealed = sealed.collect();
        let manifest = &generation.manifest;
        let counting = |keys: &[PublicKey]| keys.iter().filter(|k| !manifest.revoked.contains(k)).copied().collect();
        let keys = manifest.hosts.iter().map(|(host, entry)| (host.clone(), counting(&entry.keys))).collect();
        Self { number: manifest.generation, cobs, keys, sealed, ..Self::default() }
    }

    /// What the latest generation of a depot leaves, with what is known beside it.
    ///
    /// # Errors
    /// When the depot can't be read.
    pub fn latest(depot: &Depot, before: &Generation) -> Result<Self, DepotError> {
        let enrolled = Some(enrolled::read_all(depot.path())?);
        let generation = before.manifest.generation;
        let back = earlier(depot, generation)?;
        let id = back.first().map(|newest| GenerationId { generation, manifest: newest.way.manifest });
        let begins = reach_nothing(&back);
        let layouts = layouts_of(depot, generation)?;
        Ok(Self { enrolled, back, begins, layouts, id, ..Self::of(before) })
    }

    /// These generations have failed: what was there before the first of them is what is there, and the layouts that
    /// they changed are not to be found again.
    ///
    /// # Errors
    /// When the depot can't be read, or has no such generation; the last of these that changed no layout.
    pub fn instead_of(&mut self, depot: &Depot, failed: &[GenerationNumber]) -> Result<(), NotInstead> {
        let Some(first) = failed.iter().min() else { return Ok(()) };
        self.layouts = layouts_of(depot, depot.read_manifest(*first)?.parent)?;
        let outcomes = depot.outcomes()?.all;
        for number in failed {
            let mut layouts = layouts_of(depot, depot.read_manifest(*number)?.generation)?;
            layouts.retain(|cluster, nodes| self.layouts.get(cluster) != Some(nodes));
            if layouts.is_empty() {
                return Err(NotInstead::NoLayout(*number));
            }
            let gave_up: Vec<&CobId> =
                outcomes.iter().filter(|outcome| outcome.to == *number).flat_map(gave_up).collect();
            let mut named = Layouts::new();
            for (cluster, nodes) in &layouts {
                let barred = barred(nodes, &gave_up);
                if !barred.is_empty() {
                    let all = self.barred.entry(cluster.clone()).or_default();
                    barred.into_iter().for_each(|(node, services)| all.entry(node).or_default().extend(services));
                    named.insert(cluster.clone(), nodes.clone());
                }
            }
            layouts.retain(|cluster, _| !named.contains_key(cluster));
            self.excluded.push(layouts);
            self.failed.push(named);
        }
        Ok(())
    }

    fn given(&self) -> Given {
        let (existing, excluded) = (self.layouts.clone(), self.excluded.clone());
        Given { existing, excluded, barred: self.barred.clone(), failed: self.failed.clone() }
    }
}

/// The change objects that gave up in a switch.
fn gave_up(outcome: &SwitchOutcome) -> impl Iterator<Item = &CobId> {
    let all = outcome.hosts.values().flat_map(|host| host.cobs.iter());
    all.filter(|(_, cob)| cob.failed).map(|(id, _)| id)
}

/// The services of a layout that have change objects among these, by their nodes.
fn barred(nodes: &[LayoutNode], gave_up: &[&CobId]) -> Barred {
    let mut found = Barred::new();
    for node in nodes {
        let services = node.services.iter().filter(|service| {
            let of_service = |id: &CobId| id.name().split('/').next() == Some(service.as_str());
            gave_up.iter().any(|id| id.host_str() == node.name && of_service(id))
        });
        let services: BTreeSet<String> = services.cloned().collect();
        if !services.is_empty() {
            found.insert(node.name.clone(), services);
        }
    }
    found
}

/// Whether nothing was there before all of these, and hosts can go directly from there to the next one.
#[must_use]
pub fn reach_nothing(earlier: &[Earlier]) -> bool {
    let is_first = |manifest: &Manifest| manifest.parent == GenerationNumber(0) && !manifest.mends;
    earlier.len() < DIRECTLY && earlier.last().is_none_or(|earlier| is_first(&earlier.manifest))
}

/// Those from which hosts can go directly to a generation that is made after this one, so that one that fails is left
/// for what its hosts had, whatever has failed before it. Behind one that mends a hole there is none.
///
/// # Errors
/// When the depot can't be read.
pub fn earlier(depot: &Depot, latest: GenerationNumber) -> Result<Vec<Earlier>, DepotError> {
    let mut all = Vec::new();
    let mut generation = latest;
    while generation != GenerationNumber(0) && all.len() < DIRECTLY {
        match depot.read_manifest_hashed(generation) {
            Ok((manifest, hash)) => {
                let (parent, mends) = (manifest.parent, manifest.mends);
                all.push(Earlier { way: WayBack { generation, manifest: hash }, manifest });
                if mends {
                    break;
                }
                generation = parent;
            }
            // One that is not kept any more is nowhere to be returned to.
            Err(_) if generation != latest => break,
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The ways back of a generation, the newest first: to these earlier ones, up to the first in which a key would be good
/// again that it revokes, or one behind that; `begins`: also to the empty generation before all of them. A key that it
/// believes itself was revoked by mistake, if ever.
#[must_use]
pub fn ways_back(newest: &Manifest, earlier: &[Earlier], begins: bool) -> Vec<WayBack> {
    let mut revoked = newest.revoked.clone();
    let mut ways = Vec::new();
    for Earlier { way, manifest } in earlier {
        if revoked.iter().any(|key| manifest.believes(key)) {
            break;
        }
        ways.push(*way);
        revoked.extend(manifest.revoked.iter().filter(|key| !newest.believes(key)));
    }
    // In the empty generation no key is good again.
    if begins && ways.len() == earlier.len() {
        ways.push(newest.way_to_nothing());
    }
    ways
}

/// Why the layouts of a generation can't be excluded.
#[derive(Debug, thiserror::Error)]
pub enum NotInstead {
    /// The depot can't be read.
    #[error(transparent)]
    Depot(#[from] DepotError),
    /// It has the layouts that there were before.
    #[error("generation {0} has no layout of its own that could be excluded: its clusters are laid out as before it")]
    NoLayout(GenerationNumber),
}

/// The layouts that a generation remembers; none, when its number is zero.
///
/// # Errors
/// When the depot can't be read.
pub(crate) fn layouts_of(depot: &Depot, generation: GenerationNumber) -> Result<Layouts, DepotError> {
    if generation == GenerationNumber(0) {
        return Ok(Layouts::new());
    }
    let remembered = depot.read_model(generation)?.remove(solve::REMEMBERED);
    // What another version has written, or nobody, is no reason to refuse a model.
    Ok(remembered.and_then(|bytes| solve::of_bytes(&bytes).ok()).unwrap_or_default())
}

impl Made {
    /// Whether the model has errors; it is refused then.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.assembled.is_none() || self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }
}

/// Makes and checks the generation that a model asks for. Nobody looks for the values of its secrets, so
/// it can be checked and shown, but not published.
#[must_use]
pub fn make(model: &Path, after: &After) -> Made {
    make_with(model, after, None)
}

/// Makes and checks the generation that a model asks for, with the secrets that the vault finds.
#[must_use]
pub fn make_with(model: &Path, after: &After, vault: Option<&Vault>) -> Made {
    let given = after.given();
    let known = Known { previous: &after.cobs, enrolled: after.enrolled.as_ref(), before: &after.keys, given: &given };
    let Expansion { draft, mut diagnostics, sources, beside, layouts } = expand::load_knowing(model, &known);
    let nothing = |diagnostics, sources| Made {
        assembled: None,
        diagnostics,
        sources,
        beside: BTreeMap::new(),
        layouts: Layouts::new(),
    };
    let Some(mut draft) = draft else { return nothing(diagnostics, sources) };
    let found = match vault {
        Some(vault) => vault.settle(&mut draft, after),
        None => secrets::refused(&draft),
    };
    let refused = found.iter().any(|d| d.severity == Severity::Error);
    diagnostics.extend(found);
    if refused {
        return nothing(diagnostics, sources);
    }
    let number = GenerationNumber(after.number.max(after.above).0 + 1);
    let content = |hash: &BlobHash| draft.blobs.get(hash).cloned();
    let beside = beside.into_iter().filter_map(|(name, hash)| Some((name, content(&hash)?))).collect();
    let assembled = match assemble(draft, number, after.number) {
        Ok(mut assembled) => {
            diagnostics.extend(give_ways_back(&mut assembled.generation.manifest, after));
            let findings = check::check(&assembled.generation, Some(&assembled.provenance));
            diagnostics.extend(findings.into_iter().map(Diagnostic::from));
            Some(assembled)
        }
        Err(refusal) => {
            diagnostics.extend(refusal.faults.into_iter().map(Diagnostic::from));
            None
        }
    };
    Made { assembled, diagnostics, sources, beside, layouts }
}

/// Says so where a new generation names none, although it might.
fn give_ways_back(manifest: &mut Manifest, after: &After) -> Option<Diagnostic> {
    // A depot that gives numbers above those of hosts does not know what these have.
    let begins = after.begins && after.above <= after.number && !after.mends;
    manifest.back = ways_back(manifest, &after.back, begins);
    manifest.mends = after.mends;
    let newest = after.back.first().filter(|_| manifest.back.is_empty())?;
    let again: Vec<String> =
        manifest.revoked.iter().filter(|key| newest.manifest.believes(key)).map(ToString::to_string).collect();
    let what = format!(
        "there is no way back from this generation, {}, to generation {}: {} would be good again there",
        manifest.generation,
        newest.way.generation,
        again.join(", ")
    );
    Some(Diagnostic::warning("no-way-back", what).help(
        "revoke a key in a generation that changes nothing else: a switch to it that fails is not taken back, \
         and `cobctl rollback` leads nowhere",
    ))
}
