//! The generations with which this host works: the active one, that of the pending switch, and the last prepared one.

use std::sync::Arc;

use cob_types::{CobId, GenerationNumber, Kind, Manifest, Packed};

use super::folders::{Folders, Ready};
use crate::generations::Prepared;

/// The generations with which this host works.
#[derive(Default)]
pub(super) struct Present {
    active: Option<Active>,
    /// The generation of the pending switch.
    pending: Option<Prepared>,
    /// The last prepared generation.
    prepared: Option<Prepared>,
    /// The newest accepted generation before the first switch. Its operators may give the first order.
    introduction: Option<Arc<Manifest>>,
}

/// The active generation, ready for jobs.
struct Active {
    generation: Prepared,
    folders: Folders,
}

impl Present {
    /// After a start: with the pending switch of an earlier daemon.
    pub(super) fn with_pending(pending: Option<Prepared>) -> Self {
        Self { pending, ..Self::default() }
    }

    pub(super) fn active(&self) -> Option<&Prepared> {
        self.active.as_ref().map(|active| &active.generation)
    }

    pub(super) fn pending(&self) -> Option<&Prepared> {
        self.pending.as_ref()
    }

    pub(super) fn prepared(&self) -> Option<&Prepared> {
        self.prepared.as_ref()
    }

    /// The active generation, then the pending one.
    pub(super) fn active_and_pending(&self) -> impl Iterator<Item = &Prepared> {
        self.active().into_iter().chain(self.pending())
    }

    /// All generations, the active one first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Prepared> {
        self.active_and_pending().chain(self.prepared())
    }

    /// The change objects of the active generation.
    pub(super) fn bundle(&self) -> Option<&Arc<Packed>> {
        self.active().map(|active| &active.bundle)
    }

    /// The manifest of the active generation.
    pub(super) fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.active().map(|active| &active.manifest)
    }

    /// A change object of the active generation, ready for jobs, with its generation.
    pub(super) fn ready(&self, cob: &CobId) -> Option<(&Prepared, Ready<'_>)> {
        let Active { generation, folders } = self.active.as_ref()?;
        Some((generation, folders.ready(generation, cob)?))
    }

    /// The kind of a change object of the active generation.
    pub(super) fn kind_of(&self, cob: &CobId) -> Option<&Arc<Kind>> {
        let Active { generation, folders } = self.active.as_ref()?;
        folders.kind_of(generation, cob)
    }

    /// The manifest whose operators may give the first order, as long as no generation is active or pending.
    pub(super) fn introduction(&self) -> Option<&Manifest> {
        self.introduction.as_deref().filter(|_| self.is_empty())
    }

    /// Whether no generation is active or pending.
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_none() && self.pending.is_none()
    }

    /// Takes the operators of an accepted generation for the first order. Returns whether the generation is newer than
    /// the one before.
    pub(super) fn introduce(&mut self, manifest: &Arc<Manifest>) -> bool {
        let known = self.introduction.as_ref().map_or(GenerationNumber(0), |known| known.generation);
        let is_newer = known < manifest.generation;
        if is_newer {
            self.introduction = Some(manifest.clone());
        }
        is_newer
    }

    /// Notes the prepared generation, or that the last one was discarded.
    pub(super) fn prepare(&mut self, prepared: Option<Prepared>) {
        self.prepared = prepared;
    }

    /// A switch to this generation is pending now.
    pub(super) fn begin(&mut self, pending: Prepared) {
        self.pending = Some(pending);
        self.prepared = None;
    }

    /// Ends the pending switch, and returns its generation.
    pub(super) fn end_pending(&mut self) -> Option<Prepared> {
        self.pending.take()
    }

    /// Removes the active generation before the next one is put in place.
    pub(super) fn end_active(&mut self) -> Option<(Prepared, Folders)> {
        self.active.take().map(|Active { generation, folders }| (generation, folders))
    }

    /// This generation is active now, with these folders.
    pub(super) fn activate(&mut self, generation: Prepared, folders: Folders) {
        self.active = Some(Active { generation, folders });
    }
}
