//! The conflict preview: conflicts in a prepared generation are found, reported and decided before the switch.
//!
//! A file in which users and the model have changed the same lines is in conflict as soon as its generation is active.
//! By then, change objects that need the file may be down. So during `prepare`, the preview compares each shared file
//! tree that the generation changes or takes back with its future content, outside the loop. A decision about a
//! conflict refers to the shown texts, not to the active generation ([`cob_files::Files::resolve`]), so it can precede
//! the switch.

use std::collections::{BTreeMap, BTreeSet};

use cob_engine::Time;
use cob_types::api::{FileConflict, FilesAnswer};
use cob_types::words::count;
use cob_types::{CobId, GenerationNumber, Packed, canonical};
use tokio::task::JoinSet;

use super::Daemon;
use super::folders::Folders;
use super::inbox::TaskResult;
use crate::generations::Prepared;
use crate::kinds::{Context, FilesQuery};

/// The most change objects in a report.
const MOST: usize = 100;
/// The most files of each in a report.
const FILES: usize = 3;

/// The result of a conflict preview.
#[derive(Debug)]
pub(super) struct ConflictPreview {
    /// The number of the preview.
    look: u64,
    conflicts: BTreeMap<CobId, Vec<FileConflict>>,
    /// Change objects that could not be previewed, and why.
    unseen: BTreeMap<CobId, String>,
}

/// The conflict previews, and the latest result.
#[derive(Debug, Default)]
pub(super) struct ConflictPreviews {
    begun: u64,
    /// The preview that is awaited.
    awaited: Option<u64>,
    conflicts: BTreeMap<CobId, String>,
    unseen: BTreeMap<CobId, String>,
}

impl ConflictPreviews {
    /// Whether a preview is still awaited.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Takes the conflicts in the prepared generation, and the reason why the list is incomplete.
    pub(super) fn take(&mut self) -> (BTreeMap<CobId, String>, String) {
        let unseen = std::mem::take(&mut self.unseen);
        let unseen = match (self.awaited.take(), unseen.first_key_value()) {
            (Some(_), _) => {
                "its shared files were not all compared: the time was too short, or another generation was prepared"
                    .to_owned()
            }
            (None, Some((cob, why))) if unseen.len() == 1 => format!("{cob} can't be compared: {why}"),
            (None, Some((cob, why))) => {
                format!("{} can't be compared; {cob}: {why}", count(unseen.len(), "file tree"))
            }
            (None, None) => String::new(),
        };
        (std::mem::take(&mut self.conflicts), unseen)
    }

    fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.awaited = Some(self.begun);
        self.conflicts.clear();
        self.unseen.clear();
        self.begun
    }

    /// Whether the awaited preview has ended.
    fn is_over(&mut self, previewed: &ConflictPreview) -> bool {
        self.awaited.take_if(|look| *look == previewed.look).is_some()
    }
}

impl Daemon {
    /// Starts a preview of shared file trees that a generation changes or takes back, or that are in conflict now.
    pub(super) fn preview_conflicts(&mut self, prepared: &Prepared) {
        // The result for a discarded generation is not reported.
        drop(self.ahead.foresight.take());
        let concerned = self.may_conflict(prepared);
        if concerned.is_empty() {
            return;
        }
        let bundle = &prepared.bundle;
        let folders = Folders::of(&self.payload_root, bundle, concerned.iter().filter_map(|cob| bundle.get(cob)));
        let (mut looks, mut unseen) = (JoinSet::new(), BTreeMap::new());
        for cob in concerned {
            let look = self.context_to_come(prepared, &folders, &cob).and_then(|to_come| {
                let look = |(context, retire)| self.kinds.files(&context, FilesQuery::Diff { retire, written: false });
                to_come.map(look).transpose()
            });
            match look {
                Ok(Some(look)) => drop(looks.spawn(async move { (cob, look.await) })),
                // It departs without a change of its files.
                Ok(None) => {}
                Err(why) => drop(unseen.insert(cob, why)),
            }
        }
        let look = self.ahead.foresight.begin();
        self.tasks.spawn(async move {
            let mut conflicts = BTreeMap::new();
            while let Some(seen) = looks.join_next().await {
                match seen {
                    Ok((cob, Ok(FilesAnswer { conflicts: mut of, .. }))) if !of.is_empty() => {
                        of.iter_mut().for_each(|conflict| conflict.hunks = None);
                        conflicts.insert(cob, of);
                    }
                    Ok((_, Ok(_))) => {}
                    Ok((cob, Err(why))) => drop(unseen.insert(cob, why)),
                    // A panic ends the daemon, or this preview is not awaited any more.
                    Err(_) => {}
                }
            }
            TaskResult::Preview(ConflictPreview { look, conflicts, unseen })
        });
    }

