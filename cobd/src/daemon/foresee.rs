//! What excludes each other in a generation that is prepared: seen, told and decided before anything is touched.
//!
//! A file that users and the model have changed alike is in conflict as soon as its generation is active, and by then what
//! requires it may be down. While a generation is prepared each shared file tree that it changes or takes back is looked at
//! with the content to come, beside the loop. Whoever prepares hears of the conflicts; a decision about one of them is for
//! what was seen, whatever generation is active ([`cob_files::Files::resolve`]), so it can be made now.

use std::collections::{BTreeMap, BTreeSet};

use cob_engine::Time;
use cob_types::words::count;
use cob_types::{CobId, GenerationNumber, Packed, canonical};
use tokio::task::JoinSet;

use super::Daemon;
use super::folders::Folders;
use crate::generations::Prepared;
use crate::kinds::{Context, FileConflict, FilesAnswer, FilesQuery};

/// So many are told by name.
const MOST: usize = 100;
/// So many files of each.
const FILES: usize = 3;

/// What was foreseen.
#[derive(Debug)]
pub(super) struct Foreseen {
    /// Which look into what is to come it was.
    look: u64,
    conflicts: BTreeMap<CobId, Vec<FileConflict>>,
    /// Those that could not be looked at, and why.
    unseen: BTreeMap<CobId, String>,
}

/// The looks into what is to come, and what the last one has found.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    begun: u64,
    /// The one that is waited for.
    awaited: Option<u64>,
    conflicts: BTreeMap<CobId, String>,
    unseen: BTreeMap<CobId, String>,
}

