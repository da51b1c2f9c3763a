//! When a daemon that could not be reached is tried again.

use std::time::Duration;

/// After the first try in vain.
const FIRST: Duration = Duration::from_millis(400);
/// After many: a host that comes back is noticed no later than this.
const LONGEST: Duration = Duration::from_secs(5);

/// Pauses between tries at one daemon, each twice the one before, up to [`LONGEST`].
///
/// Hosts may be away for long, and there may be many of them: to try each as often as one that is about
/// to answer would only fill logs and tables of connections on the way there.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Backoff {
    /// The pause after one more try in vain.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        pause
    }

    /// It has answered: the next pause is the first one again.
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