    /// Handles the end of a preview.
    pub(super) fn previewed(&mut self, previewed: ConflictPreview) {
        if !self.ahead.foresight.is_over(&previewed) {
            return;
        }
        let mut told = BTreeMap::new();
        for (cob, mut conflicts) in previewed.conflicts {
            // A file that another change object takes over stays as it is.
            conflicts.retain(|conflict| !(conflict.goes && self.goes_on_elsewhere(&cob, &conflict.path)));
            told.extend(in_words(&conflicts).map(|what| (cob, what)));
            if told.len() == MOST {
                break;
            }
        }
        self.ahead.foresight.conflicts = told;
        self.ahead.foresight.unseen = previewed.unseen;
    }

    /// Whether another change object has this path in the prepared generation. It takes over the file after the
    /// departure.
    fn goes_on_elsewhere(&self, cob: &CobId, path: &str) -> bool {
        let (Some(active), Some(prepared)) = (self.present.bundle(), self.present.prepared()) else { return false };
        let named = canonical::json(&serde_json::json!(path));
        let bundle = &prepared.bundle;
        // Only another file tree takes the path; a mention in another kind does not.
        let is_alike = |other: &CobId| other != cob && bundle.kind_of(other) == bundle.kind_of(cob);
        let names = |other: &CobId| bundle.get(other).is_some_and(|other| other.content.contains(&named));
        bundle.has(cob) && bundle.changed(active).any(|other| is_alike(other) && names(other))
    }

    /// The context of a change object in a present generation, and whether that generation takes it back.
    ///
    /// # Errors
    /// A text that says why it is unknown.
    pub(super) fn context_ahead(&self, generation: GenerationNumber, cob: &CobId) -> Result<(Context, bool), String> {
        let is_it = |prepared: &&Prepared| prepared.manifest.generation == generation;
        let at_hand = self.present.prepared().into_iter().chain(self.present.pending()).find(is_it);
        match at_hand {
            Some(prepared) => {
                let bundle = &prepared.bundle;
                let folders = Folders::of(&self.payload_root, bundle, bundle.get(cob).into_iter());
                self.context_to_come(prepared, &folders, cob)?.ok_or_else(|| format!("{cob} departs unchanged"))
            }
            None if self.engine.generation() == generation => self.context_of(cob).map(|context| (context, false)),
            None if self.prepared().contains(&generation) => Err(format!(
                "generation {generation} was prepared before this daemon started, or before another generation"
            )),
            None => Err(format!("generation {generation} is not prepared here")),
        }
    }

    /// Revokes the decisions about conflicts in a discarded generation. If it is not at hand (it was prepared earlier,
    /// or in another incarnation), all decisions are revoked, because its own are unknown.
    pub(super) fn undecide(&mut self, generation: GenerationNumber) {
        let at_hand = self.present.prepared().filter(|at_hand| at_hand.manifest.generation == generation);
        let concerned = match (at_hand, self.present.bundle()) {
            (Some(prepared), _) => self.may_conflict(prepared),
            (None, Some(bundle)) => bundle.ids().filter(|cob| self.may_conflict_in(bundle, cob)).cloned().collect(),
            (None, None) => BTreeSet::new(),
        };
        for cob in concerned {
            let forgets = self.context_of(&cob).and_then(|context| self.kinds.files(&context, FilesQuery::Undecide));
            if let Ok(forgets) = forgets {
                self.turn.beside.push(Box::pin(async move { drop(forgets.await) }));
            }
        }
    }