impl Foresight {
    /// Whether one is still waited for.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Takes what was foreseen of the generation that is prepared, and why that is not all.
    pub(super) fn take(&mut self) -> (BTreeMap<CobId, String>, String) {
        let unseen = std::mem::take(&mut self.unseen);
        let unseen = match (self.awaited.take(), unseen.first_key_value()) {
            (Some(_), _) => {
                "its shared files were not all looked at: that takes long, or another generation came between"
                    .to_owned()
            }
            (None, Some((cob, why))) if unseen.len() == 1 => format!("{cob} can't be looked at: {why}"),
            (None, Some((cob, why))) => {
                format!("{} can't be looked at; {cob}: {why}", count(unseen.len(), "file tree"))
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

    /// Whether that is what was waited for.
    fn is_over(&mut self, foreseen: &Foreseen) -> bool {
        self.awaited.take_if(|look| *look == foreseen.look).is_some()
    }
}

impl Daemon {
    /// Begins to look at the shared file trees that a generation changes or takes back, and at those that are in conflict
    /// now.
    pub(super) fn foresee(&mut self, prepared: &Prepared) {
        // Of one that was called off meanwhile nothing is told.
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
                // It leaves as it is.
                Ok(None) => {}
                Err(why) => drop(unseen.insert(cob, why)),
            }
        }
        let (look, foreseen) = (self.ahead.foresight.begin(), self.foreseen.0.clone());
        tokio::spawn(async move {
            let mut conflicts = BTreeMap::new();
            while let Some(seen) = looks.join_next().await {
                match seen {
                    Ok((cob, Ok(FilesAnswer { conflicts: mut of, .. }))) if !of.is_empty() => {
                        of.iter_mut().for_each(|conflict| conflict.hunks = None);
                        conflicts.insert(cob, of);
                    }
                    Ok((_, Ok(_))) => {}
                    Ok((cob, Err(why))) => drop(unseen.insert(cob, why)),
                    // A look that has panicked ends the daemon, or nobody waits for this one any more.
                    Err(_) => {}
                }
            }
            // Nobody waits for it when the daemon has ended.
            let _ = foreseen.send(Foreseen { look, conflicts, unseen }).await;
        });
    }

    /// What was begun has ended.
    pub(super) fn foreseen(&mut self, foreseen: Foreseen) {
        if !self.ahead.foresight.is_over(&foreseen) {
            return;
        }
        let mut told = BTreeMap::new();
        for (cob, mut conflicts) in foreseen.conflicts {
            // What another one takes goes with it as it is.
            conflicts.retain(|conflict| !(conflict.goes && self.goes_on_elsewhere(&cob, &conflict.path)));
            told.extend(in_words(&conflicts).map(|what| (cob, what)));
            if told.len() == MOST {
                break;
            }
        }
        self.ahead.foresight.conflicts = told;
        self.ahead.foresight.unseen = foreseen.unseen;
    }

    /// Whether another change object has this path in the generation that is prepared. What leaves has left before it can.
    fn goes_on_elsewhere(&self, cob: &CobId, path: &str) -> bool {
        let (Some(active), Some(prepared)) = (&self.active, &self.at_hand) else { return false };
        let named = canonical::json(&serde_json::json!(path));
        let bundle = &prepared.bundle;
        // Another file tree: who only speaks of the path does not take it.
        let is_alike = |other: &CobId| other != cob && bundle.kind_of(other) == bundle.kind_of(cob);
        let names = |other: &CobId| bundle.get(other).is_some_and(|other| other.content.contains(&named));
        bundle.has(cob) && bundle.changed(&active.prepared.bundle).any(|other| is_alike(other) && names(other))
    }

    /// What is known of a change object in a generation that is at hand, and whether it is taken back by it.
    ///
    /// # Errors
    /// Why it can't be known, in words.
    pub(super) fn context_ahead(&self, generation: GenerationNumber, cob: &CobId) -> Result<(Context, bool), String> {
        let is_it = |prepared: &&Prepared| prepared.manifest.generation == generation;
        let at_hand = [self.at_hand.as_ref(), self.coming.as_ref()].into_iter().flatten().find(is_it);
        match at_hand {
            Some(prepared) => {
                let bundle = &prepared.bundle;
                let folders = Folders::of(&self.payload_root, bundle, bundle.get(cob).into_iter());
                self.context_to_come(prepared, &folders, cob)?.ok_or_else(|| format!("{cob} leaves as it is"))
            }
            None if self.engine.generation() == generation => self.context_of(cob).map(|context| (context, false)),
            None if self.prepared().contains(&generation) => Err(format!(
                "generation {generation} was prepared before this daemon was started, or before another one"
            )),
            None => Err(format!("generation {generation} is not prepared here")),
        }
    }

    /// A generation that was prepared is called off: what was decided about its conflicts counts no more. Where it is not at
    /// hand (it was prepared before another one, or in an earlier life) nobody knows what that was, and nothing counts.
    pub(super) fn undecide(&mut self, generation: GenerationNumber) {
        let at_hand = self.at_hand.as_ref().filter(|at_hand| at_hand.manifest.generation == generation);
        let concerned = match (at_hand, &self.active) {
            (Some(prepared), _) => self.may_conflict(prepared),
            (None, Some(active)) => {
                let bundle = &active.prepared.bundle;
                bundle.ids().filter(|cob| self.may_conflict_in(bundle, cob)).cloned().collect()
            }
            (None, None) => BTreeSet::new(),
        };
        for cob in concerned {
            let forgets = self.context_of(&cob).and_then(|context| self.kinds.files(&context, FilesQuery::Undecide));
            if let Ok(forgets) = forgets {
                self.turn.beside.push(Box::pin(async move { drop(forgets.await) }));
            }
        }
    }

    /// Those of which what users have changed may be in the way of what is to come, or of what was before.
    fn may_conflict(&self, prepared: &Prepared) -> BTreeSet<CobId> {
        let Some(active) = &self.active else { return BTreeSet::new() };
        let was = &*active.prepared.bundle;
        let may = |cob: &CobId| [was, &*prepared.bundle].into_iter().any(|bundle| self.may_conflict_in(bundle, cob));
        let stuck = self.engine.dead_ends(Time(0)).filter(|cob| may(cob));
        prepared.bundle.changed(was).filter(|cob| may(cob)).cloned().chain(stuck).collect()
    }

    fn may_conflict_in(&self, bundle: &Packed, cob: &CobId) -> bool {
        let its = bundle.get(cob).and_then(|cob| Some((bundle.kinds().get(&cob.kind)?, cob)));
        its.is_some_and(|(kind, cob)| self.kinds.may_conflict(kind, &cob))
    }

    /// What is known of a change object in a generation to come, and whether it is taken back; none: it leaves as it is.
    fn context_to_come(
        &self,
        prepared: &Prepared,
        folders: &Folders,
        cob: &CobId,
    ) -> Result<Option<(Context, bool)>, String> {
        let bundle = &prepared.bundle;
        let next = bundle.kind_of(cob).and_then(|kind| bundle.kinds().get(kind));
        let was = self.active.as_ref().and_then(|active| active.kind_of(cob));
        // As another kind it is another thing: what it was is taken back.
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

/// `/etc/x: the same lines were changed here and in the model`; none: nothing excludes each other.
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
    fn what_was_foreseen_of_another_generation_is_not_told() {
        let foreseen = |look| Foreseen { look, conflicts: BTreeMap::new(), unseen: BTreeMap::new() };
        let mut foresight = Foresight::default();
        let first = foresight.begin();
        let second = foresight.begin();
        assert!(!foresight.is_over(&foreseen(first)) && foresight.is_awaited(), "the second is still being looked at");
        assert!(foresight.is_over(&foreseen(second)) && !foresight.is_awaited());
        foresight.conflicts.insert(CobId::new("n1/a").expect("an id"), "both".to_owned());
        let (told, unseen) = foresight.take();
        assert_eq!((told.len(), unseen.as_str()), (1, ""));
        assert_eq!(foresight.take(), (BTreeMap::new(), String::new()), "it is told once");
        let unseen = |names: &[&str]| {
            let unseen = |name: &&str| (CobId::new(name).expect("an id"), "too large".to_owned());
            Foresight { unseen: names.iter().map(unseen).collect(), ..Foresight::default() }.take().1
        };
        assert_eq!(unseen(&["n1/a"]), "n1/a can't be looked at: too large");
        assert_eq!(unseen(&["n1/a", "n1/b"]), "2 file trees can't be looked at; n1/a: too large");
        // Whoever waited is answered before its end: he must not take it for all.
        let third = foresight.begin();
        let (told, unseen) = foresight.take();
        assert!(told.is_empty() && unseen.contains("were not all looked at"), "{unseen}");
        assert!(!foresight.is_over(&foreseen(third)), "nobody waits for it any more");
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
