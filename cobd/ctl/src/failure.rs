//! How a command ends: the exit status, and what is said when it could not do its work.

use std::io;

use cob_depot::DepotError;
use tokio::signal::unix::SignalKind;

use crate::client::AskError;
use crate::screen::Screen;

/// What shells add to the number of a signal that has ended a command.
const SIGNALLED: u8 = 128;
/// The signal of a command that has ended because nobody reads what it prints.
const UNREAD: u8 = 13;

/// How a command that did its work ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done; or the answer is yes.
    Yes,
    /// The answer is no: not converged, refused.
    No,
    /// Somebody who matters to the answer could not be reached.
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

    /// The end of a command of several parts: a host that was not reached counts more than a refusal.
    #[must_use]
    pub fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().max_by_key(|exit| exit.code()).unwrap_or(Exit::Yes)
    }
}

/// Who has to act on a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// A daemon said no, or the answer is no.
    Refused,
    /// The user: an argument, a depot that is none.
    Usage,
    /// The network, a daemon that is not there, a depot that is damaged.
    Environment,
}

/// A command could not do its work.
#[derive(Debug)]
pub struct Failure {
    blame: Blame,
    source: anyhow::Error,
    hints: Vec<String>,
    /// This signal has ended the command, or as good as that: there is not a word to say.
    signal: Option<u8>,
}

impl Failure {
    /// The user has to act.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { blame: Blame::Usage, source: error.into(), hints: Vec::new(), signal: None }
    }

    /// It is not done as things are.
    pub fn refused(error: impl Into<anyhow::Error>) -> Self {
        Self { blame: Blame::Refused, source: error.into(), hints: Vec::new(), signal: None }
    }

    /// The network or a daemon is not as needed.
    pub fn environment(error: impl Into<anyhow::Error>) -> Self {
        Self { blame: Blame::Environment, source: error.into(), hints: Vec::new(), signal: None }
    }

    /// A signal ends the command.
    #[must_use]
    pub fn ended_by(signal: SignalKind) -> Self {
        let number = signal.as_raw_value();
        let signal = u8::try_from(number).ok().filter(|number| *number < SIGNALLED);
        Self { signal, ..Self::environment(anyhow::anyhow!("ended by signal {number}")) }
    }

    /// The same, with something that helps.
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

    /// What went wrong, without the hints.
    #[must_use]
    pub fn in_a_line(&self) -> String {
        self.source.to_string()
    }

    /// What helps.
    #[must_use]
    pub fn hints(&self) -> &[String] {
        &self.hints
    }

    /// The same as JSON: `{"error", "causes", "hints"}`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let causes: Vec<String> = self.source.chain().skip(1).map(ToString::to_string).collect();
        serde_json::json!({"error": self.source.to_string(), "causes": causes, "hints": self.hints})
    }

    /// A signal has ended the command: there is nothing to say.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.signal.is_some()
    }

    /// Says what went wrong, why, and what to do.
    pub fn print(&self, screen: &mut Screen) {
        if self.signal.is_some() {
            return;
        }
        screen.problem("error", &self.source.to_string());
        let mut said = self.source.to_string();
        for cause in self.source.chain().skip(1).map(ToString::to_string) {
            // Some errors tell their cause in their own words.
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

/// What is wrong with a depot that was named is nothing that its user can name better.
impl From<DepotError> for Failure {
    fn from(error: DepotError) -> Self {
        if error.is_mistake() { Self::usage(error) } else { Self::environment(error) }
    }
}

/// Failing to write. A command that has nothing to tell but what it prints ends when nobody reads that any more
/// (`cobctl watch | head`), and says nothing of it.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let signal = (error.kind() == io::ErrorKind::BrokenPipe).then_some(UNREAD);
        let source = anyhow::Error::from(error).context("the output can't be written");
        Self { blame: Blame::Environment, source, hints: Vec::new(), signal }
    }
}
