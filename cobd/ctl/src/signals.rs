//! Signals that end the program or a wait: the program restores the terminal, or reports what continues without it.

use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

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

/// Ctrl-C. Once this value exists, Ctrl-C does not end the program by itself, and a press between two waits counts in
/// the next wait.
#[derive(Debug, Clone)]
pub struct Interrupts(watch::Receiver<u32>);

impl Interrupts {
    /// Waits for Ctrl-C from now on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (press, pressed) = watch::channel(0_u32);
        tokio::spawn(async move {
            while interrupt.recv().await.is_some() {
                press.send_modify(|count| *count = count.saturating_add(1));
            }
        });
        Ok(Self(pressed))
    }

    /// Returns once Ctrl-C has been pressed, now or since this value exists.
    pub async fn pressed(&self) {
        self.reached(1).await;
    }

    /// Returns once Ctrl-C has been pressed twice, with the failure that ends the command as the signal would have: a
    /// first press lets the command finish its work, which may wait for a host that hangs.
    pub async fn insisted(&self) -> Failure {
        self.reached(2).await;
        Failure::ended_by(SignalKind::interrupt())
    }

    async fn reached(&self, presses: u32) {
        let mut pressed = self.0.clone();
        if pressed.wait_for(|count| *count >= presses).await.is_err() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press() {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).expect("sent");
    }

    #[tokio::test]
    async fn a_press_between_two_waits_counts_in_the_next_wait_and_a_second_press_insists() {
        let interrupts = Interrupts::open().expect("opened");
        {
            let mut waits = std::pin::pin!(interrupts.pressed());
            assert!(std::future::poll_fn(|c| std::task::Poll::Ready(waits.as_mut().poll(c).is_pending())).await);
        }
        press();
        interrupts.clone().pressed().await;
        interrupts.pressed().await;
        {
            let mut insists = std::pin::pin!(interrupts.insisted());
            assert!(std::future::poll_fn(|c| std::task::Poll::Ready(insists.as_mut().poll(c).is_pending())).await);
        }
        press();
        assert_eq!(interrupts.insisted().await.code(), 130);
    }
}