    /// The change objects whose edits by users may conflict with the future or the previous content.
    fn may_conflict(&self, prepared: &Prepared) -> BTreeSet<CobId> {
        let Some(was) = self.present.bundle().map(|bundle| &**bundle) else { return BTreeSet::new() };
        let may = |cob: &CobId| [was, &*prepared.bundle].into_iter().any(|bundle| self.may_conflict_in(bundle, cob));
        let stuck = self.engine.without_exit_state(Time(0)).filter(|cob| may(cob));
        prepared.bundle.changed(was).filter(|cob| may(cob)).cloned().chain(stuck).collect()
    }

    fn may_conflict_in(&self, bundle: &Packed, cob: &CobId) -> bool {
        let its = bundle.get(cob).and_then(|cob| Some((bundle.kinds().get(&cob.kind)?, cob)));
        its.is_some_and(|(kind, cob)| self.kinds.may_conflict(kind, &cob))
    }

    /// The context of a change object in a future generation, and whether it is taken back; absent: it departs as is.
    fn context_to_come(
        &self,
        prepared: &Prepared,
        folders: &Folders,
        cob: &CobId,
    ) -> Result<Option<(Context, bool)>, String> {
        let bundle = &prepared.bundle;
        let next = bundle.kind_of(cob).and_then(|kind| bundle.kinds().get(kind));
        let was = self.present.kind_of(cob);
        // Another kind under the same name: the previous change object is taken back.
        if was.is_some_and(|was| next.is_none_or(|next| !next.continues(was))) {
            let context = self.context_of(cob)?;
            return Ok((!context.cob.leaves_as_it_is()).then_some((context, true)));
        }
        let ready = folders.ready(prepared, cob).ok_or_else(|| format!("{cob} is not in it"))?;
        let context = ready.context_in(prepared)?;
        let goes_off = context.cob.preferred == context.kind.pre_remove;
        Ok(Some((context, goes_off)))
    }
}

/// `/etc/x: the same lines were changed here and in the model`; absent: no conflict.
fn in_words(conflicts: &[FileConflict]) -> Option<String> {
    let of = |conflict: &FileConflict| format!("{}: {}", conflict.path, conflict.what);
    let mut all: Vec<String> = conflicts.iter().take(FILES).map(of).collect();
    let more = conflicts.len() - all.len();
    all.extend((more > 0).then(|| format!("and {}", count(more, "more file"))));
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_preview_of_an_earlier_look_is_not_reported() {
        let previewed = |look| ConflictPreview { look, conflicts: BTreeMap::new(), unseen: BTreeMap::new() };
        let mut foresight = ConflictPreviews::default();
        let first = foresight.begin();
        let second = foresight.begin();
        assert!(!foresight.is_over(&previewed(first)) && foresight.is_awaited(), "the second is still being looked at");
        assert!(foresight.is_over(&previewed(second)) && !foresight.is_awaited());
        foresight.conflicts.insert(CobId::new("n1/a").expect("an id"), "both".to_owned());
        let (told, unseen) = foresight.take();
        assert_eq!((told.len(), unseen.as_str()), (1, ""));
        assert_eq!(foresight.take(), (BTreeMap::new(), String::new()), "it is told once");
        let unseen = |names: &[&str]| {
            let unseen = |name: &&str| (CobId::new(name).expect("an id"), "too large".to_owned());
            ConflictPreviews { unseen: names.iter().map(unseen).collect(), ..ConflictPreviews::default() }.take().1
        };
        assert_eq!(unseen(&["n1/a"]), "n1/a can't be compared: too large");
        assert_eq!(unseen(&["n1/a", "n1/b"]), "2 file trees can't be compared; n1/a: too large");
        // An operator who is answered before the end must learn that the list is incomplete.
        let third = foresight.begin();
        let (told, unseen) = foresight.take();
        assert!(told.is_empty() && unseen.contains("were not all compared"), "{unseen}");
        assert!(!foresight.is_over(&previewed(third)), "no caller waits for it any more");
    }

    #[test]
    fn files_in_conflict_are_named() {
        let of = |paths: &[&str]| {
            let one = |path: &&str| {
                let (path, what) = ((*path).to_owned(), "both".to_owned());
                FileConflict { path, what, hunks: None, goes: false }
            };
            in_words(&paths.iter().map(one).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["/a", "/b"]).as_deref(), Some("/a: both; /b: both"));
        assert_eq!(of(&["/a", "/b", "/c", "/d"]).as_deref(), Some("/a: both; /b: both; /c: both; and 1 more file"));
    }
}
