//! The attempts of `ready` or `status` of a starting service: the time of the next attempt, and the last error.

use std::io::Write as _;
use std::time::{Duration, Instant};

/// The first and the longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The attempts so far.
#[derive(Debug)]
pub(super) struct Attempts {
    /// Its key in the content.
    command: &'static str,
    made: u32,
    due: Instant,
    pause: Duration,
    /// The error of the last failed attempt.
    complaint: String,
}

impl Attempts {
    pub(super) fn of(command: &'static str) -> Self {
        Self { command, made: 0, due: Instant::now(), pause: PAUSE.0, complaint: String::new() }
    }

    /// Whether it is time for the next attempt.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Records a failed attempt, and prints it at once for users who watch the action's output.
    pub(super) fn failed(&mut self, why: String) {
        self.made = self.made.saturating_add(1);
        self.due = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE.1);
        let _ = writeln!(std::io::stderr(), "`{}`, attempt {}: {why}", self.command, self.made);
        self.complaint = why;
    }

    /// The number of attempts and the last error, to append to a reason; empty without attempts.
    pub(super) fn words(&self) -> String {
        if self.made == 0 {
            return String::new();
        }
        let times = cob_types::words::count(self.made, "attempt");
        format!("; `{}` said after {times}: {}", self.command, self.complaint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_made_ever_more_slowly_up_to_a_bound() {
        let mut attempts = Attempts::of("ready");
        assert!(attempts.is_due() && attempts.words().is_empty());
        let mut pauses = Vec::new();
        for _ in 0..10 {
            attempts.failed("exit status 1".to_owned());
            pauses.push(attempts.pause);
        }
        assert!(!attempts.is_due() && pauses.is_sorted() && pauses.ends_with(&[PAUSE.1, PAUSE.1]), "{pauses:?}");
        assert_eq!(attempts.words(), "; `ready` said after 10 attempts: exit status 1");
    }
}
