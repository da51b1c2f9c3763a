//! The rate at which watchers receive events.
//!
//! A watcher asks for the status after an event, and with ten thousand change objects the loop needs more time for a
//! status than for a transition. So the interval grows with the cost of a status, except for the events that watchers
//! wait for: the host has converged, or is under another generation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cob_types::GenerationNumber;
use tokio::sync::watch;

/// The shortest interval between two events for a watcher, except for awaited events: nobody reads faster, and a busy
/// daemon does not compute its status in every tick.
const EVENT_EVERY: Duration = Duration::from_millis(250);
/// The shortest interval between any two events.
const AT_LEAST: Duration = Duration::from_millis(10);
/// The longest interval.
const LONGEST: Duration = Duration::from_secs(4);
/// The interval as a multiple of the loop's time for the last status. The serialization takes twice that time again.
const TIMES: u32 = 60;

/// The part of the status that watchers wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WatchedStatus {
    pub(crate) converged: bool,
    pub(crate) generation: GenerationNumber,
    pub(crate) going_to: Option<GenerationNumber>,
    pub(crate) paused: bool,
}

/// The cost of a status, and the awaited part of it.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// In microseconds.
    cost: AtomicU64,
    stands: watch::Sender<WatchedStatus>,
}

impl Pace {
    /// Records the time that the loop needed for a status.
    pub(crate) fn status_took(&self, took: Duration) {
        self.cost.store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Reports the awaited part of the status.
    pub(crate) fn stands(&self, now: WatchedStatus) {
        self.stands.send_if_modified(|stands| std::mem::replace(stands, now) != now);
    }

    /// The subscription for [`Self::wait`].
    pub(super) fn watch(&self) -> watch::Receiver<WatchedStatus> {
        self.stands.subscribe()
    }

    fn gap(&self) -> Duration {
        let cost = Duration::from_micros(self.cost.load(Ordering::Relaxed));
        cost.saturating_mul(TIMES).clamp(EVENT_EVERY, LONGEST)
    }

    /// Waits until the next event may be sent.
    pub(super) async fn wait(&self, stands: &mut watch::Receiver<WatchedStatus>) {
        tokio::time::sleep(AT_LEAST).await;
        tokio::select! {
            // A dropped sender means that the daemon ends; the caller notices that elsewhere.
            _ = stands.changed() => {}
            () = tokio::time::sleep(self.gap() - AT_LEAST) => {}
        }
        stands.mark_unchanged();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_costly_status_is_sent_less_often() {
        let pace = Pace::default();
        assert_eq!(pace.gap(), EVENT_EVERY);
        pace.status_took(Duration::from_millis(10));
        assert_eq!(pace.gap(), Duration::from_millis(600));
        pace.status_took(Duration::from_secs(3600));
        assert_eq!(pace.gap(), LONGEST);
    }

    #[tokio::test]
    async fn a_watched_change_is_sent_at_once() {
        let pace = Pace::default();
        pace.status_took(Duration::from_secs(1));
        let mut stands = pace.watch();
        let began = Instant::now();
        pace.wait(&mut stands).await;
        assert!(began.elapsed() >= LONGEST - Duration::from_millis(5));
        // A machine may stall for a moment: several attempts are allowed.
        let mut at_once = false;
        for turn in 1..=10 {
            pace.stands(WatchedStatus { generation: GenerationNumber(turn), ..WatchedStatus::default() });
            let began = Instant::now();
            pace.wait(&mut stands).await;
            at_once |= began.elapsed() < LONGEST / 2;
        }
        assert!(at_once);
        // A repetition is no change.
        pace.stands(WatchedStatus { generation: GenerationNumber(10), ..WatchedStatus::default() });
        assert!(!stands.has_changed().expect("a sender"));
    }
}
