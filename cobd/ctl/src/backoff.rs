//! Pauses between attempts to reach a daemon.

use std::time::Duration;

/// The pause after the first failed attempt.
const FIRST: Duration = Duration::from_millis(400);
/// The longest pause: a host that comes back is noticed within this time.
const LONGEST: Duration = Duration::from_secs(5);

/// Pauses between attempts to reach a daemon; each is twice the previous pause, up to [`LONGEST`].
///
/// Hosts may be away for long, and many hosts at a time: attempts at a constant high rate would only fill logs and
/// connection tables.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Backoff {
    /// The pause after another failed attempt.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        pause
    }

    /// Resets the pause after an answer of the daemon.
    pub(crate) fn answered(&mut self) {
        self.0 = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_again_after_an_answer() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..7).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [400, 800, 1600, 3200, 5000, 5000, 5000]);
        backoff.answered();
        assert_eq!(backoff.pause(), FIRST);
    }
}
