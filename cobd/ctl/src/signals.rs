//! Signals that end the program where it has changed the terminal: it puts that back first.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that end a program from outside: somebody's `kill`, and a terminal that goes away. From when this is made
/// on, they end nothing by themselves.
pub(crate) struct Ends {
    terminate: Signal,
    hangup: Signal,
}

impl Ends {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, hangup: signal(SignalKind::hangup())? })
    }

    /// Waits for one of them: the failure that ends the command as the signal would have.
    pub(crate) async fn next(&mut self) -> Failure {
        let kind = tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        Failure::ended_by(kind)
    }
}
