//! What goes on after a change object has left its host: putting back what it found when it came.
//!
//! A departure is tried until it succeeds. It ends with the change object's return: whatever a task of it still does then
//! happens under the lock of the change object's folder and counts for nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cob_types::CobId;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// After so many failed attempts a departure has failed. It is tried on all the same.
pub const ATTEMPTS: u32 = 3;
/// Before the second attempt; doubles with each further one.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_CAP: Duration = Duration::from_secs(60);

/// Puts back once; the error says what is not back.
pub(super) type Attempt = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send>;

/// How far a departure is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Attempts that have failed.
    pub failures: u32,
    /// An attempt runs.
    pub runs: bool,
    /// What is not back, by the last attempt.
    pub error: String,
    /// All is back.
    pub done: bool,
}

impl Progress {
    /// It has failed: an operator is told, and a switch does not converge.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failures >= ATTEMPTS
    }
}

/// What goes on for a change object that has left. Dropped, no further attempt begins.
#[derive(Debug)]
pub struct Departure {
    cob: CobId,
    progress: watch::Receiver<Progress>,
    again: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Departure {
    /// Begins; `changed` hears of every step.
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
                    info!(cob = %name, "what was there before it is back");
                } else if failures == ATTEMPTS {
                    warn!(cob = %name, error, "what was there before it is not back; it is tried on");
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

    /// Who has left.
    #[must_use]
    pub fn cob(&self) -> &CobId {
        &self.cob
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// Tries again at once.
    pub fn retry(&self) {
        self.again.notify_one();
    }

    /// Waits until all is back, or it has failed.
    pub async fn settled(&mut self) -> Progress {
        let settled = self.progress.wait_for(|progress| progress.done || progress.has_failed()).await;
        if let Ok(progress) = settled.map(|progress| progress.clone()) {
            return progress;
        }
        // Its task has panicked: nothing is back.
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
    async fn it_is_tried_until_it_succeeds() {
        let answers =
            Answers::new(Mutex::new(vec![Ok(()), Err("in use"), Err("in use"), Err("in use"), Err("in use")]));
        let mut departure = begin(&answers, Duration::from_millis(1));
        let failed = departure.settled().await;
        assert!(failed.has_failed() && failed.error == "in use", "{failed:?}");
        departure.progress.wait_for(|progress| progress.done).await.expect("it goes on");
        assert!(answers.lock().expect("not poisoned").is_empty());
    }

    #[tokio::test]
    async fn an_operator_need_not_wait_and_a_return_ends_it() {
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
        assert_eq!(answers.lock().expect("not poisoned").len(), 1, "nothing is done for it any more");
    }
}
