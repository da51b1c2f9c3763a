//! The tried rules of the contract, and their verdicts.

use serde::Serialize;

/// A rule of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// A daemon accepts the kind and the content.
    Accepted,
    /// A check finds the state and changes nothing, and a second check gives the same answer.
    Check,
    /// A transition ends in its state, as a check shows.
    Move,
    /// A transition made twice ends as if made once.
    Twice,
    /// After the departure, the first check's answer and world are back.
    Undo,
    /// A transition killed at any point and repeated ends as if it had not been killed.
    Killed,
}

/// The verdict on a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    /// The rule held.
    Held,
    /// The rule did not hold.
    Broken {
        /// The observation.
        what: String,
        /// Help for the author of the kind.
        help: String,
    },
    /// The rule could not be tried.
    Untried {
        /// The reason, and how to make the trial possible.
        why: String,
    },
}

/// One trial of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// The rule.
    pub rule: Rule,
    /// The tried state or transition.
    pub about: String,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// All trials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The kind.
    pub kind: String,
    /// Its back end.
    pub backend: String,
    /// The seed for the moments of the kills.
    pub seed: u64,
    /// No rule was broken.
    pub holds: bool,
    /// The trials in their order.
    pub trials: Vec<Trial>,
}

impl Rule {
    /// The rule in a few words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Accepted => "a daemon takes it",
            Self::Check => "a check makes no change",
            Self::Move => "a transition ends in its state",
            Self::Twice => "a repeated transition has the same result",
            Self::Undo => "the reverse transition restores the first state",
            Self::Killed => "a killed transition can be repeated",
        }
    }

    /// The usual remedy.
    pub(super) fn help(self) -> &'static str {
        match self {
            Self::Accepted => "correct the kind or the content as the message says",
            Self::Check => {
                "a check only looks: it writes no file, not even with the same content, prints the state's name as its \
                 last line, and gives the same answer until a change"
            }
            Self::Move => {
                "let the transition fail (exit status other than 0) unless it has reached its state, and let the check \
                 look at the result of the transition"
            }
            Self::Twice => {
                "let the transition look first, or repeat without an effect: `mkdir -p`, `rm -f`, a file that is \
                 replaced instead of extended"
            }
            Self::Undo => {
                "the reverse transition removes all results of the transitions before it; the original content is \
                 saved first (COB_RESULT_OUT) and restored"
            }
            Self::Killed => {
                "write a new file and rename it, remove the leftovers of an earlier attempt, and let the check tell a \
                 half-done state from a complete state"
            }
        }
    }
}

impl Report {
    /// The trials that broke a rule.
    pub fn broken(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|t| matches!(t.verdict, Verdict::Broken { .. }))
    }

    /// Adds a trial.
    pub(super) fn add(&mut self, rule: Rule, about: impl Into<String>, verdict: Verdict) {
        self.holds &= !matches!(verdict, Verdict::Broken { .. });
        self.trials.push(Trial { rule, about: about.into(), verdict });
    }

    /// Adds a trial that held, or the observation of a broken rule.
    pub(super) fn judge(&mut self, rule: Rule, about: impl Into<String>, seen: Result<(), String>) {
        let broken = |what| Verdict::Broken { what, help: rule.help().to_owned() };
        self.add(rule, about, seen.map_or_else(broken, |()| Verdict::Held));
    }
}
