//! The connectivity guard of a switch: whether a host reaches the required hosts in time.
//!
//! Pure. Its time runs only while the daemon runs, and comes from the monotonic clock: a change of the wall clock
//! neither confirms nor fires it. The remaining time is recorded from time to time; the first restart continues there
//! at no cost, and each further restart costs the time that may have passed since the record, so that even a host that
//! restarts again and again comes to an end.

use serde::{Deserialize, Serialize};

use crate::time::{Span, Time};

/// The shortest guard: a host needs time to receive messages of others.
pub const LEAST_MS: u64 = 1000;
/// The longest time after convergence at which the host must have received messages from others: damage by its last
/// action shows by then.
const AFTERWARDS: Span = Span::millis(1500);
/// A host without a message for this time is not reached.
const FRESH: Span = Span::secs(7);

/// The recorded data of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Its total time.
    pub ms: u64,
    /// Its remaining time.
    pub left_ms: u64,
    /// Restarts of the daemon since it began.
    pub restarts: u32,
    /// It was extended once by its total time, so that cut-off hosts roll back by themselves.
    pub extended: bool,
}

/// A guard in an incarnation of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardTimer {
    guard: Guard,
    /// Earlier messages do not count.
    began: Time,
    /// The start of the remaining time.
    since: Time,
    /// When the host was first seen converged.
    converged: Option<Time>,
}

/// The last contact of a required host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// There is a link.
    pub up: bool,
    /// When the last message arrived over it.
    pub at: Time,
}

/// The result of a look at the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Not decided yet.
    Wait,
    /// To be recorded.
    Note(Guard),
    /// All hosts are reached.
    Confirmed,
    /// The number of unreached hosts at the end of the time.
    Lost(usize),
}

impl Guard {
    /// A guard that begins now.
    #[must_use]
    pub fn new(ms: u64) -> Self {
        let ms = ms.max(LEAST_MS);
        Self { ms, left_ms: ms, restarts: 0, extended: false }
    }

    /// The guard after a restart of the daemon.
    #[must_use]
    pub fn restarted(self) -> Self {
        if self.has_fired() {
            return self;
        }
        let cost = if self.restarts == 0 { 0 } else { self.step_ms() };
        // Links need a moment to come up.
        let left_ms = self.left_ms.saturating_sub(cost).max(LEAST_MS.min(self.ms));
        Self { left_ms, restarts: self.restarts.saturating_add(1), ..self }
    }

    /// The guard after its time has run out with unreached hosts.
    #[must_use]
    pub fn fired(self) -> Self {
        Self { left_ms: 0, ..self }
    }

    /// Its time ran out with unreached hosts.
    #[must_use]
    pub fn has_fired(self) -> bool {
        self.left_ms == 0
    }

    /// The interval at which the remaining time is recorded.
    fn step_ms(self) -> u64 {
        (self.ms / 8).max(250)
    }
}

impl GuardTimer {
    /// Watches from now on.
    #[must_use]
    pub fn new(guard: Guard, now: Time) -> Self {
        Self { guard, began: now, since: now, converged: None }
    }

    /// The recorded guard.
    #[must_use]
    pub fn guard(&self) -> Guard {
        self.guard
    }

    /// The remaining time of the guard.
    #[must_use]
    pub fn left_ms(&self, now: Time) -> u64 {
        self.guard.left_ms.saturating_sub(now.0.saturating_sub(self.since.0) / 1_000_000)
    }

    /// Judges the contacts of the required hosts.
    pub fn look(&mut self, required: &[Heard], converged: bool, now: Time) -> Judgement {
        if converged {
            self.converged.get_or_insert(now);
        } else {
            self.converged = None;
        }
        let since_activation = |h: &Heard| h.up && h.at >= self.began && now.0.saturating_sub(h.at.0) <= FRESH.0;
        let missing = required.iter().filter(|h| !since_activation(h)).count();
        let margin = AFTERWARDS.min(Span::millis(self.guard.ms / 4));
        let afterwards = |at: Time| now >= at + margin && required.iter().all(|h| h.at >= at + margin);
        if missing == 0 && (required.is_empty() || self.converged.is_some_and(afterwards)) {
            return Judgement::Confirmed;
        }
        let left_ms = self.left_ms(now);
        if left_ms > 0 {
            let due = self.guard.left_ms - left_ms >= self.guard.step_ms();
            return if due { self.note(Guard { left_ms, ..self.guard }, now) } else { Judgement::Wait };
        }
        match missing {
            0 => Judgement::Confirmed,
            // Most hosts are reached: the cut-off hosts roll back first.
            n if 2 * n < required.len() && !self.guard.extended => {
                let again = Guard { left_ms: self.guard.ms, extended: true, ..self.guard };
                self.note(again, now)
            }
            n => Judgement::Lost(n),
        }
    }

