//! What the check has to say, in the user's words.

use std::collections::BTreeMap;
use std::fmt;

use crate::diagnostic::{self, Diagnostic};
use crate::draft::Place;
use crate::provenance::at;

/// The most findings of one code that are told one by one.
const MOST_OF_A_CODE: usize = 50;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The generation is refused.
    Error,
    /// It can be published; a person should look.
    Warning,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub severity: Severity,
    /// What sort of finding: `P1` to `P4`, `name`, `structure`, `rank`, `expects`, `address`,
    /// `unreachable-state`, `redundant-need`.
    pub code: &'static str,
    /// What is wrong, in one sentence.
    pub message: String,
    /// Where, when it is one place; the steps have their own.
    pub place: Option<Place>,
    /// The arrows of the circle, or the chain of needs, that it consists of.
    pub steps: Vec<Step>,
    /// What to do.
    pub help: String,
}

/// One arrow, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `a/app, which prefers up, needs b/db up to go down -> up`.
    pub text: String,
    /// The words that the arrow came from, as the user wrote them.
    pub words: Option<String>,
    /// Where they stand.
    pub place: Option<Place>,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match (&self.words, &self.place) {
            (Some(words), Some(place)) => write!(f, " ({words}, {})", at(place)),
            (Some(words), None) => write!(f, " ({words})"),
            (None, Some(place)) => write!(f, " ({})", at(place)),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity, self.code, self.message)?;
        if let Some(place) = &self.place {
            write!(f, "\n  at {}", at(place))?;
        }
        for step in &self.steps {
            write!(f, "\n  - {step}")?;
        }
        if !self.help.is_empty() {
            write!(f, "\n  help: {}", self.help)?;
        }
        Ok(())
    }
}

impl From<Finding> for Diagnostic {
    /// Steps become notes, each with its place.
    fn from(finding: Finding) -> Self {
        let Finding { severity, code, message, place, steps, help } = finding;
        let severity = match severity {
            Severity::Error => diagnostic::Severity::Error,
            Severity::Warning => diagnostic::Severity::Warning,
        };
        let notes = steps.into_iter().map(|step| (step.place, step.text)).collect();
        let help = (!help.is_empty()).then_some(help);
        Self { severity, code, message, place, notes, help }
    }
}

/// Findings as they come in, with a bound on how many of one sort are told.
#[derive(Default)]
pub(super) struct Findings {
    told: Vec<Finding>,
    counts: BTreeMap<(Severity, &'static str), usize>,
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        let count = self.counts.entry((finding.severity, finding.code)).or_default();
        *count += 1;
        if *count <= MOST_OF_A_CODE {
            self.told.push(finding);
        }
    }

    /// All of them, errors first; what went beyond the bound is counted.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        for ((severity, code), count) in self.counts {
            if let Some(more) = count.checked_sub(MOST_OF_A_CODE).filter(|more| *more > 0) {
                self.told.push(Finding {
                    severity,
                    code,
                    message: format!("and {more} more like these"),
                    place: None,
                    steps: Vec::new(),
                    help: String::new(),
                });
            }
        }
        self.told.sort_by_key(|finding| finding.severity);
        self.told
    }
}
