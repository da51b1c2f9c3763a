//! Flushes the log: moves its records into the repository, many at a time, when the store is idle.
//!
//! A thread of the store does this when no record has arrived for a moment, or a record has waited for long. A query of
//! the history, and a log that is too large, flush at once.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::{Shared, lock};

/// The time without a record before a flush.
const QUIET: Duration = Duration::from_millis(500);
/// The longest time that a record waits.
const AT_LAST: Duration = Duration::from_secs(10);
/// The delay after a failed flush.
const AGAIN: Duration = Duration::from_secs(30);

/// Wakes the thread.
#[derive(Default)]
pub(super) struct Bell {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    /// The time of the next flush, and the time of the first ring since the last flush; `None`: no record waits.
    due: Option<(Instant, Instant)>,
    closed: bool,
}

impl Bell {
    /// Announces a waiting record.
    pub(super) fn ring(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let first = state.due.map(|(_, first)| first);
        state.due = Some(((now + QUIET).min(first.unwrap_or(now) + AT_LAST), first.unwrap_or(now)));
        if first.is_none() {
            self.rung.notify_all();
        }
    }

    /// Whether no record has arrived since the last flush.
    pub(super) fn is_silent(&self) -> bool {
        lock(&self.state).due.is_none()
    }

    /// The store is dropped.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.rung.notify_all();
    }

    /// Waits for the next flush; `false`: the store is dropped.
    fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return false;
            }
            state = match state.due {
                None => self.rung.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some((due, _)) => {
                    let left = due.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        state.due = None;
                        return true;
                    }
                    self.rung.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn again(&self) {
        let at = Instant::now() + AGAIN;
        lock(&self.state).due.get_or_insert((at, at));
    }
}

/// Starts the thread of a store.
pub(super) fn begin(shared: &Arc<Shared>) -> std::io::Result<()> {
    let (bell, shared): (_, Weak<Shared>) = (shared.bell.clone(), Arc::downgrade(shared));
    let serve = move || {
        while bell.wait() {
            let Some(shared) = shared.upgrade() else { return };
            if shared.tidy().is_err() {
                // The next record or query of the history reports the error.
                bell.again();
            }
        }
    };
    std::thread::Builder::new().name("files-store".to_owned()).spawn(serve).map(drop)
}
