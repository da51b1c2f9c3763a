//! The attempts of a command that waits for a service, `ready` or `status`: when the next one is due, and what the last one said.

use std::io::Write as _;
use std::time::{Duration, Instant};

/// Between two attempts: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The attempts that were made.
#[derive(Debug)]
pub(super) struct Attempts {
    /// By the key of the content.
    command: &'static str,
    made: u32,
    due: Instant,
    pause: Duration,
    /// What the last one that failed said.
    complaint: String,
}

impl Attempts {
    pub(super) fn of(command: &'static str) -> Self {
        Self { command, made: 0, due: Instant::now(), pause: PAUSE.0, complaint: String::new() }
    }

    /// It is time for the next one.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// One has failed. It is shown at once, to people who look at what the action prints while it waits.
    pub(super) fn failed(&mut self, why: String) {
        self.made = self.made.saturating_add(1);
        self.due = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE.1);
        let _ = writeln!(std::io::stderr(), "`{}`, attempt {}: {why}", self.command, self.made);
        self.complaint = why;
    }

    /// What they said, to be put behind a reason; empty where none was made.
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
