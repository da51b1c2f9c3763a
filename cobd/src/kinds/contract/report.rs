//! What was tried of the contract, and what came of it.

use serde::Serialize;

/// A rule of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The daemon would take the kind and the content.
    Accepted,
    /// A check tells the state, changes nothing, and says the same twice.
    Check,
    /// A move ends in its state, by check.
    Move,
    /// A move made twice ends as if made once.
    Twice,
    /// The way back gives the first check's answer and world again.
    Undo,
    /// A move killed at any point and made again ends as if it had not been killed.
    Killed,
}

/// What came of trying a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    /// It held.
    Held,
    /// It did not.
    Broken {
        /// What was seen.
        what: String,
        /// What the author of the kind can do.
        help: String,
    },
    /// It could not be tried.
    Untried {
        /// Why, and what would let it be tried.
        why: String,
    },
}

/// One rule tried on one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// The rule.
    pub rule: Rule,
    /// What it was tried on: a state, or a move.
    pub about: String,
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// All that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The kind.
    pub kind: String,
    /// Its back end.
    pub backend: String,
    /// What the moments of the kills were drawn from.
    pub seed: u64,
    /// Nothing was broken.
    pub holds: bool,
    /// In the order in which they were tried.
    pub trials: Vec<Trial>,
}

impl Rule {
    /// The rule in a few words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Accepted => "a daemon takes it",
            Self::Check => "a check changes nothing",
            Self::Move => "a move ends in its state",
            Self::Twice => "made twice is as made once",
            Self::Undo => "the way back leaves nothing",
            Self::Killed => "killed and made again ends the same",
        }
    }

    /// What usually helps.
    pub(super) fn help(self) -> &'static str {
        match self {
            Self::Accepted => "correct the kind or the content as the message says",
            Self::Check => {
                "a check only looks: it writes no file, not even with the same content, prints the state's name as its \
                 last line, and gives the same answer as long as nothing changes"
            }
            Self::Move => {
                "let the move fail (exit status other than 0) unless it has arrived, and let the check look at what the \
                 move makes"
            }
            Self::Twice => {
                "let the move look first, or write so that writing again changes nothing: `mkdir -p`, `rm -f`, a file \
                 that is replaced instead of added to"
            }
            Self::Undo => {
                "the move back takes away all that the moves there have made; what was there before is saved first \
                 (COB_RESULT_OUT) and put back"
            }
            Self::Killed => {
                "write beside the place and rename, take away what an earlier attempt has left, and let the check tell \
                 a half-done state from a whole one"
            }
        }
    }
}

impl Report {
    /// What was broken.
    pub fn broken(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|t| matches!(t.verdict, Verdict::Broken { .. }))
    }

    /// Adds a trial.
    pub(super) fn add(&mut self, rule: Rule, about: impl Into<String>, verdict: Verdict) {
        self.holds &= !matches!(verdict, Verdict::Broken { .. });
        self.trials.push(Trial { rule, about: about.into(), verdict });
    }

    /// Adds a trial that held, or what was seen instead.
    pub(super) fn judge(&mut self, rule: Rule, about: impl Into<String>, seen: Result<(), String>) {
        let broken = |what| Verdict::Broken { what, help: rule.help().to_owned() };
        self.add(rule, about, seen.map_or_else(broken, |()| Verdict::Held));
    }
}
