//! The steps from a model to a checked generation, for all commands.
//!
//! Every command uses these steps for a model, so that all commands find the same faults: load and expand, assemble,
//! check. Faults of a stage prevent the next stage, because its faults would only follow from these.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cob_depot::enrolled::{self, Enrolments};
use cob_depot::{Depot, DepotError};
use cob_types::generation::RollbackTarget;
use cob_types::outcome::SwitchOutcome;
use cob_types::secret::SecretId;
use cob_types::{BlobHash, CobId, Generation, GenerationId, GenerationNumber, HostName, Manifest, PublicKey};

use crate::check;
use crate::diagnostic::{Diagnostic, Severity};
use crate::expand::{self, Expansion, Keys, Known};
use crate::generation::{Assembled, assemble};
use crate::model::{Model, Sources};
use crate::secrets::{self, Vault};
use crate::solve::{self, Barred, Given, LayoutNode, Layouts};
use crate::switches::DIRECTLY;

/// The state of the generation that a new generation comes after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct After {
    /// Its number; zero: there is no generation.
    pub number: GenerationNumber,
    /// The new generation gets a number above this number, too: hosts know it.
    pub above: GenerationNumber,
    /// Its change objects: objects placed on the `first` node stay on their node.
    pub cobs: BTreeSet<CobId>,
    /// The keys of enrolled hosts; `None`: there is no depot.
    pub enrolled: Option<Enrolments>,
    /// The keys that its manifest names for hosts, without revoked keys.
    pub keys: Keys,
    /// The possible rollback targets of the new generation, newest first.
    pub back: Vec<Earlier>,
    /// Hosts can switch directly from the empty generation to the new generation, and roll back.
    pub begins: bool,
    /// The new generation fixes a security hole: neither it nor a later generation allows a rollback to an earlier
    /// generation.
    pub mends: bool,
    /// The sealed secrets of its bundles: unchanged secrets are reused.
    pub sealed: BTreeMap<HostName, BTreeMap<SecretId, Vec<u8>>>,
    /// The ids of secrets by name, for a generation that is made without a vault and only compared: their values are taken
    /// as unchanged.
    pub secrets: BTreeMap<String, SecretId>,
    /// The layouts of its clusters with templates: existing nodes keep their services.
    pub layouts: Layouts,
    /// Failed layouts, which the solver must not find again.
    pub excluded: Vec<Layouts>,
    /// Services that must not be on named nodes again, by cluster: in earlier switches they failed there.
    pub barred: BTreeMap<String, Barred>,
    /// The layouts in which these services were there.
    pub failed: Vec<Layouts>,
    /// Its number and content; `None`: it is in no depot.
    pub id: Option<GenerationId>,
}

/// A possible rollback target of a new generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    way: RollbackTarget,
    manifest: Manifest,
}

/// The result for a model.
#[derive(Debug)]
pub struct Made {
    /// The generation; `None` if the model could not be expanded or assembled. It exists even if the check refused it,
    /// so that it can be shown.
    pub assembled: Option<Assembled>,
    /// All findings: from loading in the order of the files, then from the check.
    pub diagnostics: Vec<Diagnostic>,
    /// The model's files, to show lines.
    pub sources: Sources,
    /// The payload files beside the model, by name; the bundles have the contents of the files in use.
    pub beside: BTreeMap<String, Vec<u8>>,
    /// The layouts of clusters with templates.
    pub layouts: Layouts,
}

impl After {
    /// The state that a generation leaves to the next.
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

    /// The state that the latest generation of a depot leaves, with further data of the depot.
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

