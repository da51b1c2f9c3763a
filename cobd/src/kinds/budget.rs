//! The kind back end `budget`: always open.
//!
//! `content: {at_most: 1}`. The engine counts the grants that are held; a budget has no transitions.

use cob_kinds::{Budget, Content as _};
use cob_types::{CobId, Kind};

use super::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work};

/// The back end `budget`.
#[derive(Debug)]
pub(super) struct BudgetKind;

impl Backend for BudgetKind {
    fn name(&self) -> &'static str {
        Budget::KIND.name
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
        cob_kinds::read::<Budget>(content).map(|_| ())
    }

    fn check(&self, _tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        Work::known(CheckOutcome::found(context.kind.preferred.clone()))
    }

    fn transition(&self, _tools: &Tools, _context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        Work::known(Outcome::failed(format!("a budget does not move to {}", attempt.to)))
    }

    fn forget(&self, _cob: &CobId) {}
}
