//! Where the files of a generation are, for jobs.
//!
//! Most change objects have no files of their own: they work in the folder of their kind, which is put in place, or looked
//! at, once for all of them. So nothing is kept for each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_types::kind::PayloadFile;
use cob_types::{Bundle, Cob, CobId, Kind, KindName};
use tracing::error;

use crate::generations::Prepared;
use crate::kinds::Context;
use crate::run::payload;

/// A folder; or why the files could not be put there.
type Place = Result<PathBuf, String>;

/// Where the files of kinds and change objects are.
#[derive(Default)]
pub(super) struct Places {
    kinds: BTreeMap<KindName, (Arc<Kind>, Place)>,
    /// Of those that have files of their own.
    own: BTreeMap<CobId, Place>,
}

/// A change object, ready for jobs.
pub(super) struct Ready<'a> {
    pub(super) cob: &'a Arc<Cob>,
    pub(super) kind: &'a Arc<Kind>,
    place: &'a Place,
}

impl Places {
    /// Puts the files of all kinds of a generation in place, and those of these change objects. What could not be put there
    /// is told, and its jobs fail.
    pub(super) fn of<'a>(root: &Path, bundle: &Bundle, cobs: impl Iterator<Item = &'a Arc<Cob>>) -> Self {
        let put = |what: &str, files: &BTreeMap<String, PayloadFile>| {
            let place = payload::materialise(root, files, &bundle.blobs).map_err(|e| e.to_string());
            if let Err(error) = &place {
                error!(of = what, error, "files can't be put in place; the jobs that need them will fail");
            }
            place
        };
        let of_kind = |(name, kind): (&KindName, &Kind)| {
            (name.clone(), (Arc::new(kind.clone()), put(&format!("kind {name}"), &kind.files)))
        };
        let mut own = BTreeMap::new();
        for cob in cobs.filter(|cob| !cob.files.is_empty()) {
            let of_kind = bundle.kinds.get(&cob.kind).into_iter().flat_map(|kind| &kind.files);
            let files = of_kind.chain(&cob.files).map(|(name, file)| (name.clone(), file.clone())).collect();
            own.insert(cob.id.clone(), put(cob.id.as_str(), &files));
        }
        Self { kinds: bundle.kinds.iter().map(of_kind).collect(), own }
    }

    /// Takes over what an earlier generation had, of those change objects that are `the_same` in this one, and of kinds that
    /// are the same where their files could not be looked at anew.
    pub(super) fn take_over(&mut self, earlier: Self, the_same: impl Fn(&CobId) -> bool) {
        for (name, (kind, place)) in earlier.kinds {
            if let Some((now, missing @ Err(_))) = self.kinds.get_mut(&name)
                && now.files == kind.files
                && place.is_ok()
            {
                *missing = place;
            }
        }
        for (cob, place) in earlier.own {
            if the_same(&cob) {
                self.own.entry(cob).or_insert(place);
            }
        }
    }

    /// Those whose own files could not be put in place.
    pub(super) fn missing(&self) -> impl Iterator<Item = &CobId> {
        self.own.iter().filter(|(_, place)| place.is_err()).map(|(cob, _)| cob)
    }

    /// A change object of the generation; none: it is not in it.
    pub(super) fn ready<'a>(&'a self, prepared: &'a Prepared, cob: &CobId) -> Option<Ready<'a>> {
        let cob = prepared.bundle.cobs.get(cob)?;
        let (kind, of_kind) = self.kinds.get(&cob.kind)?;
        let place = if cob.files.is_empty() { of_kind } else { self.own.get(&cob.id)? };
        Some(Ready { cob, kind, place })
    }
}

impl Ready<'_> {
    /// What is known of it in its generation, without a move.
    pub(super) fn context_in(&self, prepared: &Prepared) -> Result<Context, String> {
        // The secrets that its content names, as they are in the bundle.
        let secret = |id| prepared.bundle.secrets.get(&id).map(|sealed| (id, sealed.to_vec()));
        Ok(Context {
            cob: self.cob.clone(),
            kind: self.kind.clone(),
            generation: prepared.manifest.generation,
            folder: self.place.clone()?,
            imports: BTreeMap::new(),
            secrets: cob_types::secret::marks(&self.cob.content).filter_map(secret).collect(),
            leaving: false,
        })
    }
}
