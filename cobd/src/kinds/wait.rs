//! The kind back end `wait`: waits for a time before it is on.
//!
//! `content: {seconds: 2}` or `{ms: 200}`. The transition to the preferred state takes this time; other transitions
//! take none. The transition's own timeout does not apply, so that ten minutes in the content are ten minutes.

use std::time::Duration;

use cob_kinds::{Content as _, Wait};
use cob_types::{CobId, Kind};

use super::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work};
use super::gate::{self, Remembered};

/// The back end `wait`.
#[derive(Debug, Default)]
pub(super) struct WaitKind {
    remembered: Remembered,
}

impl Backend for WaitKind {
    fn name(&self) -> &'static str {
        Wait::KIND.name
    }

    fn durable(&self) -> bool {
        false
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        cob_kinds::read::<Wait>(content).map(|_| ())
    }

    fn check(&self, _tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let state = self.remembered.state(&context.cob.id, &context.kind);
        Work::known(CheckOutcome::found(state.unwrap_or_else(|| context.kind.pre_remove.clone())))
    }

    fn transition(&self, _tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        let time = || cob_kinds::read::<Wait>(&context.cob.content).map(|wait| wait.time());
        let pause = if gate::opens(&context.kind, attempt) { time() } else { Ok(Duration::ZERO) };
        let (remembered, cob, to) = (self.remembered.clone(), context.cob.id.clone(), attempt.to.clone());
        let future = async move {
            match pause {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(reason) => return Outcome::failed(reason),
            }
            remembered.set(cob, to);
            Outcome::done()
        };
        Work::Inside { future: Box::pin(future), timeout: None }
    }

    fn only_waits(&self, kind: &Kind, attempt: &TransitionAttempt) -> bool {
        gate::opens(kind, attempt)
    }

    fn forget(&self, cob: &CobId) {
        self.remembered.forget(cob);
    }
}
