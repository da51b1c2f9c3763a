//! How a command ends: its exit status, and the error message if it failed.

use std::error::Error;
use std::io;

use cob_depot::DepotError;
use tokio::signal::unix::SignalKind;

use crate::client::AskError;
use crate::gather::is_refusal;
use crate::screen::Screen;

/// The number that shells add to the signal that ended a command.
const SIGNALLED: u8 = 128;
/// The signal (SIGPIPE) of a command whose output has no reader any more.
const UNREAD: u8 = 13;

/// The result of a command that did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done; or the answer is yes.
    Yes,
    /// The answer is no: not converged, refused.
    No,
    /// A host that the answer needs could not be reached.
    Unreached,
}

impl Exit {
    /// The exit status.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Exit::Yes => 0,
            Exit::No => 1,
            Exit::Unreached => 3,
        }
    }

    /// The result of a command that needs this answer of a daemon.
    #[must_use]
    pub fn of<T>(answer: &Result<T, AskError>) -> Self {
        match answer {
            Ok(_) => Exit::Yes,
            Err(error) if is_refusal(error) => Exit::No,
            Err(_) => Exit::Unreached,
        }
    }

    /// The result of a command with several parts: an unreachable host outranks a refusal.
    #[must_use]
    pub fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().max_by_key(|exit| exit.code()).unwrap_or(Exit::Yes)
    }
}

/// The responsible side of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// A daemon refused, or the answer is no.
    Refused,
    /// The user: a wrong argument, or an invalid depot.
    Usage,
    /// The environment: the network, a missing daemon, a damaged depot.
    Environment,
}

/// An error, or its text.
type Source = Box<dyn Error + Send + Sync>;

/// How a command ends.
pub type CommandResult = Result<Exit, Failure>;

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    blame: Blame,
    source: Source,
    hints: Vec<String>,
    /// The signal that ended the command, or counts as its end: the command then prints no error.
    signal: Option<u8>,
}

impl Failure {
    /// A failure on which the user has to act.
    pub fn usage(error: impl Into<Source>) -> Self {
        Self { blame: Blame::Usage, source: error.into(), hints: Vec::new(), signal: None }
    }

    /// A failure because the request is refused in the present situation.
    pub fn refused(error: impl Into<Source>) -> Self {
        Self { blame: Blame::Refused, source: error.into(), hints: Vec::new(), signal: None }
    }

    /// A failure of the network or of a daemon.
    pub fn environment(error: impl Into<Source>) -> Self {
        Self { blame: Blame::Environment, source: error.into(), hints: Vec::new(), signal: None }
    }

    /// The failure of a command that a signal ends.
    #[must_use]
    pub fn ended_by(signal: SignalKind) -> Self {
        let number = signal.as_raw_value();
        let signal = u8::try_from(number).ok().filter(|number| *number < SIGNALLED);
        Self { signal, ..Self::environment(format!("ended by signal {number}")) }
    }

    /// The same failure with another hint; an empty hint is ignored.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        if !hint.is_empty() {
            self.hints.push(hint);
        }
        self
    }

    /// The exit status.
    #[must_use]
    pub fn code(&self) -> u8 {
        match (self.signal, self.blame) {
            (Some(signal), _) => SIGNALLED + signal,
            (None, Blame::Refused) => 1,
            (None, Blame::Usage) => 2,
            (None, Blame::Environment) => 3,
        }
    }

    /// The error without the hints.
    #[must_use]
    pub fn in_a_line(&self) -> String {
        self.source.to_string()
    }

    /// The hints.
    #[must_use]
    pub fn hints(&self) -> &[String] {
        &self.hints
    }

    /// The failure as JSON: `{"error", "causes", "hints"}`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let causes: Vec<String> = self.causes().collect();
        serde_json::json!({"error": self.source.to_string(), "causes": causes, "hints": self.hints})
    }

    /// The causes of the error, the nearest first.
    fn causes(&self) -> impl Iterator<Item = String> {
        anyhow::Chain::new(&*self.source).skip(1).map(ToString::to_string)
    }

    /// Whether a signal has ended the command, so that no message is printed.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.signal.is_some()
    }

    /// Prints the error, its causes and the hints.
    pub fn print(&self, screen: &mut Screen) {
        if self.signal.is_some() {
            return;
        }
        screen.problem("error", &self.source.to_string());
        let mut said = self.source.to_string();
        for cause in self.causes() {
            // Some errors contain the text of their cause.
            if !said.contains(&cause) {
                screen.problem("caused by", &cause);
            }
            said = cause;
        }
        for hint in &self.hints {
            screen.problem("hint", hint);
        }
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let hint = error.hint();
        let blame = match &error {
            AskError::Refused { .. } | AskError::KeyRefused { .. } => Blame::Refused,
            AskError::Connect { .. }
            | AskError::OtherKey { .. }
            | AskError::Late { .. }
            | AskError::Broken { .. }
            | AskError::TooLong { .. }
            | AskError::NotUnderstood { .. } => Blame::Environment,
        };
        Self { blame, source: error.into(), hints: Vec::new(), signal: None }.hint(hint)
    }
}

/// An unreadable or damaged depot is an error of the environment: the user can't correct it with another argument.
impl From<DepotError> for Failure {
    fn from(error: DepotError) -> Self {
        if error.is_mistake() { Self::usage(error) } else { Self::environment(error) }
    }
}

/// A write error. A command ends without a message when the reader of its output closes the pipe (`cobctl watch |
/// head`).
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let signal = (error.kind() == io::ErrorKind::BrokenPipe).then_some(UNREAD);
        Self { signal, ..Self::environment(anyhow::Error::from(error).context("the output can't be written")) }
    }
}
