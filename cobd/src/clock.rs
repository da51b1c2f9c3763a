//! The daemon's only clock: the wall time of its start plus a monotonic clock.
//!
//! The engine is given this time. A wall clock that is set back or jumps moves no deadline, and times
//! in the history never run backwards within one life of the daemon.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cob_engine::Time;

/// A clock that was ahead by less when it was started is not told of.
const FAR_AHEAD: Duration = Duration::from_mins(1);

/// A clock that only goes forward.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
    began_ns: u64,
    ahead: Duration,
}

impl Clock {
    /// Starts now; not before `not_before`, the last time on record.
    #[must_use]
    pub fn start(not_before: Time) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let began_ns = wall.max(not_before.0);
        Self { began: Instant::now(), began_ns, ahead: Duration::from_nanos(began_ns - wall) }
    }

    /// By how many seconds it was ahead of the wall clock when it was started, as times on record were: an earlier life had
    /// begun with a wall clock that was wrong. Zero: by less than a minute.
    #[must_use]
    pub fn ahead_s(&self) -> u64 {
        if self.ahead >= FAR_AHEAD { self.ahead.as_secs() } else { 0 }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        let since = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time(self.began_ns.saturating_add(since))
    }

    /// The time of a moment of the monotonic clock.
    #[must_use]
    pub fn at(&self, moment: Instant) -> Time {
        let since = u64::try_from(moment.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        Time(self.began_ns.saturating_add(since))
    }

    /// How long until `at`.
    #[must_use]
    pub fn until(&self, at: Time) -> Duration {
        Duration::from_nanos(at.0.saturating_sub(self.now().0))
    }
}
