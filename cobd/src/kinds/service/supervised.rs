//! Supervised services (`Kept`), which run below a supervisor, and how to end them.

use std::fs;
use std::time::{Duration, Instant};

use cob_types::Command;

use super::commands::{ATTEMPT, Commands};
use super::external::{LOOK, wait_until};
use super::folder::{Look, STOP, STOPPING, ServiceFolder};

/// A supervised service.
pub(super) struct Kept<'a> {
    pub(super) folder: &'a ServiceFolder,
    pub(super) commands: &'a Commands,
    pub(super) grace: Duration,
}

impl Kept<'_> {
    /// Ends all its processes.
    pub(super) fn end(&self, limit: Instant) -> Result<(), String> {
        match self.folder.look() {
            Look::Running { .. } => self.stop(limit)?,
            Look::Unsupervised => self.folder.end_unsupervised(self.grace),
            Look::Stopped | Look::Ended(_) | Look::Killed => {}
        }
        Ok(())
    }

    /// Stops the running service: by its own command if there is one, then by the supervisor.
    pub(super) fn stop(&self, limit: Instant) -> Result<(), String> {
        if let Some(command) = self.folder.plan().and_then(|p| p.stop) {
            fs::write(self.folder.file(STOPPING), "").map_err(|e| format!("announcing its end: {e}"))?;
            let asked = self.run_on_it(&command, limit.min(Instant::now() + self.grace.max(ATTEMPT)));
            let patience = if asked.is_ok() { self.grace } else { Duration::ZERO };
            wait_until(limit.min(Instant::now() + patience), || (!self.folder.is_running()).then_some(()));
        }
        if self.folder.is_running() {
            fs::write(self.folder.file(STOP), "").map_err(|e| format!("asking its supervisor to end it: {e}"))?;
        }
        let gone = wait_until(limit.max(Instant::now() + LOOK.1), || (!self.folder.is_running()).then_some(()));
        gone.ok_or_else(|| "it does not end".to_owned())
    }

    /// Runs a command that needs the process id of the service.
    pub(super) fn run_on_it(&self, command: &Command, limit: Instant) -> Result<(), String> {
        let main = self.folder.main_pid().map(|pid| ("COB_MAIN_PID".to_owned(), pid.to_string()));
        self.commands.run_until(command, limit, &main.into_iter().collect::<Vec<_>>())
    }
}
