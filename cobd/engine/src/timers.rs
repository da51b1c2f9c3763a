//! The deadlines of an engine, in a heap: no event costs a scan of all change objects.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::names::HostRef;
use crate::time::Time;

/// The subject of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The change object of a slot.
    Object(u32),
    /// Our hello to a host.
    Hello(HostRef),
    /// Our question about departures to a host.
    Question(HostRef),
    /// The messages of departed change objects.
    Departed,
}

/// The deadlines. A timer that is no longer valid fires without an effect.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Time, Timer)>>);

impl Timers {
    pub(crate) fn set(&mut self, at: Time, timer: Timer) {
        self.0.push(Reverse((at, timer)));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and returns the first due timer.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(Time, Timer)> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(due)| due)
    }
}
