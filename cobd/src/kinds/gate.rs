//! Gates: kinds inside the daemon on which other kinds can depend, and their memory.
//!
//! A gate is on (in its kind's preferred state) while an outside condition holds, for which it can only wait. The state
//! that a transition reached is remembered until the daemon ends; after a restart a check looks at the condition.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::{CobId, Kind, StateName};

use super::backend::{CheckOutcome, Context, Outcome, TransitionAttempt, Work};

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
pub(super) fn opens(kind: &Kind, hop: &TransitionAttempt) -> bool {
    hop.to == kind.preferred
}

/// Checks a gate: off if a transition switched it off, otherwise the result of one look.
pub(super) fn check<L>(remembered: &Remembered, context: &Context, look: L) -> Work<CheckOutcome>
where
    L: Future<Output = Result<(), String>> + Send + 'static,
{
    let (on, off) = (context.kind.preferred.clone(), context.kind.pre_remove.clone());
    match remembered.state(&context.cob.id, &context.kind) {
        Some(state) if state != on => return Work::known(CheckOutcome::found(state)),
        Some(_) | None => {}
    }
    let future = async move {
        match look.await {
            Ok(()) => CheckOutcome::found(on),
            Err(difference) => CheckOutcome { difference, ..CheckOutcome::found(off) },
        }
    };
    Work::Inside { future: Box::pin(future), timeout: Some(context.check_timeout()) }
}

/// Carries out a gate's transition: it opens after a successful look within the timeout; other transitions succeed at
/// once.
pub(super) fn transition<F, L>(
    remembered: &Remembered,
    context: &Context,
    hop: &TransitionAttempt,
    interval: Duration,
    look: F,
) -> Work<Outcome>
where
    F: FnMut() -> L + Send + 'static,
    L: Future<Output = Result<(), String>> + Send + 'static,
{
    let timeout = context.transition(hop).map_or(Duration::ZERO, |t| Duration::from_millis(t.timeout_ms));
    let (remembered, cob, to) = (remembered.clone(), context.cob.id.clone(), hop.to.clone());
    let waits = opens(&context.kind, hop);
    let future = async move {
        let complaint = Complaint { remembered: remembered.clone(), cob: cob.clone() };
        if waits && let Err(last) = poll(timeout, interval, &complaint, look).await {
            return Outcome::failed(format!("not so after {timeout:?}: {last}"));
        }
        remembered.set(cob, to);
        Outcome::done()
    };
    Work::Inside { future: Box::pin(future), timeout: None }
}

/// Repeats the look until it succeeds or the time is over. The error is the last complaint.
async fn poll<F, L>(timeout: Duration, interval: Duration, said: &Complaint, mut look: F) -> Result<(), String>
where
    F: FnMut() -> L,
    L: Future<Output = Result<(), String>>,
{
    let limit = tokio::time::Instant::now() + timeout;
    let mut last = None;
    loop {
        match tokio::time::timeout_at(limit, look()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(complaint)) => {
                said.say(&complaint);
                last = Some(complaint);
            }
            Err(_) => {
                return Err(last.unwrap_or_else(|| "no answer".to_owned()));
            }
        }
        // Yields to other tasks even with an interval of zero.
        tokio::time::sleep_until((tokio::time::Instant::now() + interval.max(Duration::from_millis(1))).min(limit))
            .await;
        if tokio::time::Instant::now() >= limit {
            return Err(last.unwrap_or_default());
        }
    }
}
