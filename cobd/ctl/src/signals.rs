//! Signals that end the program after it has changed the terminal: the program restores the terminal first.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that end a program from outside: `kill`, and a terminal that closes. Once this value exists, they do not
/// end the program by themselves.
#[derive(Debug)]
pub struct Ends {
    terminate: Signal,
    hangup: Signal,
}

impl Ends {
    /// Waits for these signals from now on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, hangup: signal(SignalKind::hangup())? })
    }

    /// Waits for a signal and returns the failure that ends the command as the signal would have.
    pub async fn next(&mut self) -> Failure {
        let kind = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        Failure::ended_by(kind)
    }
}
