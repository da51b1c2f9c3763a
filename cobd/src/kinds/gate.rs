//! Gates: kinds inside the daemon on which other kinds can depend, and their memory.
//!
//! A gate is on (in its kind's preferred state) while an outside condition holds, for which it can only wait. The state
//! that a transition reached is remembered until the daemon ends; after a restart a check looks at the condition.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::{CobId, Kind, StateName};

use super::backend::{Backend, CheckOutcome, Context, Outcome, Tools, TransitionAttempt, Work};

/// The states that change objects have reached by transitions, by id, and the complaints of waiting gates. A clone is
/// another handle to the same memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Remembered(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    states: BTreeMap<CobId, StateName>,
    complaints: BTreeMap<CobId, String>,
}

/// The last complaint of a waiting gate. It is removed when the wait ends.
struct Complaint {
    remembered: Remembered,
    cob: CobId,
}

impl Complaint {
    fn say(&self, complaint: &str) {
        self.remembered.get().complaints.insert(self.cob.clone(), complaint.to_owned());
    }
}

impl Drop for Complaint {
    fn drop(&mut self) {
        self.remembered.get().complaints.remove(&self.cob);
    }
}

impl Remembered {
    /// The state that the last transition reached, if the kind still has it.
    pub(super) fn state(&self, cob: &CobId, kind: &Kind) -> Option<StateName> {
        self.get().states.get(cob).filter(|s| kind.has_state(s)).cloned()
    }

    pub(super) fn set(&self, cob: CobId, state: StateName) {
        self.get().states.insert(cob, state);
    }

    pub(super) fn forget(&self, cob: &CobId) {
        self.get().states.remove(cob);
    }

    /// Why it still waits, if it does.
    pub(super) fn complaint(&self, cob: &CobId) -> Option<String> {
        self.get().complaints.get(cob).cloned()
    }

    fn get(&self) -> std::sync::MutexGuard<'_, Memory> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the gate waits during this transition.
pub(super) fn opens(kind: &Kind, attempt: &TransitionAttempt) -> bool {
    attempt.to == kind.preferred
}

/// The outside condition of a gate, as the content describes it.
pub(super) trait Condition: Sized + fmt::Debug + Send + Sync + 'static {
    /// The name of the kind.
    const KIND: &'static str;

    /// Reads a content.
    ///
    /// # Errors
    /// The first fault.
    fn read(content: &str) -> Result<Self, String>;

    /// The time between two looks.
    fn interval(&self) -> Duration;

    /// Looks once. The error is the difference from the condition.
    fn look(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// The back end of a kind that waits for a condition.
#[derive(Debug)]
pub(super) struct ConditionGate<C> {
    remembered: Remembered,
    condition: PhantomData<C>,
}

impl<C> Default for ConditionGate<C> {
    fn default() -> Self {
        Self { remembered: Remembered::default(), condition: PhantomData }
    }
}

impl<C: Condition> Backend for ConditionGate<C> {
    fn name(&self) -> &'static str {
        C::KIND
    }

    fn durable(&self) -> bool {
        false
    }

    fn accept_content(&self, content: &str) -> Result<(), String> {
        C::read(content).map(|_| ())
    }

    /// Off if a transition switched it off, otherwise the result of one look.
    fn check(&self, _tools: &Tools, context: &Context) -> Work<CheckOutcome> {
        let (on, off) = (context.kind.preferred.clone(), context.kind.pre_remove.clone());
        match self.remembered.state(&context.cob.id, &context.kind) {
            Some(state) if state != on => return Work::known(CheckOutcome::found(state)),
            Some(_) | None => {}
        }
        let condition = C::read(&context.cob.content);
        let future = async move {
            match look(&condition).await {
                Ok(()) => CheckOutcome::found(on),
                Err(difference) => CheckOutcome { difference, ..CheckOutcome::found(off) },
            }
        };
        Work::Inside { future: Box::pin(future), timeout: Some(context.check_timeout()) }
    }

    /// It opens after a successful look within the timeout; other transitions succeed at once.
    fn transition(&self, _tools: &Tools, context: &Context, attempt: &TransitionAttempt) -> Work<Outcome> {
        let condition = C::read(&context.cob.content);
        let timeout = context.transition(attempt).map_or(Duration::ZERO, |t| Duration::from_millis(t.timeout_ms));
        let (remembered, cob, to) = (self.remembered.clone(), context.cob.id.clone(), attempt.to.clone());
        let waits = opens(&context.kind, attempt);
        let future = async move {
            let complaint = Complaint { remembered: remembered.clone(), cob: cob.clone() };
            if waits && let Err(last) = poll(timeout, &condition, &complaint).await {
                return Outcome::failed(format!("not so after {timeout:?}: {last}"));
            }
            remembered.set(cob, to);
            Outcome::done()
        };
        Work::Inside { future: Box::pin(future), timeout: None }
    }

    fn only_waits(&self, kind: &Kind, attempt: &TransitionAttempt) -> bool {
        opens(kind, attempt)
    }

    fn said(&self, cob: &CobId) -> Option<String> {
        self.remembered.complaint(cob)
    }

    fn forget(&self, cob: &CobId) {
        self.remembered.forget(cob);
    }
}

async fn look<C: Condition>(condition: &Result<C, String>) -> Result<(), String> {
    condition.as_ref().map_err(String::clone)?.look().await
}

/// Repeats the look until it succeeds or the time is over. The error is the last complaint.
async fn poll<C: Condition>(timeout: Duration, condition: &Result<C, String>, said: &Complaint) -> Result<(), String> {
    let limit = tokio::time::Instant::now() + timeout;
    // It yields to other tasks even with an interval of zero.
    let interval = condition.as_ref().map_or(Duration::ZERO, C::interval).max(Duration::from_millis(1));
    let mut last = None;
    loop {
        match tokio::time::timeout_at(limit, look(condition)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(complaint)) => {
                said.say(&complaint);
                last = Some(complaint);
            }
            Err(_) => {
                return Err(last.unwrap_or_else(|| "no answer".to_owned()));
            }
        }
        tokio::time::sleep_until((tokio::time::Instant::now() + interval).min(limit)).await;
        if tokio::time::Instant::now() >= limit {
            return Err(last.unwrap_or_default());
        }
    }
}
