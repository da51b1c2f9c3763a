//! The log of a job, for people, and the order to stop.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Stdio;

use tokio::sync::watch;

/// The log of a job: lines of the job itself, and the standard error of the programs that it runs.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// Opens the log, to append to it.
    ///
    /// # Errors
    ///
    /// The file can't be made or written.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    /// Appends a line. A full disk loses lines of the log, and never stops a job.
    pub fn line(&self, text: &str) {
        let _ = (&self.0).write_all(format!("{text}\n").as_bytes());
    }

    /// The log as the standard error of a program.
    pub(crate) fn stdio(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }
}

/// Whether the job was told to stop.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// A stop, and the sender that gives the order.
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Waits for the order; for ever, if nobody can give it any more.
    pub(crate) async fn told(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|told| *told).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether the order was given.
    pub(crate) fn is_told(&self) -> bool {
        *self.0.borrow()
    }
}
