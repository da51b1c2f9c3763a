//! The kind back end `noop`: states without any effect.
//!
//! For gates in a model, tests and trials. Its state is the target of the last transition; after a restart of the
//! daemon it is the pre-remove state.

use cob_kinds::{Content as _, Noop};
use cob_types::message::Values;
use cob_types::{CobId, canonical};

use super::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work};
use super::gate::Remembered;

/// The back end `noop`.
#[derive(Debug, Default)]
pub(super) struct NoopKind {
    remembered: Remembered,
}

impl NoopKind {
    fn exports(context: &Context, state: &cob_types::StateName) -> Values {
        if *state != context.kind.preferred {
            return Values::new();
        }
        let content: Noop = cob_kinds::read(&context.cob.content).unwrap_or_default();
        content.exports.iter().map(|(name, value)| (name.clone(), canonical::json(value))).collect()
    }
}

impl Backend for NoopKind {
    fn name(&self) -> &'static str {
        Noop::KIND.name
    }

    fn durable(&self) -> bool {
        false
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        cob_kinds::read::<Noop>(content).map(|_| ())
    }

    fn check(&self, _tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let state = self.remembered.state(&context.cob.id, &context.kind);
        let state = state.unwrap_or_else(|| context.kind.pre_remove.clone());
        let exports = Self::exports(context, &state);
        Work::known(CheckOutcome { exports, ..CheckOutcome::found(state) })
    }

    fn transition(&self, _tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        self.remembered.set(context.cob.id.clone(), attempt.to.clone());
        Work::known(Outcome::Done { exports: Self::exports(context, &attempt.to), saved: None })
    }

    fn forget(&self, cob: &CobId) {
        self.remembered.forget(cob);
    }
}
