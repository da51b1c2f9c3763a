//! The folders with the files of a generation, for jobs.
//!
//! Most change objects have no files of their own: they work in the folder of their kind, which is prepared once for
//! all. So only change objects with own files have an entry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cob_types::kind::PayloadFile;
use cob_types::{Cob, CobId, Kind, KindName, Packed};
use tracing::error;

use crate::generations::Prepared;
use crate::kinds::Context;
use crate::run::payload;

/// A folder, or the error that prevented it.
type Folder = Result<PathBuf, String>;

/// The folders of kinds and change objects.
#[derive(Default)]
pub(super) struct Folders {
    kinds: BTreeMap<KindName, (Arc<Kind>, Folder)>,
    /// Of change objects with files of their own.
    own: BTreeMap<CobId, Folder>,
}

/// A change object, ready for jobs.
pub(super) struct Ready<'a> {
    pub(super) cob: Arc<Cob>,
    pub(super) kind: &'a Arc<Kind>,
    folder: &'a Folder,
}

impl Folders {
    /// Puts the files of a generation's kinds and of these change objects in place. An error is logged, and the jobs
    /// fail.
    pub(super) fn of(root: &Path, bundle: &Packed, cobs: impl Iterator<Item = Arc<Cob>>) -> Self {
        let put = |what: &str, files: &BTreeMap<String, PayloadFile>| {
            let folder = payload::materialise(root, files, bundle.blobs()).map_err(|e| e.to_string());
            if let Err(error) = &folder {
                error!(of = what, error, "files can't be put in place; the jobs that need these files will fail");
            }
            folder
        };
        let of_kind = |(name, kind): (&KindName, &Kind)| {
            (name.clone(), (Arc::new(kind.clone()), put(&format!("kind {name}"), &kind.files)))
        };
        let mut own = BTreeMap::new();
        for cob in cobs.filter(|cob| !cob.files.is_empty()) {
            let of_kind = bundle.kinds().get(&cob.kind).into_iter().flat_map(|kind| &kind.files);
            let files = of_kind.chain(&cob.files).map(|(name, file)| (name.clone(), file.clone())).collect();
            own.insert(cob.id.clone(), put(cob.id.as_str(), &files));
        }
        Self { kinds: bundle.kinds().iter().map(of_kind).collect(), own }
    }

    /// Takes over folders of an earlier generation: of change objects that are `still_there` and have no new folder,
    /// and of unchanged kinds whose files could not be put in place again.
    pub(super) fn take_over(&mut self, earlier: Self, still_there: impl Fn(&CobId) -> bool) {
        for (name, (kind, folder)) in earlier.kinds {
            if let Some((now, missing @ Err(_))) = self.kinds.get_mut(&name)
                && now.files == kind.files
                && folder.is_ok()
            {
                *missing = folder;
            }
        }
        for (cob, folder) in earlier.own {
            if still_there(&cob) {
                self.own.entry(cob).or_insert(folder);
            }
        }
    }

    /// Change objects whose own files could not be put in place.
    pub(super) fn missing(&self) -> impl Iterator<Item = &CobId> {
        self.own.iter().filter(|(_, folder)| folder.is_err()).map(|(cob, _)| cob)
    }

    /// A change object of the generation; absent: it is not in the generation.
    pub(super) fn ready(&self, prepared: &Prepared, cob: &CobId) -> Option<Ready<'_>> {
        self.find(&prepared.bundle, cob)
    }

    /// The kind of a change object of the generation, without unpacking the change object.
    pub(super) fn kind_of(&self, prepared: &Prepared, cob: &CobId) -> Option<&Arc<Kind>> {
        self.kinds.get(prepared.bundle.kind_of(cob)?).map(|(kind, _)| kind)
    }

    fn find(&self, bundle: &Packed, cob: &CobId) -> Option<Ready<'_>> {
        let cob = bundle.get(cob)?;
        let (kind, of_kind) = self.kinds.get(&cob.kind)?;
        let folder = if cob.files.is_empty() { of_kind } else { self.own.get(&cob.id)? };
        Some(Ready { cob, kind, folder })
    }
}

/// Puts new and changed files in place before the loop needs them, because that may take long. The loop retries and
/// reports failures.
pub(super) fn put_in_place(root: &Path, prepared: &Prepared, before: Option<&Prepared>) {
    let bundle = &prepared.bundle;
    let nothing;
    let before = match before {
        Some(before) => &*before.bundle,
        None => {
            nothing = Packed::empty(bundle.host().clone());
            &nothing
        }
    };
    let new = bundle.changed(before).filter(|cob| bundle.has(cob) && bundle.has_files(cob));
    drop(Folders::of(root, bundle, new.filter_map(|cob| bundle.get(cob))));
}

