//! The guard of a switch: whether a host still reaches those whom it must reach, judged in time.
//!
//! Pure. Time goes on only while the daemon runs, and comes from its monotonic clock: a wall clock that is set
//! neither confirms nor fires. What is left is on record now and then; a first restart takes up there and costs
//! nothing, each further one costs what may have passed since the record, so that a host which restarts again and
//! again comes to an end too.

use serde::{Deserialize, Serialize};

use crate::time::{Span, Time};

/// The shortest guard: a host must have had the time to hear of others.
pub const LEAST_MS: u64 = 1000;
/// How long after it has converged a host must have heard from others, at most: what its last action has broken
/// shows by then.
const AFTERWARDS: Span = Span::millis(1500);
/// A host that was not heard from for so long is not reached.
const FRESH: Span = Span::secs(7);

/// What is on record of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The time that it gives.
    pub ms: u64,
    /// What is left of it.
    pub left_ms: u64,
    /// Restarts of the daemon since it began.
    pub restarts: u32,
    /// It was given its time once more, for those who are cut off to go back by themselves.
    pub extended: bool,
}

/// A guard in one life of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    guard: Guard,
    /// Nothing heard before counts.
    began: Time,
    /// Since when what is left runs.
    since: Time,
    /// When the host was first seen converged.
    converged: Option<Time>,
}

/// One host that must be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// There is a link.
    pub up: bool,
    /// When something was last heard over it.
    pub at: Time,
}

/// What a look at the guard comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Not decided yet.
    Wait,
    /// To be put on record.
    Note(Guard),
    /// All are reached.
    Confirmed,
    /// So many are not, and the time is up.
    Lost(usize),
}

impl Guard {
    /// One that begins now.
    #[must_use]
    pub fn new(ms: u64) -> Self {
        let ms = ms.max(LEAST_MS);
        Self { ms, left_ms: ms, restarts: 0, extended: false }
    }

    /// The same after a restart of the daemon.
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

    /// The same, when its time is up and hosts are not reached.
    #[must_use]
    pub fn fired(self) -> Self {
        Self { left_ms: 0, ..self }
    }

    /// Its time was up, and hosts were not reached.
    #[must_use]
    pub fn has_fired(self) -> bool {
        self.left_ms == 0
    }

    /// How often it is put on record what is left.
    fn step_ms(self) -> u64 {
        (self.ms / 8).max(250)
    }
}

impl Watch {
    /// Watches from now on.
    #[must_use]
    pub fn new(guard: Guard, now: Time) -> Self {
        Self { guard, began: now, since: now, converged: None }
    }

    /// The guard as it is on record.
    #[must_use]
    pub fn guard(&self) -> Guard {
        self.guard
    }

    /// What is left of the guard.
    #[must_use]
    pub fn left_ms(&self, now: Time) -> u64 {
        self.guard.left_ms.saturating_sub(now.0.saturating_sub(self.since.0) / 1_000_000)
    }

    /// Looks at those that must be reached.
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
            // Most are there: those who are not go back first.
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

    /// Looks every 100 ms until something is decided; tells when, what, and the last note before.
    fn decided(watch: &mut Watch, from: u64, required: impl Fn(u64) -> Vec<Heard>) -> (u64, Judgement, Option<Guard>) {
        let mut noted = None;
        for ms in (from..from + 200_000).step_by(100) {
            match watch.look(&required(ms), ms >= 2000, at(ms)) {
                Judgement::Wait => {}
                Judgement::Note(guard) => noted = Some(guard),
                end @ (Judgement::Confirmed | Judgement::Lost(_)) => return (ms, end, noted),
            }
        }
        panic!("nothing is decided");
    }

    #[test]
    fn it_is_satisfied_by_what_is_heard_after_the_host_has_converged() {
        let mut watch = Watch::new(Guard::new(20_000), at(0));
        assert_eq!(
            decided(&mut watch, 0, |ms| vec![heard(ms); 3]),
            (3500, Judgement::Confirmed, Some(Guard { left_ms: 17_500, ..Guard::new(20_000) }))
        );
        let mut alone = Watch::new(Guard::new(20_000), at(0));
        assert_eq!(decided(&mut alone, 0, |_| vec![]).0, 0);
    }

    #[test]
    fn who_was_heard_before_the_activation_alone_is_not_reached() {
        let mut watch = Watch::new(Guard::new(5000), at(100));
        let (when, end, _) = decided(&mut watch, 100, |_| vec![heard(50)]);
        assert_eq!((when, end), (5100, Judgement::Lost(1)));
    }

    #[test]
    fn what_falls_silent_is_lost_at_the_end_and_not_before() {
        let mut watch = Watch::new(Guard::new(30_000), at(0));
        assert_eq!(decided(&mut watch, 0, |_| vec![heard(2500), LOST]).0, 30_000);
        // Not converged at the end, and all is heard: that is for others to judge.
        let mut watch = Watch::new(Guard::new(1500), at(0));
        assert_eq!(decided(&mut watch, 0, |ms| vec![heard(ms)]).1, Judgement::Confirmed);
    }

    #[test]
    fn whoever_reaches_most_gives_the_others_the_same_time_again() {
        let mut watch = Watch::new(Guard::new(8000), at(0));
        let one_lost = |ms: u64| vec![heard(ms), heard(ms), LOST];
        let (when, end, noted) = decided(&mut watch, 0, one_lost);
        assert_eq!((when, end, noted.map(|g| g.extended)), (16_000, Judgement::Lost(1), Some(true)));
        let mut watch = Watch::new(Guard::new(8000), at(0));
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
        // Whatever the clock said before: time runs from the return on.
        for wall in [0, 1 << 50] {
            let mut watch = Watch::new(guard, Time(wall));
            assert_eq!(watch.look(&[LOST], true, Time(wall)), Judgement::Wait);
            assert_eq!(watch.look(&[LOST], true, Time(wall) + Span::millis(1000)), Judgement::Lost(1));
        }
    }
}
