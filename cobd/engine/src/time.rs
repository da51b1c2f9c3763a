//! Time as the engine sees it: an argument, never a clock.

use std::ops::Add;

use serde::{Deserialize, Serialize};

/// Nanoseconds since 1970-01-01 UTC. The caller must never let it run backwards. The daemon adds a monotonic clock to
/// the wall time of its start, so a jump of the system clock has no effect here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A span of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub u64);

impl Time {
    /// A time after all events.
    pub const NEVER: Time = Time(u64::MAX);
}

impl Span {
    /// A span of `n` milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// A span of `n` seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Self {
        Self::millis(n.saturating_mul(1000))
    }

    /// The span doubled `times` times, at most `cap`.
    #[must_use]
    pub fn doubled(self, times: u32, cap: Span) -> Self {
        Self(self.0.saturating_mul(1u64.checked_shl(times).unwrap_or(u64::MAX))).min(cap)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}