impl Ready<'_> {
    /// The context in its generation, without a transition.
    pub(super) fn context_in(&self, prepared: &Prepared) -> Result<Context, String> {
        // The sealed secrets that its content names.
        let secret = |id| prepared.bundle.secrets().get(&id).map(|sealed| (id, sealed.to_vec()));
        Ok(Context {
            cob: self.cob.clone(),
            kind: self.kind.clone(),
            generation: prepared.manifest.generation,
            folder: self.folder.clone()?,
            imports: BTreeMap::new(),
            secrets: cob_types::secret::marks(&self.cob.content).filter_map(secret).collect(),
            leaving: false,
            rested_for: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use cob_types::{Bundle, canonical};
    use serde_json::json;

    use super::*;

    /// A generation of change objects `here/NAME` of the kind `k`, each with a file of its own if it has a text.
    fn bundle(of_kind: &str, cobs: &[(&str, Option<&str>)]) -> Packed {
        let mut bundle = Bundle::empty("here".parse().expect("a name"));
        let mut file = |text: &str| {
            let blob = canonical::blob_hash(text.as_bytes());
            bundle.blobs.insert(blob, text.as_bytes().to_vec().into());
            PayloadFile { mode: 0o644, blob }
        };
        let mut kind: Kind = serde_json::from_value(json!({
            "name": "k", "backend": "noop", "states": ["down", "up"], "preferred": "up", "pre_remove": "down",
            "priority": ["up", "down"], "check": {"timeout_ms": 1000}, "transitions": [],
        }))
        .expect("a kind");
        kind.files.insert("of-kind".to_owned(), file(of_kind));
        for (name, own) in cobs {
            let id: CobId = format!("here/{name}").parse().expect("an id");
            let fingerprint = canonical::fingerprint(&[own.unwrap_or_default().as_bytes()]);
            let cob = Cob {
                id: id.clone(),
                kind: kind.name.clone(),
                preferred: kind.preferred.clone(),
                content: "{}".to_owned(),
                fingerprint,
                rests_on: None,
                transitions: Default::default(),
                locks: Default::default(),
                ranks: Default::default(),
                expects: Default::default(),
                files: own.iter().map(|text| ("own".to_owned(), file(text))).collect(),
                budget: None,
                at_most: None,
                keep: false,
                observe: false,
            };
            bundle.cobs.insert(id, Arc::new(cob));
        }
        bundle.kinds.insert(kind.name.clone(), kind);
        Packed::of(&bundle).expect("CBOR")
    }

    /// The texts in the folder of a change object; absent: the folder could not be made.
    fn files(folders: &Folders, bundle: &Packed, cob: &str) -> Option<Vec<String>> {
        let ready = folders.find(bundle, &cob.parse().expect("an id")).expect("it is there");
        let folder = ready.folder.as_ref().ok()?;
        let all = ["of-kind", "own"].into_iter().filter_map(|name| std::fs::read_to_string(folder.join(name)).ok());
        Some(all.collect())
    }

    #[test]
    fn a_change_object_finds_its_files_and_unchanged_files_stay_in_place() {
        let root = tempfile::tempdir().expect("a folder");
        let first = bundle("1", &[("plain", None), ("a", Some("a1")), ("b", Some("b1"))]);
        let before = Folders::of(root.path(), &first, all(&first));
        assert_eq!(files(&before, &first, "here/plain"), Some(vec!["1".to_owned()]));
        assert_eq!(files(&before, &first, "here/b"), Some(vec!["1".to_owned(), "b1".to_owned()]));
        // One change object has another file, and another has no file any more.
        let second = bundle("1", &[("plain", None), ("a", Some("a2")), ("b", None), ("c", Some("c"))]);
        let changed = all(&second).filter(|cob| ["here/a", "here/b", "here/c"].contains(&cob.id.as_str()));
        let mut now = Folders::of(root.path(), &second, changed);
        now.take_over(before, |cob| second.has(cob));
        for (cob, found) in [("plain", "1"), ("a", "1a2"), ("b", "1"), ("c", "1c")] {
            assert_eq!(files(&now, &second, &format!("here/{cob}")).map(|all| all.concat()).as_deref(), Some(found));
        }
        assert!(missing(&now).is_empty());
    }

    #[test]
    fn a_failed_folder_is_tried_again_and_a_kind_keeps_its_earlier_folder() {
        let root = tempfile::tempdir().expect("a folder");
        let whole = bundle("1", &[("plain", None), ("a", Some("a"))]);
        let had = Folders::of(root.path(), &whole, all(&whole));
        // A file in place of the folder prevents its creation.
        let blocked = root.path().join("file");
        std::fs::write(&blocked, "").expect("written");
        let mut now = Folders::of(&blocked, &whole, std::iter::empty());
        assert_eq!(files(&now, &whole, "here/plain"), None);
        now.take_over(had, |_| true);
        assert!(files(&now, &whole, "here/plain").is_some() && files(&now, &whole, "here/a").is_some());
        let failed = Folders::of(&blocked, &whole, all(&whole));
        assert_eq!(missing(&failed), ["here/a"]);
    }

    fn all(bundle: &Packed) -> impl Iterator<Item = Arc<Cob>> {
        bundle.iter().map(|(_, cob)| cob)
    }

    fn missing(folders: &Folders) -> Vec<&str> {
        folders.missing().map(CobId::as_str).collect()
    }
}
