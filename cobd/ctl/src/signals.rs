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

/// Ctrl-C. Once this value exists, a first Ctrl-C does not end the program by itself, and a press between two waits
/// counts in the next wait. A second Ctrl-C ends the program at once: it may be waiting for a host that hangs.
#[derive(Debug, Clone)]
pub struct Interrupts(watch::Receiver<bool>);

impl Interrupts {
    /// Waits for Ctrl-C from now on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (press, pressed) = watch::channel(false);
        tokio::spawn(async move {
            if interrupt.recv().await.is_some() {
                press.send_replace(true);
            }
            if interrupt.recv().await.is_some() {
                #[expect(clippy::disallowed_methods, reason = "the command may never return to main")]
                std::process::exit(i32::from(Failure::ended_by(SignalKind::interrupt()).code()));
            }
        });
        Ok(Self(pressed))
    }

    /// Returns once Ctrl-C has been pressed, now or since this value exists.
    pub async fn pressed(&self) {
        let mut pressed = self.0.clone();
        if pressed.wait_for(|is_pressed| *is_pressed).await.is_err() {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, Signal as Number, kill_process};

    use super::*;

    const CHILD: &str = "COB_TEST_INTERRUPTS";

    #[tokio::test]
    async fn a_press_between_two_waits_counts_in_the_next_wait() {
        let interrupts = Interrupts::open().expect("opened");
        {
            let mut waits = std::pin::pin!(interrupts.pressed());
            assert!(std::future::poll_fn(|c| std::task::Poll::Ready(waits.as_mut().poll(c).is_pending())).await);
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).expect("sent");
        interrupts.clone().pressed().await;
        interrupts.pressed().await;
    }

    #[tokio::test]
    async fn as_child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let interrupts = Interrupts::open().expect("opened");
        println!("\nopened");
        interrupts.pressed().await;
        println!("\npressed");
        pending::<()>().await;
    }

    #[test]
    fn a_second_press_ends_a_program_that_does_not_end_by_itself() {
        let mut command = Command::new(std::env::current_exe().expect("known"));
        command.args(["--exact", "signals::tests::as_child", "--nocapture"]).env(CHILD, "1").stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let press = |child: &Child| {
            let pid = Pid::from_child(child);
            kill_process(pid, Number::INT).expect("sent");
        };
        assert!(lines.any(|line| line == "opened"));
        press(&child);
        assert!(lines.any(|line| line == "pressed"));
        press(&child);
        assert_eq!(child.wait().expect("ended").code(), Some(130));
    }
}
