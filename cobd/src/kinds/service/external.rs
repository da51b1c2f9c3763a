//! External services (`Driven`): `status` says whether the service runs, and `stop` stops it.

use std::thread;
use std::time::{Duration, Instant};

use cob_types::Command;

use super::commands::{ATTEMPT, Commands, Status};

/// The first and the longest pause between looks at a starting or stopping service, and between attempts of `ready`.
pub(super) const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// An external service, with a time limit.
pub(super) struct Driven<'a> {
    pub(super) commands: &'a Commands,
    pub(super) status: &'a Command,
    pub(super) limit: Instant,
}

impl Driven<'_> {
    /// Whether the service runs.
    ///
    /// # Errors
    /// `status` gave no answer within the limit.
    pub(super) fn runs(&self) -> Result<bool, String> {
        self.ask_until(|_| true)
    }

    /// Stops the service and checks that it has stopped.
    ///
    /// # Errors
    /// The reason as text; the service may still run.
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

    /// Repeats `status` until the answer is enough, and returns the last answer. A failed `status` is repeated.
    pub(super) fn ask_until(&self, enough: impl Fn(bool) -> bool) -> Result<bool, String> {
        let mut last = None;
        wait_until(self.limit, || {
            let answer = match self.commands.ask(self.status, self.limit) {
                Status::Runs => Ok(true),
                Status::Stopped => Ok(false),
                Status::Unknown(why) => Err(format!("status: {why}")),
            };
            // A command that the limit cut short says less than the attempt before it.
            if last.is_none() || answer.is_ok() || Instant::now() < self.limit {
                last = Some(answer);
            }
            matches!(last, Some(Ok(runs)) if enough(runs)).then_some(())
        });
        last.expect("it is asked at least once")
    }
}

/// Repeats a look with growing pauses, at least once.
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
