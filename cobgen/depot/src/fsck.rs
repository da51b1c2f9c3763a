//! Checks a whole depot: finds and names all differences from the published state. It changes nothing.

use std::collections::BTreeSet;

use cob_types::GenerationNumber;
use cob_types::canonical::blob_hash;
use cob_types::trust::Signed;
use cob_types::words::count;
use serde::Serialize;

use crate::depot::{Depot, MAIN};
use crate::error::DepotError;
use crate::reach::Reached;
use crate::{enrolled, tokens};

/// The most faults that are listed.
const MOST: usize = 1000;

/// A deviation from the published state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Fault {
    /// The place: `generation 7`, `refs/heads/main`, the name of a file.
    pub at: String,
    /// The fault.
    pub what: String,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// The checked generations, newest first.
    pub generations: Vec<GenerationNumber>,
    /// How many bundles match their manifest.
    pub bundles: u64,
    /// How many signatures are good.
    pub signatures: u64,
    /// The pinned generations.
    pub pins: Vec<GenerationNumber>,
    /// How many objects the refs reach.
    pub objects: u64,
    /// How many files killed programs left behind; pruning removes them.
    pub leftovers: u64,
    /// All faults; only the first thousand are listed.
    pub faults: Vec<Fault>,
}

impl Depot {
    /// Checks all content. `is_good` judges a signature over a manifest.
    ///
    /// # Errors
    /// If the content of the depot can't even be listed.
    pub fn fsck(&self, is_good: impl Fn(&[u8], &Signed) -> bool) -> Result<Report, DepotError> {
        let numbers = self.newest_first()?;
        let mut checking = Checking { report: Report { generations: numbers.clone(), ..Report::default() } };
        let ends = checking.note("shallow", self.shallow()).unwrap_or_default();
        let commits: BTreeSet<_> = numbers.iter().filter_map(|n| Some(self.commit(*n).ok()?.id())).collect();
        for number in &numbers {
            let at = format!("generation {number}");
            self.check_generation(*number, &at, &mut checking);
            self.check_signatures(*number, &at, &is_good, &mut checking);
            let Some(commit) = checking.note(&at, self.commit(*number)) else { continue };
            let gone = commit.parent_ids().any(|parent| !commits.contains(&parent) && !ends.contains(&commit.id()));
            if gone {
                let what = "the generation before it is missing, and the file `shallow` does not list that: git \
                    clients can't copy the depot";
                checking.fault(&at, what);
            }
        }
        self.check_refs(&numbers, &ends, &mut checking);
        checking.report.leftovers = checking.note("files left behind", self.leftovers()).map_or(0, |l| l.len() as u64);
        checking.note("enrolled.json", enrolled::read(&self.path));
        checking.note("tokens.json", tokens::read(&self.path));
        let mut report = checking.report;
        report.faults.sort();
        report.faults.dedup();
        Ok(report)
    }

    fn check_generation(&self, number: GenerationNumber, at: &str, checking: &mut Checking) {
        let Some(generation) = checking.note(at, self.read(number)) else { return };
        checking.report.bundles += generation.bundles.len() as u64;
        let manifest = &generation.manifest;
        let cobs: u64 = generation.bundles.values().map(|bundle| bundle.cobs.len() as u64).sum();
        if cobs != manifest.cobs {
            checking.fault(
                at,
                &format!(
                    "its bundles have {}, but its manifest counts {}",
                    count(cobs, "change object"),
                    manifest.cobs
                ),
            );
        }
        if manifest.parent >= number {
            checking.fault(at, &format!("its manifest names {} as the generation before", manifest.parent));
        }
        for way in &manifest.back {
            // A pruned generation can't be compared; hosts that still have it can roll back to it.
            if let Ok(bytes) = self.read_manifest_bytes(way.generation)
                && blob_hash(&bytes) != way.manifest
            {
                checking.fault(
                    at,
                    &format!("its rollback target is another generation {} than the depot has", way.generation),
                );
            }
        }
        checking.note(at, self.read_model(number));
        checking.note(at, self.read_provenance(number));
    }

    fn check_signatures(
        &self,
        number: GenerationNumber,
        at: &str,
        is_good: impl Fn(&[u8], &Signed) -> bool,
        checking: &mut Checking,
    ) {
        let signatures = checking.note(at, self.signatures(number)).unwrap_or_default();
        let Ok(bytes) = self.read_manifest_bytes(number) else { return };
        for signed in &signatures {
            if is_good(&bytes, signed) {
                checking.report.signatures += 1;
            } else {
                checking.fault(at, &format!("the signature of {} does not match its manifest", signed.key));
            }
        }
    }

    fn check_refs(&self, numbers: &[GenerationNumber], ends: &BTreeSet<git2::Oid>, checking: &mut Checking) {
        let lost = checking.note(MAIN, self.lost()).unwrap_or_default();
        for error in &lost {
            let at =
                if let DepotError::Lost { number, .. } = error { format!("generation {number}") } else { MAIN.into() };
            checking.fault(&at, &error.to_string());
        }
        if let Err(error @ DepotError::LostTrace { .. }) = self.is_newest_of_outcomes() {
            checking.fault("refs/outcomes", &error.to_string());
        }
        if lost.is_empty()
            && let Some(newest) = numbers.first().and_then(|number| Some(self.commit(*number).ok()?.id()))
            && self.repo.refname_to_id(MAIN).ok() != Some(newest)
        {
            checking.fault(MAIN, "it does not name the newest generation; the next publisher sets it right");
        }
        if let Some(pins) = checking.note("refs/pins", self.pins()) {
            for number in pins.keys().filter(|number| !numbers.contains(number)) {
                checking.fault(&format!("refs/pins/{number}"), "the generation is not there");
            }
            checking.report.pins = pins.into_keys().collect();
        }
        // Records the first fault in the objects that the refs reach. After a fault, each ref is walked alone.
        if checking.note("refs", Reached::of(self, &[], ends)).is_some_and(|reached| {
            checking.report.objects = reached.ids.len() as u64;
            true
        }) {
            return;
        }
        let mut reached = Reached::default();
        let references = self.repo.references().into_iter().flatten().flatten();
        for reference in references {
            if let (Ok(name), Some(id)) = (reference.name(), reference.target()) {
                checking.note(name, reached.walk(self, name, id, ends));
            }
        }
        checking.report.objects = reached.ids.len() as u64;
    }
}

struct Checking {
    report: Report,
}

impl Checking {
    fn fault(&mut self, at: &str, what: &str) {
        if self.report.faults.len() < MOST {
            self.report.faults.push(Fault { at: at.to_owned(), what: what.to_owned() });
        }
    }

    /// Records the reason if a value can't be read.
    fn note<T>(&mut self, at: &str, found: Result<T, DepotError>) -> Option<T> {
        found.map_err(|error| self.fault(at, &error.to_string())).ok()
    }
}
