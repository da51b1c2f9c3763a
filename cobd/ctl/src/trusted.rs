//! The trusted part of the depot: its manifests contain the addresses and the keys of hosts, so a forged manifest would
//! mislead the operator.

use std::path::Path;

use cob_depot::{Depot, GenerationName, LogEntry};
use cob_forecast::Source;
use cob_trust::Publishers;
use cob_types::generation::{FORMAT, MAX_BUNDLE, MAX_MANIFEST};
use cob_types::outcome::SwitchOutcome;
use cob_types::{BlobHash, Bundle, Generation, GenerationNumber, Manifest, canonical, codec};

use crate::failure::Failure;

/// The most generations to search backwards for an accepted generation.
const BACK: u64 = 20;

/// A depot, and the publishers whose signatures count.
#[derive(Debug)]
pub struct TrustedDepot {
    depot: Depot,
    trust: Option<Publishers>,
}

/// The newest generation that is accepted.
#[derive(Debug)]
pub struct Newest {
    /// Its manifest.
    pub manifest: Manifest,
    /// Why a newer generation was not accepted; empty if this is the newest of all.
    pub warnings: Vec<String>,
}

impl TrustedDepot {
    /// Trusts generations that these publishers have signed; without publishers, every generation.
    #[must_use]
    pub fn new(depot: Depot, trust: Option<Publishers>) -> Self {
        Self { depot, trust }
    }

    /// The folder of the depot.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.depot.path()
    }

    /// The number of the newest generation, accepted or not.
    ///
    /// # Errors
    /// [`Failure`] if the depot can't be read or is empty.
    pub fn latest(&self) -> Result<GenerationNumber, Failure> {
        self.depot.latest()?.ok_or_else(|| {
            Failure::usage(format!("the depot {} holds no generation", self.depot.path().display()))
                .hint("publish a generation with `cobgen generate MODEL --depot DIR`")
        })
    }

    /// The number of a generation from the name that the user gave.
    ///
    /// # Errors
    /// [`Failure`] if the depot can't be read, or has too few generations.
    pub fn find(&self, named: GenerationName) -> Result<GenerationNumber, Failure> {
        Ok(named.find(&self.depot)?)
    }

    /// The manifest of a generation.
    ///
    /// # Errors
    /// [`Failure`] if the depot does not have it, or it is not accepted.
    pub fn manifest(&self, generation: GenerationNumber) -> Result<Manifest, Failure> {
        let Some(trust) = &self.trust else { return Ok(self.depot.read_manifest(generation)?) };
        let bytes = self.depot.read_manifest_bytes(generation)?;
        let signatures = self.depot.signatures(generation)?;
        let refused = |why: &dyn std::fmt::Display| {
            let depot = self.depot.path().display();
            Failure::refused(format!("generation {generation} of the depot {depot} is not accepted: {why}"))
                .hint("accepted publishers: `trust` in cobctl.toml, or --trust")
        };
        trust.judge(&bytes, &signatures).map_err(|why| refused(&why))?;
        let manifest: Manifest = codec::decode(&bytes, MAX_MANIFEST).map_err(|why| refused(&why))?;
        if manifest.format != FORMAT {
            return Err(refused(&format!("its format {} is newer than this program", manifest.format)));
        }
        if manifest.generation != generation {
            return Err(refused(&format!("its manifest belongs to generation {}", manifest.generation)));
        }
        Ok(manifest)
    }

    /// The content that the depot has under a number, accepted or not; `None`: no generation has this number.
    #[must_use]
    pub fn content(&self, generation: GenerationNumber) -> Option<BlobHash> {
        self.depot.read_manifest_bytes(generation).ok().map(|bytes| canonical::blob_hash(&bytes))
    }

    /// An accepted generation as a source that is read bundle by bundle.
    ///
    /// # Errors
    /// As for [`TrustedDepot::manifest`].
    pub fn source(&self, generation: GenerationNumber) -> Result<Source<'_>, Failure> {
        self.manifest(generation)?;
        Ok(Source::Depot(&self.depot, generation))
    }

    /// Records the outcome of a switch in the depot, for people to read. Returns whether it is new.
    ///
    /// # Errors
    /// [`Failure`] if the depot can't be written.
    pub fn add_outcome(&self, outcome: &SwitchOutcome) -> Result<bool, Failure> {
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let written = self.depot.add_outcome(outcome, &self.depot.default_author(), time);
        written.map_err(|error| {
            Failure::environment(error)
                .hint("a user with write access to the depot can store it: `cobctl outcomes --record`")
        })
    }

    /// The outcomes of the most recently recorded switches, the newest first, as far as they can be read.
    #[must_use]
    pub fn newest_outcomes(&self, most: usize) -> Vec<SwitchOutcome> {
        self.depot.last_outcomes(most).map(|outcomes| outcomes.all).unwrap_or_default()
    }

    /// The message, time and publisher of a generation, as far as they can be read.
    #[must_use]
    pub fn published(&self, generation: GenerationNumber) -> Option<LogEntry> {
        self.depot.list().ok()?.into_iter().find(|entry| entry.generation == generation)
    }

    /// A complete generation.
    ///
    /// # Errors
    /// As for [`TrustedDepot::manifest`], or if a bundle can't be read.
    pub fn whole(&self, generation: GenerationNumber) -> Result<Generation, Failure> {
        let manifest = self.manifest(generation)?;
        let mut bundles = std::collections::BTreeMap::new();
        for (host, entry) in &manifest.hosts {
            // Check against the accepted manifest: the manifest in the depot may have changed since.
            let bytes = self.depot.read_bundle_bytes(generation, host)?;
            let wrong = |why: &dyn std::fmt::Display| {
                Failure::refused(format!("the bundle of {host} in generation {generation}: {why}"))
            };
            if canonical::blob_hash(&bytes) != entry.bundle {
                return Err(wrong(&"it is not the bundle of the manifest"));
            }
            let bundle: Bundle = codec::decode(&bytes, MAX_BUNDLE).map_err(|e| wrong(&e))?;
            bundles.insert(host.clone(), bundle);
        }
        Ok(Generation { manifest, bundles })
    }

    /// The newest generation that is accepted: the last generation may still wait for a signature.
    ///
    /// # Errors
    /// [`Failure`] if the depot can't be read, is empty, or holds no accepted generation.
    pub fn newest(&self) -> Result<Newest, Failure> {
        let latest = self.latest()?;
        let first = match self.manifest(latest) {
            Ok(manifest) => return Ok(Newest { manifest, warnings: Vec::new() }),
            Err(failure) if self.trust.is_none() => return Err(failure),
            Err(failure) => failure,
        };
        let older = (latest.0.saturating_sub(BACK).max(1)..latest.0).rev().map(GenerationNumber);
        match older.filter_map(|number| self.manifest(number).ok()).next() {
            Some(manifest) => {
                let number = manifest.generation;
                let instead = format!("so hosts are looked up in generation {number}");
                Ok(Newest { manifest, warnings: vec![first.in_a_line(), instead] })
            }
            None => Err(first),
        }
    }
}
