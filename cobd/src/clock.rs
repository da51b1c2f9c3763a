//! The daemon's only clock: the wall time of its start plus a monotonic clock.
//!
//! The engine uses this time. A wall clock that jumps or is set back moves no deadline, and times in the history never
//! run backwards within an incarnation of the daemon.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cob_engine::Time;

/// A clock that is less ahead at its start is not reported.
const FAR_AHEAD: Duration = Duration::from_mins(1);

/// A clock that only goes forward.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
    began_ns: u64,
    ahead: Duration,
}

impl Clock {
    /// Starts now; not before `not_before`, the last recorded time.
    #[must_use]
    pub fn start(not_before: Time) -> Self {
        let wall = wall_ns();
        let began_ns = wall.max(not_before.0);
        Self { began: Instant::now(), began_ns, ahead: Duration::from_nanos(began_ns - wall) }
    }

    /// The seconds that the clock was ahead of the wall clock at its start, because recorded times were: an earlier
    /// incarnation had a wrong wall clock. Zero: less than a minute.
    #[must_use]
    pub fn ahead_s(&self) -> u64 {
        if self.ahead >= FAR_AHEAD { self.ahead.as_secs() } else { 0 }
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> Time {
        let since = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time(self.began_ns.saturating_add(since))
    }

    /// The time of an instant of the monotonic clock.
    #[must_use]
    pub fn at(&self, moment: Instant) -> Time {
        let since = u64::try_from(moment.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        Time(self.began_ns.saturating_add(since))
    }

    /// The time by this clock of an event that the wall clock has stamped with `wall_ns`.
    #[must_use]
    pub fn of_wall(&self, wall_ns: u64) -> Time {
        Time(self.now().0.saturating_sub(self::wall_ns().saturating_sub(wall_ns)))
    }

    /// The time left until `at`.
    #[must_use]
    pub fn until(&self, at: Time) -> Duration {
        Duration::from_nanos(at.0.saturating_sub(self.now().0))
    }
}

/// The machine's clock in seconds since 1970-01-01 UTC: it may be set, forward and back.
#[must_use]
pub fn wall_s() -> u64 {
    wall_ns() / 1_000_000_000
}

/// The same in nanoseconds.
#[must_use]
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_time_is_converted_to_the_time_of_this_clock() {
        let ahead = Duration::from_hours(2).as_nanos() as u64;
        let clock = Clock::start(Time(wall_ns() + ahead));
        let (before, stamped, after) = (clock.now(), wall_ns(), clock.now());
        let found = clock.of_wall(stamped).0;
        let second = Duration::from_secs(1).as_nanos() as u64;
        assert!(found + second > before.0 && found < after.0 + second, "{found} is not about {before:?}");
        assert!(clock.of_wall(stamped + ahead) <= clock.now(), "the wall clock was put back since: it is heard of now");
    }
}
