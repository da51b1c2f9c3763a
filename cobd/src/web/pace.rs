//! How often those who watch are told that something has changed.
//!
//! Each of them asks for the status then, and with ten thousand change objects a status takes the loop
//! longer than a move does. So the more a status costs the more rarely they are told, unless it is what
//! they wait for: that the host has converged, or is under another generation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cob_types::GenerationNumber;
use tokio::sync::watch;

/// The least time between two events for one watcher, but for what is waited for: nobody reads faster, and a busy
/// daemon is not asked for its status at every turn of its loop.
const EVENT_EVERY: Duration = Duration::from_millis(250);
/// The least time between any two.
const AT_LEAST: Duration = Duration::from_millis(10);
/// The longest.
const LONGEST: Duration = Duration::from_secs(4);
/// So many times as long as the loop has needed for the last status. Putting it into text takes twice as long again.
const TIMES: u32 = 60;

/// Where the host stands, as far as somebody waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stands {
    pub(crate) converged: bool,
    pub(crate) generation: GenerationNumber,
    pub(crate) going_to: Option<GenerationNumber>,
    pub(crate) paused: bool,
}

/// What a status costs, and where the host stands.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// In microseconds.
    cost: AtomicU64,
    stands: watch::Sender<Stands>,
}

impl Pace {
    /// The loop has needed so long for a status.
    pub(crate) fn status_took(&self, took: Duration) {
        self.cost.store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The host stands here now.
    pub(crate) fn stands(&self, now: Stands) {
        self.stands.send_if_modified(|stands| std::mem::replace(stands, now) != now);
    }

    /// For [`Self::wait`].
    pub(super) fn watch(&self) -> watch::Receiver<Stands> {
        self.stands.subscribe()
    }

    fn gap(&self) -> Duration {
        let cost = Duration::from_micros(self.cost.load(Ordering::Relaxed));
        cost.saturating_mul(TIMES).clamp(EVENT_EVERY, LONGEST)
    }

    /// Waits until the next event may be told.
    pub(super) async fn wait(&self, stands: &mut watch::Receiver<Stands>) {
        tokio::time::sleep(AT_LEAST).await;
        tokio::select! {
            // Without a sender the daemon ends, which shows elsewhere.
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
    fn what_costs_more_is_told_more_rarely() {
        let pace = Pace::default();
        assert_eq!(pace.gap(), EVENT_EVERY);
        pace.status_took(Duration::from_millis(10));
        assert_eq!(pace.gap(), Duration::from_millis(600));
        pace.status_took(Duration::from_secs(3600));
        assert_eq!(pace.gap(), LONGEST);
    }

    #[tokio::test]
    async fn what_is_waited_for_is_told_at_once() {
        let pace = Pace::default();
        pace.status_took(Duration::from_secs(1));
        let mut stands = pace.watch();
        let began = Instant::now();
        pace.wait(&mut stands).await;
        assert!(began.elapsed() >= LONGEST - Duration::from_millis(5));
        // On a machine that stands still for a moment one try proves nothing.
        let mut at_once = false;
        for turn in 1..=10 {
            pace.stands(Stands { generation: GenerationNumber(turn), ..Stands::default() });
            let began = Instant::now();
            pace.wait(&mut stands).await;
            at_once |= began.elapsed() < LONGEST / 2;
        }
        assert!(at_once);
        // The same again is nothing new.
        pace.stands(Stands { generation: GenerationNumber(10), ..Stands::default() });
        assert!(!stands.has_changed().expect("a sender"));
    }
}