    fn note(&mut self, guard: Guard, now: Time) -> Judgement {
        self.guard = guard;
        self.since = now;
        Judgement::Note(guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    fn heard(ms: u64) -> Heard {
        Heard { up: true, at: at(ms) }
    }

    const LOST: Heard = Heard { up: false, at: Time(0) };

    /// Looks every 100 ms until a decision; returns its time, the decision, and the last note before.
    fn decided(
        watch: &mut GuardTimer,
        from: u64,
        required: impl Fn(u64) -> Vec<Heard>,
    ) -> (u64, Judgement, Option<Guard>) {
        let mut noted = None;
        for ms in (from..from + 200_000).step_by(100) {
            match watch.look(&required(ms), ms >= 2000, at(ms)) {
                Judgement::Wait => {}
                Judgement::Note(guard) => noted = Some(guard),
                end @ (Judgement::Confirmed | Judgement::Lost(_)) => return (ms, end, noted),
            }
        }
        panic!("the guard has not decided");
    }

    #[test]
    fn the_guard_confirms_when_peers_are_heard_after_convergence() {
        let mut watch = GuardTimer::new(Guard::new(20_000), at(0));
        assert_eq!(
            decided(&mut watch, 0, |ms| vec![heard(ms); 3]),
            (3500, Judgement::Confirmed, Some(Guard { left_ms: 17_500, ..Guard::new(20_000) }))
        );
        let mut alone = GuardTimer::new(Guard::new(20_000), at(0));
        assert_eq!(decided(&mut alone, 0, |_| vec![]).0, 0);
    }

    #[test]
    fn a_peer_heard_only_before_the_activation_counts_as_lost() {
        let mut watch = GuardTimer::new(Guard::new(5000), at(100));
        let (when, end, _) = decided(&mut watch, 100, |_| vec![heard(50)]);
        assert_eq!((when, end), (5100, Judgement::Lost(1)));
    }

    #[test]
    fn a_silent_peer_counts_as_lost_only_at_the_end() {
        let mut watch = GuardTimer::new(Guard::new(30_000), at(0));
        assert_eq!(decided(&mut watch, 0, |_| vec![heard(2500), LOST]).0, 30_000);
        // Not converged at the end, but all hosts are reached: other rules judge the failure.
        let mut watch = GuardTimer::new(Guard::new(1500), at(0));
        assert_eq!(decided(&mut watch, 0, |ms| vec![heard(ms)]).1, Judgement::Confirmed);
    }

    #[test]
    fn a_host_that_reaches_most_peers_extends_the_guard_once() {
        let mut watch = GuardTimer::new(Guard::new(8000), at(0));
        let one_lost = |ms: u64| vec![heard(ms), heard(ms), LOST];
        let (when, end, noted) = decided(&mut watch, 0, one_lost);
        assert_eq!((when, end, noted.map(|g| g.extended)), (16_000, Judgement::Lost(1), Some(true)));
        let mut watch = GuardTimer::new(Guard::new(8000), at(0));
        let back = |ms: u64| if ms < 12_000 { one_lost(ms) } else { vec![heard(ms); 3] };
        assert_eq!(decided(&mut watch, 0, back).1, Judgement::Confirmed);
    }

    #[test]
    fn restarts_neither_confirm_nor_keep_it_open_for_ever() {
        let mut guard = Guard { left_ms: 6000, ..Guard::new(8000) };
        guard = guard.restarted();
        assert_eq!(guard.left_ms, 6000, "the first takes up where it was");
        for _ in 0..5 {
            guard = guard.restarted();
        }
        assert_eq!(guard.left_ms, 1000, "links have a moment to come up");
        // Independent of the earlier clock: time runs from the restart on.
        for wall in [0, 1 << 50] {
            let mut watch = GuardTimer::new(guard, Time(wall));
            assert_eq!(watch.look(&[LOST], true, Time(wall)), Judgement::Wait);
            assert_eq!(watch.look(&[LOST], true, Time(wall) + Span::millis(1000)), Judgement::Lost(1));
        }
    }
}
