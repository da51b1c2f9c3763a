//! How a command ends: the exit status, and what is said when it could not do its work.

use std::io;

use cob_depot::DepotError;

use crate::client::AskError;
use crate::screen::Screen;

/// The exit status of a command that has ended because nobody reads what it prints: as if the signal had ended it.
const UNREAD: u8 = 128 + 13;

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
    /// Nobody reads any more: end without a word.
    quiet: bool,
}

impl Failure {
    /// The user has to act.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { blame: Blame::Usage, source: error.into(), hints: Vec::new(), quiet: false }
    }

    /// It is not done as things are.
    pub fn refused(error: impl Into<anyhow::Error>) -> Self {
        Self { blame: Blame::Refused, source: error.into(), hints: Vec::new(), quiet: false }
    }

    /// The network or a daemon is not as needed.
    pub fn environment(error: impl Into<anyhow::Error>) -> Self {
        Self { blame: Blame::Environment, source: error.into(), hints: Vec::new(), quiet: false }
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
        match self.blame {
            _ if self.quiet => UNREAD,
            Blame::Refused => 1,
            Blame::Usage => 2,
            Blame::Environment => 3,
        }
    }

    /// What went wrong, without the hints.
    #[must_use]
    pub fn in_a_line(&self) -> String {
        self.source.to_string()
    }

    /// Says what went wrong, why, and what to do.
    pub fn print(&self, screen: &mut Screen) {
        if self.quiet {
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
        Self { blame, source: error.into(), hints: Vec::new(), quiet: false }.hint(hint)
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
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        let source = anyhow::Error::from(error).context("the output can't be written");
        Self { blame: Blame::Environment, source, hints: Vec::new(), quiet }
    }
}