    /// Replaces failed generations: the state before the first of these counts as the present state, and the layouts
    /// that they changed are excluded.
    ///
    /// # Errors
    /// When the depot can't be read, or lacks a generation; [`NotInstead::NoLayout`] if a generation changed no layout.
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

/// The change objects that failed in a switch.
fn gave_up(outcome: &SwitchOutcome) -> impl Iterator<Item = &CobId> {
    let all = outcome.hosts.values().flat_map(|host| host.cobs.iter());
    all.filter(|(_, cob)| cob.failed).map(|(id, _)| id)
}

/// The services of a layout that own any of these change objects, by node.
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

/// Whether the generation before all of these is the empty generation, and hosts can switch directly from there.
#[must_use]
pub fn reach_nothing(earlier: &[Earlier]) -> bool {
    let is_first = |manifest: &Manifest| manifest.parent == GenerationNumber(0) && !manifest.mends;
    earlier.len() < DIRECTLY && earlier.last().is_none_or(|earlier| is_first(&earlier.manifest))
}

/// The generations from which hosts can switch directly to a generation made after `latest`, so that a failed switch
/// rolls back to the state that its hosts had, even after other failures. The list ends with a generation that fixes a
/// security hole.
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
                all.push(Earlier { way: RollbackTarget { generation, manifest: hash }, manifest });
                if mends {
                    break;
                }
                generation = parent;
            }
            // A pruned generation cannot be a rollback target.
            Err(_) if generation != latest => break,
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The rollback targets of a generation, newest first: these earlier generations, up to the first that trusts a key
/// which the new generation or a listed target revokes. A revocation of a key that the new generation trusts is ignored
/// as a mistake. `begins`: also the empty generation before all.
#[must_use]
pub fn ways_back(newest: &Manifest, earlier: &[Earlier], begins: bool) -> Vec<RollbackTarget> {
    let mut revoked = newest.revoked.clone();
    let mut ways = Vec::new();
    for Earlier { way, manifest } in earlier {
        if revoked.iter().any(|key| manifest.believes(key)) {
            break;
        }
        ways.push(*way);
        revoked.extend(manifest.revoked.iter().filter(|key| !newest.believes(key)));
    }
    // The empty generation trusts no key.
    if begins && ways.len() == earlier.len() {
        ways.push(newest.way_to_nothing());
    }
    ways
}

/// The reason why the layouts of a generation can't be excluded.
#[derive(Debug, thiserror::Error)]
pub enum NotInstead {
    /// The depot can't be read.
    #[error(transparent)]
    Depot(#[from] DepotError),
    /// It has the same layouts as the generation before it.
    #[error("generation {0} has no layout of its own that could be excluded: its clusters are laid out as before it")]
    NoLayout(GenerationNumber),
}

/// The layouts that a generation stores; empty for number zero.
///
/// # Errors
/// When the depot can't be read.
pub(crate) fn layouts_of(depot: &Depot, generation: GenerationNumber) -> Result<Layouts, DepotError> {
    if generation == GenerationNumber(0) {
        return Ok(Layouts::new());
    }
    let remembered = depot.read_model(generation)?.remove(solve::REMEMBERED);
    // Missing or unreadable layouts of another version are no reason to refuse a model.
    Ok(remembered.and_then(|bytes| solve::of_bytes(&bytes).ok()).unwrap_or_default())
}

impl Made {
    /// Whether the model has errors, and so is refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.assembled.is_none() || self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }
}

/// Makes and checks the generation of a model. The values of its secrets are not read, so it can be checked and shown,
/// but not published.
#[must_use]
pub fn make(model: &Path, after: &After) -> Made {
    make_with(model, after, None)
}

/// Makes and checks the generation of a model, with the secrets that the vault finds.
#[must_use]
pub fn make_with(model: &Path, after: &After, vault: Option<&Vault>) -> Made {
    make_of(Model::load(model), after, vault)
}

/// The same for a loaded model.
pub(crate) fn make_of(model: Model, after: &After, vault: Option<&Vault>) -> Made {
    let given = after.given();
    let known = Known { previous: &after.cobs, enrolled: after.enrolled.as_ref(), before: &after.keys, given: &given };
    let Expansion { draft, mut diagnostics, sources, beside, layouts } = expand::expand_knowing(model, &known);
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
        None => {
            secrets::as_before(&mut draft, after);
            secrets::refused(&draft)
        }
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

/// Sets the rollback targets; warns if a new generation has no target only because keys would be valid again.
fn give_ways_back(manifest: &mut Manifest, after: &After) -> Option<Diagnostic> {
    // A depot that gives numbers above its hosts' numbers does not know the generations of these hosts.
    let begins = after.begins && after.above <= after.number && !after.mends;
    manifest.back = ways_back(manifest, &after.back, begins);
    manifest.mends = after.mends;
    let newest = after.back.first().filter(|_| manifest.back.is_empty())?;
    let again: Vec<String> =
        manifest.revoked.iter().filter(|key| newest.manifest.believes(key)).map(ToString::to_string).collect();
    let what = format!(
        "no rollback from this generation, {}, to generation {}: there {} would be valid again",
        manifest.generation,
        newest.way.generation,
        again.join(", ")
    );
    Some(Diagnostic::warning("no-way-back", what).help(
        "revoke a key in a generation without other changes: it has no rollback target, neither for a failed switch \
         nor for `cobctl rollback`",
    ))
}
