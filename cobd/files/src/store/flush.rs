//! What waits in the log is put into the repository: together, and when nothing else is to be done.
//!
//! A thread of the store sees to it, once nothing was recorded for a moment, or something has waited for long. Whoever asks
//! for what was, and a log that has grown, do not wait for it.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::{Shared, lock};

/// After so long without a record.
const QUIET: Duration = Duration::from_millis(500);
/// So long one waits at most.
const AT_LAST: Duration = Duration::from_secs(10);
/// When it has failed, it is tried again after this.
const AGAIN: Duration = Duration::from_secs(30);

/// Wakes the thread.
#[derive(Default)]
pub(super) struct Bell {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    /// When it is due, and when it was first rung since the last time; none: nothing waits.
    due: Option<(Instant, Instant)>,
    closed: bool,
}

impl Bell {
    /// Something waits.
    pub(super) fn ring(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let first = state.due.map(|(_, first)| first);
        state.due = Some(((now + QUIET).min(first.unwrap_or(now) + AT_LAST), first.unwrap_or(now)));
        if first.is_none() {
            self.rung.notify_all();
        }
    }

    /// Nothing was recorded since it was last due.
    pub(super) fn is_silent(&self) -> bool {
        lock(&self.state).due.is_none()
    }

    /// There is no store any more.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.rung.notify_all();
    }

    /// Waits until it is due; false: the end.
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

/// Begins the thread of a store.
pub(super) fn begin(shared: &Arc<Shared>) -> std::io::Result<()> {
    let (bell, shared): (_, Weak<Shared>) = (shared.bell.clone(), Arc::downgrade(shared));
    let serve = move || {
        while bell.wait() {
            let Some(shared) = shared.upgrade() else { return };
            if shared.tidy().is_err() {
                // Who records next, or asks for what was, is told why.
                bell.again();
            }
        }
    };
    std::thread::Builder::new().name("files-store".to_owned()).spawn(serve).map(drop)
}
