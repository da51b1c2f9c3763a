//! What excludes each other in a generation that is prepared: seen, told and decided before anything is touched.
//!
//! A file that users and the model have changed alike is in conflict as soon as its generation is active, and by then what
//! requires it may be down. While a generation is prepared each shared file tree that it changes or takes back is looked at
//! with the content to come, beside the loop. Whoever prepares hears of the conflicts; a decision about one of them is for
//! what was seen, whatever generation is active ([`cob_files::Files::resolve`]), so it can be made now.

use std::collections::BTreeMap;

use cob_types::words::list;
use cob_types::{CobId, GenerationNumber};
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
    conflicts: BTreeMap<CobId, String>,
}

/// The looks into what is to come, and what the last one has found.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    begun: u64,
    /// The one that is waited for.
    awaited: Option<u64>,
    conflicts: BTreeMap<CobId, String>,
}

impl Foresight {
    /// Whether one is still waited for.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Takes what was foreseen of the generation that is prepared.
    pub(super) fn take(&mut self) -> BTreeMap<CobId, String> {
        self.awaited = None;
        std::mem::take(&mut self.conflicts)
    }

    fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.awaited = Some(self.begun);
        self.conflicts.clear();
        self.begun
    }

    /// Whether that is what was waited for.
    fn hear(&mut self, foreseen: Foreseen) {
        if self.awaited.take_if(|look| *look == foreseen.look).is_some() {
            self.conflicts = foreseen.conflicts;
        }
    }
}

impl Daemon {
    /// Begins to look at the shared file trees that a generation changes or takes back.
    pub(super) fn foresee(&mut self, prepared: &Prepared) {
        let Some(active) = &self.active else { return };
        let was = &*active.prepared.bundle;
        let mut looks = JoinSet::new();
        for cob in prepared.bundle.changed(was).filter(|cob| was.has(cob)) {
            if self.may_conflict(prepared, cob)
                && let Ok((context, retire)) = self.context_to_come(prepared, cob)
                && let Ok(look) = self.kinds.files(&context, FilesQuery::Diff { retire })
            {
                let cob = cob.clone();
                looks.spawn(async move { (cob, look.await) });
            }
        }
        if looks.is_empty() {
            return;
        }
        let (look, foreseen) = (self.ahead.foresight.begin(), self.foreseen.0.clone());
        tokio::spawn(async move {
            let mut conflicts = BTreeMap::new();
            while let Some(seen) = looks.join_next().await {
                // What can't be looked at now is told by the first check.
                if let Ok((cob, Ok(answer))) = seen
                    && let Some(what) = in_words(&answer)
                {
                    conflicts.insert(cob, what);
                    if conflicts.len() > MOST {
                        conflicts.pop_last();
                    }
                }
            }
            // Nobody waits for it when the daemon has ended.
            let _ = foreseen.send(Foreseen { look, conflicts }).await;
        });
    }

    /// What was begun has ended.
    pub(super) fn foreseen(&mut self, foreseen: Foreseen) {
        self.ahead.foresight.hear(foreseen);
    }

    /// What is known of a change object in a generation that is at hand, and whether it is taken back by it.
    ///
    /// # Errors
    /// Why it can't be known, in words.
    pub(super) fn context_ahead(&self, generation: GenerationNumber, cob: &CobId) -> Result<(Context, bool), String> {
        let is_it = |prepared: &&Prepared| prepared.manifest.generation == generation;
        let at_hand = [self.at_hand.as_ref(), self.coming.as_ref()].into_iter().flatten().find(is_it);
        match at_hand {
            Some(prepared) => self.context_to_come(prepared, cob),
            None if self.engine.generation() == generation => self.context_of(cob).map(|context| (context, false)),
            None => Err(format!("generation {generation} is not prepared here")),
        }
    }

    /// Whether what users have changed of it may be in the way of what is to come, or of what was before it.
    fn may_conflict(&self, prepared: &Prepared, cob: &CobId) -> bool {
        let active = self.active.as_ref().map(|active| &active.prepared);
        [active, Some(prepared)].into_iter().flatten().any(|prepared| {
            let its = prepared.bundle.get(cob);
            let its = its.and_then(|cob| Some((prepared.bundle.kinds().get(&cob.kind)?, cob)));
            its.is_some_and(|(kind, cob)| self.kinds.may_conflict(kind, &cob))
        })
    }

    fn context_to_come(&self, prepared: &Prepared, cob: &CobId) -> Result<(Context, bool), String> {
        let bundle = &prepared.bundle;
        let next = bundle.kind_of(cob).and_then(|kind| bundle.kinds().get(kind));
        let was = self.active.as_ref().and_then(|active| active.kind_of(cob));
        // As another kind it is another thing: what it was is taken back.
        if was.is_some_and(|was| next.is_none_or(|next| !next.continues(was))) {
            let context = self.context_of(cob)?;
            let stays = context.cob.leaves_as_it_is();
            return if stays { Err(format!("{cob} leaves as it is")) } else { Ok((context, true)) };
        }
        let folders = Folders::of(&self.payload_root, bundle, bundle.get(cob).into_iter());
        let ready = folders.ready(prepared, cob).ok_or_else(|| format!("{cob} is not in it"))?;
        Ok((ready.context_in(prepared)?, false))
    }
}

/// `/etc/x: the same lines were changed here and in the model`; none: nothing excludes each other.
fn in_words(answer: &FilesAnswer) -> Option<String> {
    let of = |conflict: &FileConflict| format!("{}: {}", conflict.path, conflict.what);
    (!answer.conflicts.is_empty()).then(|| list(answer.conflicts.iter().map(of), FILES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreseen(look: u64, what: &str) -> Foreseen {
        Foreseen { look, conflicts: BTreeMap::from([(CobId::new("n1/a").expect("an id"), what.to_owned())]) }
    }

    #[test]
    fn what_was_foreseen_of_another_generation_is_not_told() {
        let mut foresight = Foresight::default();
        let first = foresight.begin();
        let second = foresight.begin();
        foresight.hear(foreseen(first, "of the one before"));
        assert!(foresight.is_awaited(), "the second is still being looked at");
        foresight.hear(foreseen(second, "of this one"));
        assert!(!foresight.is_awaited());
        assert_eq!(foresight.take().into_values().collect::<Vec<_>>(), ["of this one"]);
        assert_eq!(foresight.take(), BTreeMap::new(), "it is told once");
        // Whoever waited has been answered, as it took too long.
        let third = foresight.begin();
        foresight.take();
        foresight.hear(foreseen(third, "late"));
        assert_eq!(foresight.take(), BTreeMap::new());
    }

    #[test]
    fn files_in_conflict_are_named() {
        let of = |paths: &[&str]| {
            let conflict =
                |path: &&str| FileConflict { path: (*path).to_owned(), what: "both".to_owned(), hunks: None };
            in_words(&FilesAnswer { conflicts: paths.iter().map(conflict).collect(), ..FilesAnswer::default() })
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["/a", "/b"]).as_deref(), Some("/a: both and /b: both"));
        assert_eq!(of(&["/a", "/b", "/c", "/d"]).as_deref(), Some("/a: both, /b: both, /c: both and 1 more"));
    }
}
