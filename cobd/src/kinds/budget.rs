//! The kind back end `budget`: always open.
//!
//! `content: {at_most: 1}`. The engine counts the grants that are held; a budget has no transitions.

use cob_types::{CobId, Kind};
use serde::Deserialize;

use super::backend::{Backend, CheckOutcome, Context, Hop, Outcome, Tools, Work};
use super::content;

/// The back end `budget`.
#[derive(Debug)]
pub(super) struct Budget;

/// The content of a budget.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    at_most: std::num::NonZeroU32,
}

impl Backend for Budget {
    fn name(&self) -> &'static str {
        "budget"
    }

    fn durable(&self) -> bool {
        false
    }

    fn accept(&self, kind: &Kind) -> Result<(), String> {
        match kind.states.len() {
            1 => Ok(()),
            n => Err(format!("a budget has a single state, not {n}")),
        }
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        content::read::<Content>(content).map(|content| _ = content.at_most)
    }

    fn check(&self, _tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        Work::known(CheckOutcome::found(context.kind.preferred.clone()))
    }

    fn transition(&self, _tools: &Tools, _context: &Context, hop: &Hop) -> Work<Outcome> {
        Work::known(Outcome::failed(format!("a budget does not move to {}", hop.to)))
    }

    fn forget(&self, _cob: &CobId) {}
}
