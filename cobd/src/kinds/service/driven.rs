//! A service that looks after itself: whether it runs is asked of its `status`, and it is stopped by its `stop`.

use std::thread;
use std::time::{Duration, Instant};

use cob_types::Command;

use super::commands::{ATTEMPT, Commands, Status};

/// Between two looks at a service that starts or stops, and between two attempts of `ready`.
pub(super) const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Such a service, until a limit.
pub(super) struct Driven<'a> {
    pub(super) commands: &'a Commands,
    pub(super) status: &'a Command,
    pub(super) limit: Instant,
}

impl Driven<'_> {
    /// Whether it runs.
    ///
    /// # Errors
    /// `status` did not say so until the limit.
    pub(super) fn runs(&self) -> Result<bool, String> {
        self.ask_until(|_| true)
    }

    /// Stops it, and sees that it has stopped.
    ///
    /// # Errors
    /// In words; it may still run.
    pub(super) fn stop(&self, stop: Option<&Command>) -> Result<(), String> {
        let stop = stop.ok_or("it has no `stop`")?;
        self.commands
            .run_until(stop, self.limit.min(Instant::now() + ATTEMPT), &[])
            .map_err(|why| format!("stop: {why}"))?;
        if self.ask_until(|runs| !runs)? {
            return Err("`stop` succeeded, but `status` says that it still runs".to_owned());
        }
        Ok(())
    }

    /// Asks until the answer is enough; returns the last one. Who does not answer is asked again.
    pub(super) fn ask_until(&self, enough: impl Fn(bool) -> bool) -> Result<bool, String> {
        let mut last = None;
        wait_until(self.limit, || {
            let answer = match self.commands.ask(self.status, self.limit) {
                Status::Runs => Ok(true),
                Status::Stopped => Ok(false),
                Status::Unknown(why) => Err(format!("status: {why}")),
            };
            // What the limit has cut short tells less than the attempt before it.
            if last.is_none() || answer.is_ok() || Instant::now() < self.limit {
                last = Some(answer);
            }
            matches!(last, Some(Ok(runs)) if enough(runs)).then_some(())
        });
        last.expect("it is asked at least once")
    }
}

/// Looks again and again, ever more slowly, and at least once.
pub(super) fn wait_until<T>(limit: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut pause = LOOK.0;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LOOK.1);
    }
}
