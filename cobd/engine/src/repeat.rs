//! When an unanswered message is repeated: after a second, then at intervals that double up to a minute.

use crate::time::{Span, Time};

const FIRST: Span = Span::secs(1);
const LONGEST: Span = Span::secs(60);

/// The schedule of the repeats of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repeat {
    at: Time,
    times: u32,
}

impl Default for Repeat {
    fn default() -> Self {
        Self { at: Time::NEVER, times: 0 }
    }
}

impl Repeat {
    /// The time of the next repeat; never: no repeat is scheduled.
    pub(crate) fn at(self) -> Time {
        self.at
    }

    pub(crate) fn is_scheduled(self) -> bool {
        self.at != Time::NEVER
    }

    /// The number of repeats.
    pub(crate) fn times(self) -> u32 {
        self.times
    }

    /// Schedules the next repeat, unless a repeat is scheduled; returns its time if it is new.
    pub(crate) fn schedule(&mut self, now: Time) -> Option<Time> {
        if self.is_scheduled() {
            return None;
        }
        self.at = now + FIRST.doubled(self.times.min(16), LONGEST);
        Some(self.at)
    }

    /// The scheduled time has come: counts the repeat.
    pub(crate) fn count(&mut self) {
        *self = Self { at: Time::NEVER, times: self.times.saturating_add(1) };
    }

    /// An answer came: the intervals start anew after the scheduled time.
    pub(crate) fn restart(&mut self) {
        self.times = 0;
    }

    /// No repeat is due any more; a later schedule continues the intervals.
    pub(crate) fn stop(&mut self) {
        self.at = Time::NEVER;
    }
}
