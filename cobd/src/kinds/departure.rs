//! Restores the original state of the host after the departure of a change object.
//!
//! A departure repeats its attempts until it succeeds. It ends when the change object comes back into the model: later
//! actions of its task happen under the lock of the change object's folder and their result is ignored.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cob_types::CobId;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// After so many failed attempts a departure counts as failed. The attempts continue.
pub const ATTEMPTS: u32 = 3;
/// The pause before the second attempt; it doubles with each further attempt.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_CAP: Duration = Duration::from_secs(60);

/// One attempt; the error says which part is not restored.
pub(super) type Attempt = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send>;

/// The progress of a departure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of failed attempts.
    pub failures: u32,
    /// An attempt runs now.
    pub runs: bool,
    /// The last attempt's error: the part that is not restored.
    pub error: String,
    /// The original state is restored.
    pub done: bool,
}

impl Progress {
    /// Whether it counts as failed: the operator sees it, and a switch does not converge.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failures >= ATTEMPTS
    }
}

/// The task that restores the original state for a departed change object. After drop, no further attempt starts.
#[derive(Debug)]
pub struct Departure {
    cob: CobId,
    progress: watch::Receiver<Progress>,
    again: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Departure {
    /// Starts the task, which notifies `changed` of every step.
    pub(super) fn begin(cob: CobId, attempt: Attempt, changed: Arc<Notify>) -> Self {
        Self::begin_with(cob, attempt, changed, PAUSE)
    }

    fn begin_with(cob: CobId, attempt: Attempt, changed: Arc<Notify>, first: Duration) -> Self {
        let (sender, progress) = watch::channel(Progress { runs: true, ..Progress::default() });
        let again = Arc::new(Notify::new());
        let (name, wake) = (cob.clone(), Arc::clone(&again));
        let task = tokio::spawn(async move {
            loop {
                let ended = attempt().await;
                let failures = sender.borrow().failures + u32::from(ended.is_err());
                let done = ended.is_ok();
                let error = ended.err().unwrap_or_default();
                if done {
                    info!(cob = %name, "the original state is restored");
                } else if failures == ATTEMPTS {
                    warn!(cob = %name, error, "the original state is not restored yet; the restore is tried again");
                }
                sender.send_replace(Progress { failures, runs: false, error, done });
                changed.notify_one();
                if done {
                    return;
                }
                let pause = first.saturating_mul(1 << (failures - 1).min(6)).min(PAUSE_CAP);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = wake.notified() => {}
                }
                sender.send_modify(|progress| progress.runs = true);
                changed.notify_one();
            }
        });
        Self { cob, progress, again, task }
    }

    /// The departed change object.
    #[must_use]
    pub fn cob(&self) -> &CobId {
        &self.cob
    }

    /// The present progress.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Starts the next attempt at once.
    pub fn retry(&self) {
        self.again.notify_one();
    }

    /// Waits until the departure succeeds or counts as failed.
    pub async fn settled(&mut self) -> Progress {
        let settled = self.progress.wait_for(|progress| progress.done || progress.has_failed()).await;
        if let Ok(progress) = settled.map(|progress| progress.clone()) {
            return progress;
        }
        // The task has panicked, so the original state is not restored.
        Progress { failures: ATTEMPTS, error: "it failed in an unexpected way".to_owned(), ..self.progress() }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    type Answers = Arc<Mutex<Vec<Result<(), &'static str>>>>;

    fn begin(answers: &Answers, pause: Duration) -> Departure {
        let answers = Arc::clone(answers);
        let attempt = move || {
            let answer = answers.lock().expect("not poisoned").pop().expect("not once too often");
            Box::pin(std::future::ready(answer.map_err(str::to_owned))) as Pin<Box<dyn Future<Output = _> + Send>>
        };
        let cob = CobId::new("n1/a").expect("an id");
        Departure::begin_with(cob, Box::new(attempt), Arc::new(Notify::new()), pause)
    }

    #[tokio::test]
    async fn a_departure_is_tried_until_it_succeeds() {
        let answers =
            Answers::new(Mutex::new(vec![Ok(()), Err("in use"), Err("in use"), Err("in use"), Err("in use")]));
        let mut departure = begin(&answers, Duration::from_millis(1));
        let failed = departure.settled().await;
        assert!(failed.has_failed() && failed.error == "in use", "{failed:?}");
        departure.progress.wait_for(|progress| progress.done).await.expect("it goes on");
        assert!(answers.lock().expect("not poisoned").is_empty());
    }

    #[tokio::test]
    async fn an_operator_can_retry_a_departure_and_a_return_ends_it() {
        let answers = Answers::new(Mutex::new(vec![Ok(()), Err("in use"), Err("in use")]));
        let mut departure = begin(&answers, Duration::from_secs(3600));
        for failures in 1..3 {
            departure.progress.wait_for(|progress| progress.failures == failures).await.expect("it goes on");
            if failures == 1 {
                departure.retry();
            }
        }
        drop(departure);
        while Arc::strong_count(&answers) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(answers.lock().expect("not poisoned").len(), 1, "no attempt follows");
    }
}
