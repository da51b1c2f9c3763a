//! Gates: in-process kinds that others can depend on, and what they remember.
//!
//! A gate is on (in its kind's preferred state) when something outside is as it should be. It can't
//! make that so, only wait for it. The memory of where a change object was moved to lives as long as
//! the daemon; after a return it is empty, and a check tells what there is to see.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::{CobId, Kind, StateName};

use super::backend::{CheckOutcome, Context, Hop, Outcome, Work};

/// The states that change objects were moved to, by id, and what is wrong for those that wait. A clone is another handle
/// to the same memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Remembered(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    states: BTreeMap<CobId, StateName>,
    complaints: BTreeMap<CobId, String>,
}

/// The last complaint of a gate that waits: nobody sees it any more when the wait has ended.
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
    /// The state that it was moved to, if its kind still has it.
    pub(super) fn state(&self, cob: &CobId, kind: &Kind) -> Option<StateName> {
        self.get().states.get(cob).filter(|s| kind.has_state(s)).cloned()
    }

    pub(super) fn set(&self, cob: CobId, state: StateName) {
        self.get().states.insert(cob, state);
    }

    pub(super) fn forget(&self, cob: &CobId) {
        self.get().states.remove(cob);
    }

    /// Why it waits still, if it does.
    pub(super) fn complaint(&self, cob: &CobId) -> Option<String> {
        self.get().complaints.get(cob).cloned()
    }

    fn get(&self) -> std::sync::MutexGuard<'_, Memory> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a move is the one that a gate waits for.
pub(super) fn opens(kind: &Kind, hop: &Hop) -> bool {
    hop.to == kind.preferred
}

/// A gate's check: off when it was moved off, else what one look says.
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

/// A gate's move: on when a look says so, within the transition's time; any other just happens.
pub(super) fn transition<F, L>(
    remembered: &Remembered,
    context: &Context,
    hop: &Hop,
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

/// Looks again and again until it succeeds or the time is over; then the last complaint is the error.
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
        // Also with an interval of zero, other tasks get their turn.
        tokio::time::sleep_until((tokio::time::Instant::now() + interval.max(Duration::from_millis(1))).min(limit))
            .await;
        if tokio::time::Instant::now() >= limit {
            return Err(last.unwrap_or_default());
        }
    }
}
