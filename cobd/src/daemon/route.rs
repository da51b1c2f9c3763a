//! The way to a generation, with what a host needs to set out: by the rules of [`cob_engine::route`].

use std::sync::Arc;

use cob_engine::route::first_step;
use cob_types::{GenerationNumber, Manifest};

use crate::generations::{FetchError, Prepared};

/// The way to a generation.
#[derive(Debug, Clone)]
pub(super) struct Route {
    /// Where it leads.
    pub(super) goal: Arc<Manifest>,
    /// The generation to be gone to first, with this host's bundle: the goal itself or one on the way.
    pub(super) next: Prepared,
}

impl Route {
    /// The way to a generation that is here, from the active one.
    pub(super) fn to(
        goal: Prepared,
        active: GenerationNumber,
        take: impl Fn(GenerationNumber) -> Result<Prepared, FetchError>,
        withdrawn: impl Fn(GenerationNumber) -> bool,
    ) -> Result<Self, FetchError> {
        let manifest = goal.manifest.clone();
        let step = first_step(&manifest, active, |g| take(g).ok().filter(|_| !withdrawn(g)).map(|p| p.manifest));
        let next = match step {
            Some(step) => take(step)?,
            None => goal,
        };
        Ok(Self { goal: manifest, next })
    }
}
