//! Finds the route to a generation, and the data for its first step. [`cob_engine::route`] has the rules.

use std::sync::Arc;

use cob_engine::route::first_step;
use cob_types::{GenerationNumber, Manifest};

use crate::generations::{FetchError, Prepared};

/// The route to a generation.
#[derive(Debug, Clone)]
pub(super) struct Route {
    /// The target.
    pub(super) goal: Arc<Manifest>,
    /// The first generation on the route, with this host's bundle: the target itself or a step.
    pub(super) next: Prepared,
}

impl Route {
    /// The route from the active generation to a generation that is here.
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
