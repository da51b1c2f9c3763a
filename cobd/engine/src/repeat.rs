//! The delays before an unanswered message to another host is repeated, and a limit on the messages in a span.
//!
//! The first delay is a second; each further delay is twice as long, up to a minute. A change object has one schedule
//! for all its messages: `object/timers.rs` repeats these. `engine/peers.rs` repeats the hello, `engine/absent.rs` the
//! messages of departed change objects, and `engine/departures.rs` the questions about departures.

use crate::time::{Span, Time};

/// The delay before the first repeat.
const FIRST: Span = Span::secs(1);
/// The longest delay.
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

/// The messages since the start of a window of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Window {
    since: Time,
    sent: usize,
}

impl Window {
    /// Whether another message may be sent, if at most `most` may be sent in each span; if so, it is counted.
    pub(crate) fn take(&mut self, most: usize, span: Span, now: Time) -> bool {
        if self.since + span <= now {
            *self = Self { since: now, sent: 0 };
        }
        let free = self.sent < most;
        self.sent += usize::from(free);
        free
    }
}
